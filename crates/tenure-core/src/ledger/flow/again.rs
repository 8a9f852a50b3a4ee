//! Owns bringing a run back after its end: retry its failed tasks, restart it, or run it again from one of its tasks.
//!
//! A task that is run again is a new task: the late word of a former attempt is about another one. A loop around it goes on in
//! the round where it was; nobody ever held it.

use std::sync::Arc;

use crate::change::{Change, Record, RecordKind};
use crate::command::Command;
use crate::event::EventKind;
use crate::flow::command::{Again, FlowRefusal, Revive, Which};
use crate::flow::{Archived, Flow, FlowStatus, Live, Op, Plan};
use crate::id::{FlowId, TaskId};
use crate::ledger::deadlines::Due;
use crate::ledger::flow::rerun::{reopen, take_back};
use crate::ledger::flow::schedule::Round;
use crate::ledger::flow::start::flow_event;
use crate::ledger::{Ledger, Turn};
use crate::task::{Json, Status, Task, empty_object};

impl Command for Revive {
    type Reply = Result<FlowId, FlowRefusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let (flow, id) = (&self.archived.flow, self.archived.flow.id);
        if let Some(live) = ledger.flows.get(id) {
            return Err(FlowRefusal::NotOver { id, status: live.status });
        }
        // Brought back, and over again since this copy was read.
        if ledger.flows.lives.get(&id).is_some_and(|lives| *lives != flow.lives) {
            return Err(FlowRefusal::Archived(id));
        }
        let plan = ledger.plan_of(&self.archived)?;
        match self.how {
            Again::Retry => ledger.retry_flow(turn, *self.archived, plan),
            Again::Restart { latest } => ledger.restart_flow(turn, *self.archived, plan, latest, None),
            Again::Rerun { task: None, input, .. } => ledger.restart_flow(turn, *self.archived, plan, false, input),
            Again::Rerun { task: Some(task), task_input, input, correlation } => {
                let mut archived = *self.archived;
                archived.flow.input = input.unwrap_or(archived.flow.input);
                archived.flow.correlation = correlation.or(archived.flow.correlation);
                ledger.rerun_flow(turn, archived, plan, task, task_input)
            }
        }
    }
}

impl Ledger {
    fn plan_of(&self, archived: &Archived) -> Result<Arc<Plan>, FlowRefusal> {
        let kept = self.flows.plans.get(&archived.flow.plan_id).cloned();
        kept.or_else(|| archived.plan.clone()).ok_or(FlowRefusal::Unknown(archived.flow.id))
    }

    /// Puts the run back in with these tasks.
    fn bring_back(&mut self, turn: &mut Turn<'_>, archived: Archived, plan: Arc<Plan>) -> FlowId {
        let id = archived.flow.id;
        let lives = archived.flow.lives + 1;
        self.flows.lives.insert(id, lives);
        if plan.is_inline && self.flows.plans.insert(plan.id, plan.clone()).is_none() {
            turn.changes.push(Change::Put(Record::Plan(plan.clone())));
        }
        let flow = Flow {
            plan_id: plan.id,
            plan,
            status: FlowStatus::Running,
            reason: None,
            failed: Vec::new(),
            ended_at: None,
            retried_at: Some(turn.now()),
            alerted: false,
            lives,
            live: Live::default(),
            ..archived.flow
        };
        turn.changes.push(Change::Delete(RecordKind::Archive, id.into()));
        if let Some(at) = flow.deadline() {
            self.deadlines.push_again(at, Due::Flow(id));
        }
        let event = flow_event(EventKind::FlowStarted, turn, &flow);
        self.emit(turn, event);
        if let Some(key) = &flow.key {
            self.flows.keys.begin(key, id, &mut turn.changes);
        }
        self.flows.all.insert(id, Box::new(flow));
        for task in archived.tasks {
            self.link(&task);
            let id = task.id;
            self.tasks.all.insert(id, Box::new(Task { is_stored: false, is_queued: false, token: None, ..task }));
            self.touch(id);
        }
        self.touch_flow(id);
        id
    }

    /// Tries the last failed or canceled attempt of every step again.
    fn retry_flow(&mut self, turn: &mut Turn<'_>, archived: Archived, plan: Arc<Plan>) -> Result<FlowId, FlowRefusal> {
        let id = archived.flow.id;
        if archived.flow.status == FlowStatus::Completed || !archived.tasks.iter().any(unfinished) {
            return Err(FlowRefusal::NothingFailed(id));
        }
        self.go_on(turn, archived, plan);
        Ok(id)
    }

    /// Brings a run back where it stopped: what was not finished is tried again, and what was not looked at is looked at.
    fn go_on(&mut self, turn: &mut Turn<'_>, mut archived: Archived, plan: Arc<Plan>) {
        let id = archived.flow.id;
        let (mut again, mut loops, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
        for task in &mut archived.tasks {
            let op = plan.steps.get(task.step as usize).map(|step| &step.op);
            if unfinished(task) {
                // A new attempt has its own time; the first schedule counts from here too.
                task.first_scheduled_at = turn.now();
                task.executed = false;
                if task.status == Status::Canceled && matches!(op, Some(Op::Loop { .. })) {
                    reopen(task);
                    loops.push(task.id);
                } else {
                    again.push(task.id);
                }
            } else if task.status.is_success() && !task.executed {
                match op {
                    // What ended the run leads nowhere.
                    Some(Op::Terminate) => task.executed = true,
                    _ => unseen.push(task.id),
                }
            }
        }
        self.bring_back(turn, archived, plan);
        for task in again {
            let parent = self.tasks.all.get(&task).and_then(|task| task.parent());
            self.schedule_again(turn, task, 0);
            self.count_looked_at(id, parent);
        }
        for around in loops {
            self.watch_task(around);
            self.end_round_if_done(turn, id, around);
        }
        self.tasks.over.extend(unseen);
    }

    fn restart_flow(
        &mut self,
        turn: &mut Turn<'_>,
        mut archived: Archived,
        plan: Arc<Plan>,
        latest: bool,
        input: Option<Json>,
    ) -> Result<FlowId, FlowRefusal> {
        if plan.is_final {
            return Err(FlowRefusal::Final(plan.name.clone()));
        }
        let present = || Which::Named((&*plan.name).into(), Some(plan.version));
        let plan = if latest && !plan.is_inline { self.plan_for(turn, &present())? } else { plan };
        archived.tasks.clear();
        let flow = &mut archived.flow;
        flow.added.clear();
        flow.output = empty_object();
        flow.variables = plan.variables.clone().unwrap_or_else(empty_object);
        flow.input = input.unwrap_or_else(|| flow.input.clone());
        let id = self.bring_back(turn, archived, plan);
        self.schedule(turn, id, 0, None);
        self.finish_if_done(turn, id);
        Ok(id)
    }

    /// Runs a task, and what follows it, again.
    fn rerun_flow(
        &mut self,
        turn: &mut Turn<'_>,
        mut archived: Archived,
        plan: Arc<Plan>,
        from: TaskId,
        input: Option<Json>,
    ) -> Result<FlowId, FlowRefusal> {
        let id = archived.flow.id;
        let no_such = || FlowRefusal::NoTask { flow: id, task: from.to_string().into() };
        let start = archived.tasks.iter().position(|task| task.id == from).ok_or_else(no_such)?;
        let (step, round) = archived.tasks.get(start).map(|task| (task.step, Round::of(task))).ok_or_else(no_such)?;
        archived.flow.plan = plan.clone();
        let rounds = take_back(&mut archived, start);
        self.go_on(turn, archived, plan);
        for round in rounds {
            self.enter_round(round.parent, round.iteration, None);
        }
        self.schedule_with(turn, id, step, round, input);
        Ok(id)
    }
}

/// Whether it has come to nothing, and nothing took its place.
fn unfinished(task: &Task) -> bool {
    task.status.is_over() && !task.status.is_success() && !task.retried
}
