//! Owns looking at tasks and queues without touching them. Every answer is bounded.

use std::ops::Bound;

use crate::command::Command;
use crate::ledger::{Ledger, Turn};
use crate::limits::PAGE_MAX;
use crate::task::command::{GetTask, GotTask, ListQueues, ListTasks, QueueView, TaskView};

impl Command for GetTask {
    type Reply = GotTask;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> GotTask {
        match ledger.tasks.all.get(&self.0).and_then(|task| ledger.view(task)) {
            Some(view) => GotTask::Live(Box::new(view)),
            None if ledger.was_granted(self.0.token()) => GotTask::Over,
            None => GotTask::Unknown,
        }
    }
}

impl Command for ListTasks {
    type Reply = Vec<TaskView>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Vec<TaskView> {
        let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        let open = ledger.tasks.all.range((from, Bound::Unbounded)).map(|(_, task)| task);
        let named = open.filter(|task| self.name.as_ref().is_none_or(|name| task.name == *name));
        let wanted = named.filter(|task| self.status.map_or(!task.status.is_over(), |status| task.status == status));
        wanted.filter_map(|task| ledger.view(task)).take(self.limit.clamp(1, PAGE_MAX)).collect()
    }
}

impl Command for ListQueues {
    type Reply = Vec<QueueView>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Vec<QueueView> {
        let queues = ledger.tasks.queues.iter();
        let named = queues.filter(|queue| self.name.as_ref().is_none_or(|name| queue.name.name == *name));
        let view = |queue: &super::queue::Queue| QueueView {
            queue: queue.name.clone(),
            waiting: queue.len(),
            last_poll: queue.last_poll.clone(),
        };
        named.map(view).collect()
    }
}
