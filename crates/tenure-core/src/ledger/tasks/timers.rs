//! Owns the time limits of tasks (T4): becoming visible, waiting for a worker, one attempt, all attempts together.
//!
//! How long a worker may be silent is not here: that is its lease.

use crate::Timestamp;
use crate::event::{Event, EventKind};
use crate::id::TaskId;
use crate::ledger::deadlines::Due;
use crate::ledger::tasks::{Ends, task_event};
use crate::ledger::{Ledger, Turn};
use crate::task::{Policy, Status, Task, TaskRules};

/// One of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Total,
    Attempt,
    Poll,
}

impl Limit {
    const ALL: [Limit; 3] = [Limit::Total, Limit::Attempt, Limit::Poll];

    fn seconds(self, rules: &TaskRules) -> u64 {
        match self {
            Limit::Total => rules.total_s,
            Limit::Attempt => rules.attempt_s,
            Limit::Poll => rules.poll_s,
        }
    }

    /// What it counts from, if it counts.
    fn from(self, task: &Task) -> Option<Timestamp> {
        let alerted = task.alerted();
        match self {
            Limit::Total => (!alerted.total).then_some(task.first_scheduled_at),
            Limit::Attempt => task.started_at.filter(|_| !alerted.attempt),
            Limit::Poll => (!alerted.poll && task.status == Status::Scheduled).then_some(task.visible_at),
        }
    }

    fn at(self, task: &Task, rules: &TaskRules) -> Option<Timestamp> {
        let seconds = self.seconds(rules);
        if seconds == 0 {
            return None;
        }
        Some(self.from(task)?.plus_ms(seconds.saturating_mul(1_000)))
    }

    fn reason(self, task: &Task, rules: &TaskRules, now: Timestamp) -> String {
        let (limit, policy) = (self.seconds(rules), policy_word(rules.policy));
        let since = match self {
            Limit::Total => task.first_scheduled_at,
            Limit::Attempt => task.started_at.unwrap_or(now),
            Limit::Poll => task.visible_at,
        };
        let elapsed = now.ms_since(since) / 1_000;
        match self {
            Limit::Total => format!(
                "Task {}/{} exceeded total timeout of {limit} seconds (elapsed {elapsed} seconds across all attempts \
                 including retry delays). Timeout policy: {policy}",
                task.name, task.id
            ),
            Limit::Attempt => format!(
                "Task timed out after {elapsed} seconds. Timeout configured as {limit} seconds. Timeout policy \
                 configured to {policy}"
            ),
            Limit::Poll => format!(
                "Task poll timed out after {elapsed} seconds. Poll timeout configured as {limit} seconds. Timeout \
                 policy configured to {policy}"
            ),
        }
    }
}

fn policy_word(policy: Policy) -> &'static str {
    match policy {
        Policy::Retry => "RETRY",
        Policy::FailWorkflow => "TIME_OUT_WF",
        Policy::AlertOnly => "ALERT_ONLY",
    }
}

impl Ledger {
    /// When something about a task is due next.
    pub(crate) fn deadline_of_task(&self, id: TaskId) -> Option<Timestamp> {
        let task = self.tasks.all.get(&id).filter(|task| !task.status.is_over())?;
        let rules = self.rules_of(task);
        let limits = Limit::ALL.into_iter().filter_map(|limit| limit.at(task, &rules));
        let is_hidden = !task.is_queued && task.token.is_none() && self.is_polled(task);
        let shows = is_hidden.then_some(task.visible_at);
        let until = task.extra.as_ref().and_then(|extra| extra.until);
        limits.chain(shows).chain(until).min()
    }

    /// Wakes the ledger when something about the task is due.
    pub(crate) fn watch_task(&mut self, id: TaskId) {
        if let Some(at) = self.deadline_of_task(id) {
            self.deadlines.push_again(at, Due::Task(id));
        }
    }

    /// Whether all attempts together have taken as long as they may.
    pub(crate) fn is_total_spent(&self, task: &Task, now: Timestamp) -> bool {
        let rules = self.rules_of(task);
        rules.total_s > 0 && task.first_scheduled_at.plus_ms(rules.total_s.saturating_mul(1_000)) <= now
    }

    /// Something about a task is due.
    pub(crate) fn task_due(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id).filter(|task| !task.status.is_over()) else { return };
        let rules = self.rules_of(task);
        let is_due = |limit: &Limit| limit.at(task, &rules).is_some_and(|at| at <= turn.now());
        if let Some(limit) = Limit::ALL.into_iter().find(is_due) {
            let reason = limit.reason(task, &rules, turn.now());
            self.limit_reached(turn, id, limit, rules.policy, reason);
        } else if task.extra.as_ref().and_then(|extra| extra.until).is_some_and(|until| until <= turn.now()) {
            self.end_task(turn, id, Ends { status: Status::Completed, output: None, reason: None });
        } else {
            self.show(id, turn.now());
        }
        self.watch_task(id);
    }

    fn limit_reached(&mut self, turn: &mut Turn<'_>, id: TaskId, limit: Limit, policy: Policy, reason: String) {
        match policy {
            Policy::Retry => self.end_task(turn, id, Ends::with(Status::TimedOut, reason)),
            Policy::FailWorkflow => {
                self.end_task(turn, id, Ends::with(Status::TimedOut, reason));
                self.end_flow_of(turn, id);
            }
            Policy::AlertOnly => {
                let Some(task) = self.tasks.all.get_mut(&id) else { return };
                let alerted = &mut task.extra_mut().alerted;
                match limit {
                    Limit::Total => alerted.total = true,
                    Limit::Attempt => alerted.attempt = true,
                    Limit::Poll => alerted.poll = true,
                }
                let event = task_event(EventKind::TaskOverdue, turn.now(), task);
                self.emit(turn, Event { reason: Some(reason.into()), ..event });
                self.touch(id);
            }
        }
    }
}
