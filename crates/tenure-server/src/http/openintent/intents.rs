//! Owns intents over this door: making, reading, patching, moving, relating them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::{Value, json};
use tenure_core::LeaseId;
use tenure_core::access::Caller;
use tenure_core::intent::Intent;
use tenure_core::ledger::intents::{CreateIntent, GetIntent, Kin, ListIntents, Relatives};
use tenure_core::ledger::writes::{PatchState, SetDependency, SetStatus};
use tenure_core::limits::{DEPENDENCIES_MAX, PAGE_MAX, PATCHES_MAX, REASON_BYTES_MAX, TITLE_BYTES_MAX};
use tenure_core::patch::{Patch, PatchOp, PatchPath};
use tenure_core::serial::IntentId;

use super::Door;
use super::body::{Body, Ids, IfMatch};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::model;
use crate::http::native::query::Params;

/// How many intents a list has if nobody says.
const LIST_DEFAULT: usize = 50;

pub(crate) async fn create(State(door): State<Door>, actor: Actor, body: Body) -> Answer {
    let parent = body.id("parent_intent_id", "parent intent")?;
    make(&door, &actor, &body, parent).await
}

pub(crate) async fn create_child(
    State(door): State<Door>,
    Ids((parent,)): Ids<(IntentId,)>,
    actor: Actor,
    body: Body,
) -> Answer {
    make(&door, &actor, &body, Some(parent)).await
}

async fn make(door: &Door, actor: &Actor, body: &Body, parent: Option<IntentId>) -> Answer {
    let depends_on = body.texts("depends_on", DEPENDENCIES_MAX)?;
    let depends_on = depends_on.iter().map(|text| text.parse().map_err(|_| No::not_found("intent to depend on")));
    // Whose it is is decided by who asks: a name in the body would let anyone act for anyone.
    if let Some(named) = body.holder("created_by")?
        && named != actor.caller.holder
        && !actor.caller.is_admin
    {
        return Err(No::field("created_by", "this is not the agent that asks (X-Agent-ID)"));
    }
    let command = CreateIntent {
        title: body.title("title")?,
        description: body.long_text("description")?.unwrap_or_default().to_owned(),
        state: body.object("state")?,
        constraints: constraints(body)?,
        parent,
        depends_on: depends_on.collect::<Result<_, _>>()?,
        governance: body
            .get("governance_policy")
            .map(|_| body.object("governance_policy").map(Value::Object))
            .transpose()?,
        created_by: body.holder("created_by")?.unwrap_or_else(|| actor.caller.holder.clone()),
    };
    let intent = door.app.engine().apply(command).await??;
    Ok(shown_as(StatusCode::CREATED, &intent))
}

/// Old clients send a list of rules.
fn constraints(body: &Body) -> Result<serde_json::Map<String, Value>, No> {
    match body.get("constraints") {
        Some(Value::Array(rules)) if !rules.is_empty() => {
            Ok([("rules".to_owned(), json!(rules))].into_iter().collect())
        }
        _ => body.object("constraints"),
    }
}

fn shown(intent: &Intent) -> Response {
    shown_as(StatusCode::OK, intent)
}

fn shown_as(status: StatusCode, intent: &Intent) -> Response {
    model::versioned(status, &model::intent(intent), intent.version)
}

pub(crate) async fn get(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let intent = door.app.engine().apply(GetIntent { id, caller }).await??;
    Ok(shown(&intent))
}

pub(crate) async fn list(State(door): State<Door>, Looker(caller): Looker, uri: Uri) -> Answer {
    let params = Params::of(&uri, &["limit", "offset", "status"])?;
    let number = |name: &str, default: usize, min: usize, max: usize| match params.get(name) {
        None => Ok(default),
        Some(text) => {
            let number = text.parse().ok().filter(|number| (min..=max).contains(number));
            number.ok_or_else(|| No::field(name, format!("a whole number from {min} to {max}")))
        }
    };
    let status = params.get("status").map(|word| model::status_of(word).ok_or_else(|| bad_status("status")));
    let command = ListIntents {
        status: status.transpose()?,
        offset: number("offset", 0, 0, usize::MAX)?,
        limit: number("limit", LIST_DEFAULT, 1, PAGE_MAX)?,
        caller,
    };
    let intents = door.app.engine().apply(command).await?;
    Ok(model::ok(&json!({ "intents": views(&intents) })))
}

fn views(intents: &[Arc<Intent>]) -> Vec<Value> {
    intents.iter().map(|intent| model::intent(intent)).collect()
}

fn bad_status(field: &str) -> No {
    No::field(field, "one of draft, active, blocked, suspended_awaiting_input, completed, abandoned")
}

macro_rules! kin {
    ($($name:ident $kin:ident;)*) => {$(
        pub(crate) async fn $name(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
            let found = relatives(&door, id, Kin::$kin, caller).await?;
            Ok(model::ok(&json!({ stringify!($name): views(&found) })))
        }
    )*};
}

kin! {
    children Children;
    descendants Descendants;
    ancestors Ancestors;
    dependencies Dependencies;
    dependents Dependents;
    ready Ready;
    blocked Blocked;
}

async fn relatives(door: &Door, id: IntentId, kin: Kin, caller: Caller) -> Result<Vec<Arc<Intent>>, No> {
    Ok(door.app.engine().apply(Relatives { id, kin, caller }).await??)
}

/// An intent, everything below it, and how they depend on each other.
pub(crate) async fn graph(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let root = door.app.engine().apply(GetIntent { id, caller: caller.clone() }).await??;
    let mut nodes = vec![root];
    nodes.extend(relatives(&door, id, Kin::Descendants, caller).await?);
    let mut edges = Vec::new();
    for node in &nodes {
        let parent = node.parent.map(|parent| json!({ "from": parent, "to": node.id, "type": "parent" }));
        edges.extend(parent.filter(|_| node.id != id));
        edges.extend(node.depends_on.iter().map(|first| json!({ "from": first, "to": node.id, "type": "dependency" })));
    }
    let aggregate = model::aggregate(nodes.iter().map(|node| node.status));
    Ok(model::ok(&json!({ "root_id": id, "nodes": views(&nodes), "edges": edges, "aggregate_status": aggregate })))
}

pub(crate) async fn add_dependency(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    actor: Actor,
    IfMatch(expected): IfMatch,
    body: Body,
) -> Answer {
    let first = body.id("dependency_id", "intent to depend on")?;
    let first = first.ok_or_else(|| No::field("dependency_id", "this is needed"))?;
    let command = SetDependency { id, caller: actor.caller, expected, first, present: true };
    Ok(shown(&*door.app.engine().apply(command).await??))
}

pub(crate) async fn remove_dependency(
    State(door): State<Door>,
    Ids((id, first)): Ids<(IntentId, IntentId)>,
    actor: Actor,
    IfMatch(expected): IfMatch,
) -> Answer {
    let command = SetDependency { id, caller: actor.caller, expected, first, present: false };
    Ok(shown(&*door.app.engine().apply(command).await??))
}

pub(crate) async fn patch_state(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    actor: Actor,
    IfMatch(expected): IfMatch,
    body: Body,
) -> Answer {
    body.only(&["patches", "lease_id"])?;
    let told = body.get("patches").cloned().ok_or_else(|| No::field("patches", "this is needed"))?;
    let patches = body.list("patches", PATCHES_MAX)?.iter().map(read_patch).collect::<Result<_, _>>()?;
    let lease = body.id::<LeaseId>("lease_id", "lease")?.map(LeaseId::token);
    let command = PatchState { id, caller: actor.caller, expected, patches, told, lease };
    Ok(shown(&*door.app.engine().apply(command).await??))
}

fn read_patch(value: &Value) -> Result<Patch, No> {
    let Value::Object(fields) = value else { return Err(No::field("patches", "each patch is an object")) };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let path = text("path").ok_or_else(|| No::field("path", "each patch has a path, a text"))?;
    let path = PatchPath::parse(path).map_err(|why| No::field("path", why.to_string()))?;
    let value = || fields.get("value").cloned().ok_or_else(|| No::field("value", "set and append have a value"));
    let op = match text("op") {
        Some("set") => PatchOp::Set(value()?),
        Some("append") => PatchOp::Append(value()?),
        Some("remove") => PatchOp::Remove,
        _ => return Err(No::field("op", "one of set, append, remove")),
    };
    Ok(Patch { path, op })
}

pub(crate) async fn set_status(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    actor: Actor,
    IfMatch(expected): IfMatch,
    body: Body,
) -> Answer {
    let word = body.text("status", TITLE_BYTES_MAX)?;
    let status = word.and_then(model::status_of).ok_or_else(|| bad_status("status"))?;
    let reason = body.text("reason", REASON_BYTES_MAX)?.map(Into::into);
    let command = SetStatus { id, caller: actor.caller, expected, status, reason };
    Ok(shown(&*door.app.engine().apply(command).await??))
}
