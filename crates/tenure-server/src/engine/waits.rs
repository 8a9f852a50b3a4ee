//! Owns who is told when a wait ends. Used by the writer's thread alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tenure_core::command::WaiterId;
use tenure_core::task::command::TaskView;
use tokio::sync::oneshot;

use super::job::Answer;
use super::polls::deliver;
use super::queue::Queue;

/// Who polls, and where what it does not take goes back to.
type Polling = (oneshot::Sender<Vec<TaskView>>, Arc<Queue>);

/// The clients of all waits. A cell, because the ledger asks it who is still there while a job adds to it.
#[derive(Default)]
pub(super) struct Waits {
    leases: RefCell<HashMap<WaiterId, Vec<oneshot::Sender<Answer>>>>,
    polls: RefCell<HashMap<WaiterId, Polling>>,
}

impl Waits {
    /// Remembers a client of a wait; a retried acquire adds a second one.
    pub(super) fn keep(&self, waiter: WaiterId, to: oneshot::Sender<Answer>) {
        self.leases.borrow_mut().entry(waiter).or_default().push(to);
    }

    /// Remembers the client of a poll.
    pub(super) fn keep_poll(&self, waiter: WaiterId, to: oneshot::Sender<Vec<TaskView>>, queue: Arc<Queue>) {
        self.polls.borrow_mut().insert(waiter, (to, queue));
    }

    /// Whether someone still waits for it.
    pub(super) fn is_waiting(&self, waiter: WaiterId) -> bool {
        self.leases.borrow().get(&waiter).is_some_and(|clients| !is_deserted(clients))
            || self.polls.borrow().get(&waiter).is_some_and(|(to, _)| !to.is_closed())
    }

    /// Forgets a wait that everybody has left; says whether there was one.
    pub(super) fn forget_if_deserted(&self, waiter: WaiterId) -> bool {
        let mut polls = self.polls.borrow_mut();
        if polls.get(&waiter).is_some_and(|(to, _)| to.is_closed()) {
            return polls.remove(&waiter).is_some();
        }
        let mut waits = self.leases.borrow_mut();
        let deserted = waits.get(&waiter).is_some_and(|clients| is_deserted(clients));
        if deserted {
            waits.remove(&waiter);
        }
        deserted
    }

    /// Tells everybody who waits for it.
    pub(super) fn settle(&self, waiter: WaiterId, answer: Answer) {
        for to in self.leases.borrow_mut().remove(&waiter).into_iter().flatten() {
            to.send(answer.clone()).ok();
        }
    }
}

impl Waits {
    /// Gives what a poll waited for to its client.
    pub(super) fn settle_poll(&self, waiter: WaiterId, tasks: Vec<TaskView>) {
        if let Some((to, queue)) = self.polls.borrow_mut().remove(&waiter) {
            deliver(to, tasks, &queue);
        }
    }
}

fn is_deserted(clients: &[oneshot::Sender<Answer>]) -> bool {
    clients.iter().all(oneshot::Sender::is_closed)
}
