//! Owns polls and updates of tasks, and looks at them.

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::Token;
use tenure_core::id::{FlowId, TaskId};
use tenure_core::task::command::{
    Act, AddLog, Claimant, GetTask, GotTask, Late, Outcome, Poll, QueueName, Update, UpdateStep, Updated,
};
use tenure_core::task::{Json, Log, Status, bad_name, empty_object};

use super::asker::{Asker, Reading, Working};
use super::body::{Body, payload, raw_payload, text};
use super::fault::Fault;
use super::model::{self, WireTask};
use super::params::{Params, Place};
use super::{runs, workflows};
use crate::http::{App, reply};

/// Says in the answer to an update that the task was not the worker's any more.
const LEASE_HEADER: HeaderName = HeaderName::from_static("tenure-lease");
/// How long a poll may wait.
const POLL_MS_MAX: i64 = 5_000;
/// How long a single poll waits when it does not say.
const POLL_MS_USUAL: i64 = 100;

#[derive(Deserialize)]
pub(crate) struct PollQuery {
    workerid: Option<String>,
    domain: Option<String>,
    count: Option<i64>,
    timeout: Option<i64>,
}

/// Hands out tasks.
pub(crate) async fn poll_many(
    State(app): State<App>,
    asker: Asker,
    Place(name): Place<String>,
    Params(query): Params<PollQuery>,
) -> Result<Response, Fault> {
    let poll = poll(&app, &asker, &name, &query)?;
    let tasks = app.engine().poll(poll).await?;
    let tasks: Vec<_> = tasks.iter().map(WireTask::polled).collect();
    Ok(reply::json(StatusCode::OK, &tasks))
}

/// Hands out one task.
pub(crate) async fn poll_one(
    State(app): State<App>,
    asker: Asker,
    Place(name): Place<String>,
    Params(query): Params<PollQuery>,
) -> Result<Response, Fault> {
    let poll = Poll { count: 1, ..poll(&app, &asker, &name, &query)? };
    let tasks = app.engine().poll(poll).await?;
    match tasks.first() {
        Some(task) => Ok(reply::json(StatusCode::OK, &WireTask::polled(task))),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn poll(app: &App, asker: &Asker, name: &str, query: &PollQuery) -> Result<Poll, Fault> {
    let wait_ms = query.timeout.unwrap_or(POLL_MS_USUAL);
    if wait_ms > POLL_MS_MAX {
        return Err(Fault::bad("Long Poll Timeout value cannot be more than 5 seconds"));
    }
    if let Some(why) = bad_name(name) {
        return Err(Fault::bad(format!("the name of the task {why}")));
    }
    let domain = query.domain.as_deref().filter(|domain| !domain.is_empty()).map(Into::into);
    Ok(Poll {
        queue: QueueName { name: name.into(), domain },
        by: claimant(app, asker, query.workerid.as_deref())?,
        count: usize::try_from(query.count.unwrap_or(1)).unwrap_or(1),
        wait_ms: u64::try_from(wait_ms).unwrap_or(0),
    })
}

fn claimant(app: &App, asker: &Asker, worker: Option<&str>) -> Result<Claimant, Fault> {
    Ok(Claimant { worker: asker.worker(worker)?, grace_ms: app.0.config.task_grace.as_millis() as u64 })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskResult {
    workflow_instance_id: Option<String>,
    task_id: Option<String>,
    status: Option<String>,
    reason_for_incompletion: Option<String>,
    callback_after_seconds: Option<i64>,
    worker_id: Option<String>,
    output_data: Option<Box<RawValue>>,
    logs: Option<Vec<LogDoc>>,
    extend_lease: Option<bool>,
    /// The lease that the worker relies on, where it knows it.
    token: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogDoc {
    log: Option<String>,
    created_time: Option<u64>,
}

impl TaskResult {
    fn check(&self) -> Result<(), Fault> {
        for (name, id) in [("workflowInstanceId", &self.workflow_instance_id), ("taskId", &self.task_id)] {
            if id.as_deref().is_none_or(str::is_empty) {
                return Err(Fault::invalid(vec![(name.to_owned(), "is missing or empty".to_owned())]));
            }
        }
        Ok(())
    }

    fn act(&self) -> Result<Act, Fault> {
        let output = output(self.output_data.as_deref())?;
        let after_s = u64::try_from(self.callback_after_seconds.unwrap_or(0)).unwrap_or(0);
        if self.extend_lease == Some(true) && after_s == 0 {
            return Ok(Act::Beat);
        }
        let reason = self.reason_for_incompletion.as_deref();
        match self.status.as_deref() {
            // A callback says «take it back», whatever else is said.
            None if self.extend_lease == Some(true) => Ok(Act::Yield { after_s, output }),
            None => Err(Fault::invalid(vec![("status".to_owned(), "is missing".to_owned())])),
            Some(status) => act(status, output, reason, after_s),
        }
    }

    fn update(&self, app: &App, asker: &Asker, task: TaskId, with_next: bool) -> Result<Update, Fault> {
        let worker = asker.worker(self.worker_id.as_deref())?;
        let next = with_next.then(|| claimant(app, asker, self.worker_id.as_deref())).transpose()?;
        let logs = self
            .logs
            .iter()
            .flatten()
            .filter_map(|log| Some(Log { line: log.log.as_deref()?.into(), at: log.created_time.unwrap_or(0) }));
        Ok(Update {
            task,
            by: worker,
            nameless_may_hold: asker.is_believed(),
            token: self.token.map(Token::from_u64),
            act: self.act()?,
            logs: logs.collect(),
            next,
        })
    }
}

/// What a status does.
fn act(status: &str, output: Json, reason: Option<&str>, after_s: u64) -> Result<Act, Fault> {
    let ends = [Status::Completed, Status::Failed, Status::FailedWithTerminalError, Status::Canceled];
    match Status::parse(status) {
        Some(Status::InProgress) => Ok(Act::Yield { after_s, output }),
        Some(status) if ends.contains(&status) => Ok(Act::End { status, output, reason: reason.map(Into::into) }),
        _ => {
            let words = "IN_PROGRESS, COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR or CANCELED";
            Err(Fault::invalid(vec![("status".to_owned(), format!("is {words}, not {status}"))]))
        }
    }
}

fn output(given: Option<&RawValue>) -> Result<Json, Fault> {
    match given.filter(|given| given.get() != "null") {
        None => Ok(empty_object()),
        Some(given) if given.get().starts_with('{') => raw_payload("outputData", given),
        Some(_) => Err(Fault::invalid(vec![("outputData".to_owned(), "is an object".to_owned())])),
    }
}

/// Takes a worker's word.
pub(crate) async fn update(State(app): State<App>, asker: Asker, body: Body) -> Result<Response, Fault> {
    let result: TaskResult = body.json()?;
    result.check()?;
    let id = result.task_id.as_deref().unwrap_or_default();
    let updated = app.engine().update(result.update(&app, &asker, runs::task_id(id)?, false)?).await?;
    match updated.outcome {
        Outcome::Unknown => Err(runs::unknown_task(id)),
        Outcome::Taken | Outcome::Late => Ok(telling(&updated, text(id))),
    }
}

/// Takes a worker's word and hands out the next task. Never 404: clients would stop using it.
pub(crate) async fn update_and_next(State(app): State<App>, asker: Asker, body: Body) -> Result<Response, Fault> {
    let result: TaskResult = body.json()?;
    result.check()?;
    let act = result.act()?;
    let Ok(task) = result.task_id.as_deref().unwrap_or_default().parse() else {
        return Ok(telling(&NEVER_GIVEN, StatusCode::NO_CONTENT.into_response()));
    };
    let with_next = matches!(act, Act::End { .. });
    let updated = app.engine().update(result.update(&app, &asker, task, with_next)?).await?;
    let response = match &updated.next {
        Some(next) => reply::json(StatusCode::OK, &WireTask::polled(next)),
        None => StatusCode::NO_CONTENT.into_response(),
    };
    Ok(telling(&updated, response))
}

/// What becomes of a word about an id that is none of this server's.
const NEVER_GIVEN: Updated = Updated { outcome: Outcome::Unknown, late: None, next: None };

/// Tells a worker that its word came too late, where only those look who know of it: these protocols answer a late word
/// like any other.
fn telling(updated: &Updated, mut response: Response) -> Response {
    let told = match (updated.outcome, updated.late) {
        (_, Some(Late::Ended)) => "lost; reason=task_ended",
        (_, Some(Late::Held)) => "lost; reason=task_held",
        (_, Some(Late::GivenBack)) => "lost; reason=task_given_back",
        (_, Some(Late::RunOver)) => "lost; reason=workflow_over",
        (Outcome::Unknown, None) => "lost; reason=task_unknown",
        (Outcome::Taken | Outcome::Late, None) => return response,
    };
    response.headers_mut().insert(LEASE_HEADER, HeaderValue::from_static(told));
    response
}

/// One task.
pub(crate) async fn get(State(app): State<App>, _: Reading, Place(id): Place<String>) -> Result<Response, Fault> {
    let task = runs::task_id(&id)?;
    let unknown = || runs::unknown_task(&id);
    match app.engine().apply(GetTask(task)).await? {
        GotTask::Live(view) => Ok(reply::json(StatusCode::OK, &WireTask::full(&view))),
        GotTask::Unknown => Err(unknown()),
        GotTask::Over => {
            let found = runs::of_task(&app, task).await?;
            let (archived, plan) = found.ok_or_else(unknown)?;
            let wire = archived.tasks.iter().find(|found| found.id == task);
            let wire = wire.map(|found| model::over(found, &archived.flow, &plan)).ok_or_else(unknown)?;
            Ok(reply::json(StatusCode::OK, &wire))
        }
    }
}

/// What workers said about a task.
pub(crate) async fn logs(State(app): State<App>, _: Reading, Place(id): Place<String>) -> Result<Response, Fault> {
    let task = runs::task_id(&id)?;
    let logs = match app.engine().apply(GetTask(task)).await? {
        GotTask::Live(view) => view.task.logs().to_vec(),
        GotTask::Unknown => return Err(runs::unknown_task(&id)),
        GotTask::Over => {
            let archived = runs::of_task(&app, task).await?;
            let found = archived.and_then(|(archived, _)| archived.tasks.into_iter().find(|found| found.id == task));
            found.map(|found| found.logs().to_vec()).unwrap_or_default()
        }
    };
    Ok(reply::json(StatusCode::OK, &model::logs(&id, &logs)))
}

/// Adds a line to a task whose run goes on.
pub(crate) async fn add_log(
    State(app): State<App>,
    _: Working,
    Place(id): Place<String>,
    body: Body,
) -> Result<Response, Fault> {
    let line = body.text()?;
    // Some clients send the line as a JSON text, others as it is.
    let line = serde_json::from_str::<String>(line).unwrap_or_else(|_| line.to_owned());
    let unknown = || Fault::not_found(format!("no task {id} of a workflow that goes on is known"));
    let task = id.parse().map_err(|_| unknown())?;
    let log = Log { line: line.into(), at: app.engine().now().unix_ms() };
    match app.engine().apply(AddLog { task, log }).await? {
        true => Ok(StatusCode::OK.into_response()),
        false => Err(unknown()),
    }
}

#[derive(Deserialize)]
pub(crate) struct StepQuery {
    workerid: Option<String>,
}

async fn say(
    app: &App,
    asker: &Asker,
    (flow, reference, status): (FlowId, Option<&str>, &str),
    worker: Option<&str>,
    body: &Body,
) -> Result<Option<TaskId>, Fault> {
    let by = asker.worker(worker)?;
    let given: Value = body.json_or_default()?;
    let output = if given.is_object() { payload("the output", &given)? } else { empty_object() };
    let act = act(status, output, None, 0)?;
    let reference = reference.map(Into::into);
    Ok(app.engine().apply(UpdateStep { flow, reference, by, act }).await?)
}

/// An update by the step's name: for what no worker holds.
pub(crate) async fn update_step(
    State(app): State<App>,
    asker: Asker,
    Place((workflow, reference, status)): Place<(String, String, String)>,
    Params(query): Params<StepQuery>,
    body: Body,
) -> Result<Response, Fault> {
    let place = (runs::id(&workflow)?, Some(&*reference), &*status);
    let task = say(&app, &asker, place, query.workerid.as_deref(), &body).await?;
    Ok(text(task.map(|task| task.to_string()).unwrap_or_default()))
}

/// The same, answered with the workflow.
pub(crate) async fn update_step_sync(
    State(app): State<App>,
    asker: Asker,
    Place((workflow, reference, status)): Place<(String, String, String)>,
    Params(query): Params<StepQuery>,
    body: Body,
) -> Result<Response, Fault> {
    let flow = runs::id(&workflow)?;
    match say(&app, &asker, (flow, Some(&reference), &status), query.workerid.as_deref(), &body).await? {
        Some(_) => workflows::show(&app, flow, true).await,
        None => Err(Fault::not_found(format!("no task {reference} of {workflow} waits for an update"))),
    }
}

/// An update of the first task that waits.
pub(crate) async fn signal(
    State(app): State<App>,
    asker: Asker,
    Place((workflow, status)): Place<(String, String)>,
    body: Body,
) -> Result<StatusCode, Fault> {
    say(&app, &asker, (runs::id(&workflow)?, None, &status), None, &body).await?;
    Ok(StatusCode::OK)
}

/// The same, answered with the workflow.
pub(crate) async fn signal_sync(
    State(app): State<App>,
    asker: Asker,
    Place((workflow, status)): Place<(String, String)>,
    body: Body,
) -> Result<Response, Fault> {
    let flow = runs::id(&workflow)?;
    match say(&app, &asker, (flow, None, &status), None, &body).await? {
        Some(_) => workflows::show(&app, flow, true).await,
        None => Err(Fault::not_found(format!("no task of {workflow} waits for a signal"))),
    }
}
