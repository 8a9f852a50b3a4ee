//! Owns the answers of the server as types. Fields that this version does not know are ignored, so that an older
//! client reads a newer server; serialising gives back the same JSON shape.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_core::{Holder, LeaseId, Resource, Token};

/// Whether others may hold the same at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nobody else.
    #[default]
    Exclusive,
    /// Other shared leases may overlap it, no exclusive one.
    Shared,
}

impl Mode {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        }
    }
}

/// What has become of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is held.
    Active,
    /// Its holder gave it back.
    Released,
    /// Its ttl ran out without a renewal.
    Expired,
    /// An administrator took it away.
    Revoked,
}

impl Status {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Released => "released",
            Status::Expired => "expired",
            Status::Revoked => "revoked",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A lease as the server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Its id.
    pub id: LeaseId,
    /// Its fencing number: larger than every token granted before.
    pub token: Token,
    /// What is held.
    pub resources: Vec<Resource>,
    /// Who holds it.
    pub holder: Holder,
    /// Alone or together with others.
    #[serde(default)]
    pub mode: Mode,
    /// Held, or how it ended.
    pub status: Status,
    /// When it was granted.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<SystemTime>,
    /// When it ends, or would have ended, without another renewal.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<SystemTime>,
    /// How long it lasts without a renewal, in milliseconds.
    #[serde(default)]
    pub ttl_ms: u64,
    /// When the server suggests to renew, in milliseconds after the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after_ms: Option<u64>,
    /// The server's clock when it answered.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub server_time: Option<SystemTime>,
    /// The lease it lives within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<LeaseId>,
    /// When it ended.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<SystemTime>,
    /// Why it was taken away, in the administrator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The note that came with the acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

impl LeaseInfo {
    /// How long it lasts without a renewal.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// The answer to one accepted renewal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Renewal {
    /// Which lease.
    pub id: LeaseId,
    /// Until when, on the server's clock.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<SystemTime>,
    /// How long it lasts without another renewal, in milliseconds.
    pub ttl_ms: u64,
    /// When the server suggests to renew again, in milliseconds after the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_after_ms: Option<u64>,
    /// The server's clock when it answered.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub server_time: Option<SystemTime>,
}

/// What stands against an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum By {
    /// A lease.
    Lease,
    /// A grace period after a lost lease.
    Closure,
    /// Someone who waits in front.
    Waiter,
    /// Something this version does not know.
    #[serde(other)]
    Other,
}

/// Who stands in the way of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Conflict {
    /// What was asked for.
    pub resource: Resource,
    /// What is held, closed or waited for, and overlaps it.
    pub overlap: Resource,
    /// What stands in the way.
    pub by: By,
    /// Who holds it, held it last, or waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The token of that lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// That lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// How it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Since when.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<SystemTime>,
    /// Until when, without another renewal.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<SystemTime>,
    /// How many wait for something that overlaps it.
    #[serde(default)]
    pub waiting: u64,
    /// Whether it is the asker's own lease: waiting for that would never end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// How a lease ended, and who holds its resources now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Status>,
    /// When.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<SystemTime>,
    /// Who held it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Why, in an administrator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who holds it now; nothing if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Conflict>,
}

/// The answer to a check: who would stop me.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Check {
    /// Whether nobody is in the way; if leases of the asker did not count, nobody else.
    pub free: bool,
    /// Who stands in the way.
    #[serde(default)]
    pub conflicts: Vec<Conflict>,
}

/// One page of a listing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeasePage {
    /// The leases.
    pub leases: Vec<LeaseInfo>,
    /// Where the next page starts; nothing on the last page.
    #[serde(default)]
    pub next: Option<String>,
    /// The server's clock when it answered.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub server_time: Option<SystemTime>,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Its place in the one order of all events.
    pub cursor: u64,
    /// When, on the server's clock.
    #[serde(with = "time")]
    pub at: SystemTime,
    /// What: `lease.granted`, `lease.renewed`, `lease.released`, `lease.expired`, `lease.revoked`, …
    pub kind: String,
    /// To which resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Whose lease it is or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The lease's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// The lease's mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Until when it was granted.
    #[serde(default, with = "time::optional", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<SystemTime>,
    /// The lease's ttl in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who did it, where that is not the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Holder>,
    /// Everything else the event says.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// One page of events.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// The cursor to ask for the next page with; nothing if there was nothing more.
    #[serde(default)]
    pub next: Option<u64>,
}

/// Times on the wire: RFC 3339, UTC, milliseconds.
mod time {
    use std::time::SystemTime;

    use serde::de::Visitor;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        let stamp = jiff::Timestamp::try_from(*time).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{stamp:.3}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = SystemTime;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a time as RFC 3339 writes it")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SystemTime, E> {
                text.parse::<jiff::Timestamp>().map(SystemTime::from).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }

    pub(super) mod optional {
        use super::{Deserialize, Deserializer, Serializer, SystemTime};

        pub(in super::super) fn serialize<S: Serializer>(
            time: &Option<SystemTime>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match time {
                Some(time) => super::serialize(time, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<SystemTime>, D::Error> {
            #[derive(Deserialize)]
            struct Time(#[serde(with = "super")] SystemTime);
            Ok(Option::<Time>::deserialize(deserializer)?.map(|Time(time)| time))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_reads_from_the_wire_and_writes_the_same_shape() {
        let text = r#"{"id":"lease-1-2","token":4294967298,"resources":["path:src/a.rs"],"holder":"a","mode":"shared",
            "status":"active","acquired_at":"2026-11-15T10:00:00.000Z","expires_at":"2026-11-15T10:00:30.250Z",
            "ttl_ms":30250,"renew_after_ms":10083,"server_time":"2026-11-15T10:00:00.001Z","metadata":{"run":7}}"#;
        let lease: LeaseInfo = serde_json::from_str(text).unwrap();
        assert_eq!(
            (lease.mode, lease.status, lease.ttl()),
            (Mode::Shared, Status::Active, Duration::from_millis(30_250))
        );
        let original: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&lease).unwrap(), original);
    }

    #[test]
    fn what_a_newer_server_adds_does_not_stop_an_older_client() {
        let text = r#"{"resource":"x:a","overlap":"x:a","by":"committee","holder":"b","colour":"blue"}"#;
        let conflict: Conflict = serde_json::from_str(text).unwrap();
        assert_eq!((conflict.by, conflict.waiting), (By::Other, 0));
    }
}
