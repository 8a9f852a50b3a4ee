//! Owns what an intent is: a versioned document with a state whose parts are guarded by leases (D1, D2).
//! The rules that change it are in [`crate::ledger`].
//!
//! ```text
//! draft ──► active ◄──► blocked ◄──► suspended        any of them ──► completed | abandoned, for good
//! ```

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::access::Access;
use crate::event::Cursor;
use crate::patch::State;
use crate::retry::RetryRule;
use crate::serial::{FailureId, IntentId, WorkflowId};
use crate::{Holder, Timestamp};

/// Where an intent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Not begun.
    #[default]
    Draft,
    /// Being worked on.
    Active,
    /// Cannot go on.
    Blocked,
    /// Waits for someone's answer.
    Suspended,
    /// Done.
    Completed,
    /// Given up.
    Abandoned,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 6] =
        [Status::Draft, Status::Active, Status::Blocked, Status::Suspended, Status::Completed, Status::Abandoned];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Draft => "draft",
            Status::Active => "active",
            Status::Blocked => "blocked",
            Status::Suspended => "suspended",
            Status::Completed => "completed",
            Status::Abandoned => "abandoned",
        }
    }

    /// Whether it stays so.
    pub fn is_finished(self) -> bool {
        matches!(self, Status::Completed | Status::Abandoned)
    }

    /// Whether an intent may go from here to `next`: never out of a finished status, never back to draft.
    pub fn may_become(self, next: Status) -> bool {
        !self.is_finished() && (next != Status::Draft || self == Status::Draft)
    }
}

/// An agent that works on an intent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Who.
    pub agent: Holder,
    /// As what.
    pub role: Box<str>,
    /// Since when.
    pub at: Timestamp,
    /// The event that says so.
    pub cursor: Cursor,
    /// Whether the agent has been sent it.
    #[serde(default)]
    pub told: bool,
    /// Who passed the work on, if someone did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<Holder>,
}

/// What happens when an attempt at an intent fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// When it is tried again.
    pub rule: RetryRule,
    /// Who takes over when the agent fails too often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Holder>,
    /// How often that is.
    pub failure_threshold: u32,
    /// When it was set first.
    pub created_at: Timestamp,
    /// When it was set last.
    pub updated_at: Timestamp,
}

/// A failed attempt, as it was reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Its id.
    pub id: FailureId,
    /// Who failed.
    pub agent: Holder,
    /// Which attempt it was, as the agent counts.
    pub attempt: u32,
    /// A short name for what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Box<str>>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// When the next attempt begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The reporter's own notes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was reported.
    pub at: Timestamp,
}

/// How far the attempts at an intent have come.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Attempts {
    /// How many have failed.
    pub failed: u32,
    /// How many of them since the last change of agent.
    pub failed_by_agent: u32,
    /// When the next one begins, while it is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Who will be asked then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_agent: Option<Holder>,
    /// Whose attempt ended with its lease, until that agent reports it: the report that is to come is about that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<Holder>,
    /// Why the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<str>>,
    /// The last few failures, oldest first; the events have them all.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub failures: VecDeque<Failure>,
}

/// A versioned document that agents work on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// Its id.
    pub id: IntentId,
    /// What it is about.
    pub title: Box<str>,
    /// In more words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it stands.
    pub status: Status,
    /// Grows by one with every change of state, status or dependencies; the first is 1 (D1).
    pub version: u64,
    /// What the agents have made of it.
    pub state: State,
    /// What they must observe, in their own terms.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub constraints: Map<String, Value>,
    /// The intent it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<IntentId>,
    /// The intents that come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<IntentId>,
    /// Who made it.
    pub created_by: Holder,
    /// When.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// A policy that is kept, not interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governance: Option<Value>,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assigned: Vec<Assignment>,
    /// Who may do what with it.
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub access: Access,
    /// What happens when an attempt fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How far the attempts have come.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: Attempts,
    /// The workflow it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowId>,
}

impl Intent {
    /// The assignment of this agent.
    pub fn assignment(&self, agent: &Holder) -> Option<&Assignment> {
        self.assigned.iter().find(|assignment| assignment.agent == *agent)
    }

    /// The number of the attempt that runs or is next; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.attempts.failed + 1
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_intent_stays_finished_and_nothing_becomes_a_draft_again() {
        for from in Status::ALL {
            for to in Status::ALL {
                let allowed = from.may_become(to);
                assert_eq!(
                    allowed,
                    !from.is_finished() && (to != Status::Draft || from == Status::Draft),
                    "{from:?} to {to:?}"
                );
            }
        }
        assert!(Status::Draft.may_become(Status::Completed), "small work may be done at once");
        assert!(!Status::Completed.may_become(Status::Active));
    }
}
