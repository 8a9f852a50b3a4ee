//! Owns changing the course of runs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use tenure_core::flow::FlowStatus;
use tenure_core::flow::command::{Again, Control, FlowRefusal, RemoveArchived, Revive, Steer};
use tenure_core::id::FlowId;
use tenure_core::task::Json;

use super::asker::Working;
use super::body::{Body, payload, text};
use super::fault::Fault;
use super::params::{Params, Place};
use super::runs::{self, RunId};
use crate::http::App;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reason {
    reason: Option<String>,
    trigger_failure_workflow: Option<bool>,
}

/// Steers a run that goes on.
pub(super) async fn steer(app: &App, id: FlowId, what: Steer) -> Result<(), Fault> {
    match app.engine().apply(Control { id, what }).await? {
        Err(FlowRefusal::Archived(id)) => {
            let (archived, _) = runs::over(app, id).await?.ok_or_else(|| runs::unknown(&id.to_string()))?;
            Err(FlowRefusal::Over { id, status: archived.flow.status }.into())
        }
        other => Ok(other?),
    }
}

/// Ends a run; one that was ended so before stays so.
pub(super) async fn end(app: &App, id: FlowId, query: &Reason) -> Result<(), Fault> {
    let reason = query.reason.as_deref().map(Into::into);
    let as_failure = query.trigger_failure_workflow.unwrap_or(false);
    match app.engine().apply(Control { id, what: Steer::Terminate { reason, as_failure } }).await? {
        Err(FlowRefusal::Archived(id)) => {
            let (archived, _) = runs::over(app, id).await?.ok_or_else(|| runs::unknown(&id.to_string()))?;
            match archived.flow.status {
                FlowStatus::Terminated => Ok(()),
                status => Err(FlowRefusal::Over { id, status }.into()),
            }
        }
        other => Ok(other?),
    }
}

/// Brings a run back after its end.
pub(super) async fn again(app: &App, id: FlowId, how: Again) -> Result<FlowId, Fault> {
    let refused = match runs::find(app, id, false).await? {
        runs::Run::Live(view) => FlowRefusal::NotOver { id, status: view.flow.status },
        runs::Run::Over(archived, _) => {
            return Ok(app.engine().apply(Revive { archived, how }).await??);
        }
    };
    Err(refused.into())
}

/// Forgets a run.
pub(super) async fn forget(app: &App, id: FlowId) -> Result<(), Fault> {
    match app.engine().apply(Control { id, what: Steer::Remove }).await? {
        Err(FlowRefusal::Archived(id)) => {
            runs::over(app, id).await?.ok_or_else(|| runs::unknown(&id.to_string()))?;
            Ok(app.engine().apply(RemoveArchived(id)).await?)
        }
        other => Ok(other?),
    }
}

/// Ends a run.
pub(crate) async fn terminate(
    State(app): State<App>,
    _: Working,
    RunId(id): RunId,
    Params(query): Params<Reason>,
) -> Result<StatusCode, Fault> {
    end(&app, id, &query).await?;
    Ok(StatusCode::OK)
}

/// Forgets a run.
pub(crate) async fn remove(State(app): State<App>, _: Working, RunId(id): RunId) -> Result<StatusCode, Fault> {
    forget(&app, id).await?;
    Ok(StatusCode::OK)
}

/// Schedules nothing new.
pub(crate) async fn pause(State(app): State<App>, _: Working, RunId(id): RunId) -> Result<StatusCode, Fault> {
    steer(&app, id, Steer::Pause).await?;
    Ok(StatusCode::OK)
}

/// Goes on.
pub(crate) async fn resume(State(app): State<App>, _: Working, RunId(id): RunId) -> Result<StatusCode, Fault> {
    steer(&app, id, Steer::Resume).await?;
    Ok(StatusCode::OK)
}

/// Makes tasks that wait for their callback visible.
pub(crate) async fn reset_callbacks(State(app): State<App>, _: Working, RunId(id): RunId) -> Result<StatusCode, Fault> {
    steer(&app, id, Steer::ResetCallbacks).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SkipDoc {
    task_input: Option<Value>,
    task_output: Option<Value>,
}

/// Passes a step over.
pub(crate) async fn skip(
    State(app): State<App>,
    _: Working,
    Place((id, reference)): Place<(String, String)>,
    body: Body,
) -> Result<StatusCode, Fault> {
    let doc: SkipDoc = body.json_or_default()?;
    let (input, output) = (fields("taskInput", doc.task_input)?, fields("taskOutput", doc.task_output)?);
    steer(&app, runs::id(&id)?, Steer::Skip { reference: reference.into(), input, output }).await?;
    Ok(StatusCode::OK)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Restart {
    pub(super) use_latest_definitions: Option<bool>,
}

/// Starts a run again from its beginning.
pub(crate) async fn restart(
    State(app): State<App>,
    _: Working,
    RunId(id): RunId,
    Params(query): Params<Restart>,
) -> Result<StatusCode, Fault> {
    let latest = query.use_latest_definitions.unwrap_or(false);
    again(&app, id, Again::Restart { latest }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tries the failed tasks of a run again.
pub(crate) async fn retry(State(app): State<App>, _: Working, RunId(id): RunId) -> Result<StatusCode, Fault> {
    again(&app, id, Again::Retry).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RerunDoc {
    re_run_from_task_id: Option<String>,
    workflow_input: Option<Value>,
    task_input: Option<Value>,
    correlation_id: Option<String>,
}

/// Starts a run again from one of its tasks.
pub(crate) async fn rerun(State(app): State<App>, _: Working, RunId(id): RunId, body: Body) -> Result<Response, Fault> {
    let doc: RerunDoc = body.json_or_default()?;
    let task = doc.re_run_from_task_id.filter(|task| !task.is_empty());
    let how = Again::Rerun {
        task: task.as_deref().map(runs::task_id).transpose()?,
        task_input: fields("taskInput", doc.task_input)?,
        input: fields("workflowInput", doc.workflow_input)?,
        correlation: doc.correlation_id.map(Into::into),
    };
    Ok(text(again(&app, id, how).await?))
}

/// What was given, if it is an object; anything else counts as nothing.
fn fields(name: &str, value: Option<Value>) -> Result<Option<Json>, Fault> {
    value.filter(Value::is_object).as_ref().map(|value| payload(name, value)).transpose()
}
