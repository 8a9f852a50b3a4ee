//! Owns how things look to this door's clients. Times are UTC without a zone and with six decimals: the client package
//! compares them with times that have no zone, and fails on those that have one.

use std::fmt;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};
use tenure_core::access::{Access, AccessRequest, Entry, Policy};
use tenure_core::agent::Agent;
use tenure_core::coordinator::Led;
use tenure_core::event::Event;
use tenure_core::intent::{Assignment, Failure, Intent, RetryPolicy, Status};
use tenure_core::lease::{End, Lease};
use tenure_core::ledger::coordinators::TermView;
use tenure_core::ledger::portfolios::PortfolioView;
use tenure_core::portfolio::{Member, Portfolio};
use tenure_core::refusal::{Blocker, Conflict};
use tenure_core::serial::IntentId;
use tenure_core::subscription::Subscription;
use tenure_core::{LeaseId, Resource, Timestamp};

use crate::http::reply;

/// A time as this door writes it.
pub(crate) struct When(pub(crate) Timestamp);

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = i64::try_from(self.0.unix_ms()).unwrap_or(i64::MAX);
        let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        let t = jiff::tz::Offset::UTC.to_datetime(moment);
        let (date, millis) = (t.date(), t.subsec_nanosecond() / 1_000_000);
        write!(f, "{date}T{:02}:{:02}:{:02}.{millis:03}000", t.hour(), t.minute(), t.second())
    }
}

pub(crate) fn at(time: Timestamp) -> Value {
    Value::String(When(time).to_string())
}

pub(crate) fn at_or_null(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, at)
}

/// Reads a time with or without a zone; without one it is UTC.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let aware = text.parse::<jiff::Timestamp>().ok();
    let naive = || jiff::tz::Offset::UTC.to_timestamp(text.parse::<jiff::civil::DateTime>().ok()?).ok();
    let ms = aware.or_else(naive)?.as_millisecond();
    u64::try_from(ms).ok().map(Timestamp::from_unix_ms)
}

pub(crate) fn ok(body: &Value) -> Response {
    reply::json(StatusCode::OK, body)
}

/// An answer with the version of what it shows.
pub(crate) fn versioned(status: StatusCode, body: &Value, version: u64) -> Response {
    let mut response = reply::json(status, body);
    if let Ok(value) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

pub(crate) fn status_word(status: Status) -> &'static str {
    match status {
        Status::Suspended => "suspended_awaiting_input",
        other => other.as_str(),
    }
}

pub(crate) fn status_of(word: &str) -> Option<Status> {
    Status::ALL.into_iter().find(|status| status_word(*status) == word)
}

pub(crate) fn intent(intent: &Intent) -> Value {
    json!({
        "id": intent.id,
        "title": intent.title,
        "description": intent.description,
        "version": intent.version,
        "status": status_word(intent.status),
        "state": intent.state,
        "constraints": intent.constraints,
        "parent_intent_id": intent.parent,
        "depends_on": intent.depends_on,
        "created_by": intent.created_by,
        "created_at": at(intent.created_at),
        "updated_at": at(intent.updated_at),
        "confidence": 0.0,
        "governance_policy": intent.governance,
    })
}

/// The scope of a resource of an intent.
pub(crate) fn scope(resource: &Resource) -> String {
    let text = resource.to_string();
    text.split_once('/').map_or_else(|| text.clone(), |(_, scope)| scope.to_owned())
}

pub(crate) fn intent_in(resources: &[Resource]) -> Option<(&Resource, IntentId)> {
    resources.iter().find_map(|resource| Some((resource, resource.intent()?)))
}

/// A lease; `end` is how it ended, if it is over.
pub(crate) fn lease(lease: &Lease, end: Option<(End, Timestamp)>) -> Value {
    let (resource, id) = intent_in(&lease.resources).unzip();
    json!({
        "id": lease.id().to_string(),
        "intent_id": id,
        "agent_id": lease.holder,
        "scope": resource.map(scope),
        "status": end.map_or("active", |(end, _)| end.as_str()),
        "acquired_at": at(lease.acquired_at),
        "created_at": at(lease.acquired_at),
        "expires_at": at(lease.expires_at),
        "released_at": at_or_null(end.map(|(_, when)| when)),
        "duration_seconds": lease.ttl.ms() / 1_000,
        "token": lease.token,
    })
}

/// A lease that is over, as the event of its end tells.
pub(crate) fn ended_lease(event: &Event) -> Option<Value> {
    let (resource, id) = intent_in(&event.resources)?;
    let token = event.token?;
    Some(json!({
        "id": LeaseId::from(token).to_string(),
        "intent_id": id,
        "agent_id": event.holder,
        "scope": scope(resource),
        "status": event.kind.end()?.as_str(),
        "acquired_at": at_or_null(event.acquired_at),
        "created_at": at_or_null(event.acquired_at),
        "expires_at": at_or_null(event.expires_at),
        "released_at": at(event.at),
        "token": token,
    }))
}

/// What stands in the way, as a lease.
pub(crate) fn conflict(conflict: &Conflict) -> Value {
    let Blocker::Lease { token, holder, acquired_at, expires_at, .. } = &conflict.blocker else { return Value::Null };
    json!({
        "id": LeaseId::from(*token).to_string(),
        "intent_id": conflict.overlap.intent(),
        "agent_id": holder,
        "scope": scope(&conflict.overlap),
        "status": "active",
        "acquired_at": at(*acquired_at),
        "created_at": at(*acquired_at),
        "expires_at": at(*expires_at),
        "released_at": null,
        "token": token,
    })
}

pub(crate) fn assignment(id: IntentId, assignment: &Assignment) -> Value {
    json!({
        "id": format!("{id}/{}", assignment.agent),
        "intent_id": id,
        "agent_id": assignment.agent,
        "role": assignment.role,
        "assigned_at": at(assignment.at),
    })
}

pub(crate) fn term(view: &TermView) -> Value {
    let term = &view.term;
    let (intent, portfolio, scope) = match term.led {
        Led::Intent(id) => (Some(id), None, "intent"),
        Led::Portfolio(id) => (None, Some(id), "portfolio"),
    };
    json!({
        "id": term.id,
        "intent_id": intent,
        "portfolio_id": portfolio,
        "agent_id": term.agent,
        "role": term.role,
        "supervisor_id": term.supervisor,
        "coordinator_type": term.kind,
        "scope": scope,
        "status": term.status,
        "guardrails": term.guardrails,
        "heartbeat_interval_seconds": term.interval_ms / 1_000,
        "last_heartbeat": at_or_null(term.has_beaten.then_some(term.seen_at)),
        "granted_at": at(term.granted_at),
        "expires_at": at_or_null(view.expires_at),
        "version": term.version,
        "metadata": term.metadata,
    })
}

pub(crate) fn agent(agent: &Agent) -> Value {
    let seconds = |ms: u64| ms / 1_000;
    let mut body = agent.profile.clone();
    let own = json!({
        "agent_id": agent.name,
        "status": agent.status,
        "heartbeat_config": {
            "interval_seconds": seconds(agent.pulse.interval_ms),
            "unhealthy_after_seconds": seconds(agent.pulse.unhealthy_after_ms),
            "dead_after_seconds": seconds(agent.pulse.dead_after_ms),
        },
        "registered_at": at(agent.registered_at),
        "last_heartbeat_at": at_or_null(agent.has_beaten.then_some(agent.seen_at)),
        "version": agent.version,
    });
    if let Value::Object(own) = own {
        body.extend(own);
    }
    for (name, empty) in [("capabilities", json!([])), ("metadata", json!({}))] {
        body.entry(name).or_insert(empty);
    }
    for name in ["role_id", "name", "capacity", "endpoint", "drain_timeout_seconds"] {
        body.entry(name).or_insert(Value::Null);
    }
    Value::Object(body)
}

pub(crate) fn portfolio(portfolio: &Portfolio) -> Value {
    json!({
        "id": portfolio.id,
        "name": portfolio.name,
        "description": portfolio.description,
        "created_by": portfolio.created_by,
        "status": portfolio.status,
        "governance_policy": portfolio.governance,
        "metadata": portfolio.metadata,
        "created_at": at(portfolio.created_at),
        "updated_at": at(portfolio.updated_at),
        "createdAt": at(portfolio.created_at),
        "updatedAt": at(portfolio.updated_at),
    })
}

pub(crate) fn portfolio_view(view: &PortfolioView) -> Value {
    let mut body = portfolio(&view.portfolio);
    if let Some(body) = body.as_object_mut() {
        body.insert("intents".to_owned(), view.intents.iter().map(|one| intent(one)).collect());
        body.insert("aggregate_status".to_owned(), aggregate(view.intents.iter().map(|one| one.status)));
    }
    body
}

/// How far several intents have come.
pub(crate) fn aggregate(statuses: impl Iterator<Item = Status>) -> Value {
    let mut by_status = Map::new();
    let (mut total, mut completed) = (0u64, 0u64);
    for status in statuses {
        total += 1;
        completed += u64::from(status == Status::Completed);
        let count = by_status.entry(status_word(status)).or_insert(json!(0));
        *count = json!(count.as_u64().unwrap_or(0) + 1);
    }
    let percentage = (completed * 100).checked_div(total).unwrap_or(0);
    json!({ "total": total, "by_status": by_status, "completion_percentage": percentage })
}

pub(crate) fn membership(portfolio: &Portfolio, member: &Member) -> Value {
    json!({
        "id": format!("{}/{}", portfolio.id, member.intent),
        "portfolio_id": portfolio.id,
        "intent_id": member.intent,
        "role": member.role,
        "priority": member.priority,
        "added_at": at(member.added_at),
    })
}

pub(crate) fn retry_policy(id: IntentId, policy: &RetryPolicy) -> Value {
    let rule = policy.rule;
    let strategy = if rule.max_attempts == 1 { "none" } else { rule.backoff.as_str() };
    json!({
        "id": format!("{id}/retry-policy"),
        "intent_id": id,
        "strategy": strategy,
        "max_retries": rule.max_attempts - 1,
        "base_delay_ms": rule.base_delay_ms,
        "max_delay_ms": rule.max_delay_ms,
        "fallback_agent_id": policy.fallback,
        "failure_threshold": policy.failure_threshold,
        "createdAt": at(policy.created_at),
        "updatedAt": at(policy.updated_at),
    })
}

pub(crate) fn failure(id: IntentId, failure: &Failure) -> Value {
    json!({
        "id": failure.id,
        "intent_id": id,
        "agent_id": failure.agent,
        "attempt_number": failure.attempt,
        "error_code": failure.code,
        "error_message": failure.message,
        "retryScheduledAt": at_or_null(failure.retry_at),
        "resolvedAt": null,
        "metadata": failure.metadata,
        "createdAt": at(failure.at),
    })
}

pub(crate) fn subscription(one: &Subscription, now: Timestamp) -> Value {
    json!({
        "id": one.id,
        "intent_id": one.intent,
        "portfolio_id": one.portfolio,
        "subscriber_id": one.subscriber,
        "event_types": one.event_types,
        "webhook_url": one.url,
        "active": one.is_active(now),
        "expiresAt": at_or_null(one.expires_at),
        "createdAt": at(one.created_at),
        "failed_deliveries": one.failed,
        "last_error": one.last_error,
    })
}

pub(crate) fn access(id: IntentId, access: &Access) -> Value {
    let policy = match access.policy {
        Policy::Open => "open",
        Policy::Closed => "closed",
    };
    let entries: Vec<Value> = access.entries.iter().map(entry).collect();
    json!({ "intent_id": id, "default_policy": policy, "entries": entries })
}

pub(crate) fn entry(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "principal_id": entry.principal,
        "principal_type": entry.principal_type,
        "permission": entry.permission,
        "granted_by": entry.granted_by,
        "granted_at": at(entry.granted_at),
        "expires_at": at_or_null(entry.expires_at),
        "reason": entry.reason,
    })
}

pub(crate) fn access_request(id: IntentId, request: &AccessRequest) -> Value {
    json!({
        "id": request.id,
        "intent_id": id,
        "principal_id": request.principal,
        "principal_type": request.principal_type,
        "requested_permission": request.permission,
        "reason": request.reason,
        "status": request.status,
        "capabilities": request.capabilities,
        "decided_by": request.decided_by,
        "decided_at": at_or_null(request.decided_at),
        "decision_reason": request.decision_reason,
        "created_at": at(request.created_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_no_zone_and_six_decimals_and_reads_back() {
        let time = Timestamp::from_unix_ms(1_763_232_596_175);
        assert_eq!(When(time).to_string(), "2025-11-15T18:49:56.175000");
        for text in ["2025-11-15T18:49:56.175000", "2025-11-15T18:49:56.175Z", "2025-11-15T20:49:56.175+02:00"] {
            assert_eq!(parse_time(text), Some(time), "{text}");
        }
        assert_eq!(parse_time("tomorrow"), None);
        assert_eq!(parse_time("1900-01-01T00:00:00"), None);
    }
}
