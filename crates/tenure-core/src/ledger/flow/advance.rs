//! Owns what follows when a task is over: another attempt (T4), the end of the run, or the next steps (T5).

use crate::flow::FlowStatus;
use crate::id::{FlowId, TaskId};
use crate::ledger::deadlines::Due;
use crate::ledger::flow::end::FlowEnds;
use crate::ledger::flow::schedule::{Round, jitter};
use crate::ledger::{Ledger, Turn};
use crate::limits::{BYTES_PER_STEP, STEPS_PER_TURN_MAX};
use crate::task::{Status, Task};

impl Ledger {
    /// Looks at every task that is over. What is too much for one turn goes on in the next.
    pub(crate) fn follow_up(&mut self, turn: &mut Turn<'_>) {
        let mut left = STEPS_PER_TURN_MAX;
        while left > 0 {
            let Some(id) = self.tasks.over.pop_front() else {
                self.flows.goes_on_at = None;
                return;
            };
            self.look_after(turn, id);
            let step = 1 + self.flows.spent.take() / BYTES_PER_STEP;
            left = left.saturating_sub(step);
        }
        if !self.tasks.over.is_empty() {
            let at = turn.now().plus_ms(1);
            self.flows.goes_on_at = Some(at);
            self.deadlines.push_again(at, Due::Advance);
        }
    }

    fn look_after(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id).filter(|task| !task.executed && !task.retried) else { return };
        let flow = task.flow;
        // A paused run is looked at when it goes on.
        let runs = self.flows.get(flow).is_some_and(|flow| flow.status == FlowStatus::Running);
        if !runs {
            return;
        }
        if task.status.is_success() {
            self.pass(turn, id, true);
        } else if !self.try_again(turn, id) {
            self.failed_for_good(turn, id);
        }
    }

    /// Makes another attempt, if the retry rule has one left and there is time.
    fn try_again(&mut self, turn: &mut Turn<'_>, id: TaskId) -> bool {
        let Some(task) = self.tasks.all.get(&id).filter(|task| task.status.is_retriable()) else { return false };
        let rules = self.rules_of(task);
        if self.is_total_spent(task, turn.now()) {
            return false;
        }
        let Some(delay_ms) = rules.retry.delay_after(task.retries + 1, 0) else { return false };
        let delay_ms = delay_ms + jitter(id.token(), turn.now(), rules.jitter_ms);
        let (flow, parent) = (task.flow, task.parent());
        self.schedule_again(turn, id, delay_ms);
        self.count_looked_at(flow, parent);
        true
    }

    fn failed_for_good(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let step = self.step_of(task);
        let (optional, permissive) = step.map_or((false, false), |step| (step.optional, step.permissive));
        if optional {
            if let Some(task) = self.tasks.all.get_mut(&id) {
                task.status = Status::CompletedWithErrors;
            }
            return self.pass(turn, id, true);
        }
        if permissive {
            return self.pass(turn, id, false);
        }
        self.end_flow_of(turn, id);
    }

    /// Ends the run of a task that failed for good.
    pub(crate) fn end_flow_of(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let status = flow_status_of(task.status);
        let said = task.reason().unwrap_or_default();
        let reason = format!("Task {id} failed with status: {} and reason: '{said}'", status.as_str());
        let failed = Some(id);
        self.end_flow(turn, task.flow, FlowEnds { failed, ..FlowEnds::with(status, reason) });
    }

    /// A task has been looked at: what follows it is scheduled, and whoever waits for it looks again.
    fn pass(&mut self, turn: &mut Turn<'_>, id: TaskId, goes_on: bool) {
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.executed = true;
        let (flow, parent, round) = (task.flow, task.parent(), Round::of(task));
        self.touch(id);
        let followers = match (goes_on, self.tasks.all.get(&id), self.flows.get(flow)) {
            (true, Some(task), Some(found)) => found.followers(task),
            _ => Vec::new(),
        };
        for step in followers {
            self.schedule(turn, flow, step, round);
        }
        self.count_looked_at(flow, parent);
        self.look_at_joins(turn, flow);
        if let Some(parent) = parent {
            self.end_round_if_done(turn, flow, parent);
        }
        self.finish_if_done(turn, flow);
    }

    pub(crate) fn count_looked_at(&mut self, flow: FlowId, parent: Option<TaskId>) {
        let Some(flow) = self.flows.get_mut(flow) else { return };
        flow.live.open = flow.live.open.saturating_sub(1);
        if let Some(around) = parent.and_then(|parent| flow.live.loops.get_mut(&parent)) {
            around.open = around.open.saturating_sub(1);
        }
    }

    /// Completes a run of which nothing is left to do; or fails it, if a step failed that others were not to wait for.
    pub(crate) fn finish_if_done(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let Some(flow) = self.flows.get(id) else { return };
        if flow.live.open > 0 || flow.status != FlowStatus::Running {
            return;
        }
        let failed: Vec<&Task> = self.tasks_of(id).filter(|task| !task.retried && !task.status.is_success()).collect();
        let Some(first) = failed.first() else {
            return self.end_flow(turn, id, FlowEnds::completed(None));
        };
        let status = flow_status_of(first.status);
        let reasons: Vec<String> = failed
            .iter()
            .map(|task| {
                format!(
                    "Task {} failed with status: {}: '{}'",
                    task.id,
                    task.status.as_str(),
                    task.reason().unwrap_or_default()
                )
            })
            .collect();
        let ends = FlowEnds { failed: Some(first.id), ..FlowEnds::with(status, reasons.join("; ")) };
        self.end_flow(turn, id, ends);
    }

    /// The tasks of a run, in their order.
    pub(crate) fn tasks_of(&self, id: FlowId) -> impl DoubleEndedIterator<Item = &Task> {
        let ids = self.flows.get(id).map_or(&[][..], |flow| &flow.live.tasks);
        ids.iter().filter_map(|id| self.tasks.all.get(id).map(|task| &**task))
    }
}

fn flow_status_of(task: Status) -> FlowStatus {
    match task {
        Status::Canceled => FlowStatus::Terminated,
        Status::TimedOut => FlowStatus::TimedOut,
        _ => FlowStatus::Failed,
    }
}
