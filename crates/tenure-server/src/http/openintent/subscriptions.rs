//! Owns subscriptions over this door; deliveries are in [`super::webhooks`].

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde_json::{Value, json};
use tenure_core::ledger::subscriptions::{ListSubscriptions, Subscribe, Unsubscribe};
use tenure_core::limits::{EVENT_TYPES_MAX, URL_BYTES_MAX};
use tenure_core::serial::SubscriptionId;

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::{event_types, model, webhooks};
use crate::http::native::query::Params;
use crate::http::reply;

pub(crate) async fn create(State(door): State<Door>, actor: Actor, body: Body) -> Answer {
    let now = door.app.engine().now();
    let expires_at = body.time("expires_at")?;
    if expires_at.is_some_and(|until| until <= now) {
        return Err(No::field("expires_at", "this is over already"));
    }
    let event_types = body.texts("event_types", EVENT_TYPES_MAX)?;
    if let Some(unknown) = event_types.iter().find(|name| event_types::known(name).is_none()) {
        return Err(No::field("event_types", format!("there is no event type {unknown:?}")));
    }
    let url = body.text("webhook_url", URL_BYTES_MAX)?;
    if let Some(why) = url.and_then(|url| webhooks::parse(url).err()) {
        return Err(No::field("webhook_url", why));
    }
    let (intent, portfolio) = (body.id("intent_id", "intent")?, body.id("portfolio_id", "portfolio")?);
    if intent.is_none() && portfolio.is_none() {
        return Err(No::field("intent_id", "name the intent_id or portfolio_id to hear about"));
    }
    let url = url.map(Into::into);
    let command = Subscribe { intent, portfolio, caller: actor.caller, event_types, url, expires_at };
    let made = door.app.engine().apply(command).await??;
    door.webhooks.notify_one();
    Ok(reply::json(StatusCode::CREATED, &model::subscription(&made, now)))
}

pub(crate) async fn list(State(door): State<Door>, Looker(caller): Looker, uri: Uri) -> Answer {
    let params = Params::of(&uri, &["intent_id", "portfolio_id"])?;
    let intent = params.get("intent_id").map(|id| id.parse().map_err(|_| No::not_found("intent")));
    let portfolio = params.get("portfolio_id").map(|id| id.parse().map_err(|_| No::not_found("portfolio")));
    let (intent, portfolio) = (intent.transpose()?, portfolio.transpose()?);
    let command = ListSubscriptions { caller: Some(caller), intent, portfolio, with_url: false };
    let found = door.app.engine().apply(command).await?;
    let now = door.app.engine().now();
    let views: Vec<Value> = found.iter().map(|one| model::subscription(one, now)).collect();
    Ok(model::ok(&json!({ "subscriptions": views })))
}

pub(crate) async fn delete(State(door): State<Door>, Ids((id,)): Ids<(SubscriptionId,)>, actor: Actor) -> Answer {
    door.app.engine().apply(Unsubscribe { id, caller: actor.caller }).await??;
    door.webhooks.notify_one();
    Ok(model::ok(&json!({ "message": "Subscription deleted" })))
}
