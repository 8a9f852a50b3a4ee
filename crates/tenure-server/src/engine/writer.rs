//! Owns the one thread that decides: takes the line, stamps the time, applies, commits, publishes, answers.
//!
//! Nothing leaves before the changes it rests on are committed. The one exception is a renewal that keeps its ttl: recovery
//! extends every lease by its ttl, so the promise holds also when the write is lost (L13). A commit that fails stops the
//! writer for good: the memory image is then ahead of the disk and nobody may be answered from it.

use std::sync::Arc;

use tenure_core::change::{Batch, Change, Head};
use tenure_core::command::Tick;
use tenure_core::event::Event;
use tenure_core::{Ledger, Timestamp, Turn};
use tenure_store::{CommitError, Store};

use super::clock::{Clock, Stopwatch};
use super::feed::Feed;
use super::job::Job;
use super::queue::Queue;
use super::renewals::Renewals;
use super::waits::Waits;
use crate::metrics::Metrics;

/// How many commands one commit may carry: enough that the disk is no longer what limits, few enough that an answer is soon.
pub const BATCH_MAX: usize = 1_024;

pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) feed: Arc<Feed>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) store: Box<dyn Store>,
    pub(super) ledger: Ledger,
    pub(super) time: LedgerTime,
    pub(super) waits: Waits,
    pub(super) renewals: Renewals,
    /// The number of the last batch.
    pub(super) seq: u64,
}

impl Writer {
    /// Works until the line is closed and empty, or until a commit fails.
    pub(super) fn run(mut self) -> Result<(), CommitError> {
        let mut jobs = Vec::with_capacity(BATCH_MAX);
        loop {
            let patience = self.patience();
            if !self.queue.take(&mut jobs, BATCH_MAX, patience) {
                return self.write_renewals();
            }
            self.work(&mut jobs)?;
        }
    }

    fn patience(&mut self) -> Option<std::time::Duration> {
        let deadline = [self.ledger.next_deadline(), self.renewals.due()].into_iter().flatten().min()?;
        self.time.until(deadline)
    }

    /// One turn: decides what arrived, commits it, answers.
    pub(super) fn work(&mut self, jobs: &mut Vec<Box<dyn Job>>) -> Result<(), CommitError> {
        let now = self.time.stamp();
        let is_waiting = |waiter| self.waits.is_waiting(waiter);
        let mut turn = Turn::new(now, &is_waiting);
        if jobs.is_empty() {
            self.ledger.apply(&mut turn, Tick);
        }
        for job in jobs.iter_mut() {
            job.decide(&mut self.ledger, &mut turn, &self.waits);
        }
        let is_durable = turn.is_durable();
        let Turn { changes, events, settled, polled, .. } = turn;
        let committed = if is_durable {
            let changes = self.renewals.write_before(changes);
            Some(self.commit(changes, events, jobs.len())?)
        } else {
            self.renewals.keep(changes, now);
            None
        };
        // Before the answers: who has one finds its event in the feed.
        if let Some(batch) = committed {
            self.feed.publish(batch);
        }
        for job in jobs.drain(..) {
            job.answer();
        }
        for (waiter, answer) in settled {
            self.waits.settle(waiter, answer);
        }
        for (waiter, tasks) in polled {
            self.waits.settle_poll(waiter, tasks);
        }
        match self.renewals.due() {
            Some(due) if due <= now => self.write_renewals(),
            _ => Ok(()),
        }
    }

    fn write_renewals(&mut self) -> Result<(), CommitError> {
        let changes = self.renewals.write_before(Vec::new());
        if changes.is_empty() {
            return Ok(());
        }
        self.commit(changes, Vec::new(), 0).map(drop)
    }

    /// Makes a batch durable; its events may then be told.
    fn commit(&mut self, changes: Vec<Change>, events: Vec<Event>, commands: usize) -> Result<Arc<Batch>, CommitError> {
        let watch = Stopwatch::start();
        let head = Head { seq: self.seq + 1, at: self.time.last, ..self.ledger.head() };
        let batch = Arc::new(Batch { head, changes, events });
        self.store.commit(&batch)?;
        self.seq = head.seq;
        self.metrics.committed(commands, watch.seconds(), &batch.events);
        Ok(batch)
    }
}

/// The ledger's time: the clock's, moved forward once at the start if the ledger has already seen a later time, so that it
/// neither goes back nor stands still until the clock has caught up.
#[derive(Clone)]
pub(super) struct LedgerTime {
    clock: Arc<dyn Clock>,
    ahead_ms: u64,
    pub(super) last: Timestamp,
}

impl LedgerTime {
    pub(super) fn resume(clock: Arc<dyn Clock>, last: Timestamp) -> LedgerTime {
        let ahead_ms = last.ms_since(clock.now());
        LedgerTime { clock, ahead_ms, last }
    }

    pub(super) fn stamp(&mut self) -> Timestamp {
        self.last = self.now();
        self.last
    }

    pub(super) fn now(&self) -> Timestamp {
        self.last.max(self.clock.now().plus_ms(self.ahead_ms))
    }

    fn until(&self, moment: Timestamp) -> Option<std::time::Duration> {
        self.clock.until(Timestamp::from_unix_ms(moment.unix_ms().saturating_sub(self.ahead_ms)))
    }
}
