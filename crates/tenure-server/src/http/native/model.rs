//! Owns how leases, conflicts and events look on the native wire.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use tenure_core::event::{Event, EventKind};
use tenure_core::heartbeat::BEATS_PER_TTL;
use tenure_core::json::Object;
use tenure_core::lease::{End, Lease, Mode};
use tenure_core::refusal::{Blocker, Conflict};
use tenure_core::{Holder, LeaseId, Resource, Timestamp, Token, Ttl};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::http::reply::{self, At};

/// A lease: who holds what, until when.
#[derive(Serialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseView<'a> {
    /// The lease's id.
    #[schema(value_type = String, example = "lease-60312-17")]
    id: LeaseId,
    /// The fencing number: larger than that of every grant before.
    #[schema(value_type = u64)]
    token: Token,
    /// What is held, all of it or nothing.
    #[schema(value_type = Vec<String>)]
    resources: &'a [Resource],
    /// Who holds it.
    #[schema(value_type = String)]
    holder: &'a Holder,
    #[schema(value_type = ModeName)]
    mode: Mode,
    #[schema(value_type = Status)]
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    acquired_at: Option<At>,
    /// It is held until then, unless it is renewed.
    #[schema(value_type = String, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<At>,
    ttl_ms: u64,
    /// How long after the grant or the last renewal the next renewal should be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_after_ms: Option<u64>,
    /// The server's time of this answer.
    #[schema(value_type = String, format = DateTime)]
    server_time: At,
    /// The lease it lives within and ends with.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<LeaseId>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<At>,
    /// Who ended it, where that is not its holder.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<&'a Holder>,
    /// Why it was ended, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    /// The holder's own note.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> LeaseView<'a> {
    /// A lease that is active, or how it was when it ended.
    pub(crate) fn of(lease: &'a Lease, ended: Option<End>, now: Timestamp) -> LeaseView<'a> {
        LeaseView {
            id: lease.id(),
            token: lease.token,
            resources: &lease.resources,
            holder: &lease.holder,
            mode: lease.mode,
            status: ended.map_or("active", End::as_str),
            acquired_at: Some(At(lease.acquired_at)),
            expires_at: Some(At(lease.expires_at)),
            ttl_ms: lease.ttl.ms(),
            renew_after_ms: ended.is_none().then_some(renew_after_ms(lease.ttl)),
            server_time: At(now),
            within: lease.within.map(LeaseId::from),
            ended_at: None,
            ended_by: None,
            note: None,
            metadata: lease.metadata.as_deref(),
        }
    }

    /// A lease that its holder has given back just now.
    pub(crate) fn released(lease: &'a Lease, at: Timestamp) -> LeaseView<'a> {
        LeaseView { ended_at: Some(At(at)), ..LeaseView::of(lease, Some(End::Released), at) }
    }

    /// A lease that was taken away just now.
    pub(crate) fn revoked(lease: &'a Lease, at: Timestamp, by: &'a Holder, why: &'a str) -> LeaseView<'a> {
        let ended = LeaseView::of(lease, Some(End::Revoked), at);
        LeaseView { ended_at: Some(At(at)), ended_by: Some(by), note: Some(why), ..ended }
    }

    /// A lease that is over, from the event that ended it; nothing from any other event.
    pub(crate) fn of_end(event: &'a Event, now: Timestamp) -> Option<LeaseView<'a>> {
        let token = event.token?;
        Some(LeaseView {
            id: token.into(),
            token,
            resources: &event.resources,
            holder: event.holder.as_ref()?,
            mode: event.mode.unwrap_or_default(),
            status: event.kind.end()?.as_str(),
            acquired_at: event.acquired_at.map(At),
            expires_at: event.expires_at.map(At),
            ttl_ms: event.ttl.map_or(0, Ttl::ms),
            renew_after_ms: None,
            server_time: At(now),
            within: event.within.map(LeaseId::from),
            ended_at: Some(At(event.at)),
            ended_by: event.by.as_ref(),
            note: event.reason.as_deref(),
            metadata: event.data.as_deref(),
        })
    }
}

impl LeaseView<'_> {
    /// An answer about one lease.
    pub(crate) fn reply(&self, status: StatusCode) -> Response {
        reply::written(status, |to| self.write(to))
    }

    /// Appends it as serde would, only sooner: every acquire and release is answered with one.
    fn write(&self, to: &mut Vec<u8>) {
        let mut object = Object::new(to);
        object.plain("id", self.id, LeaseId::write);
        object.number("token", self.token.as_u64());
        object.texts("resources", self.resources, Resource::write);
        object.text("holder", self.holder.as_str());
        object.word("mode", self.mode.as_str());
        object.word("status", self.status);
        object.plain("acquired_at", self.acquired_at, At::write);
        object.plain("expires_at", self.expires_at, At::write);
        object.number("ttl_ms", self.ttl_ms);
        object.number("renew_after_ms", self.renew_after_ms);
        object.plain("server_time", self.server_time, At::write);
        object.plain("within", self.within, LeaseId::write);
        object.plain("ended_at", self.ended_at, At::write);
        object.text("ended_by", self.ended_by.map(Holder::as_str));
        object.text("note", self.note);
        object.raw("metadata", self.metadata);
        object.end();
    }
}

/// When the next renewal should be sent.
pub(crate) fn renew_after_ms(ttl: Ttl) -> u64 {
    ttl.ms() / u64::from(BEATS_PER_TTL)
}

/// `exclusive`: nobody else; `shared`: other shared leases may overlap it.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ModeName {
    Exclusive,
    Shared,
}

/// What has become of a lease.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum Status {
    Active,
    Released,
    Expired,
    Revoked,
}

/// Why one resource cannot be had now.
#[derive(Serialize, ToSchema)]
#[schema(as = Conflict)]
pub(crate) struct ConflictView<'a> {
    /// What was asked for.
    #[schema(value_type = String)]
    resource: &'a Resource,
    /// What is held or waited for, and overlaps it.
    #[schema(value_type = String)]
    overlap: &'a Resource,
    /// `lease`: someone holds it; `closure`: it stays closed after its holder was lost; `waiter`: someone is first in line.
    by: &'static str,
    /// Whose lease or wait it is, or was.
    #[schema(value_type = String)]
    holder: &'a Holder,
    #[schema(value_type = Option<u64>)]
    token: Option<Token>,
    #[schema(value_type = Option<String>)]
    lease_id: Option<LeaseId>,
    #[schema(value_type = Option<ModeName>)]
    mode: Option<Mode>,
    #[schema(value_type = Option<String>, format = DateTime)]
    acquired_at: Option<At>,
    /// When it goes away by itself, unless it is renewed.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<At>,
    /// How many wait for something that overlaps it.
    waiting: usize,
    /// Whether it is the asker's own lease; absent if not.
    #[schema(value_type = Option<bool>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<bool>,
}

impl<'a> From<&'a Conflict> for ConflictView<'a> {
    fn from(conflict: &'a Conflict) -> ConflictView<'a> {
        let (by, token, mode, acquired_at) = match &conflict.blocker {
            Blocker::Lease { token, mode, acquired_at, .. } => {
                ("lease", Some(*token), Some(*mode), Some(At(*acquired_at)))
            }
            Blocker::Closure { token, .. } => ("closure", Some(*token), None, None),
            Blocker::Waiter { .. } => ("waiter", None, None, None),
        };
        ConflictView {
            resource: &conflict.resource,
            overlap: &conflict.overlap,
            by,
            holder: conflict.blocker.holder(),
            token,
            lease_id: token.map(LeaseId::from),
            mode,
            acquired_at,
            expires_at: conflict.blocker.until().map(At),
            waiting: conflict.waiting,
            own: conflict.is_own.then_some(true),
        }
    }
}

/// The kinds of events, as they are on the wire: only its schema is used.
pub(crate) struct KindName;

impl PartialSchema for KindName {
    fn schema() -> RefOr<Schema> {
        let kinds = EventKind::ALL.map(EventKind::as_str);
        let about = "What happened. `lease.renewed` is told only if the ttl changed. Later versions have more kinds.";
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(kinds)).description(Some(about)).into()
    }
}

impl ToSchema for KindName {
    fn name() -> Cow<'static, str> {
        "EventKind".into()
    }
}

/// Something that happened. Fields that a kind does not have are absent.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventView<'a> {
    /// Its place in the one order of all events.
    cursor: u64,
    /// When, on the server's clock.
    #[schema(value_type = String, format = DateTime)]
    at: At,
    #[schema(value_type = KindName)]
    kind: &'static str,
    #[schema(value_type = Vec<String>)]
    resources: &'a [Resource],
    /// Whose lease it is or was.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a Holder>,
    #[schema(value_type = Option<u64>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<LeaseId>,
    #[schema(value_type = Option<ModeName>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    acquired_at: Option<At>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<At>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    /// The lease it lives within.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<LeaseId>,
    /// The lease whose end ended this one too.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_with: Option<LeaseId>,
    /// Who did it, where that is not the holder.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a Holder>,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// The lease's metadata.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> From<&'a Event> for EventView<'a> {
    fn from(event: &'a Event) -> EventView<'a> {
        EventView {
            cursor: event.cursor.0,
            at: At(event.at),
            kind: event.kind.as_str(),
            resources: &event.resources,
            holder: event.holder.as_ref(),
            token: event.token,
            lease_id: event.token.map(LeaseId::from),
            mode: event.mode,
            acquired_at: event.acquired_at.map(At),
            expires_at: event.expires_at.map(At),
            ttl_ms: event.ttl.map(Ttl::ms),
            within: event.within.map(LeaseId::from),
            ended_with: event.ended_with.map(LeaseId::from),
            by: event.by.as_ref(),
            reason: event.reason.as_deref(),
            metadata: event.data.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        serde_json::from_str(
            r#"{"token": 259041145389057, "resources": ["path:\"x\\\\y\"/é", "intent:X/*"], "holder": "a \"b\" 😀",
                "mode": "shared", "acquired_at": 1700000000000, "expires_at": 1700000030000, "ttl_ms": 30000,
                "within": 259041145389056, "metadata": {"a": [1, null]}}"#,
        )
        .expect("a lease")
    }

    #[test]
    fn a_lease_is_answered_as_serde_would_write_it() {
        let now = Timestamp::from_unix_ms(1_700_000_000_123);
        let (full, holder) = (lease(), Holder::parse("root \"1\"").expect("a holder"));
        let plain = Lease { within: None, metadata: None, mode: Mode::Exclusive, ..full.clone() };
        // Named in full, so that a new field has to be given a value here.
        let explained = LeaseView {
            id: full.id(),
            token: full.token,
            resources: &full.resources,
            holder: &full.holder,
            mode: full.mode,
            status: "revoked",
            acquired_at: Some(At(full.acquired_at)),
            expires_at: Some(At(full.expires_at)),
            ttl_ms: 30_000,
            renew_after_ms: Some(10_000),
            server_time: At(now),
            within: Some(full.id()),
            ended_at: Some(At(now)),
            ended_by: Some(&holder),
            note: Some("two\nlines"),
            metadata: full.metadata.as_deref(),
        };
        let bare = LeaseView { acquired_at: None, expires_at: None, ..LeaseView::of(&plain, Some(End::Expired), now) };
        let views = [LeaseView::of(&plain, None, now), bare, explained];
        for view in views {
            let mut written = Vec::new();
            view.write(&mut written);
            assert_eq!(String::from_utf8_lossy(&written), serde_json::to_string(&view).expect("JSON"));
        }
    }
}
