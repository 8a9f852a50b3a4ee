//! Owns who is told when a wait ends. Used by the writer's thread alone.

use std::cell::RefCell;
use std::collections::HashMap;

use tenure_core::command::WaiterId;
use tokio::sync::oneshot;

use super::job::Answer;

/// The clients of all waits. A cell, because the ledger asks it who is still there while a job adds to it.
#[derive(Default)]
pub(super) struct Waits(RefCell<HashMap<WaiterId, Vec<oneshot::Sender<Answer>>>>);

impl Waits {
    /// Remembers a client of a wait; a retried acquire adds a second one.
    pub(super) fn keep(&self, waiter: WaiterId, to: oneshot::Sender<Answer>) {
        self.0.borrow_mut().entry(waiter).or_default().push(to);
    }

    /// Whether someone still waits for it.
    pub(super) fn is_waiting(&self, waiter: WaiterId) -> bool {
        self.0.borrow().get(&waiter).is_some_and(|clients| !is_deserted(clients))
    }

    /// Forgets a wait that everybody has left; says whether there was one.
    pub(super) fn forget_if_deserted(&self, waiter: WaiterId) -> bool {
        let mut waits = self.0.borrow_mut();
        let deserted = waits.get(&waiter).is_some_and(|clients| is_deserted(clients));
        if deserted {
            waits.remove(&waiter);
        }
        deserted
    }

    /// Tells everybody who waits for it.
    pub(super) fn settle(&self, waiter: WaiterId, answer: Answer) {
        for to in self.0.borrow_mut().remove(&waiter).into_iter().flatten() {
            to.send(answer.clone()).ok();
        }
    }
}

fn is_deserted(clients: &[oneshot::Sender<Answer>]) -> bool {
    clients.iter().all(oneshot::Sender::is_closed)
}
