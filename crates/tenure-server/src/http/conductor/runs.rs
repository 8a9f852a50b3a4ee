//! Owns finding runs: in the ledger while they go on, in the store after that.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_core::Resource;
use tenure_core::change::RecordId;
use tenure_core::flow::command::{FlowView, GetFlow, GetPlan, GotFlow};
use tenure_core::flow::{Archived, Plan};
use tenure_core::id::{FlowId, TaskId};
use tenure_store::{EventQuery, Order};

use super::fault::Fault;
use super::params::Place;
use crate::http::App;

/// A run, wherever it is.
pub(super) enum Run {
    Live(Box<FlowView>),
    Over(Box<Archived>, Arc<Plan>),
}

/// The id of a run, or that there is none of that name.
pub(super) fn id(text: &str) -> Result<FlowId, Fault> {
    text.parse().map_err(|_| unknown(text))
}

/// The run that an address names.
pub(crate) struct RunId(pub(super) FlowId);

impl FromRequestParts<App> for RunId {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<RunId, Fault> {
        let Place(text) = Place::<String>::from_request_parts(parts, app).await?;
        id(&text).map(RunId)
    }
}

/// The id of a task, or that there is none of that name.
pub(super) fn task_id(text: &str) -> Result<TaskId, Fault> {
    text.parse().map_err(|_| unknown_task(text))
}

pub(super) fn unknown_task(text: &str) -> Fault {
    Fault::not_found(format!("no task {text} is known"))
}

pub(super) fn unknown(text: &str) -> Fault {
    Fault::not_found(format!("no workflow {text} is known"))
}

/// Finds a run.
pub(super) async fn find(app: &App, id: FlowId, with_tasks: bool) -> Result<Run, Fault> {
    match app.engine().apply(GetFlow { id, with_tasks }).await? {
        GotFlow::Live(view) => Ok(Run::Live(view)),
        GotFlow::Unknown => Err(unknown(&id.to_string())),
        GotFlow::Over => {
            let (archived, plan) = over(app, id).await?.ok_or_else(|| unknown(&id.to_string()))?;
            Ok(Run::Over(Box::new(archived), plan))
        }
    }
}

/// A run that is over, if it is still kept.
pub(super) async fn over(app: &App, id: FlowId) -> Result<Option<(Archived, Arc<Plan>)>, Fault> {
    let record = RecordId::from(id);
    match app.engine().read(move |store| store.archived(&record)).await? {
        Some(archived) => Ok(Some(with_plan(app, archived).await?)),
        None => Ok(None),
    }
}

/// The run with its plan: its own, or the one it shares.
pub(super) async fn with_plan(app: &App, archived: Archived) -> Result<(Archived, Arc<Plan>), Fault> {
    if let Some(plan) = archived.plan.clone() {
        return Ok((archived, plan));
    }
    let plan = app.engine().apply(GetPlan(archived.flow.plan_id)).await?;
    Ok((archived, plan.unwrap_or_default()))
}

/// The run of a task that is over: the event of the task's end says which.
pub(super) async fn of_task(app: &App, task: TaskId) -> Result<Option<(Archived, Arc<Plan>)>, Fault> {
    let Ok(resource) = Resource::parse(&format!("task:{task}")) else { return Ok(None) };
    let mut query =
        EventQuery { resource: Some(resource), order: Order::NewestFirst, limit: 16, ..EventQuery::default() };
    loop {
        let asked = query.clone();
        let page = app.engine().read(move |store| store.events(&asked)).await?;
        let flow = page.events.iter().find_map(|event| {
            let data: serde_json::Value = serde_json::from_str(event.data.as_ref()?.get()).ok()?;
            data.get("workflow")?.as_str()?.parse::<FlowId>().ok()
        });
        match flow {
            Some(flow) => return over(app, flow).await,
            None if !page.more => return Ok(None),
            None => query.before = Some(page.next),
        }
    }
}
