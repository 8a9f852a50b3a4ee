//! Owns access lists over this door.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tenure_core::access::{Access, Caller, Permission, Policy};
use tenure_core::ledger::access::{AccessChange, AccessChanged, ChangeAccess, NewEntry};
use tenure_core::ledger::intents::GetIntent;
use tenure_core::limits::{ACCESS_ENTRIES_MAX, REASON_BYTES_MAX, TITLE_BYTES_MAX};
use tenure_core::serial::{AccessId, IntentId};

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::model;
use crate::http::reply;

async fn change(door: &Door, id: IntentId, caller: Caller, change: AccessChange) -> Result<AccessChanged, No> {
    Ok(door.app.engine().apply(ChangeAccess { id, caller, change }).await??)
}

pub(crate) async fn get(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let intent = door.app.engine().apply(GetIntent { id, caller }).await??;
    Ok(model::ok(&model::access(id, &intent.access)))
}

pub(crate) async fn set(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, actor: Actor, body: Body) -> Answer {
    let policy = match body.text("default_policy", TITLE_BYTES_MAX)? {
        Some("open") | None => Policy::Open,
        Some("closed") => Policy::Closed,
        Some(_) => return Err(No::field("default_policy", "one of open, closed")),
    };
    let entries = body.list("entries", ACCESS_ENTRIES_MAX)?.iter().map(|value| match value {
        Value::Object(fields) => entry(&Body::from(fields.clone()), "permission"),
        _ => Err(No::field("entries", "each entry is an object")),
    });
    let entries = entries.collect::<Result<_, _>>()?;
    let changed = change(&door, id, actor.caller, AccessChange::Replace(policy, entries)).await?;
    Ok(model::ok(&model::access(id, &changed.access)))
}

fn entry(body: &Body, permission: &str) -> Result<NewEntry, No> {
    Ok(NewEntry {
        principal: body.holder("principal_id")?.ok_or_else(|| No::field("principal_id", "this is needed"))?,
        principal_type: body.text("principal_type", TITLE_BYTES_MAX)?.unwrap_or("agent").into(),
        permission: permission_of(body, permission)?.unwrap_or(Permission::Read),
        expires_at: body.time("expires_at")?,
        reason: body.text("reason", REASON_BYTES_MAX)?.map(Into::into),
    })
}

fn permission_of(body: &Body, name: &str) -> Result<Option<Permission>, No> {
    match body.text(name, TITLE_BYTES_MAX)? {
        None => Ok(None),
        Some("read") => Ok(Some(Permission::Read)),
        Some("write") => Ok(Some(Permission::Write)),
        Some("admin") => Ok(Some(Permission::Admin)),
        Some(_) => Err(No::field(name, "one of read, write, admin")),
    }
}

pub(crate) async fn grant(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, actor: Actor, body: Body) -> Answer {
    let changed = change(&door, id, actor.caller, AccessChange::Grant(entry(&body, "permission")?)).await?;
    let made = changed.access.entries.iter().find(|entry| Some(entry.id) == changed.id);
    Ok(reply::json(StatusCode::CREATED, &made.map(model::entry)))
}

pub(crate) async fn revoke(
    State(door): State<Door>,
    Ids((id, entry)): Ids<(IntentId, AccessId)>,
    actor: Actor,
) -> Answer {
    change(&door, id, actor.caller, AccessChange::Revoke(entry)).await?;
    Ok(model::ok(&json!({ "message": "Access revoked" })))
}

pub(crate) async fn request(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    actor: Actor,
    body: Body,
) -> Answer {
    let capabilities = body.texts("capabilities", ACCESS_ENTRIES_MAX)?;
    let new = entry(&body, "requested_permission")?;
    let changed = change(&door, id, actor.caller, AccessChange::Request(new, capabilities)).await?;
    Ok(reply::json(StatusCode::CREATED, &shown_request(id, &changed)))
}

fn shown_request(id: IntentId, AccessChanged { access, id: about }: &AccessChanged) -> Option<Value> {
    let request = access.requests.iter().find(|request| Some(request.id) == *about);
    request.map(|request| model::access_request(id, request))
}

pub(crate) async fn requests(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let intent = door.app.engine().apply(GetIntent { id, caller }).await??;
    let Access { requests, .. } = &intent.access;
    let views: Vec<Value> = requests.iter().map(|request| model::access_request(id, request)).collect();
    Ok(model::ok(&json!({ "access_requests": views })))
}

pub(crate) async fn approve(
    State(door): State<Door>,
    Ids((id, request)): Ids<(IntentId, AccessId)>,
    actor: Actor,
    body: Body,
) -> Answer {
    let reason = body.text("reason", REASON_BYTES_MAX)?.map(Into::into);
    let approve = AccessChange::Approve(request, permission_of(&body, "permission")?, body.time("expires_at")?, reason);
    let changed = change(&door, id, actor.caller, approve).await?;
    Ok(model::ok(&json!(shown_request(id, &changed))))
}

pub(crate) async fn deny(
    State(door): State<Door>,
    Ids((id, request)): Ids<(IntentId, AccessId)>,
    actor: Actor,
    body: Body,
) -> Answer {
    let reason = body.text("reason", REASON_BYTES_MAX)?.map(Into::into);
    let changed = change(&door, id, actor.caller, AccessChange::Deny(request, reason)).await?;
    Ok(model::ok(&json!(shown_request(id, &changed))))
}
