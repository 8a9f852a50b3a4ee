//! Owns what a coordinator's term is: one agent leads an intent or a portfolio, and shows by heartbeats that it still does.
//!
//! Under every live term lies a lease (`portfolio:<id>` or `coordinator:<intent>`), so there is one at a time, it ends by
//! itself, and an agent's death ends it as it ends everything else.
//!
//! ```text
//! active ◄──► paused
//!   │ ▲ beat
//!   ▼ │  2 intervals silent      3 more, or the lease ended
//! unresponsive ───────────────────────────────► failed_over         released, replaced, handed off ──► completed
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::resource::ResourceError;
use crate::serial::{CoordinatorId, IntentId, PortfolioId};
use crate::{Holder, Resource, Timestamp, Token, Ttl};

/// So many silent intervals make a coordinator unresponsive.
pub const MISSED_BEATS: u64 = 2;
/// So many more, and another may take over.
pub const GRACE_BEATS: u64 = 3;

/// What is coordinated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Led {
    /// One intent.
    Intent(IntentId),
    /// A portfolio.
    Portfolio(PortfolioId),
}

impl Led {
    /// The resource whose lease is the right to coordinate. It does not overlap the scopes of an intent: to coordinate is
    /// not to hold the work.
    pub fn resource(self) -> Result<Resource, ResourceError> {
        match self {
            Led::Intent(id) => Resource::parse(&format!("coordinator:{id}")),
            Led::Portfolio(id) => Resource::parse(&format!("portfolio:{id}")),
        }
    }
}

/// Where a term stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermStatus {
    /// Leads.
    Active,
    /// Leads, but has been told to stand still.
    Paused,
    /// Has missed beats.
    Unresponsive,
    /// Lost it.
    FailedOver,
    /// Gave it back or handed it on.
    Completed,
}

impl TermStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            TermStatus::Active => "active",
            TermStatus::Paused => "paused",
            TermStatus::Unresponsive => "unresponsive",
            TermStatus::FailedOver => "failed_over",
            TermStatus::Completed => "completed",
        }
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        matches!(self, TermStatus::FailedOver | TermStatus::Completed)
    }
}

/// One agent's time as a coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Coordinator {
    /// Its id.
    pub id: CoordinatorId,
    /// What it leads.
    pub led: Led,
    /// Who leads.
    pub agent: Holder,
    /// Who is asked when it does not.
    pub supervisor: Holder,
    /// As what.
    pub role: Box<str>,
    /// What kind of coordinator, in the door's words.
    pub kind: Box<str>,
    /// Where it stands.
    pub status: TermStatus,
    /// The lease under it.
    pub lease: Token,
    /// How long the lease lasts without a heartbeat.
    #[serde(rename = "ttl_ms")]
    pub ttl: Ttl,
    /// How often it says it will beat.
    pub interval_ms: u64,
    /// When it last did, or began; written with the next change of its status only.
    pub seen_at: Timestamp,
    /// Whether that was a beat and not the beginning.
    #[serde(default)]
    pub has_beaten: bool,
    /// When it began.
    pub granted_at: Timestamp,
    /// The end that no heartbeat moves, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What it may not do, in its own terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guardrails: Option<Value>,
    /// The maker's own notes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Grows with every change.
    pub version: u64,
}

impl Coordinator {
    /// When silence changes its status next.
    pub fn deadline(&self) -> Option<Timestamp> {
        let beats = match self.status {
            TermStatus::Active | TermStatus::Paused => MISSED_BEATS,
            TermStatus::Unresponsive => MISSED_BEATS + GRACE_BEATS,
            TermStatus::FailedOver | TermStatus::Completed => return None,
        };
        Some(self.seen_at.plus_ms(self.interval_ms.saturating_mul(beats)))
    }
}
