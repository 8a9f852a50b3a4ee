//! Owns what stands in the line: a command of any kind with the place its answer goes to.
//!
//! A job lives in two phases, because an answer must not leave before the commit: [`Job::decide`] on the ledger, then
//! [`Job::answer`]. The writer knows no more about it, so a new command needs no change here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::command::{Acquire, Acquired, Command, Grant, Leave, WaiterId};
use tenure_core::refusal::Refusal;
use tenure_core::{Ledger, Turn};
use tokio::sync::oneshot;

use super::waits::Waits;

pub(super) trait Job: Send {
    /// Decides the command. The answer stays here until the batch is durable.
    fn decide(&mut self, ledger: &mut Ledger, turn: &mut Turn<'_>, waits: &Waits);

    /// Tells who asked.
    fn answer(self: Box<Self>);
}

/// Any command with one answer.
pub(super) struct Call<C: Command> {
    stage: Stage<C, C::Reply>,
    to: oneshot::Sender<C::Reply>,
}

enum Stage<C, R> {
    Asked(C),
    Decided(R),
    /// Nothing to say, or said later by someone else.
    Silent,
}

impl<C, R> Stage<C, R> {
    fn take(&mut self) -> Stage<C, R> {
        std::mem::replace(self, Stage::Silent)
    }
}

impl<C: Command> Call<C> {
    pub(super) fn new(command: C) -> (Box<Call<C>>, oneshot::Receiver<C::Reply>) {
        let (to, reply) = oneshot::channel();
        (Box::new(Call { stage: Stage::Asked(command), to }), reply)
    }
}

impl<C: Command> Job for Call<C> {
    fn decide(&mut self, ledger: &mut Ledger, turn: &mut Turn<'_>, _waits: &Waits) {
        if let Stage::Asked(command) = self.stage.take() {
            self.stage = Stage::Decided(ledger.apply(turn, command));
        }
    }

    fn answer(self: Box<Self>) {
        if let Stage::Decided(reply) = self.stage {
            // Nobody listens any more: the client went away, and what it asked for has happened.
            self.to.send(reply).ok();
        }
    }
}

/// The answer to an acquire, once there is one.
pub(super) type Answer = Result<Grant, Refusal>;

/// An acquire: its answer may come much later.
pub(super) struct Take {
    stage: Stage<Acquire, Answer>,
    /// Goes to [`Waits`] when the acquire is put in line.
    to: Option<oneshot::Sender<Answer>>,
    place: Option<Arc<Place>>,
}

/// Tells the client of an acquire which wait is its own, so that it can leave.
#[derive(Default)]
pub(super) struct Place(AtomicU64);

impl Place {
    /// Zero says «none», so places count from one.
    pub(super) fn set(&self, waiter: WaiterId) {
        self.0.store(waiter.0 + 1, Ordering::SeqCst);
    }

    pub(super) fn get(&self) -> Option<WaiterId> {
        self.0.load(Ordering::SeqCst).checked_sub(1).map(WaiterId)
    }
}

impl Take {
    pub(super) fn new(acquire: Acquire, place: Option<Arc<Place>>) -> (Box<Take>, oneshot::Receiver<Answer>) {
        let (to, answer) = oneshot::channel();
        (Box::new(Take { stage: Stage::Asked(acquire), to: Some(to), place }), answer)
    }
}

impl Job for Take {
    fn decide(&mut self, ledger: &mut Ledger, turn: &mut Turn<'_>, waits: &Waits) {
        let (Stage::Asked(acquire), Some(to)) = (self.stage.take(), self.to.take()) else { return };
        // A client that went away before its turn came is not given what nobody would use.
        if to.is_closed() {
            return;
        }
        match ledger.apply(turn, acquire) {
            Acquired::Granted(grant) => self.stage = Stage::Decided(Ok(grant)),
            Acquired::Refused(refusal) => self.stage = Stage::Decided(Err(refusal)),
            Acquired::Queued(waiter) => {
                waits.keep(waiter, to);
                if let Some(place) = &self.place {
                    place.set(waiter);
                }
                // The client may have gone between the two looks; then it did not see its place.
                leave_if_deserted(waiter, ledger, turn, waits);
                return;
            }
        }
        self.to = Some(to);
    }

    fn answer(self: Box<Self>) {
        if let (Stage::Decided(answer), Some(to)) = (self.stage, self.to) {
            to.send(answer).ok();
        }
    }
}

/// A client that waited has gone.
pub(super) struct Gone(pub(super) WaiterId);

impl Job for Gone {
    fn decide(&mut self, ledger: &mut Ledger, turn: &mut Turn<'_>, waits: &Waits) {
        leave_if_deserted(self.0, ledger, turn, waits);
    }

    fn answer(self: Box<Self>) {}
}

/// Takes a wait out of the queue once nobody is left who asked for it: a retried acquire shares its first one's place.
pub(super) fn leave_if_deserted(waiter: WaiterId, ledger: &mut Ledger, turn: &mut Turn<'_>, waits: &Waits) {
    if waits.forget_if_deserted(waiter) {
        ledger.apply(turn, Leave(waiter));
    }
}
