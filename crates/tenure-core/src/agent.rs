//! Owns what is known of a registered agent: whether it is alive, and what it said about itself.
//!
//! ```text
//! register ──► active ──► unhealthy ──► dead ──► register again
//!                │  ▲        │            silence moves to the right, a heartbeat back to active; death ends its leases
//!                ▼  └────────┘
//!             draining (gets no new lease) ──► deregistered, by itself or when its time to drain is over
//! ```
//!
//! Only registered agents are timed: one that never registers and never beats is nobody's loss.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::{AGENT_BEAT_MS_MAX, AGENT_BEAT_MS_MIN};
use crate::serial::AgentId;
use crate::{Holder, Timestamp};

/// Whether an agent is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// Known, not working yet.
    Registering,
    /// Beats.
    Active,
    /// Finishes what it has and takes nothing new.
    Draining,
    /// Has missed beats.
    Unhealthy,
    /// Has been silent for so long that its leases were ended.
    Dead,
    /// Has said good-bye.
    Deregistered,
}

impl AgentStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentStatus::Registering => "registering",
            AgentStatus::Active => "active",
            AgentStatus::Draining => "draining",
            AgentStatus::Unhealthy => "unhealthy",
            AgentStatus::Dead => "dead",
            AgentStatus::Deregistered => "deregistered",
        }
    }

    /// Whether it is gone until it registers again.
    pub fn is_gone(self) -> bool {
        matches!(self, AgentStatus::Dead | AgentStatus::Deregistered)
    }

    /// Whether it may be given leases.
    pub fn takes_leases(self) -> bool {
        !matches!(self, AgentStatus::Draining | AgentStatus::Dead | AgentStatus::Deregistered)
    }
}

/// How often an agent beats and what silence means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// How often it says it will beat.
    pub interval_ms: u64,
    /// Silent for so long, it is unhealthy.
    pub unhealthy_after_ms: u64,
    /// Silent for so long, it is dead.
    pub dead_after_ms: u64,
}

/// Times that make no pulse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pulse has interval <= unhealthy_after < dead_after, each {AGENT_BEAT_MS_MIN} to {AGENT_BEAT_MS_MAX} ms; \
     got {}, {} and {} ms", .0.interval_ms, .0.unhealthy_after_ms, .0.dead_after_ms
)]
pub struct BadPulse(pub Pulse);

impl Pulse {
    /// The same pulse, if it makes sense.
    pub fn checked(self) -> Result<Pulse, BadPulse> {
        let range = AGENT_BEAT_MS_MIN..=AGENT_BEAT_MS_MAX;
        let in_range = range.contains(&self.interval_ms) && range.contains(&self.dead_after_ms);
        let in_order = self.interval_ms <= self.unhealthy_after_ms && self.unhealthy_after_ms < self.dead_after_ms;
        if in_range && in_order { Ok(self) } else { Err(BadPulse(self)) }
    }
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { interval_ms: 30_000, unhealthy_after_ms: 90_000, dead_after_ms: 300_000 }
    }
}

/// A registered agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// The id of its registration.
    pub id: AgentId,
    /// Its name.
    pub name: Holder,
    /// Whether it is alive.
    pub status: AgentStatus,
    /// What it said about itself: capabilities, capacity, endpoint, role, metadata.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub profile: Map<String, Value>,
    /// How often it beats.
    pub pulse: Pulse,
    /// When it was first registered.
    pub registered_at: Timestamp,
    /// When it last gave a sign of life; written with the next change of its status only.
    pub seen_at: Timestamp,
    /// Whether that sign was a heartbeat and not its registration.
    #[serde(default)]
    pub has_beaten: bool,
    /// Grows with every change of its status.
    pub version: u64,
    /// How long it has to finish once it drains; none: as long as it beats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// When that time is over, while it drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_by: Option<Timestamp>,
    /// A digest of the credential it registered with; others may not speak for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Box<str>>,
}

impl Agent {
    /// When its time to drain is over if it begins now.
    pub fn drained_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.drain_ms.map(|ms| now.plus_ms(ms))
    }

    /// When its status changes next if it stays silent.
    pub fn deadline(&self) -> Option<Timestamp> {
        let silent = match self.status {
            AgentStatus::Registering | AgentStatus::Active => Some(self.seen_at.plus_ms(self.pulse.unhealthy_after_ms)),
            AgentStatus::Unhealthy | AgentStatus::Draining => Some(self.seen_at.plus_ms(self.pulse.dead_after_ms)),
            AgentStatus::Dead | AgentStatus::Deregistered => None,
        };
        silent.map(|at| self.drained_by.map_or(at, |drained| at.min(drained)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_out_of_order_or_range_is_refused() {
        assert!(Pulse::default().checked().is_ok());
        for (interval_ms, unhealthy_after_ms, dead_after_ms) in
            [(0, 1_000, 2_000), (5_000, 1_000, 9_000), (1_000, 2_000, 2_000), (1_000, 2_000, u64::MAX)]
        {
            assert!(Pulse { interval_ms, unhealthy_after_ms, dead_after_ms }.checked().is_err());
        }
    }
}
