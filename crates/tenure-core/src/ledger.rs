//! Owns the rules of leases (R2, L1–L14) and the whole truth in memory. The given `now` is the only time.
#![allow(dead_code)]

use crate::change::{Change, Head};
use crate::command::{Command, Grant, WaiterId};
use crate::event::Event;
use crate::refusal::Refusal;
use crate::{Epoch, Timestamp};

/// What commands are decided with, and what they leave behind. One turn serves a whole batch.
pub struct Turn<'a> {
    now: Timestamp,
    is_waiting: &'a dyn Fn(WaiterId) -> bool,
    /// What happens to records.
    pub changes: Vec<Change>,
    /// What happened.
    pub events: Vec<Event>,
    /// Waits that were answered.
    pub settled: Vec<(WaiterId, Result<Grant, Refusal>)>,
}

impl<'a> Turn<'a> {
    /// A turn at `now`. `is_waiting` says whether the client of a wait is still there: it is asked before a grant.
    pub fn new(now: Timestamp, is_waiting: &'a dyn Fn(WaiterId) -> bool) -> Turn<'a> {
        Turn { now, is_waiting, changes: Vec::new(), events: Vec::new(), settled: Vec::new() }
    }

    /// The ledger's time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether its changes must be on disk before anyone is answered: not so for renewals alone (L13).
    pub fn is_durable(&self) -> bool {
        !self.events.is_empty() || self.changes.iter().any(|change| !matches!(change, Change::Renewed(..)))
    }
}

/// Who holds what.
pub struct Ledger {
    head: Head,
}

impl Ledger {
    /// A ledger of this epoch, continuing from `head`. Feed it every record with [`Ledger::restore`], then [`Ledger::start`] it.
    pub fn open(head: Head, epoch: Epoch) -> Ledger {
        Ledger { head: Head { epoch, ..head } }
    }

    /// Decides a command.
    pub fn apply<C: Command>(&mut self, turn: &mut Turn<'_>, command: C) -> C::Reply {
        command.decide(self, turn)
    }

    /// Where the ledger stands; the batch's number is the engine's to count.
    pub fn head(&self) -> Head {
        self.head
    }

    /// When something lapses next, if nothing is renewed until then.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }
}
