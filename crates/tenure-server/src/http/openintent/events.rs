//! Owns the log of an intent over this door: events of the ledger in the types the client package knows, and notes of clients.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use tenure_core::LeaseId;
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::lease::End;
use tenure_core::ledger::intents::GetIntent;
use tenure_core::ledger::writes::Note;
use tenure_core::limits::{PAGE_MAX, TITLE_BYTES_MAX};
use tenure_core::serial::IntentId;
use tenure_core::{Resource, Timestamp};
use tenure_store::{EventQuery, Order};

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::event_types::{LEDGER_ONLY, known};
use super::model;
use crate::http::native::query::Params;
use crate::http::reply;

/// How many events a list has if nobody says.
const LIST_DEFAULT: usize = 100;

/// An event in this door's words.
pub(crate) struct Told {
    pub(crate) kind: &'static str,
    pub(crate) actor: Option<String>,
    pub(crate) payload: Map<String, Value>,
}

impl Told {
    pub(crate) fn view(&self, event: &Event, intent: Option<IntentId>) -> Value {
        json!({
            "id": format!("event-{}", event.cursor.0),
            "intent_id": intent,
            "event_type": self.kind,
            "actor": self.actor,
            "payload": self.payload,
            "created_at": model::at(event.at),
            "sequence": event.cursor.0,
        })
    }
}

/// What an event is to this door; nothing for one that its clients do not know.
pub(crate) fn tell(event: &Event) -> Option<Told> {
    let by = event.by.as_ref().or(event.holder.as_ref()).map(ToString::to_string);
    let mut payload = data(event);
    let kind = match event.kind {
        EventKind::LeaseGranted | EventKind::LeaseReleased | EventKind::LeaseExpired | EventKind::LeaseRevoked => {
            payload = lease_payload(event)?;
            if event.kind == EventKind::LeaseGranted { "lease_acquired" } else { "lease_released" }
        }
        EventKind::IntentCreated => "intent_created",
        EventKind::IntentPatched => {
            payload.remove("old");
            payload.remove("new");
            "state_patched"
        }
        EventKind::IntentStatusChanged => {
            payload.extend(status_words(&payload));
            payload.extend(event.reason.as_ref().map(|why| ("reason".to_owned(), json!(why))));
            "status_changed"
        }
        EventKind::IntentAssigned | EventKind::IntentUnassigned => {
            payload.insert("agent_id".to_owned(), json!(event.holder));
            if event.kind == EventKind::IntentAssigned { "agent_assigned" } else { "agent_unassigned" }
        }
        EventKind::IntentDependencyAdded => "dependency_added",
        EventKind::IntentDependencyRemoved => "dependency_removed",
        EventKind::IntentAccessChanged => {
            let what = payload.get("what").and_then(Value::as_str);
            what.and_then(known).unwrap_or("access_granted")
        }
        EventKind::IntentFailed => "failure_recorded",
        EventKind::IntentNoted => return note(event, payload),
        EventKind::PortfolioCreated => "portfolio_created",
        EventKind::PortfolioIntentAdded => "added_to_portfolio",
        EventKind::PortfolioIntentRemoved => "removed_from_portfolio",
        kind => coordinator_type(kind)?,
    };
    Some(Told { kind, actor: by, payload })
}

/// The terms of coordinators begin and end as leases do; the package has no other types for it.
fn coordinator_type(kind: EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::CoordinatorGranted => "lease_acquired",
        EventKind::CoordinatorEnded => "lease_released",
        EventKind::CoordinatorPaused => "coordinator.paused",
        EventKind::CoordinatorResumed => "coordinator.resumed",
        EventKind::CoordinatorUnresponsive => "coordinator.unresponsive",
        EventKind::CoordinatorFailedOver => "coordinator.failed_over",
        EventKind::CoordinatorHandedOff => "coordinator.handoff",
        EventKind::CoordinatorReplaced => "coordinator.replaced",
        EventKind::CoordinatorGuardrailsSet => "coordinator.guardrails_updated",
        EventKind::AgentRegistered | EventKind::AgentStatusChanged => "agent.lifecycle",
        _ => return None,
    })
}

pub(crate) fn data(event: &Event) -> Map<String, Value> {
    let parsed = event.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok());
    parsed.unwrap_or_default()
}

fn status_words(payload: &Map<String, Value>) -> Vec<(String, Value)> {
    let word = |name: &str| {
        let status = serde_json::from_value(payload.get(name)?.clone()).ok()?;
        Some((name.to_owned(), json!(model::status_word(status))))
    };
    ["status", "old_status"].into_iter().filter_map(word).collect()
}

fn lease_payload(event: &Event) -> Option<Map<String, Value>> {
    let (resource, _) = model::intent_in(&event.resources)?;
    let end = event.kind.end();
    let said = json!({
        "scope": model::scope(resource),
        "lease_id": LeaseId::from(event.token?).to_string(),
        "agent_id": event.holder,
        "status": end.map_or("active", End::as_str),
        "expires_at": model::at_or_null(event.expires_at),
        "reason": event.reason,
    });
    said.as_object().cloned()
}

/// A client's own event: its type and payload are inside.
fn note(event: &Event, mut said: Map<String, Value>) -> Option<Told> {
    let kind = known(said.get("event_type")?.as_str()?)?;
    let mut payload = match said.remove("payload") {
        Some(Value::Object(payload)) => payload,
        _ => Map::new(),
    };
    for name in ["trace_id", "parent_event_id"] {
        payload.extend(said.remove(name).filter(|value| !value.is_null()).map(|value| (name.to_owned(), value)));
    }
    let actor = said.get("actor").and_then(Value::as_str).map(str::to_owned);
    Some(Told { kind, actor: actor.or_else(|| event.by.as_ref().map(ToString::to_string)), payload })
}

pub(crate) async fn log(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, actor: Actor, body: Body) -> Answer {
    let name = body.text("event_type", TITLE_BYTES_MAX)?.ok_or_else(|| No::field("event_type", "this is needed"))?;
    let name = known(name).ok_or_else(|| No::field("event_type", "the client package does not know this type"))?;
    if LEDGER_ONLY.contains(&name) {
        return Err(No::field("event_type", "only the server writes events about leases"));
    }
    let said_by = body.text("actor", TITLE_BYTES_MAX)?;
    if let Some(name) = said_by {
        actor.check_name("actor", name)?;
    }
    let said = json!({
        "event_type": name,
        "actor": said_by,
        "payload": body.object("payload")?,
        "trace_id": body.text("trace_id", TITLE_BYTES_MAX)?,
        "parent_event_id": body.text("parent_event_id", TITLE_BYTES_MAX)?,
    });
    let event = door.app.engine().apply(Note { id, caller: actor.caller, said }).await??;
    let view = tell(&event).map(|told| told.view(&event, Some(id)));
    Ok(reply::json(StatusCode::CREATED, &view))
}

pub(crate) async fn list(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    Looker(caller): Looker,
    uri: Uri,
) -> Answer {
    let params = Params::of(&uri, &["limit", "event_type", "since"])?;
    let limit = match params.get("limit").map(str::parse) {
        None => LIST_DEFAULT,
        Some(Ok(limit)) if (1..=PAGE_MAX).contains(&limit) => limit,
        Some(_) => return Err(No::field("limit", format!("a whole number from 1 to {PAGE_MAX}"))),
    };
    let kind = params.get("event_type").map(|name| known(name).ok_or_else(|| No::field("event_type", "unknown")));
    let since = params.get("since").map(|text| model::parse_time(text).ok_or_else(|| No::field("since", "not a time")));
    let wanted = Wanted { id, limit, kind: kind.transpose()?, since: since.transpose()? };
    door.app.engine().apply(GetIntent { id, caller }).await??;
    Ok(model::ok(&json!({ "events": wanted.read(&door).await? })))
}

/// Which events of an intent: the newest first.
struct Wanted {
    id: IntentId,
    limit: usize,
    kind: Option<&'static str>,
    since: Option<Timestamp>,
}

impl Wanted {
    async fn read(&self, door: &Door) -> Result<Vec<Value>, No> {
        let resource = Resource::parse(&format!("intent:{}/*", self.id)).ok();
        let mut query = EventQuery { order: Order::NewestFirst, limit: PAGE_MAX, resource, ..EventQuery::default() };
        let mut found = Vec::new();
        loop {
            let asked = query.clone();
            let page = door.app.engine().read(move |reader| reader.events(&asked)).await?;
            for event in &page.events {
                if self.since.is_some_and(|since| event.at < since) || found.len() == self.limit {
                    return Ok(found);
                }
                found.extend(self.view(event));
            }
            // Nothing about an intent is older than itself.
            if !page.more || page.events.iter().any(|event| event.kind == EventKind::IntentCreated) {
                return Ok(found);
            }
            query.before = Some(page.next);
        }
    }

    fn view(&self, event: &Event) -> Option<Value> {
        let told = tell(event)?;
        self.kind.is_none_or(|kind| kind == told.kind).then(|| told.view(event, Some(self.id)))
    }
}

/// Where a reader of a stream stands.
pub(crate) fn parse_cursor(text: &str) -> Option<Cursor> {
    text.trim().parse().ok().map(Cursor)
}

#[cfg(test)]
mod tests {
    use super::super::event_types::EVENT_TYPES;
    use super::*;

    #[test]
    fn every_kind_of_event_is_told_in_a_type_the_package_knows_or_not_at_all() {
        for kind in EventKind::ALL {
            let text = json!({
                "cursor": 1, "at": 1, "kind": kind, "resources": ["intent:intent-1-1/x"], "holder": "a", "token": 1,
                "data": { "event_type": "comment", "payload": {}, "what": "access_revoked" },
            });
            let event: Event = serde_json::from_str(&text.to_string()).expect("an event");
            if let Some(told) = tell(&event) {
                assert!(EVENT_TYPES.contains(&told.kind), "{kind:?} is told as {}", told.kind);
            }
        }
        assert!(known("lease_renewed").is_none());
    }
}
