//! Requests on their way: each is decided when it arrives, and its client hears of it when what it rests on is on the disk.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tenure_core::command::{Acquire, Acquired, Command, Renew, Renewal, WaiterId};
use tokio::sync::oneshot::{self, Receiver};

use crate::engine::batch::Fate;
use crate::engine::decider::{Decided, Decider};
use crate::engine::waits::{Answer, leave_if_deserted};

/// What happens when a request arrives.
pub(super) type Request = Box<dyn FnOnce(&mut Decider) -> Reply>;

/// A reply that was decided and not told.
pub(super) struct Reply {
    pub(super) rests_on: Option<Arc<Fate>>,
    pub(super) tell: Box<dyn FnOnce()>,
}

/// Which wait is an acquire's own, once it stands in line.
#[derive(Clone, Default)]
pub(super) struct Place(Rc<Cell<Option<WaiterId>>>);

impl Place {
    pub(super) fn get(&self) -> Option<WaiterId> {
        self.0.get()
    }
}

/// Any command with one answer.
pub(super) fn call<C: Command>(command: C) -> (Request, Receiver<C::Reply>) {
    sent(move |decider| decider.apply(command))
}

/// A renewal.
pub(super) fn renew(renew: Renew) -> (Request, Receiver<Vec<Renewal>>) {
    sent(move |decider| decider.renew(renew))
}

fn sent<T: 'static>(decide: impl FnOnce(&mut Decider) -> Decided<T> + 'static) -> (Request, Receiver<T>) {
    let (to, answer) = oneshot::channel();
    let request = move |decider: &mut Decider| {
        let Decided { reply, rests_on } = decide(decider);
        Reply { rests_on, tell: Box::new(move || drop(to.send(reply))) }
    };
    (Box::new(request), answer)
}

/// An acquire. Who has gone before it arrives does not ask any more.
pub(super) fn take(acquire: Acquire, place: Place) -> (Request, Receiver<Answer>) {
    let (to, answer) = oneshot::channel();
    let request = move |decider: &mut Decider| {
        if to.is_closed() {
            return silent();
        }
        let Decided { reply, rests_on } = decider.decide(|ledger, turn, waits| {
            let answer = match ledger.apply(turn, acquire) {
                Acquired::Granted(grant) => Ok(grant),
                Acquired::Refused(refusal) => Err(refusal),
                Acquired::Queued(waiter) => {
                    waits.keep(waiter, to);
                    place.0.set(Some(waiter));
                    return None;
                }
            };
            Some((to, answer))
        });
        let Some((to, answer)) = reply else { return silent() };
        Reply { rests_on, tell: Box::new(move || drop(to.send(answer))) }
    };
    (Box::new(request), answer)
}

/// The client of a wait has gone.
pub(super) fn gone(waiter: WaiterId) -> Request {
    Box::new(move |decider| {
        decider.turn(|ledger, turn, waits| leave_if_deserted(waiter, ledger, turn, waits));
        silent()
    })
}

fn silent() -> Reply {
    Reply { rests_on: None, tell: Box::new(|| {}) }
}
