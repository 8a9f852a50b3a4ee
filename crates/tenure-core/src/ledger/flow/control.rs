//! Owns changing the course of a run that goes on: end, pause, resume, skip, reset, remove.

use crate::change::{Change, RecordKind};
use crate::command::Command;
use crate::event::EventKind;
use crate::flow::FlowStatus;
use crate::flow::command::{Control, FlowRefusal, RemoveArchived, Steer};
use crate::id::{FlowId, TaskId};
use crate::ledger::deadlines::Due;
use crate::ledger::flow::end::FlowEnds;
use crate::ledger::flow::start::flow_event;
use crate::ledger::{Ledger, Turn};
use crate::task::{Json, Status, Task, empty_object};

impl Command for Control {
    type Reply = Result<(), FlowRefusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let id = self.id;
        if ledger.flows.get(id).is_none() {
            let was_there = ledger.was_granted(id.token());
            return Err(if was_there { FlowRefusal::Archived(id) } else { FlowRefusal::Unknown(id) });
        }
        match self.what {
            Steer::Terminate { reason, as_failure } => {
                let reason = reason.unwrap_or_else(|| "terminated by a request".into());
                ledger.end_flow(turn, id, FlowEnds { was_wanted: !as_failure, ..FlowEnds::stopped(reason) });
            }
            Steer::Pause => ledger.pause(turn, id),
            Steer::Resume => return ledger.resume(turn, id),
            Steer::Skip { reference, input, output } => return ledger.skip(turn, id, &reference, input, output),
            Steer::ResetCallbacks => ledger.reset_callbacks(turn, id),
            Steer::Remove => {
                ledger.end_flow(turn, id, FlowEnds::stopped("removed by a request"));
                ledger.flows.over.retain(|over| *over != id);
                let key = ledger.take_out(turn, id).and_then(|taken| taken.flow.key);
                if let Some(key) = key {
                    ledger.flows.keys.remove(&key, id);
                }
            }
        }
        Ok(())
    }
}

impl Command for RemoveArchived {
    type Reply = ();

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) {
        if ledger.flows.get(self.0).is_none() {
            ledger.flows.keys.forget(self.0, &mut turn.changes);
            turn.changes.push(Change::Delete(RecordKind::Archive, self.0.into()));
        }
    }
}

impl Ledger {
    fn pause(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.status == FlowStatus::Running) else { return };
        flow.status = FlowStatus::Paused;
        let event = flow_event(EventKind::FlowPaused, turn, flow);
        self.emit(turn, event);
        self.touch_flow(id);
    }

    fn resume(&mut self, turn: &mut Turn<'_>, id: FlowId) -> Result<(), FlowRefusal> {
        let Some(flow) = self.flows.get_mut(id) else { return Err(FlowRefusal::Unknown(id)) };
        if flow.status != FlowStatus::Paused {
            return Err(FlowRefusal::NotPaused { id, status: flow.status });
        }
        flow.status = FlowStatus::Running;
        flow.retried_at = Some(turn.now());
        let (deadline, event) = (flow.deadline(), flow_event(EventKind::FlowResumed, turn, flow));
        self.emit(turn, event);
        if let Some(at) = deadline {
            self.deadlines.push_again(at, Due::Flow(id));
        }
        self.touch_flow(id);
        let waiting = |task: &&Task| task.status.is_over() && !task.executed && !task.retried;
        let ended: Vec<TaskId> = self.tasks_of(id).filter(waiting).map(|task| task.id).collect();
        self.tasks.over.extend(ended);
        self.finish_if_done(turn, id);
        Ok(())
    }

    /// Passes over a step that was not reached yet: when its turn comes, what follows it is scheduled.
    fn skip(
        &mut self,
        turn: &mut Turn<'_>,
        id: FlowId,
        reference: &str,
        input: Option<Json>,
        output: Option<Json>,
    ) -> Result<(), FlowRefusal> {
        let no_such = || FlowRefusal::NoTask { flow: id, task: reference.into() };
        let flow = self.flows.get(id).ok_or(FlowRefusal::Unknown(id))?;
        if flow.task_of(reference).is_some() {
            return Err(no_such());
        }
        let index = flow.plan.steps.iter().position(|step| *step.reference == *reference).ok_or_else(no_such)?;
        let step = flow.step(index as u32).cloned().ok_or_else(no_such)?;
        let new = TaskId::from(self.next_token());
        let place = (index as u32, &*step, step.reference.clone());
        let mut task = self.new_task(turn, new, id, place, None, input.unwrap_or_else(empty_object));
        task.status = Status::Skipped;
        task.executed = true;
        task.output = output.unwrap_or_else(empty_object);
        task.ended_at = Some(turn.now());
        self.add_task(task);
        Ok(())
    }

    /// Makes tasks that wait for their callback visible now.
    fn reset_callbacks(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let hidden = |task: &&Task| task.status == Status::Scheduled && !task.is_queued && task.token.is_none();
        let hidden: Vec<TaskId> = self.tasks_of(id).filter(hidden).map(|task| task.id).collect();
        for task in hidden {
            if let Some(task) = self.tasks.all.get_mut(&task) {
                task.callback_s = 0;
            }
            self.put_back(turn, task, turn.now());
        }
    }
}
