//! Owns what a lease is: the record of one grant. The rules that make, renew and end it are in [`crate::ledger`].

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::json::Object;
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
    /// The word for it on every wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        }
    }

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

    /// Appends it as JSON, as serde would, only sooner: every grant is written.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut object = Object::new(to);
        object.number("token", self.token.as_u64());
        object.texts("resources", &self.resources, Resource::write);
        object.text("holder", self.holder.as_str());
        object.word("mode", (!is_default(&self.mode)).then_some(self.mode.as_str()));
        object.number("acquired_at", self.acquired_at.unix_ms());
        object.number("expires_at", self.expires_at.unix_ms());
        object.number("ttl_ms", self.ttl.ms());
        object.number("grace_ms", (!is_default(&self.grace_ms)).then_some(self.grace_ms.into()));
        object.number("within", self.within.map(Token::as_u64));
        object.raw("metadata", self.metadata.as_deref());
        object.end();
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_written_as_serde_would_and_reads_back() {
        let resource = |text| Resource::parse(text).expect("a resource");
        // Named in full, so that a new field has to be given a value here.
        let full = Lease {
            token: Token::from_u64(1 << 33),
            resources: [resource("path:\"x\\y\"/é"), resource("intent:X/*"), resource("repo:*")].into_iter().collect(),
            holder: Holder::parse("a \"b\" 😀").expect("a holder"),
            mode: Mode::Shared,
            acquired_at: Timestamp::from_unix_ms(1_700_000_000_000),
            expires_at: Timestamp::from_unix_ms(1_700_000_030_000),
            ttl: Ttl::from_ms(30_000).expect("a ttl"),
            grace_ms: 5,
            within: Some(Token::from_u64(7)),
            metadata: RawValue::from_string(r#"{"a": 1}"#.to_owned()).ok(),
        };
        let plain = Lease { mode: Mode::Exclusive, grace_ms: 0, within: None, metadata: None, ..full.clone() };
        for lease in [plain, full] {
            let mut written = Vec::new();
            lease.encode(&mut written);
            assert_eq!(String::from_utf8_lossy(&written), serde_json::to_string(&lease).expect("JSON"));
            let read: Lease = serde_json::from_slice(&written).expect("a lease");
            assert_eq!(format!("{read:?}"), format!("{lease:?}"));
        }
    }
}
