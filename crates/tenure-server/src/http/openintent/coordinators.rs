//! Owns coordinator leases over this door: terms in the ledger.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use tenure_core::coordinator::Led;
use tenure_core::ledger::coordinators::{ChangeTerm, Coordinate, GetTerm, ListTerms, TermChange, TermView};
use tenure_core::limits::{
    AGENT_BEAT_MS_MAX, AGENT_BEAT_MS_MIN, REASON_BYTES_MAX, TITLE_BYTES_MAX, TTL_MS_MAX, TTL_MS_MIN,
};
use tenure_core::serial::{CoordinatorId, IntentId};
use tenure_core::{Holder, Ttl};

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::model;

/// How long a coordinator lease lasts if nobody says: ten of the heartbeats that nobody said either.
const TTL_S_DEFAULT: u64 = 600;
/// How often a coordinator beats if nobody says.
const INTERVAL_S_DEFAULT: u64 = 60;

const FIELDS: [&str; 12] = [
    "agent_id",
    "intent_id",
    "portfolio_id",
    "supervisor_id",
    "role",
    "coordinator_type",
    "scope",
    "ttl_seconds",
    "expires_at",
    "heartbeat_interval_seconds",
    "guardrails",
    "metadata",
];

pub(crate) async fn create(State(door): State<Door>, actor: Actor, body: Body) -> Answer {
    body.only(&FIELDS)?;
    let agent = body.holder("agent_id")?.unwrap_or_else(|| actor.caller.holder.clone());
    if agent != actor.caller.holder && !actor.caller.is_admin {
        return Err(No::field("agent_id", "this is not the agent that asks (X-Agent-ID)"));
    }
    let ttl = body.whole_or_null("ttl_seconds", TTL_MS_MIN / 1_000, TTL_MS_MAX / 1_000)?.unwrap_or(TTL_S_DEFAULT);
    let (min, max) = (AGENT_BEAT_MS_MIN / 1_000, AGENT_BEAT_MS_MAX / 1_000);
    let interval = body.whole_or_null("heartbeat_interval_seconds", min, max)?.unwrap_or(INTERVAL_S_DEFAULT);
    let command = Coordinate {
        led: led(&body)?,
        caller: actor.caller,
        agent,
        supervisor: supervisor(&body)?,
        role: body.text("role", TITLE_BYTES_MAX)?.unwrap_or("coordinator").into(),
        kind: kind(&body)?,
        ttl: Ttl::from_ms(ttl * 1_000).map_err(|why| No::field("ttl_seconds", why.to_string()))?,
        interval_ms: interval * 1_000,
        until: body.time("expires_at")?,
        guardrails: body.get("guardrails").map(|_| body.object("guardrails").map(Value::Object)).transpose()?,
        metadata: body.object("metadata")?,
    };
    let view = door.app.engine().apply(command).await??;
    Ok(shown(StatusCode::CREATED, &view))
}

fn led(body: &Body) -> Result<Led, No> {
    let intent = body.id("intent_id", "intent")?.map(Led::Intent);
    let portfolio = body.id("portfolio_id", "portfolio")?.map(Led::Portfolio);
    let led = match (intent, portfolio) {
        (Some(led), None) | (None, Some(led)) => led,
        (None, None) => return Err(No::field("intent_id", "name the intent_id or portfolio_id that is coordinated")),
        (Some(_), Some(_)) => return Err(No::field("portfolio_id", "name either an intent_id or a portfolio_id")),
    };
    let said = body.text("scope", TITLE_BYTES_MAX)?;
    let meant = if matches!(led, Led::Intent(_)) { "intent" } else { "portfolio" };
    match said {
        Some(scope) if scope != meant => Err(No::field("scope", format!("what is named is an {meant}"))),
        _ => Ok(led),
    }
}

/// Somebody answers for every coordinator.
fn supervisor(body: &Body) -> Result<Holder, No> {
    body.holder("supervisor_id")?.ok_or_else(|| No::field("supervisor_id", "a coordinator needs a supervisor"))
}

fn kind(body: &Body) -> Result<Box<str>, No> {
    match body.text("coordinator_type", TITLE_BYTES_MAX)?.unwrap_or("llm") {
        kind @ ("llm" | "human" | "composite" | "system") => Ok(kind.into()),
        _ => Err(No::field("coordinator_type", "one of llm, human, composite, system")),
    }
}

fn shown(status: StatusCode, view: &TermView) -> Response {
    model::versioned(status, &model::term(view), view.term.version)
}

pub(crate) async fn get(State(door): State<Door>, Ids((id,)): Ids<(CoordinatorId,)>, Looker(caller): Looker) -> Answer {
    let view = door.app.engine().apply(GetTerm { id, caller }).await??;
    Ok(shown(StatusCode::OK, &view))
}

pub(crate) async fn list(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let terms = door.app.engine().apply(ListTerms { id, caller }).await??;
    Ok(model::ok(&terms.iter().map(model::term).collect()))
}

/// Gives the lease back, or takes it away: whoever may.
pub(crate) async fn end(State(door): State<Door>, Ids((id,)): Ids<(CoordinatorId,)>, actor: Actor) -> Answer {
    let command = ChangeTerm { id, caller: actor.caller, change: TermChange::Release, reason: None };
    let view = door.app.engine().apply(command).await??;
    Ok(shown(StatusCode::OK, &view))
}

pub(crate) async fn act(
    State(door): State<Door>,
    Ids((id, act)): Ids<(CoordinatorId, String)>,
    actor: Actor,
    body: Body,
) -> Answer {
    let to = |name: &str| body.holder(name)?.ok_or_else(|| No::field(name, "this is needed"));
    let change = match act.as_str() {
        "heartbeat" => TermChange::Beat,
        "pause" => TermChange::Pause,
        "resume" => TermChange::Resume,
        "revoke" => TermChange::Revoke,
        "handoff" => TermChange::HandOff(to("to_agent_id").or_else(|_| to("agent_id"))?),
        "replace" => TermChange::Replace(to("agent_id")?),
        "guardrails" => TermChange::Guardrails(body.get("guardrails").cloned()),
        _ => return Err(No::not_found("act of a coordinator")),
    };
    let is_beat = matches!(change, TermChange::Beat);
    let reason = body.text("reason", REASON_BYTES_MAX)?.map(Into::into);
    let command = ChangeTerm { id, caller: actor.caller, change, reason };
    let view = door.app.engine().apply(command).await??;
    if is_beat {
        let term = &view.term;
        let next = model::at(term.seen_at.plus_ms(term.interval_ms));
        return Ok(model::ok(&json!({ "status": "ok", "coordinator_status": term.status, "next_heartbeat_at": next })));
    }
    Ok(shown(StatusCode::OK, &view))
}
