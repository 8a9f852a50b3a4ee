//! Owns portfolios over this door.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde_json::{Value, json};
use tenure_core::Holder;
use tenure_core::ledger::intents::GetIntent;
use tenure_core::ledger::portfolios::{
    ChangePortfolio, CreatePortfolio, GetPortfolio, ListPortfolios, PortfolioChange,
};
use tenure_core::limits::TITLE_BYTES_MAX;
use tenure_core::portfolio::{Portfolio, PortfolioStatus, Role};
use tenure_core::serial::{IntentId, PortfolioId};

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::model;
use crate::http::native::query::Params;
use crate::http::reply;

pub(crate) async fn create(State(door): State<Door>, actor: Actor, body: Body) -> Answer {
    if let Some(named) = body.holder("created_by")?
        && named != actor.caller.holder
    {
        return Err(No::field("created_by", "this is not the agent that asks (X-Agent-ID)"));
    }
    let command = CreatePortfolio {
        name: body.title("name")?,
        description: body.long_text("description")?.map(str::to_owned),
        created_by: actor.caller.holder,
        governance: body.object("governance_policy")?,
        metadata: body.object("metadata")?,
    };
    let portfolio = door.app.engine().apply(command).await??;
    Ok(reply::json(StatusCode::CREATED, &model::portfolio(&portfolio)))
}

pub(crate) async fn list(State(door): State<Door>, _looker: Looker, uri: Uri) -> Answer {
    let params = Params::of(&uri, &["created_by"])?;
    let parse = |name: &str| Holder::parse(name).map_err(|why| No::field("created_by", why.to_string()));
    let created_by = params.get("created_by").map(parse).transpose()?;
    let found = door.app.engine().apply(ListPortfolios { created_by, intent: None }).await?;
    Ok(listed(&found))
}

fn listed(found: &[Arc<Portfolio>]) -> axum::response::Response {
    let views: Vec<Value> = found.iter().map(|one| model::portfolio(one)).collect();
    model::ok(&json!({ "portfolios": views }))
}

pub(crate) async fn of_intent(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    Looker(caller): Looker,
) -> Answer {
    door.app.engine().apply(GetIntent { id, caller }).await??;
    let found = door.app.engine().apply(ListPortfolios { created_by: None, intent: Some(id) }).await?;
    Ok(listed(&found))
}

pub(crate) async fn get(State(door): State<Door>, Ids((id,)): Ids<(PortfolioId,)>, Looker(caller): Looker) -> Answer {
    let view = door.app.engine().apply(GetPortfolio { id, caller }).await??;
    Ok(model::ok(&model::portfolio_view(&view)))
}

pub(crate) async fn intents(
    State(door): State<Door>,
    Ids((id,)): Ids<(PortfolioId,)>,
    Looker(caller): Looker,
) -> Answer {
    let view = door.app.engine().apply(GetPortfolio { id, caller }).await??;
    let intents: Vec<Value> = view.intents.iter().map(|one| model::intent(one)).collect();
    let aggregate = model::aggregate(view.intents.iter().map(|one| one.status));
    Ok(model::ok(&json!({ "intents": intents, "aggregate_status": aggregate })))
}

pub(crate) async fn set_status(
    State(door): State<Door>,
    Ids((id,)): Ids<(PortfolioId,)>,
    actor: Actor,
    body: Body,
) -> Answer {
    let status = match body.text("status", TITLE_BYTES_MAX)? {
        Some("active") => PortfolioStatus::Active,
        Some("completed") => PortfolioStatus::Completed,
        Some("abandoned") => PortfolioStatus::Abandoned,
        _ => return Err(No::field("status", "one of active, completed, abandoned")),
    };
    let changed = change(&door, id, &actor, PortfolioChange::Status(status)).await?;
    Ok(model::ok(&model::portfolio(&changed)))
}

async fn change(door: &Door, id: PortfolioId, actor: &Actor, change: PortfolioChange) -> Result<Arc<Portfolio>, No> {
    let command = ChangePortfolio { id, caller: actor.caller.clone(), change };
    Ok(door.app.engine().apply(command).await??)
}

pub(crate) async fn add(State(door): State<Door>, Ids((id,)): Ids<(PortfolioId,)>, actor: Actor, body: Body) -> Answer {
    let intent: IntentId = body.id("intent_id", "intent")?.ok_or_else(|| No::field("intent_id", "this is needed"))?;
    let role = match body.text("role", TITLE_BYTES_MAX)? {
        Some("primary") => Role::Primary,
        None | Some("member") => Role::Member,
        Some("dependency") => Role::Dependency,
        Some(_) => return Err(No::field("role", "one of primary, member, dependency")),
    };
    let priority = match body.get("priority") {
        None => 0,
        Some(value) => value.as_i64().ok_or_else(|| No::field("priority", "a whole number"))?,
    };
    let changed = change(&door, id, &actor, PortfolioChange::Add(intent, role, priority)).await?;
    let member = changed.members.iter().find(|member| member.intent == intent);
    Ok(reply::json(StatusCode::CREATED, &member.map(|member| model::membership(&changed, member))))
}

pub(crate) async fn remove(
    State(door): State<Door>,
    Ids((id, intent)): Ids<(PortfolioId, IntentId)>,
    actor: Actor,
) -> Answer {
    change(&door, id, &actor, PortfolioChange::Remove(intent)).await?;
    Ok(model::ok(&json!({ "message": "Intent removed from portfolio" })))
}
