//! Owns why the ledger says no about documents, agents and coordinators: data that a caller can act on; the doors put it into
//! words. Why it says no about leases is in [`crate::refusal`].

use crate::access::Permission;
use crate::agent::AgentStatus;
use crate::intent::Status;
use crate::lease::Lease;
use crate::patch::BadPatch;
use crate::serial::IntentId;
use crate::{Holder, Resource};

/// Why the ledger says no.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// No such thing.
    #[error("there is no {what} {id}")]
    Unknown {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        id: String,
    },
    /// The write is based on another version than the current one (D1).
    #[error("the version is {current} now")]
    Stale {
        /// The current one.
        current: u64,
    },
    /// Someone else holds that part of the state (D2).
    #[error("{} is held by {}", .resource, .lease.holder)]
    Guarded {
        /// What was to be written.
        resource: Resource,
        /// The lease that guards it.
        lease: Box<Lease>,
    },
    /// The lease the write relies on is over (D2).
    #[error("the lease of {holder} on {resource} is over")]
    Late {
        /// Whose it was.
        holder: Holder,
        /// What it held.
        resource: Resource,
    },
    /// The intent is completed or abandoned.
    #[error("the intent is {}", .0.as_str())]
    Finished(Status),
    /// That status does not follow this one.
    #[error("an intent that is {} does not become {}", .from.as_str(), .to.as_str())]
    Transition {
        /// Where it stands.
        from: Status,
        /// What was asked for.
        to: Status,
    },
    /// The access list does not allow it.
    #[error("the access list of {intent} does not let {holder} {} it", .needs.as_str())]
    NotAllowed {
        /// Who asked.
        holder: Holder,
        /// About which intent.
        intent: IntentId,
        /// What is needed.
        needs: Permission,
    },
    /// It is another's.
    #[error("it is {owner}'s")]
    NotYours {
        /// Whose.
        owner: Holder,
    },
    /// An agent registered it with another credential.
    #[error("{0} registered with another credential")]
    OtherCredential(Holder),
    /// The agent is registered and alive.
    #[error("{0} is registered already")]
    Registered(Holder),
    /// The agent is dead or has left.
    #[error("{name} is {}", .status.as_str())]
    Gone {
        /// Who.
        name: Holder,
        /// How.
        status: AgentStatus,
    },
    /// A patch cannot be made.
    #[error(transparent)]
    Patch(#[from] BadPatch),
    /// It is over, so nothing more can be done with it.
    #[error("this {what} is {how} already")]
    Over {
        /// What.
        what: &'static str,
        /// How it ended.
        how: &'static str,
    },
    /// What was asked makes no sense as things are.
    #[error("{0}")]
    Senseless(String),
    /// One of the bounds of [`crate::limits`].
    #[error("{what} is limited to {max}")]
    Limit {
        /// What is bounded, in words.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The ledger says no about the lease.
    #[error(transparent)]
    Lease(#[from] crate::refusal::Refusal),
}

impl Refusal {
    /// No such thing.
    pub fn unknown(what: &'static str, id: impl ToString) -> Refusal {
        Refusal::Unknown { what, id: id.to_string() }
    }
}
