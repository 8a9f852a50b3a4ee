//! Owns the line in front of the writer: bounded for requests, open for what the server itself must say.
//!
//! One lock, one condition variable. The writer takes everything that stands in line at once, so batches form by
//! themselves while a commit runs and nobody ever waits for one to fill.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::job::Job;

/// How often the writer looks again before it sleeps. Each look gives the processor to whoever is about to ask; all together
/// they take about as long as a client needs to answer an answer, and being woken costs more than that.
const LOOKS: usize = 100;

/// Why a job did not get into the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    Full,
    Stopped,
}

pub(super) struct Queue {
    capacity: usize,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    is_closed: bool,
    /// The clock has moved: look at the deadlines again.
    is_poked: bool,
    is_asleep: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.is_closed && !self.is_poked
    }
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Queue {
        Queue { capacity, state: Mutex::default(), arrived: Condvar::new() }
    }

    /// Puts a request into the line, if there is room.
    pub(super) fn push(&self, job: Box<dyn Job>) -> Result<(), Closed> {
        self.enter(job, self.capacity)
    }

    /// Puts something into the line that nobody can be told to send again.
    pub(super) fn push_always(&self, job: Box<dyn Job>) {
        // A line that has stopped has nobody left to tell.
        self.enter(job, usize::MAX).ok();
    }

    fn enter(&self, job: Box<dyn Job>, capacity: usize) -> Result<(), Closed> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Closed::Stopped);
        }
        if state.jobs.len() >= capacity {
            return Err(Closed::Full);
        }
        state.jobs.push_back(job);
        self.wake(state);
        Ok(())
    }

    /// Wakes the writer for its deadlines.
    pub(super) fn poke(&self) {
        let mut state = self.lock();
        state.is_poked = true;
        self.wake(state);
    }

    /// Nothing enters any more; what is in line is still taken.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.wake(state);
    }

    /// Closes, and drops what is in line: nobody will take it.
    pub(super) fn abandon(&self) {
        self.close();
        // Dropped outside the lock: whoever is woken by it may ask again at once.
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Takes up to `max` jobs, sleeping up to `patience` (`None`: for ever) for the first. False at the end of all.
    pub(super) fn take(&self, into: &mut Vec<Box<dyn Job>>, max: usize, patience: Option<Duration>) -> bool {
        let mut state = self.lock();
        if state.is_idle() && patience != Some(Duration::ZERO) {
            for _ in 0..LOOKS {
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                if !state.is_idle() {
                    break;
                }
            }
            if state.is_idle() {
                state = self.sleep(state, patience);
            }
        }
        state.is_poked = false;
        let count = state.jobs.len().min(max);
        into.extend(state.jobs.drain(..count));
        !(state.is_closed && into.is_empty())
    }

    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>, patience: Option<Duration>) -> MutexGuard<'a, State> {
        state.is_asleep = true;
        let mut state = match patience {
            None => self.arrived.wait_while(state, |state| state.is_idle()).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let woken = self.arrived.wait_timeout_while(state, patience, |state| state.is_idle());
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.is_asleep = false;
        state
    }

    /// Wakes the writer after the lock is free, and only if it sleeps: a wake-up costs a system call.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let is_asleep = std::mem::take(&mut state.is_asleep);
        drop(state);
        if is_asleep {
            self.arrived.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
