//! Owns why the ledger says no. A refusal is data that a caller can act on (L14); the doors put it into words.
//!
//! A refusal is not an error: nothing broke, a rule answered.

use crate::access::Permission;
use crate::agent::AgentStatus;
use crate::intent::Status;
use crate::lease::{End, Mode};
use crate::serial::IntentId;
use crate::{Holder, Resource, Timestamp, Token};

/// What stands in the way of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// An active lease.
    Lease {
        /// Its token.
        token: Token,
        /// Who holds it.
        holder: Holder,
        /// Its mode.
        mode: Mode,
        /// Since when.
        acquired_at: Timestamp,
        /// Until when, if it is not renewed.
        expires_at: Timestamp,
    },
    /// Nobody holds it, but it stays closed after the loss of its last holder (L11).
    Closure {
        /// The lease that ended.
        token: Token,
        /// Who held it.
        holder: Holder,
        /// Until when it is closed.
        until: Timestamp,
    },
    /// No lease stands against it, but someone has been waiting longer (L9).
    Waiter {
        /// Who waits.
        holder: Holder,
    },
}

impl Blocker {
    /// Who it is about.
    pub fn holder(&self) -> &Holder {
        match self {
            Blocker::Lease { holder, .. } | Blocker::Closure { holder, .. } | Blocker::Waiter { holder } => holder,
        }
    }

    /// When it goes away by itself, where that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Blocker::Lease { expires_at, .. } => Some(*expires_at),
            Blocker::Closure { until, .. } => Some(*until),
            Blocker::Waiter { .. } => None,
        }
    }
}

/// Why one resource cannot be had now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What was asked for.
    pub resource: Resource,
    /// What is held or waited for, and overlaps it.
    pub overlap: Resource,
    /// By whom.
    pub blocker: Blocker,
    /// How many wait for something that overlaps it.
    pub waiting: usize,
    /// Whether it is the asker's own lease. Waiting for that would never end (L9).
    pub is_own: bool,
}

impl Conflict {
    /// The conflict as it looks to who asked.
    pub(crate) fn seen_by(self, asker: &Holder) -> Conflict {
        let is_own = matches!(&self.blocker, Blocker::Lease { holder, .. } if holder == asker);
        Conflict { is_own, ..self }
    }
}

/// Why the ledger says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Someone holds it, it is closed, or others are first in line.
    #[error("{} is not free: {} has {}", .0.resource, .0.blocker.holder(), .0.overlap)]
    Held(Box<Conflict>),
    /// The wait ran out.
    #[error("waited in vain for {}: {} has {}", .0.resource, .0.blocker.holder(), .0.overlap)]
    WaitTimedOut(Box<Conflict>),
    /// The wait would never end: each of these waits for the next, the last for the first.
    #[error("waiting would never end: {} wait for each other", .cycle.iter().map(Holder::as_str).collect::<Vec<_>>().join(", "))]
    WouldDeadlock {
        /// Who waits for whom.
        cycle: Vec<Holder>,
    },
    /// The lease is another holder's.
    #[error("the lease is held by {holder}")]
    NotHolder {
        /// Whose it is.
        holder: Holder,
    },
    /// No resources were named.
    #[error("an acquire names at least one resource")]
    NoResources,
    /// One of the bounds of [`crate::limits`].
    #[error("{what} is limited to {max}")]
    LimitReached {
        /// What is bounded, in words.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The lease named in `within` is not active.
    #[error("the lease to live within is over or was never granted")]
    WithinOver,
    /// The holder is a registered agent that is draining, dead or has left.
    #[error("{holder} is {}: it gets no new leases", .status.as_str())]
    AgentLeaving {
        /// Who.
        holder: Holder,
        /// How it stands.
        status: AgentStatus,
    },
    /// The intent is completed or abandoned.
    #[error("the intent is {}: it takes no more leases", .status.as_str())]
    IntentFinished {
        /// How it ended.
        status: Status,
    },
    /// The access list of the intent does not allow it.
    #[error("the access list of {intent} does not let {holder} {} it", .needs.as_str())]
    NotAllowed {
        /// Who asked.
        holder: Holder,
        /// About which intent.
        intent: IntentId,
        /// What is needed.
        needs: Permission,
    },
    /// The key was used for a different request.
    #[error("the idempotency key was used for a different request")]
    KeyReused,
}

impl Refusal {
    /// The stable code of every wire.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::Held(_) => "held",
            Refusal::WaitTimedOut(_) => "wait_timed_out",
            Refusal::WouldDeadlock { .. } => "would_deadlock",
            Refusal::NotHolder { .. } => "not_holder",
            Refusal::NoResources => "no_resources",
            Refusal::LimitReached { .. } => "limit_reached",
            Refusal::WithinOver => "within_over",
            Refusal::AgentLeaving { .. } => "agent_leaving",
            Refusal::IntentFinished { .. } => "intent_finished",
            Refusal::NotAllowed { .. } => "forbidden",
            Refusal::KeyReused => "key_reused",
        }
    }
}

/// What became of a lease that is no longer active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The lease.
    pub token: Token,
    /// Who held it.
    pub holder: Holder,
    /// What it held.
    pub resources: crate::lease::Resources,
    /// How it ended.
    pub end: End,
    /// When.
    pub at: Timestamp,
    /// Why, where someone said so.
    pub reason: Option<Box<str>>,
}

impl Ended {
    /// Reads it from the event that ended the lease; nothing for any other event.
    pub fn from_event(event: &crate::event::Event) -> Option<Ended> {
        Some(Ended {
            token: event.token?,
            holder: event.holder.clone()?,
            resources: event.resources.clone(),
            end: event.kind.end()?,
            at: event.at,
            reason: event.reason.clone(),
        })
    }
}
