//! Owns leases over this door: a scope of an intent is `intent:<id>/<scope>` in the ledger.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use tenure_core::access::Caller;
use tenure_core::command::{Acquire, Acquired, Revoke};
use tenure_core::document::Refusal;
use tenure_core::event::Event;
use tenure_core::lease::{End, Lease};
use tenure_core::ledger::scopes::{AcquireScope, AdmitScope, ListScopes, ReleaseScope, RenewScope, ScopeMiss};
use tenure_core::limits::{REASON_BYTES_MAX, RESOURCE_BYTES_MAX, TTL_MS_MAX, TTL_MS_MIN, WAIT_MS_MAX};
use tenure_core::serial::IntentId;
use tenure_core::{Holder, LeaseId, Resource, Ttl};

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Admin, Looker};
use super::error::{Answer, No};
use super::model;
use crate::engine::{Ended, Found, Released, Unavailable};
use crate::http::reply;
use crate::http::sight;
use crate::serve::peer;

/// How long a lease lasts if nobody says.
const DURATION_S_DEFAULT: u64 = 300;

pub(crate) async fn acquire(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    actor: Actor,
    body: Body,
) -> Answer {
    body.only(&["scope", "duration_seconds", "ttl_seconds", "wait_seconds", "metadata"])?;
    let scope = body.text("scope", RESOURCE_BYTES_MAX)?;
    let scope = scope.ok_or_else(|| No::field("scope", "this is needed; \"*\" is the whole intent"))?;
    let resource = Resource::parse(&format!("intent:{id}/{scope}"));
    let resource = resource.map_err(|why| No::field("scope", why.to_string()))?;
    let ttl = ttl(&body)?.map_or_else(|| Ttl::from_ms(DURATION_S_DEFAULT * 1_000), Ok);
    let ttl = ttl.map_err(|why| No::field("duration_seconds", why.to_string()))?;
    let mut acquire = Acquire::new([resource], actor.caller.holder.clone(), ttl);
    if body.get("metadata").is_some() {
        acquire.metadata = serde_json::value::to_raw_value(&body.object("metadata")?).ok();
    }
    acquire.wait_ms = body.whole("wait_seconds", 0, WAIT_MS_MAX / 1_000)?.map(|seconds| seconds * 1_000);
    let lease = take(&door, AcquireScope { id, caller: actor.caller, acquire }).await?;
    Ok(reply::json(StatusCode::CREATED, &model::lease(&lease, None)))
}

async fn take(door: &Door, ask: AcquireScope) -> Result<Lease, No> {
    let engine = door.app.engine();
    if ask.acquire.wait_ms.unwrap_or(0) > 0 {
        let acquire = engine.apply(AdmitScope(ask)).await??;
        let granted = tokio::select! {
            granted = engine.acquire(acquire) => granted?,
            () = door.app.closing() => return Err(Unavailable::Stopped.into()),
            () = peer::gone() => return Err(Unavailable::Stopped.into()),
        };
        return Ok(granted?.lease);
    }
    match engine.apply(ask).await? {
        Ok(Acquired::Granted(grant)) => Ok(grant.lease),
        Ok(Acquired::Refused(refusal)) | Err(Refusal::Lease(refusal)) => {
            engine.metrics().refused(refusal.code());
            Err(refusal.into())
        }
        Ok(Acquired::Queued(_)) => Err(Unavailable::Stopped.into()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// How long, under either of its names; both, if they agree.
fn ttl(body: &Body) -> Result<Option<Ttl>, No> {
    let (min, max) = (TTL_MS_MIN / 1_000, TTL_MS_MAX / 1_000);
    let duration = body.whole("duration_seconds", min, max)?;
    let ttl = body.whole("ttl_seconds", min, max)?;
    if let (Some(one), Some(other)) = (duration, ttl)
        && one != other
    {
        return Err(No::field("ttl_seconds", "duration_seconds says otherwise; they are two names for one thing"));
    }
    let seconds = duration.or(ttl);
    let ttl = seconds.map(|seconds| Ttl::from_ms(seconds * 1_000)).transpose();
    ttl.map_err(|why| No::field("duration_seconds", why.to_string()))
}

pub(crate) async fn list(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let leases = door.app.engine().apply(ListScopes { id, caller }).await??;
    let views: Vec<Value> = leases.iter().map(|lease| model::lease(lease, None)).collect();
    Ok(model::ok(&json!({ "leases": views })))
}

pub(crate) async fn get(State(door): State<Door>, Ids((lease,)): Ids<(LeaseId,)>, Looker(caller): Looker) -> Answer {
    let view = match door.app.engine().find(lease.token()).await? {
        Found::Active(lease) if model::intent_in(&lease.resources).is_some() => {
            check_seen(&door, &caller, &lease.resources, Some(&lease.holder)).await?;
            Some(model::lease(&lease, None))
        }
        Found::Ended(ended) => {
            check_seen(&door, &caller, &ended.0.resources, ended.0.holder.as_ref()).await?;
            model::ended_lease(&ended.0)
        }
        _ => None,
    };
    view.map(|view| model::ok(&view)).ok_or_else(|| No::not_found("lease"))
}

/// Refuses to show a lease on an intent that the caller may not read, unless it is its own.
async fn check_seen(door: &Door, by: &Caller, resources: &[Resource], holder: Option<&Holder>) -> Result<(), No> {
    let sight = sight::of(&door.app, Some(by), resources).await?;
    Ok(sight.check(resources, holder)?)
}

pub(crate) async fn renew(
    State(door): State<Door>,
    Ids((id, lease)): Ids<(IntentId, LeaseId)>,
    actor: Actor,
    body: Body,
) -> Answer {
    renew_any(&door, Some(id), lease, actor, body).await
}

pub(crate) async fn renew_by_id(
    State(door): State<Door>,
    Ids((lease,)): Ids<(LeaseId,)>,
    actor: Actor,
    body: Body,
) -> Answer {
    renew_any(&door, None, lease, actor, body).await
}

async fn renew_any(door: &Door, intent: Option<IntentId>, lease: LeaseId, actor: Actor, body: Body) -> Answer {
    body.only(&["duration_seconds", "ttl_seconds"])?;
    let by = actor.caller;
    let ask = RenewScope { intent, token: lease.token(), holder: by.holder.clone(), ttl: ttl(&body)? };
    match door.app.engine().apply(ask).await? {
        Ok(lease) => {
            door.app.engine().metrics().renewed(1);
            Ok(model::ok(&model::lease(&lease, None)))
        }
        Err(miss) => {
            let event = over(door, intent, lease, &by, miss).await?;
            door.app.engine().metrics().refused("lost");
            Err(lost(door, &event).await?)
        }
    }
}

/// The end of a lease of this holder; a refusal if it is not that.
async fn over(
    door: &Door,
    intent: Option<IntentId>,
    lease: LeaseId,
    by: &Caller,
    miss: ScopeMiss,
) -> Result<Event, No> {
    match miss {
        ScopeMiss::Unknown => return Err(No::not_found("lease on this intent")),
        ScopeMiss::NotHolder(lease) => {
            check_seen(door, by, &lease.resources, None).await?;
            door.app.engine().metrics().refused("not_holder");
            return Err(No::not_holder(&lease));
        }
        ScopeMiss::Over => {}
    }
    let ended = door.app.engine().ended(lease.token()).await?;
    let Some(Ended(event)) = ended else { return Err(No::not_found("lease on this intent")) };
    let of = model::intent_in(&event.resources).map(|(_, id)| id);
    if of.is_none() || intent.is_some_and(|asked| of != Some(asked)) || event.holder.as_ref() != Some(&by.holder) {
        return Err(No::not_found("lease on this intent"));
    }
    Ok(event)
}

/// What a holder is told whose lease is over: how it ended, and who has it now.
async fn lost(door: &Door, event: &Event) -> Result<No, No> {
    let how = event.kind.end().map_or("over", End::as_str);
    let check = tenure_core::command::Check {
        resources: event.resources.clone(),
        mode: tenure_core::lease::Mode::Exclusive,
        holder: None,
    };
    let now = door.app.engine().apply(check).await?;
    let holder = now.conflicts.first().map(|conflict| conflict.blocker.holder().to_string());
    let message = format!("this lease is {how}; stop the work that relied on it and acquire the scope again");
    let body = model::ended_lease(event).unwrap_or(Value::Null);
    Ok(No::new(StatusCode::CONFLICT, message).with("existing_lease", body).with("current_holder", json!(holder)))
}

pub(crate) async fn release(
    State(door): State<Door>,
    Ids((id, lease)): Ids<(IntentId, LeaseId)>,
    actor: Actor,
) -> Answer {
    release_any(&door, Some(id), lease, actor).await
}

pub(crate) async fn release_by_id(State(door): State<Door>, Ids((lease,)): Ids<(LeaseId,)>, actor: Actor) -> Answer {
    release_any(&door, None, lease, actor).await
}

/// Giving back what is over already is no error, and the answer says how it ended.
async fn release_any(door: &Door, intent: Option<IntentId>, lease: LeaseId, actor: Actor) -> Answer {
    let by = actor.caller;
    let ask = ReleaseScope { intent, token: lease.token(), holder: by.holder.clone() };
    let view = match door.app.engine().apply(ask).await? {
        Ok((lease, at)) => model::lease(&lease, Some((End::Released, at))),
        Err(miss) => {
            let event = over(door, intent, lease, &by, miss).await?;
            model::ended_lease(&event).unwrap_or(Value::Null)
        }
    };
    Ok(ended("Lease released", view))
}

fn ended(message: &str, view: Value) -> axum::response::Response {
    let mut body = Map::new();
    body.insert("message".to_owned(), json!(message));
    if let Value::Object(view) = view {
        body.extend(view);
    }
    model::ok(&Value::Object(body))
}

pub(crate) async fn revoke(
    State(door): State<Door>,
    Ids((id, lease)): Ids<(IntentId, LeaseId)>,
    admin: Admin,
    body: Body,
) -> Answer {
    let found = door.app.engine().find(lease.token()).await?;
    match found {
        Found::Active(lease) if model::intent_in(&lease.resources).is_some_and(|(_, of)| of == id) => {}
        _ => return Err(No::not_found("active lease on this intent")),
    }
    revoke_by_id(State(door), Ids((lease,)), admin, body).await
}

pub(crate) async fn revoke_by_id(
    State(door): State<Door>,
    Ids((lease,)): Ids<(LeaseId,)>,
    Admin(admin): Admin,
    body: Body,
) -> Answer {
    let reason = body.text("reason", REASON_BYTES_MAX)?;
    let reason = reason.ok_or_else(|| No::field("reason", "say why: the holder is told"))?.into();
    let revoke = Revoke { token: lease.token(), by: admin.holder, reason };
    match door.app.engine().revoke(revoke).await? {
        Released::Ended(lease, at) => {
            let view = model::lease(&lease, Some((End::Revoked, at)));
            Ok(ended("Lease revoked", view))
        }
        Released::Before(over) => Ok(ended("Lease was over", model::ended_lease(&over.0).unwrap_or(Value::Null))),
        Released::NotHolder(_) | Released::Unknown => Err(No::not_found("lease")),
    }
}
