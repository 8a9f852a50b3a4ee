//! Owns what can be asked of the ledger. A command is plain data with checked fields; bad input never becomes one.
//!
//! Every command says what its reply is. Adding one means adding a type here and its rule in [`crate::ledger`]; nothing
//! in the middle has to know all of them.

use serde_json::value::RawValue;

use crate::event::Cursor;
use crate::lease::{End, Lease, Mode, Resources};
use crate::ledger::{Ledger, Turn};
use crate::refusal::{Conflict, Refusal};
use crate::{Holder, Resource, Timestamp, Token, Ttl};

/// Something asked of the ledger.
pub trait Command: Send + 'static {
    /// What it is answered with.
    type Reply: Send + 'static;

    /// Decides it. Called by [`Ledger::apply`] only, after everything due has lapsed.
    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply;
}

/// Names a wait in the queue; grows with time, so the smaller one is first in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Take resources, all or none.
#[derive(Debug, Clone)]
pub struct Acquire {
    /// What; repeated names count once.
    pub resources: Resources,
    /// Who.
    pub holder: Holder,
    /// For how long without a renewal.
    pub ttl: Ttl,
    /// Alone or together with others.
    pub mode: Mode,
    /// How long to wait for it; `None` answers at once.
    pub wait_ms: Option<u64>,
    /// How long the resources stay closed if the holder is lost.
    pub grace_ms: u32,
    /// A lease of the same holder to live within.
    pub within: Option<Token>,
    /// A note, a JSON object.
    pub metadata: Option<Box<RawValue>>,
    /// Tells a retry from a second request.
    pub key: Option<Box<str>>,
    /// Whether the access lists of intents count: not for an administrator, nor where every name is believed.
    pub heeds_lists: bool,
}

impl Acquire {
    /// An exclusive acquire without extras.
    pub fn new(resources: impl IntoIterator<Item = Resource>, holder: Holder, ttl: Ttl) -> Acquire {
        Acquire {
            resources: resources.into_iter().collect(),
            holder,
            ttl,
            mode: Mode::Exclusive,
            wait_ms: None,
            grace_ms: 0,
            within: None,
            metadata: None,
            key: None,
            heeds_lists: false,
        }
    }
}

/// A lease as it was granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The lease.
    pub lease: Lease,
    /// How it has ended since, which only the answer to a retried request can say (L7).
    pub ended: Option<End>,
}

/// The answer to [`Acquire`].
#[derive(Debug, Clone)]
pub enum Acquired {
    /// Here it is.
    Granted(Grant),
    /// In line; the answer comes later, in [`Turn::settled`].
    Queued(WaiterId),
    /// No.
    Refused(Refusal),
}

/// Keep leases alive (L5). Each is answered on its own.
#[derive(Debug, Clone)]
pub struct Renew {
    /// Which.
    pub tokens: Vec<Token>,
    /// Who asks.
    pub holder: Holder,
    /// A new ttl; `None` keeps each lease's own.
    pub ttl: Option<Ttl>,
}

/// The answer to one renewal. What became of a lease that is not active, and who holds its resources now, is in
/// the events: the caller looks there ([`crate::refusal::Ended`]).
#[derive(Debug, Clone)]
pub enum Renewal {
    /// It runs on.
    Renewed {
        /// Until when.
        expires_at: Timestamp,
        /// With which ttl.
        ttl: Ttl,
    },
    /// It was granted once and is over.
    Over,
    /// It is someone else's.
    NotHolder {
        /// Whose.
        holder: Holder,
    },
    /// No such lease was ever granted.
    Unknown,
}

/// Give a lease back (L6).
#[derive(Debug, Clone)]
pub struct Release {
    /// Which.
    pub token: Token,
    /// Who asks.
    pub holder: Holder,
}

/// Take a lease away (L10). Who may do that is the door's business.
#[derive(Debug, Clone)]
pub struct Revoke {
    /// Which.
    pub token: Token,
    /// Who does it.
    pub by: Holder,
    /// Why; told to the holder.
    pub reason: Box<str>,
}

/// The answer to [`Release`] and [`Revoke`].
#[derive(Debug, Clone)]
pub enum Ending {
    /// It is over now: this was it, and this is when it ended.
    Ended(Lease, Timestamp),
    /// It was over before; the events tell how.
    Over,
    /// It is someone else's; nothing changed.
    NotHolder {
        /// Whose.
        holder: Holder,
    },
    /// No such lease was ever granted.
    Unknown,
}

/// Leave the queue: the client went away.
#[derive(Debug, Clone, Copy)]
pub struct Leave(pub WaiterId);

/// Nothing but the passing of time: what is due lapses.
#[derive(Debug, Clone, Copy)]
pub struct Tick;

/// Who would stop me? Takes nothing.
#[derive(Debug, Clone)]
pub struct Check {
    /// What would be asked for.
    pub resources: Resources,
    /// In which mode.
    pub mode: Mode,
    /// Leases of this holder do not count, if given.
    pub holder: Option<Holder>,
}

/// The answer to [`Check`]: what stands in the way, a bounded list.
#[derive(Debug, Clone)]
pub struct Checked {
    /// One entry for every lease, closure or queue in the way; empty if all is free.
    pub conflicts: Vec<Conflict>,
    /// The ledger's time of this answer.
    pub now: Timestamp,
}

/// Look one active lease up.
#[derive(Debug, Clone, Copy)]
pub struct Get(pub Token);

/// The answer to [`Get`].
#[derive(Debug, Clone)]
pub enum Got {
    /// It is active.
    Active(Lease),
    /// It was granted once and is over; the events tell the rest.
    Over,
    /// No such lease was ever granted.
    Unknown,
}

/// List active leases by token. Looks at a bounded number of leases, so a page can be short while more follow.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Only those that overlap it.
    pub resource: Option<Resource>,
    /// Only those of this holder.
    pub holder: Option<Holder>,
    /// Only those with a resource of this kind.
    pub kind: Option<String>,
    /// Only those after this one.
    pub after: Option<Token>,
    /// At most so many.
    pub limit: usize,
}

/// A page of active leases.
#[derive(Debug, Clone)]
pub struct Page {
    /// In the order of their tokens.
    pub leases: Vec<Lease>,
    /// Where the next page starts, if there may be more.
    pub next: Option<Token>,
    /// The ledger's time of this answer.
    pub now: Timestamp,
}

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub struct Count;

/// The answer to [`Count`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Active leases.
    pub leases: usize,
    /// Waits in the queue.
    pub waiters: usize,
    /// Holders with a lease or a wait.
    pub holders: usize,
    /// Entries of the deadline queue, also those about things that are gone.
    pub deadlines: usize,
    /// The last event.
    pub cursor: Cursor,
}
