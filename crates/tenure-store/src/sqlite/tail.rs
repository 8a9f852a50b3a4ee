//! Owns what the writer, the folder and the readers share: the batches that are not in the tables yet, and how far each
//! has come.
//!
//! ```text
//!   first kept event      checkpointed ≤ folded           head
//!        │                     │           │                │
//!  ──────┴─── tables.db ───────┴───────────┤  (journal) ┌───┤
//!                                          └────────────┴───┘
//!                                             forgotten   in memory
//! ```
//!
//! Memory is bounded: when folding falls far behind, the oldest batches are forgotten here and read from the journal by
//! whoever needs them. The writer never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::change::Head;
use tenure_core::event::Cursor;

use super::logged::Logged;
use crate::Error;

/// How many changes one transaction of folding takes, by weight: what begins and ends within one is never written as a record,
/// only as its events.
pub(super) const FOLD_CHANGES: usize = 10_000;
/// How long a change waits to be folded when there are few.
pub(super) const FOLD_WAIT: Duration = Duration::from_millis(250);

/// The shared state.
pub(super) struct Tail {
    state: Mutex<State>,
    /// Wakes the folder.
    work: Condvar,
    /// Wakes who waits for the folder.
    progress: Condvar,
    changes_max: usize,
    is_folding: bool,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<Logged>>,
    /// The changes in `batches`.
    held: usize,
    /// The changes that are not folded, in memory or not.
    unfolded: usize,
    progress: Progress,
    /// Up to which batch someone waits for folding and a checkpoint.
    wanted: u64,
    /// Up to which batch that was done.
    flushed: u64,
    is_stopping: bool,
    error: Option<Arc<Error>>,
}

/// How far everyone has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) head: Head,
    pub(super) folded: Head,
    pub(super) checkpointed_seq: u64,
    pub(super) first: Cursor,
}

/// Why the folder was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// There is enough to fold, or the wait is over.
    Fold,
    /// Someone waits: fold everything up to here and checkpoint.
    Flush(u64),
    /// Fold what is left and end.
    Stop,
}

/// What a reader sees of the tail.
pub(super) struct View {
    /// The batches in memory that it asked for.
    pub(super) batches: Vec<Arc<Logged>>,
    /// The number of the first batch in memory; the one after the head if there is none.
    pub(super) first_seq: u64,
    /// How far the tables were at that moment, at least.
    pub(super) folded_seq: u64,
}

impl Tail {
    /// An empty tail: everything up to `progress.head` is folded.
    pub(super) fn new(progress: Progress, changes_max: usize, is_folding: bool) -> Tail {
        let state = State { progress, flushed: progress.folded.seq, ..State::default() };
        Tail { state: Mutex::new(state), work: Condvar::new(), progress: Condvar::new(), changes_max, is_folding }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a committed batch; says up to where the journal may forget. Fails if the batch is in a file that is gone.
    pub(super) fn push(&self, logged: Arc<Logged>) -> Result<u64, Error> {
        let mut state = self.lock();
        if let Some(Error::Removed { path }) = state.error.as_deref() {
            return Err(Error::Removed { path: path.clone() });
        }
        let weight_added = logged.weight();
        let was_enough = state.unfolded >= FOLD_CHANGES;
        state.unfolded += weight_added;
        state.held += weight_added;
        state.progress.head = logged.head;
        state.batches.push_back(logged);
        while state.held > self.changes_max && state.batches.len() > 1 {
            state.forget_first();
        }
        // A wake-up is a system call: one for a chunk, not one for a commit.
        if !was_enough && state.unfolded >= FOLD_CHANGES && self.is_folding {
            self.work.notify_one();
        }
        Ok(state.progress.checkpointed_seq)
    }

    pub(super) fn progress(&self) -> Progress {
        self.lock().progress
    }

    pub(super) fn error(&self) -> Option<Arc<Error>> {
        self.lock().error.clone()
    }

    /// The batches in memory with events between the cursors.
    pub(super) fn view(&self, after: Cursor, before: Cursor) -> View {
        let state = self.lock();
        let from = state.batches.partition_point(|logged| logged.head.cursor <= after);
        let spans = |logged: &&Arc<Logged>| logged.events().next().is_none_or(|event| event.cursor < before);
        View {
            batches: state.batches.iter().skip(from).take_while(spans).cloned().collect(),
            first_seq: state.first_seq(),
            folded_seq: state.progress.folded.seq,
        }
    }

    /// All batches in memory, also those without events.
    pub(super) fn view_all(&self) -> View {
        let state = self.lock();
        View {
            batches: state.batches.iter().cloned().collect(),
            first_seq: state.first_seq(),
            folded_seq: state.progress.folded.seq,
        }
    }

    /// Waits for something to do; not longer than a change may wait.
    pub(super) fn wait_for_work(&self) -> Work {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return Work::Stop;
            }
            if state.wanted > state.flushed && state.error.is_none() {
                return Work::Flush(state.wanted);
            }
            if self.is_folding && state.unfolded >= FOLD_CHANGES && state.error.is_none() {
                return Work::Fold;
            }
            let waited = self.work.wait_timeout(state, FOLD_WAIT).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() && (self.is_folding || state.error.is_some()) {
                return Work::Fold;
            }
        }
    }

    /// The next chunk from memory: `None` when the batch after `folded` is no longer there, empty when there is none.
    pub(super) fn chunk(&self) -> Option<Vec<Arc<Logged>>> {
        let state = self.lock();
        let next = state.progress.folded.seq + 1;
        let skip = next.checked_sub(state.first_seq())?;
        let mut taken = 0;
        let fits = |logged: &&Arc<Logged>| {
            let fits = taken < FOLD_CHANGES;
            taken += logged.weight();
            fits
        };
        Some(state.batches.iter().skip(skip as usize).take_while(fits).cloned().collect())
    }

    /// Where the memory starts: the journal has what lies between `folded` and this.
    pub(super) fn first_seq(&self) -> u64 {
        self.lock().first_seq()
    }

    /// The tables have this chunk: memory can let go of it.
    pub(super) fn set_folded(&self, chunk: &[Arc<Logged>]) {
        let Some(last) = chunk.last() else { return };
        let mut state = self.lock();
        state.error = None;
        state.progress.folded = last.head;
        state.unfolded = state.unfolded.saturating_sub(chunk.iter().map(|logged| logged.weight()).sum());
        while state.batches.front().is_some_and(|first| first.head.seq <= last.head.seq) {
            state.forget_first();
        }
    }

    pub(super) fn set_checkpointed(&self, seq: u64) {
        self.lock().progress.checkpointed_seq = seq;
    }

    pub(super) fn set_first(&self, first: Cursor) {
        self.lock().progress.first = first;
    }

    /// Everything up to here was folded and a checkpoint tried.
    pub(super) fn set_flushed(&self, seq: u64) {
        self.lock().flushed = seq;
        self.progress.notify_all();
    }

    pub(super) fn set_error(&self, error: Option<Error>) {
        self.lock().error = error.map(Arc::new);
        self.progress.notify_all();
    }

    /// Waits until everything committed so far is folded and a checkpoint was tried.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let mut state = self.lock();
        let seq = state.progress.head.seq;
        if state.wanted < seq {
            state.wanted = seq;
            self.work.notify_one();
        }
        while state.flushed < seq {
            if let Some(error) = &state.error {
                return Err(Error::Folding(Arc::clone(error)));
            }
            if state.is_stopping {
                return Err(Error::Closed);
            }
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Tells the folder to finish.
    pub(super) fn stop(&self) {
        self.lock().is_stopping = true;
        self.work.notify_all();
        self.progress.notify_all();
    }
}

impl State {
    fn first_seq(&self) -> u64 {
        self.batches.front().map_or(self.progress.head.seq + 1, |logged| logged.head.seq)
    }

    fn forget_first(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.held -= batch.weight();
        }
    }
}
