//! Owns what a lease is: the record of one grant. The rules that make, renew and end it are in [`crate::ledger`].

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::{Holder, LeaseId, Resource, Timestamp, Token, Ttl};

/// The resources of one lease; nearly always one.
pub type Resources = SmallVec<[Resource; 1]>;

/// Whether others may hold the same at the same time (L1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nobody else.
    #[default]
    Exclusive,
    /// Other shared leases may overlap it, no exclusive one.
    Shared,
}

impl Mode {
    /// Whether two overlapping leases of these modes may be active together.
    pub fn is_compatible_with(self, other: Mode) -> bool {
        self == Mode::Shared && other == Mode::Shared
    }
}

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Its holder gave it back.
    Released,
    /// Its ttl ran out without a renewal.
    Expired,
    /// An administrator took it away.
    Revoked,
}

impl End {
    /// The word for it on every wire.
    pub fn as_str(self) -> &'static str {
        match self {
            End::Released => "released",
            End::Expired => "expired",
            End::Revoked => "revoked",
        }
    }
}

/// One grant: who holds what, until when.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lease {
    /// The fencing number; also the lease's id.
    pub token: Token,
    /// What is held, all of it or nothing (L8).
    pub resources: Resources,
    /// Who holds it.
    pub holder: Holder,
    /// Alone or together with others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// It is held while `now < expires_at` (L4).
    pub expires_at: Timestamp,
    /// What a renewal sets `expires_at` to, from then.
    #[serde(rename = "ttl_ms")]
    pub ttl: Ttl,
    /// How long the resources stay closed after an expiry or a revoke (L11).
    #[serde(default, skip_serializing_if = "is_default")]
    pub grace_ms: u32,
    /// The lease it lives within and ends with (L1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Token>,
    /// The holder's own note, a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
}

impl Lease {
    /// Its id.
    pub fn id(&self) -> LeaseId {
        self.token.into()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
