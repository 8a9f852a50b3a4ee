//! Owns durability: the latest value of every record, all events in order, and where the ledger stands.
//!
//! ```text
//! engine's writer ── claim, load, commit ──► Store          one owner, one batch after the other
//! doors, SSE, metrics ── events, ended … ──► Reader         cheap, concurrent, never in the way of a commit
//! ```
//!
//! A driver relies on the ledger for every rule: it stores what it is given. It promises that
//!
//! 1. a batch whose commit answered `Ok` is found again by every later [`Store::load`], also after the process or
//!    the machine died; a batch whose commit failed is found again whole or not at all;
//! 2. batches are numbered without a gap, and a commit of an older epoch than the last one claimed changes nothing;
//! 3. a [`Reader`] sees every committed event, in cursor order, until retention drops it, oldest first.
//!
//! It does not promise that a commit that failed is not durable: after [`CommitError::Failed`] the only way on is to
//! open the store again and see.
//!
//! Drivers: [`Sqlite`] for one machine, [`Memory`] for tests. Each passes the conformance suite of `tests/it`.
#![warn(missing_docs)]

pub mod audit;
mod error;
mod memory;
mod query;
mod sqlite;

use std::path::Path;
use std::sync::Arc;

use tenure_core::change::{Batch, Head, Record, RecordId};
use tenure_core::event::Cursor;
use tenure_core::flow::Archived;
use tenure_core::refusal::Ended;
use tenure_core::{Epoch, Token};

pub use error::{CommitError, Error};
pub use memory::{Fault, Memory};
pub use query::{EventPage, EventQuery, Order};
pub use sqlite::{CheckReport, Options, Retain, Sqlite, check, partial_name};

/// A store, as its one writer sees it.
pub trait Store: Send {
    /// Takes the next epoch: larger than every one before and not smaller than `at_least`. The first one after a backup was
    /// restored is far larger, because the store that it was taken from may have gone on. From here on every commit of an
    /// older one fails with [`CommitError::Fenced`], so claim first, then load: nobody else's batch can come in between.
    fn claim(&mut self, at_least: Epoch) -> Result<Epoch, Error>;

    /// Gives every record of a live kind to `each`, kind by kind in the order of
    /// [`RecordKind::ALL`](tenure_core::change::RecordKind::ALL) and by id within a kind, renewals already in the
    /// leases, and returns where the ledger stands.
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, Error>;

    /// Makes a batch durable, all or nothing. Its number is the last one + 1.
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError>;

    /// Whether what was committed is still where the next start looks for it. Asked before an end is called an orderly one.
    fn verify(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The reading side.
    fn reader(&self) -> Arc<dyn Reader>;
}

/// A store, as everyone else sees it. Reads see every batch whose commit has returned.
pub trait Reader: Send + Sync {
    /// A page of events.
    fn events(&self, query: &EventQuery) -> Result<EventPage, Error>;

    /// How a lease ended; nothing if it has not, never was, or its end is no longer kept.
    fn ended(&self, token: Token) -> Result<Option<Ended>, Error>;

    /// A run that is over, if it is still kept.
    fn archived(&self, id: &RecordId) -> Result<Option<Archived>, Error>;

    /// Runs that are over, the newest id first: at most `limit` with an id smaller than `before`.
    fn archive(&self, before: Option<&RecordId>, limit: usize) -> Result<Vec<Archived>, Error>;

    /// The oldest event still kept; the one after the last if there is none.
    fn first_cursor(&self) -> Result<Cursor, Error>;

    /// How the store is doing.
    fn stats(&self) -> StoreStats;

    /// Writes everything committed so far into one new file, while commits go on.
    fn backup(&self, to: &Path) -> Result<(), Error>;
}

/// How a store is doing. Sizes are 0 where a driver has no files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Where the ledger stands.
    pub head: Head,
    /// How far the journal is folded into the tables.
    pub folded: Head,
    /// Up to which batch the tables are safe on the disk; the journal may forget up to there.
    pub checkpointed_seq: u64,
    /// The oldest event kept.
    pub first_cursor: Cursor,
    /// The journal's files.
    pub journal_bytes: u64,
    /// The tables' files.
    pub tables_bytes: u64,
    /// Why folding does not go on, if it does not. Commits do.
    pub fold_error: Option<String>,
}

impl StoreStats {
    /// Batches that are not folded yet.
    pub fn lag(&self) -> u64 {
        self.head.seq.saturating_sub(self.folded.seq)
    }

    /// By how much of the ledger's time folding is behind.
    pub fn lag_ms(&self) -> u64 {
        if self.lag() == 0 { 0 } else { self.head.at.ms_since(self.folded.at) }
    }

    /// Events that can be read.
    pub fn events_kept(&self) -> u64 {
        (self.head.cursor.0 + 1).saturating_sub(self.first_cursor.0)
    }
}
