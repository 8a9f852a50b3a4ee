//! Owns workflows over the native door: a file is run, and runs are looked at.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_core::Timestamp;
use tenure_core::intent::Status;
use tenure_core::ledger::workflows::{GetWorkflow, ListWorkflows, RunWorkflow, StepView, WorkflowView};
use tenure_core::limits::PAGE_MAX;
use tenure_core::serial::WorkflowId;
use utoipa::ToSchema;

use crate::http::App;
use crate::http::auth::Caller;
use crate::http::error::{Code, Problem};
use crate::http::openintent::workflow_file::{self, Remark};
use crate::http::payload::Payload;
use crate::http::reply::{self, At};
use crate::http::status::ProblemBody;

/// A workflow to run: the text of a file, or what stands in it as JSON.
#[derive(Deserialize, ToSchema)]
pub(crate) struct RunRequest {
    /// The text of a workflow file (YAML).
    file: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    rest: Map<String, Value>,
}

/// Runs a workflow file.
#[utoipa::path(post, path = "/v1/workflows", tag = "workflows", request_body = RunRequest,
    params(("X-Tenure-Holder" = Option<String>, Header, description = "who runs it")),
    responses((status = 201, body = Object), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn run(State(app): State<App>, caller: Caller, payload: Payload) -> Result<Response, Problem> {
    let created_by = caller.acting(None)?;
    let request: RunRequest = payload.object()?;
    // JSON is YAML, so one reader serves both.
    let text = request.file.unwrap_or_else(|| Value::Object(request.rest).to_string());
    let file = workflow_file::read(&text).map_err(refused)?;
    let command = RunWorkflow { name: file.name, graph: file.graph, created_by };
    let view = app.engine().apply(command).await?.map_err(|why| Problem::new(Code::LimitReached, why.to_string()))?;
    let mut body = shown(&view, app.engine().now());
    if let Some(body) = body.as_object_mut() {
        body.insert("warnings".to_owned(), file.warnings.iter().map(remark).collect());
    }
    Ok(reply::json(StatusCode::CREATED, &body))
}

fn refused(remarks: Vec<Remark>) -> Problem {
    let words: Vec<String> = remarks.iter().map(ToString::to_string).collect();
    let errors: Vec<Value> = remarks.iter().map(remark).collect();
    Problem::new(Code::BadRequest, format!("the workflow is not valid: {}", words.join("; "))).with("errors", errors)
}

fn remark(remark: &Remark) -> Value {
    json!({ "line": remark.place.line, "column": remark.place.column, "message": remark.message })
}

/// Looks a run up.
#[utoipa::path(get, path = "/v1/workflows/{id}", tag = "workflows", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn get(State(app): State<App>, caller: Caller, path: Path<String>) -> Result<Response, Problem> {
    let caller = caller.looking()?;
    let unknown = || Problem::new(Code::NotFound, "there is no such workflow");
    let id: WorkflowId = path.parse().map_err(|_| unknown())?;
    let command = GetWorkflow { id, caller };
    let view = app.engine().apply(command).await?.map_err(|_| unknown())?;
    Ok(reply::json(StatusCode::OK, &shown(&view, app.engine().now())))
}

/// Lists runs, the latest first.
#[utoipa::path(get, path = "/v1/workflows", tag = "workflows",
    responses((status = 200, body = Object), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    caller.reading()?;
    let runs = app.engine().apply(ListWorkflows { limit: PAGE_MAX }).await?;
    let views: Vec<Value> = runs
        .iter()
        .map(|run| json!({ "id": run.id, "name": run.name, "status": run.status, "created_at": At(run.created_at) }))
        .collect();
    Ok(reply::json(StatusCode::OK, &json!({ "workflows": views })))
}

fn shown(view: &WorkflowView, now: Timestamp) -> Value {
    let run = &view.workflow;
    let steps: Vec<Value> = view.steps.iter().map(|step| shown_step(step, now)).collect();
    json!({
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "portfolio": run.portfolio,
        "created_by": run.created_by,
        "created_at": At(run.created_at),
        "ended_at": run.ended_at.map(At),
        "steps": steps,
    })
}

/// A step and what it is doing: waiting, ready, running, retrying, done, failed or blocked.
fn shown_step(view: &StepView, now: Timestamp) -> Value {
    let intent = &view.intent;
    let next_at = intent.attempts.next_at;
    let phase = match intent.status {
        Status::Draft => "waiting",
        Status::Completed => "done",
        Status::Abandoned => "failed",
        Status::Blocked => "blocked",
        Status::Active | Status::Suspended if next_at.is_some() => "retrying",
        Status::Active | Status::Suspended if view.lease.is_some() => "running",
        Status::Active | Status::Suspended => "ready",
    };
    let attempts = intent.retry.as_ref().map_or(1, |policy| policy.rule.max_attempts);
    json!({
        "name": view.step.name,
        "title": intent.title,
        "intent": intent.id,
        "assign": view.step.assign,
        "phase": phase,
        "attempt": intent.attempt().min(attempts),
        "max_attempts": attempts,
        "next_try_in_ms": next_at.map(|at| at.ms_since(now)),
        "holder": view.lease.as_ref().map(|lease| lease.holder.clone()),
        "last_error": intent.attempts.last_error,
    })
}
