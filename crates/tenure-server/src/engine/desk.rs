//! Owns the place where decisions are made and written: one lock around the ledger, one batch on its way to the disk at a time.
//!
//! ```text
//!  task ──► decide (lock) ──► open batch ──┐
//!  task ──► decide (lock) ──►              ├─► seal · commit · publish ──► everyone who rests on it
//!  thread: deadlines ──► decide (lock) ──► ┘
//! ```
//!
//! Whoever asks decides on its own thread, while the batch before is still being written, and then waits for its own: no
//! hand-off, and no commit ever waits to be filled. The engine's thread writes; a request that is alone writes itself, because
//! waking a thread and being woken by it takes about as long as the disk.
//!
//! Promises that a commit that fails, and a panic, stop everything: nobody is answered from memory that the disk may not have.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::change::Batch;
use tenure_core::command::Tick;
use tenure_core::{Ledger, Timestamp, Turn};
use tenure_store::{CommitError, Store};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::batch::Sealed;
use super::clock::Stopwatch;
use super::decider::{Decided, Decider};
use super::feed::Feed;
use super::waits::Waits;
use super::{Failure, Unavailable};
use crate::metrics::Metrics;

/// How many commands may wait for one batch. At tens of thousands a second this is less than a second of waiting; beyond it a
/// client is better told to come back.
pub const WAITING_MAX: usize = 16_384;

/// After so many batches with one command at most there is one client at a time. Among many clients a few such batches come by
/// chance, and whoever writes then keeps a thread of the runtime from serving the others.
pub(super) const LONE_BATCHES: u32 = 8;

pub(super) struct Desk {
    state: Mutex<State>,
    /// Wakes the thread.
    called: Condvar,
    /// For who writes. Nothing once the engine has ended.
    store: Mutex<Option<Box<dyn Store>>>,
    feed: Arc<Feed>,
    metrics: Arc<Metrics>,
}

struct State {
    decider: Decider,
    is_closed: bool,
    /// The end, met by a request: the thread makes it known.
    failed: Option<Failure>,
    is_asleep: bool,
    /// When the thread wakes by itself; `None`: never.
    until: Option<Timestamp>,
    is_called: bool,
    /// How many batches in a row had one command at most.
    lone: u32,
}

impl State {
    fn seal(&mut self) -> Sealed {
        let sealed = self.decider.seal();
        self.lone = if sealed.commands > 1 { 0 } else { self.lone.saturating_add(1) };
        sealed
    }

    /// Whether something is due before the thread would wake. Who is awake looks itself, once for every batch.
    fn oversleeps(&mut self) -> bool {
        self.is_asleep
            && self.decider.deadline().is_some_and(|moment| self.until.is_none_or(|planned| moment < planned))
    }
}

impl Desk {
    pub(super) fn new(decider: Decider, store: Box<dyn Store>, feed: Arc<Feed>, metrics: Arc<Metrics>) -> Desk {
        let state = State {
            decider,
            is_closed: false,
            failed: None,
            is_asleep: false,
            until: None,
            is_called: false,
            lone: LONE_BATCHES,
        };
        Desk { state: Mutex::new(state), called: Condvar::new(), store: Mutex::new(Some(store)), feed, metrics }
    }

    /// Decides something that a client waits for.
    pub(super) fn decide<T>(&self, decide: impl FnOnce(&mut Decider) -> Decided<T>) -> Result<Decided<T>, Unavailable> {
        let _alarm = Alarm(&self.called);
        let mut state = self.state.lock().map_err(|_| Unavailable::Stopped)?;
        if state.is_closed {
            return Err(Unavailable::Stopped);
        }
        if state.decider.open.commands >= WAITING_MAX {
            drop(state);
            self.metrics.refused("overloaded");
            return Err(Unavailable::Overloaded);
        }
        let decided = decide(&mut state.decider);
        let is_alone = state.is_asleep && !state.is_called && state.lone >= LONE_BATCHES;
        if is_alone && state.decider.is_ready() && may_block() {
            self.write_here(state);
        } else {
            self.call_if_needed(state);
        }
        Ok(decided)
    }

    /// Decides something that the server itself must say; nobody waits for it, and nobody can be told to say it again.
    pub(super) fn decide_always<T>(&self, decide: impl FnOnce(&mut Ledger, &mut Turn<'_>, &Waits) -> T) {
        let _alarm = Alarm(&self.called);
        let Ok(mut state) = self.state.lock() else { return };
        if !state.is_closed {
            state.decider.turn(decide);
            self.call_if_needed(state);
        }
    }

    /// How many wait for the batch that is not on its way yet.
    pub(super) fn waiting(&self) -> usize {
        self.lock_anyway().decider.open.commands
    }

    /// Whether the thread waits to be called.
    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        let state = self.lock_anyway();
        state.is_asleep && !state.is_called
    }

    /// Has the thread look at its deadlines: the clock has moved.
    pub(super) fn poke(&self) {
        self.call(self.lock_anyway());
    }

    /// Nothing more is decided; what was is still written and answered.
    pub(super) fn close(&self) {
        let mut state = self.lock_anyway();
        state.is_closed = true;
        self.call(state);
    }

    /// The life of the thread: until it is told to stop, or something breaks. The store is closed when it comes back, and
    /// whoever still waits knows that there is no answer.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let ended = catch_unwind(AssertUnwindSafe(|| self.attend()));
        let mut state = self.lock_anyway();
        state.is_closed = true;
        state.decider.give_up();
        drop(state);
        drop(self.store.lock().unwrap_or_else(PoisonError::into_inner).take());
        ended.unwrap_or(Err(Failure::Panic))
    }

    fn attend(&self) -> Result<(), Failure> {
        let mut state = self.lock()?;
        loop {
            state.is_called = false;
            if let Some(failure) = state.failed.take() {
                return Err(failure);
            }
            // Also when there is no time to sleep: this is what lets go of deadlines that came to nothing.
            let until = state.decider.deadline();
            if state.decider.is_ready() || (state.is_closed && state.decider.is_writable()) {
                let sealed = state.seal();
                drop(state);
                self.write(sealed)?;
                // Whoever was just answered is about to ask again: with the processor in demand, let them share the next commit.
                std::thread::yield_now();
                state = self.lock()?;
                state.decider.landed();
                continue;
            }
            if state.is_closed && state.decider.is_clean() {
                drop(state);
                return self.verify();
            }
            match until.and_then(|moment| state.decider.time.until(moment)) {
                Some(Duration::ZERO) => state.decider.turn(|ledger, turn, _| ledger.apply(turn, Tick)),
                patience => state = self.sleep(state, until, patience)?,
            }
        }
    }

    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Timestamp>,
        patience: Option<Duration>,
    ) -> Result<MutexGuard<'a, State>, Failure> {
        (state.is_asleep, state.until) = (true, until);
        let is_uncalled = |state: &mut State| !state.is_called;
        let woken = match patience {
            None => self.called.wait_while(state, is_uncalled).ok(),
            Some(patience) => self.called.wait_timeout_while(state, patience, is_uncalled).ok().map(|(state, _)| state),
        };
        let mut state = woken.ok_or(Failure::Panic)?;
        state.is_asleep = false;
        Ok(state)
    }

    /// Writes what is open on the thread of a request; other threads of its runtime take over what it would have done.
    fn write_here(&self, mut state: MutexGuard<'_, State>) {
        let sealed = state.seal();
        drop(state);
        let write = || tokio::task::block_in_place(|| self.write(sealed));
        let written = catch_unwind(AssertUnwindSafe(write)).unwrap_or(Err(Failure::Panic));
        let mut state = self.lock_anyway();
        match written {
            Ok(()) => {
                state.decider.landed();
                self.call_if_needed(state);
            }
            Err(failure) => {
                state.failed = Some(failure);
                state.is_closed = true;
                self.call(state);
            }
        }
    }

    /// Makes a batch durable, then tells everyone: followers first, so that who has an answer finds its event.
    fn write(&self, sealed: Sealed) -> Result<(), Failure> {
        let Sealed { batch, deliveries, commands, fate } = sealed;
        if let Some(batch) = &batch {
            let watch = Stopwatch::start();
            self.commit(batch)?;
            self.metrics.committed(commands, watch.seconds(), &batch.events);
            self.feed.publish(batch);
        }
        for delivery in deliveries {
            self.unclaim(&delivery.deliver());
        }
        fate.fulfil();
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<(), Failure> {
        let mut store = self.store.lock().map_err(|_| Failure::Panic)?;
        let store = store.as_mut().ok_or(Failure::Panic)?;
        Ok(store.commit(batch)?)
    }

    fn verify(&self) -> Result<(), Failure> {
        let store = self.store.lock().map_err(|_| Failure::Panic)?;
        let store = store.as_ref().ok_or(Failure::Panic)?;
        Ok(store.verify().map_err(CommitError::from)?)
    }

    fn call_if_needed(&self, mut state: MutexGuard<'_, State>) {
        if state.decider.is_ready() || state.is_closed || state.oversleeps() {
            self.call(state);
        }
    }

    /// Wakes the thread, after the lock is free, and only if it sleeps: a wake-up costs a system call.
    fn call(&self, mut state: MutexGuard<'_, State>) {
        let is_first = !std::mem::replace(&mut state.is_called, true);
        let is_asleep = state.is_asleep;
        drop(state);
        if is_first && is_asleep {
            self.called.notify_one();
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        self.state.lock().map_err(|_| Failure::Panic)
    }

    /// For what must be said also after a panic.
    fn lock_anyway(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the thread when a decision panics: the lock is poisoned then, and the thread makes it known.
struct Alarm<'a>(&'a Condvar);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.notify_one();
        }
    }
}

/// Whether the disk may be waited for here: the threads of a runtime with several take over from each other.
fn may_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
