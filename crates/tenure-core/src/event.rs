//! Owns what is told about the ledger: every grant and every end, in one order, each with its cursor (L12).
//!
//! Renewals that keep their ttl are not events: they happen a thousand times for every grant and change nobody's
//! plans. Everything that changes who holds what is one.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::lease::{End, Lease, Mode, Resources};
use crate::{Holder, Timestamp, Token, Ttl};

/// The place of an event in the one order of all events; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub u64);

impl Cursor {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Cursor {
        Cursor(self.0 + 1)
    }
}

/// What kind of thing happened; the name on every wire is [`EventKind::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// A lease was granted.
    #[serde(rename = "lease.granted")]
    LeaseGranted,
    /// A renewal changed a lease's ttl.
    #[serde(rename = "lease.renewed")]
    LeaseRenewed,
    /// A holder gave a lease back.
    #[serde(rename = "lease.released")]
    LeaseReleased,
    /// A lease's ttl ran out.
    #[serde(rename = "lease.expired")]
    LeaseExpired,
    /// An administrator took a lease away.
    #[serde(rename = "lease.revoked")]
    LeaseRevoked,
    /// The ledger was opened: every active lease now runs at least its ttl from here (L13).
    #[serde(rename = "ledger.opened")]
    LedgerOpened,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 6] = [
        EventKind::LeaseGranted,
        EventKind::LeaseRenewed,
        EventKind::LeaseReleased,
        EventKind::LeaseExpired,
        EventKind::LeaseRevoked,
        EventKind::LedgerOpened,
    ];

    /// The name on every wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::LeaseGranted => "lease.granted",
            EventKind::LeaseRenewed => "lease.renewed",
            EventKind::LeaseReleased => "lease.released",
            EventKind::LeaseExpired => "lease.expired",
            EventKind::LeaseRevoked => "lease.revoked",
            EventKind::LedgerOpened => "ledger.opened",
        }
    }

    /// How a lease ended, if this is the end of one.
    pub fn end(self) -> Option<End> {
        match self {
            EventKind::LeaseReleased => Some(End::Released),
            EventKind::LeaseExpired => Some(End::Expired),
            EventKind::LeaseRevoked => Some(End::Revoked),
            EventKind::LeaseGranted | EventKind::LeaseRenewed | EventKind::LedgerOpened => None,
        }
    }
}

impl From<End> for EventKind {
    fn from(end: End) -> EventKind {
        match end {
            End::Released => EventKind::LeaseReleased,
            End::Expired => EventKind::LeaseExpired,
            End::Revoked => EventKind::LeaseRevoked,
        }
    }
}

/// Something that happened. Fields that a kind does not have are absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the order of all events.
    pub cursor: Cursor,
    /// When, on the ledger's clock.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// To which resources.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Whose lease it is or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The lease's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The lease's mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// When the lease was granted; in the end of a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<Timestamp>,
    /// Until when it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The lease's ttl.
    #[serde(rename = "ttl_ms", default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    /// The lease it lives within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Token>,
    /// The lease whose end ended this one too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_with: Option<Token>,
    /// Who did it, where that is not the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Holder>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
    /// The lease's metadata, or what else belongs to the kind: a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl Event {
    /// An event that says nothing yet but what and when. The turn gives it its cursor.
    pub(crate) fn new(kind: EventKind, at: Timestamp) -> Event {
        Event {
            cursor: Cursor::default(),
            at,
            kind,
            resources: Resources::new(),
            holder: None,
            token: None,
            mode: None,
            acquired_at: None,
            expires_at: None,
            ttl: None,
            within: None,
            ended_with: None,
            by: None,
            reason: None,
            data: None,
        }
    }

    /// An event about a lease, with what identifies it.
    pub(crate) fn of_lease(kind: EventKind, at: Timestamp, lease: &Lease) -> Event {
        Event {
            resources: lease.resources.clone(),
            holder: Some(lease.holder.clone()),
            token: Some(lease.token),
            mode: Some(lease.mode),
            acquired_at: Some(lease.acquired_at),
            expires_at: Some(lease.expires_at),
            ttl: Some(lease.ttl),
            within: lease.within,
            data: lease.metadata.clone(),
            ..Event::new(kind, at)
        }
    }
}
