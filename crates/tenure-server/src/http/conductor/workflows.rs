//! Owns starting runs and looking at them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::flow::Op;
use tenure_core::flow::command::{OnKeyUsed, StartFlow, Which};
use tenure_core::id::FlowId;
use tenure_core::task::{empty_object, to_value};

use super::asker::{Reading, Working};
use super::body::{Body, payload, text};
use super::fault::Fault;
use super::params::{Params, Place};
use super::runs::{self, Run, RunId};
use super::{compile, model};
use crate::http::{App, reply};

/// How long an execution that waits for its end may wait.
const WAIT_S_MAX: u64 = 60;
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StartDoc {
    name: Option<String>,
    version: Option<i64>,
    correlation_id: Option<String>,
    input: Option<Value>,
    task_to_domain: Option<BTreeMap<String, String>>,
    workflow_def: Option<Value>,
    priority: Option<i64>,
    created_by: Option<String>,
    idempotency_key: Option<String>,
    idempotency_strategy: Option<String>,
}

impl StartDoc {
    /// The start that is asked for.
    pub(super) fn start(self) -> Result<StartFlow, Fault> {
        let which = match &self.workflow_def {
            Some(document) if !document.is_null() => Which::Inline(Arc::new(compile::plan(document)?)),
            _ => {
                let name = self.name.filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| wrong("name", "is missing or empty"))?;
                // Version 0 is how some clients say «the latest».
                let version = self.version.filter(|version| *version > 0).map(u32::try_from).transpose();
                Which::Named(name.into(), version.map_err(|_| wrong("version", "is too large"))?)
            }
        };
        let input = match self.input {
            None | Some(Value::Null) => empty_object(),
            Some(input) if input.is_object() => payload("input", &input)?,
            Some(_) => return Err(wrong("input", "is an object")),
        };
        let priority = self.priority.unwrap_or(0);
        let priority = u8::try_from(priority).ok().filter(|priority| *priority <= 99);
        let on_key_used = match self.idempotency_strategy.as_deref() {
            None | Some("RETURN_EXISTING") => OnKeyUsed::Return,
            Some("FAIL") => OnKeyUsed::Refuse,
            Some("FAIL_ON_RUNNING") => OnKeyUsed::RefuseWhileRunning,
            Some(other) => {
                return Err(wrong(
                    "idempotencyStrategy",
                    format!("is FAIL, RETURN_EXISTING or FAIL_ON_RUNNING, not {other}"),
                ));
            }
        };
        Ok(StartFlow {
            correlation: self.correlation_id.map(Into::into),
            priority: priority.ok_or_else(|| wrong("priority", "is 0 to 99"))?,
            domains: self.task_to_domain.unwrap_or_default(),
            key: self.idempotency_key.filter(|key| !key.is_empty()).map(Into::into),
            on_key_used,
            created_by: self.created_by.map(Into::into),
            ..StartFlow::new(which, input)
        })
    }
}

fn wrong(path: &str, why: impl Into<String>) -> Fault {
    Fault::invalid(vec![(path.to_owned(), why.into())])
}

/// Starts a run.
pub(crate) async fn start(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    Ok(text(app.engine().apply(body.json::<StartDoc>()?.start()?).await??))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartQuery {
    version: Option<i64>,
    correlation_id: Option<String>,
    priority: Option<i64>,
}

/// Starts a run of the workflow in the address; the body is its input.
pub(crate) async fn start_named(
    State(app): State<App>,
    _: Working,
    Place(name): Place<String>,
    Params(query): Params<StartQuery>,
    body: Body,
) -> Result<Response, Fault> {
    let doc = StartDoc {
        name: Some(name),
        version: query.version,
        correlation_id: query.correlation_id,
        priority: query.priority,
        input: body.json_or_default()?,
        ..StartDoc::default()
    };
    Ok(text(app.engine().apply(doc.start()?).await??))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GetQuery {
    include_tasks: Option<bool>,
}

/// One run.
pub(crate) async fn get(
    State(app): State<App>,
    _: Reading,
    RunId(id): RunId,
    Params(query): Params<GetQuery>,
) -> Result<Response, Fault> {
    show(&app, id, query.include_tasks.unwrap_or(true)).await
}

pub(super) async fn show(app: &App, id: FlowId, with_tasks: bool) -> Result<Response, Fault> {
    Ok(reply::json(StatusCode::OK, &wire(app, id, with_tasks).await?))
}

async fn wire(app: &App, id: FlowId, with_tasks: bool) -> Result<Value, Fault> {
    Ok(match runs::find(app, id, with_tasks).await? {
        Run::Live(view) => model::live(&view),
        Run::Over(mut archived, plan) => {
            if !with_tasks {
                archived.tasks.clear();
            }
            model::archived(&archived, &plan)
        }
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusQuery {
    include_output: Option<bool>,
    include_variables: Option<bool>,
}

/// How a run stands.
pub(crate) async fn status(
    State(app): State<App>,
    _: Reading,
    RunId(id): RunId,
    Params(query): Params<StatusQuery>,
) -> Result<Response, Fault> {
    let flow = match runs::find(&app, id, false).await? {
        Run::Live(view) => view.flow,
        Run::Over(archived, _) => archived.flow,
    };
    let mut wire = json!({ "workflowId": flow.id, "correlationId": flow.correlation, "status": flow.status.as_str() });
    if let Value::Object(fields) = &mut wire {
        if query.include_output.unwrap_or(false) {
            fields.insert("output".to_owned(), to_value(&flow.output));
        }
        if query.include_variables.unwrap_or(false) {
            fields.insert("variables".to_owned(), to_value(&flow.variables));
        }
    }
    Ok(reply::json(StatusCode::OK, &wire))
}

#[derive(Deserialize)]
pub(crate) struct TasksQuery {
    start: Option<usize>,
    count: Option<usize>,
    status: Option<String>,
}

/// The tasks of a run, a page of them.
pub(crate) async fn tasks(
    State(app): State<App>,
    _: Reading,
    RunId(id): RunId,
    Params(query): Params<TasksQuery>,
) -> Result<Response, Fault> {
    let whole = wire(&app, id, true).await?;
    let tasks = whole.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default();
    let has = |task: &Value, status: &str| task.get("status").and_then(Value::as_str) == Some(status);
    let wanted: Vec<Value> =
        tasks.into_iter().filter(|task| query.status.as_deref().is_none_or(|status| has(task, status))).collect();
    let (total, start) = (wanted.len(), query.start.unwrap_or(0));
    let page: Vec<Value> = wanted.into_iter().skip(start).take(query.count.unwrap_or(15)).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "totalHits": total, "results": page })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecuteQuery {
    request_id: Option<String>,
    wait_until_task_ref: Option<String>,
    wait_for_seconds: Option<u64>,
}

/// Starts a run and waits for its end, for one of its steps, or until it waits itself.
pub(crate) async fn execute(
    State(app): State<App>,
    _: Working,
    Place((name, version)): Place<(String, String)>,
    Params(query): Params<ExecuteQuery>,
    body: Body,
) -> Result<Response, Fault> {
    let mut doc: StartDoc = body.json_or_default()?;
    let version = version.parse().map_err(|_| wrong("version", "is a number"))?;
    (doc.name, doc.version) = (Some(name), Some(version));
    let id = app.engine().apply(doc.start()?).await??;
    let seconds = query.wait_for_seconds.unwrap_or(10).min(WAIT_S_MAX);
    let awaited: Vec<&str> = query.wait_until_task_ref.iter().flat_map(|refs| refs.split(',')).map(str::trim).collect();
    let until = app.engine().now().plus_ms(seconds * 1_000);
    while app.engine().now() < until && !is_settled(&app, id, &awaited).await? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let mut run = wire(&app, id, true).await?;
    if let Value::Object(fields) = &mut run {
        fields.insert("requestId".to_owned(), json!(query.request_id));
        fields.insert("targetWorkflowId".to_owned(), json!(id));
        let status = fields.get("status").cloned().unwrap_or_default();
        fields.insert("targetWorkflowStatus".to_owned(), status);
        fields.insert("responseType".to_owned(), "TARGET_WORKFLOW".into());
    }
    Ok(reply::json(StatusCode::OK, &run))
}

async fn is_settled(app: &App, id: FlowId, awaited: &[&str]) -> Result<bool, Fault> {
    let Run::Live(view) = runs::find(app, id, true).await? else { return Ok(true) };
    let waits = |op: &Op| matches!(op, Op::Wait | Op::Human);
    Ok(view.tasks.iter().any(|task| {
        let is_over = task.task.status.is_over();
        is_over && awaited.contains(&&*task.task.reference)
            || !is_over && waits(&task.step.op) && task.task.extra.as_ref().is_none_or(|extra| extra.until.is_none())
    }))
}
