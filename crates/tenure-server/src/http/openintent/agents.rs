//! Owns agents over this door: their assignments to intents and their lives.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use tenure_core::agent::{Agent, AgentStatus, Pulse};
use tenure_core::ledger::agents::{Beat, GetAgent, ListAgents, MoveAgent, Register};
use tenure_core::ledger::assign::{Assign, Unassign};
use tenure_core::ledger::intents::GetIntent;
use tenure_core::limits::{AGENT_BEAT_MS_MAX, AGENT_BEAT_MS_MIN, TITLE_BYTES_MAX};
use tenure_core::serial::IntentId;

use super::Door;
use super::body::{AgentName, Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::model;
use crate::http::native::query::Params;
use crate::http::reply;

/// What an agent may say about itself beside its pulse.
const PROFILE: [&str; 7] =
    ["capabilities", "capacity", "endpoint", "role_id", "name", "metadata", "drain_timeout_seconds"];

pub(crate) async fn assign(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, actor: Actor, body: Body) -> Answer {
    body.only(&["agent_id", "role", "delegated_by"])?;
    let agent = body.holder("agent_id")?.ok_or_else(|| No::field("agent_id", "this is needed"))?;
    let role = body.text("role", TITLE_BYTES_MAX)?.unwrap_or("worker").into();
    let delegated_by = body.holder("delegated_by")?.map(|name| actor.named(name)).transpose()?;
    let command = Assign { id, caller: actor.caller, agent, role, delegated_by };
    let assignment = door.app.engine().apply(command).await??;
    Ok(reply::json(StatusCode::CREATED, &model::assignment(id, &assignment)))
}

pub(crate) async fn unassign(
    State(door): State<Door>,
    Ids((id, AgentName(agent))): Ids<(IntentId, AgentName)>,
    actor: Actor,
) -> Answer {
    door.app.engine().apply(Unassign { id, caller: actor.caller, agent }).await??;
    Ok(model::ok(&json!({ "message": "Agent unassigned" })))
}

pub(crate) async fn assigned(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let intent = door.app.engine().apply(GetIntent { id, caller }).await??;
    let agents: Vec<Value> = intent.assigned.iter().map(|one| model::assignment(id, one)).collect();
    Ok(model::ok(&json!({ "agents": agents })))
}

pub(crate) async fn register(State(door): State<Door>, actor: Actor, body: Body) -> Answer {
    let mut known = vec!["agent_id", "heartbeat_config"];
    known.extend(PROFILE);
    body.only(&known)?;
    let name = body.holder("agent_id")?.ok_or_else(|| No::field("agent_id", "this is needed"))?;
    let pulse = pulse(&body)?;
    let profile = PROFILE.iter().filter_map(|name| Some(((*name).to_owned(), body.get(name)?.clone()))).collect();
    check_profile(&body)?;
    let drain_ms = body.whole_or_null("drain_timeout_seconds", 0, AGENT_BEAT_MS_MAX / 1_000)?.map(|s| s * 1_000);
    let command = Register { speaker: actor.speaker(name)?, profile, pulse, drain_ms };
    let agent = door.app.engine().apply(command).await??;
    Ok(shown(StatusCode::CREATED, &agent))
}

fn check_profile(body: &Body) -> Result<(), No> {
    body.texts("capabilities", 256)?;
    for name in ["capacity", "metadata"] {
        body.object(name)?;
    }
    for name in ["endpoint", "role_id", "name"] {
        body.text(name, TITLE_BYTES_MAX)?;
    }
    Ok(())
}

fn pulse(body: &Body) -> Result<Pulse, No> {
    let config = Body::from(body.object("heartbeat_config")?);
    config.only(&["interval_seconds", "unhealthy_after_seconds", "dead_after_seconds"])?;
    let (min, max) = (AGENT_BEAT_MS_MIN / 1_000, AGENT_BEAT_MS_MAX / 1_000);
    let default = Pulse::default();
    let ms = |name: &str, default: u64| Ok::<_, No>(config.whole(name, min, max)?.map_or(default, |s| s * 1_000));
    let pulse = Pulse {
        interval_ms: ms("interval_seconds", default.interval_ms)?,
        unhealthy_after_ms: ms("unhealthy_after_seconds", default.unhealthy_after_ms)?,
        dead_after_ms: ms("dead_after_seconds", default.dead_after_ms)?,
    };
    pulse.checked().map_err(|why| No::field("heartbeat_config", why.to_string()))
}

fn shown(status: StatusCode, agent: &Agent) -> axum::response::Response {
    model::versioned(status, &model::agent(agent), agent.version)
}

pub(crate) async fn record(
    State(door): State<Door>,
    Ids((AgentName(name),)): Ids<(AgentName,)>,
    _looker: Looker,
) -> Answer {
    let agent = door.app.engine().apply(GetAgent(name)).await??;
    Ok(shown(StatusCode::OK, &agent))
}

pub(crate) async fn list(State(door): State<Door>, _looker: Looker, uri: Uri) -> Answer {
    let params = Params::of(&uri, &["status", "role_id"])?;
    let status = params.get("status").map(|word| status_of(Some(word))).transpose()?;
    let role = params.get("role_id");
    let agents = door.app.engine().apply(ListAgents { status }).await?;
    let of_role = |agent: &&std::sync::Arc<Agent>| {
        role.is_none_or(|role| agent.profile.get("role_id").and_then(Value::as_str) == Some(role))
    };
    let views: Vec<Value> = agents.iter().filter(of_role).map(|agent| model::agent(agent)).collect();
    Ok(model::ok(&Value::Array(views)))
}

fn status_of(word: Option<&str>) -> Result<AgentStatus, No> {
    let parsed = word.and_then(|word| serde_json::from_value(json!(word)).ok());
    let words = "one of registering, active, draining, unhealthy, dead, deregistered";
    parsed.ok_or_else(|| No::field("status", words))
}

/// A heartbeat. What the agent says about its load is not kept.
pub(crate) async fn heartbeat(
    State(door): State<Door>,
    Ids((AgentName(name),)): Ids<(AgentName,)>,
    actor: Actor,
    _body: Body,
) -> Answer {
    let agent = door.app.engine().apply(Beat { speaker: actor.speaker(name)? }).await??;
    let draining = (agent.status == AgentStatus::Draining).then(|| json!({ "command": "drain" }));
    let now = agent.seen_at;
    let mut body = Map::new();
    body.insert("status".to_owned(), json!("ok"));
    body.insert("acknowledged".to_owned(), json!(true));
    body.insert("agent_status".to_owned(), json!(agent.status));
    body.insert("pending_commands".to_owned(), draining.into_iter().collect());
    body.insert("server_timestamp".to_owned(), model::at(now));
    body.insert("next_heartbeat_at".to_owned(), model::at(now.plus_ms(agent.pulse.interval_ms)));
    Ok(model::ok(&Value::Object(body)))
}

pub(crate) async fn set_status(
    State(door): State<Door>,
    Ids((AgentName(name),)): Ids<(AgentName,)>,
    actor: Actor,
    body: Body,
) -> Answer {
    let status = status_of(body.text("status", TITLE_BYTES_MAX)?)?;
    let agent = door.app.engine().apply(MoveAgent { speaker: actor.speaker(name)?, status }).await??;
    Ok(shown(StatusCode::OK, &agent))
}

pub(crate) async fn deregister(
    State(door): State<Door>,
    Ids((AgentName(name),)): Ids<(AgentName,)>,
    actor: Actor,
) -> Answer {
    let command = MoveAgent { speaker: actor.speaker(name)?, status: AgentStatus::Deregistered };
    let agent = door.app.engine().apply(command).await??;
    Ok(shown(StatusCode::OK, &agent))
}
