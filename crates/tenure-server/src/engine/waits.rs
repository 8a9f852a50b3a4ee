//! Owns who is told when a wait ends. Used under the ledger's lock alone.

use std::cell::RefCell;
use std::collections::HashMap;

use tenure_core::command::{Grant, Leave, WaiterId};
use tenure_core::refusal::Refusal;
use tenure_core::task::command::TaskView;
use tenure_core::{Ledger, Turn};
use tokio::sync::oneshot;

use super::batch::Delivery;

/// The answer to an acquire, once there is one.
pub(super) type Answer = Result<Grant, Refusal>;

/// The clients of all waits. A cell, because the ledger asks it who is still there while a decision adds to it.
#[derive(Default)]
pub(super) struct Waits {
    leases: RefCell<HashMap<WaiterId, Vec<oneshot::Sender<Answer>>>>,
    polls: RefCell<HashMap<WaiterId, oneshot::Sender<Vec<TaskView>>>>,
}

impl Waits {
    /// Remembers a client of a wait; a retried acquire adds a second one.
    pub(super) fn keep(&self, waiter: WaiterId, to: oneshot::Sender<Answer>) {
        self.leases.borrow_mut().entry(waiter).or_default().push(to);
    }

    /// Remembers the client of a poll.
    pub(super) fn keep_poll(&self, waiter: WaiterId, to: oneshot::Sender<Vec<TaskView>>) {
        self.polls.borrow_mut().insert(waiter, to);
    }

    /// Whether someone still waits for it.
    pub(super) fn is_waiting(&self, waiter: WaiterId) -> bool {
        self.leases.borrow().get(&waiter).is_some_and(|clients| !is_deserted(clients))
            || self.polls.borrow().get(&waiter).is_some_and(|to| !to.is_closed())
    }

    /// Forgets a wait that everybody has left; says whether there was one.
    fn forget_if_deserted(&self, waiter: WaiterId) -> bool {
        let mut polls = self.polls.borrow_mut();
        if polls.get(&waiter).is_some_and(oneshot::Sender::is_closed) {
            return polls.remove(&waiter).is_some();
        }
        let mut waits = self.leases.borrow_mut();
        let deserted = waits.get(&waiter).is_some_and(|clients| is_deserted(clients));
        if deserted {
            waits.remove(&waiter);
        }
        deserted
    }

    /// The answer for everybody who waits for it.
    pub(super) fn settle(&self, waiter: WaiterId, answer: Answer) -> Option<Delivery> {
        Some(Delivery::Lease(self.leases.borrow_mut().remove(&waiter)?, answer))
    }

    /// What a poll waited for.
    pub(super) fn settle_poll(&self, waiter: WaiterId, tasks: Vec<TaskView>) -> Option<Delivery> {
        Some(Delivery::Poll(self.polls.borrow_mut().remove(&waiter)?, tasks))
    }
}

/// Takes a wait out of the line once nobody is left who asked for it: a retried acquire shares its first one's place.
pub(super) fn leave_if_deserted(waiter: WaiterId, ledger: &mut Ledger, turn: &mut Turn<'_>, waits: &Waits) {
    if waits.forget_if_deserted(waiter) {
        ledger.apply(turn, Leave(waiter));
    }
}

fn is_deserted(clients: &[oneshot::Sender<Answer>]) -> bool {
    clients.iter().all(oneshot::Sender::is_closed)
}
