//! Owns finding runs by what they are: `field = value` and `field IN (…)` joined by AND, over those that go on and those
//! that are over. Every search looks at a bounded number of runs, the newest first.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_core::change::RecordId;
use tenure_core::flow::command::ListFlows;
use tenure_core::flow::{Flow, Plan};
use tenure_core::task::command::{ListTasks, TaskView};
use tenure_core::task::to_value;

use super::asker::Reading;
use super::body::Body;
use super::fault::Fault;
use super::model::{self, WireTask};
use super::params::{Params, Place};
use super::runs;
use crate::http::{App, reply};

/// How many runs that are over one search looks at.
const LOOKED_AT_MAX: usize = 20_000;
/// How many are read at a time.
const READ_AT_ONCE: usize = 500;
/// The longest page.
const PAGE_MAX: usize = 5_000;
/// How many runs that go on, or tasks that are not over, are listed at a time.
const LISTED_AT_ONCE: usize = 1_000;
/// How many runs that go on, or tasks that are not over, one search looks at.
const LIVE_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchQuery {
    start: Option<usize>,
    size: Option<usize>,
    query: Option<String>,
    free_text: Option<String>,
}

/// What a run must have: for each field, one of these values.
#[derive(Default)]
struct Wanted(Vec<(String, Vec<String>)>);

impl Wanted {
    fn parse(query: &str) -> Result<Wanted, Fault> {
        let mut wanted = Vec::new();
        for part in query.split(" AND ").map(str::trim).filter(|part| !part.is_empty()) {
            let (field, values) = match part.split_once(" IN ") {
                Some((field, list)) => (field, list.trim().trim_start_matches('(').trim_end_matches(')')),
                None => part.split_once('=').ok_or_else(|| {
                    Fault::bad(format!("a query is field=value or field IN (a,b), joined by AND; not {part}"))
                })?,
            };
            let unquoted = |text: &str| text.trim().trim_matches(|quote| quote == '"' || quote == '\'').to_owned();
            wanted.push((field.trim().to_owned(), values.split(',').map(unquoted).collect()));
        }
        Ok(Wanted(wanted))
    }

    fn fits(&self, flow: &Flow, plan: &Plan) -> bool {
        self.all(|field| {
            Some(match field {
                "workflowType" | "workflowName" => plan.name.to_string(),
                "version" => plan.version.to_string(),
                "workflowId" => flow.id.to_string(),
                "correlationId" => flow.correlation.as_deref().unwrap_or_default().to_owned(),
                "status" => flow.status.as_str().to_owned(),
                _ => return None,
            })
        })
    }

    fn fits_task(&self, view: &TaskView) -> bool {
        let task = &view.task;
        self.all(|field| {
            Some(match field {
                "taskType" | "taskDefName" => task.name.to_string(),
                "taskId" => task.id.to_string(),
                "referenceTaskName" => task.reference.to_string(),
                "workflowId" => task.flow.to_string(),
                "workflowType" => view.flow_name.to_string(),
                "workerId" => task.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
                "status" => task.status.as_str().to_owned(),
                _ => return None,
            })
        })
    }

    /// Whether every field that is asked for has one of the wanted values.
    fn all(&self, has: impl Fn(&str) -> Option<String>) -> bool {
        self.0.iter().all(|(field, values)| has(field).is_some_and(|has| values.contains(&has)))
    }
}

/// All runs that fit, the newest first: those that go on, then those that are over.
async fn find(app: &App, wanted: &Wanted, enough: usize) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    let mut after = None;
    let mut looked = 0;
    loop {
        let live = app.engine().apply(ListFlows { after, limit: LISTED_AT_ONCE, ..ListFlows::default() }).await?;
        looked += live.len();
        after = live.last().map(|flow| flow.id);
        let fits = live.iter().filter(|flow| wanted.fits(flow, &flow.plan));
        found.extend(fits.map(|flow| summary(flow, &flow.plan)));
        if live.len() < LISTED_AT_ONCE || looked >= LIVE_MAX {
            break;
        }
    }
    found.reverse();
    let mut before: Option<RecordId> = None;
    let mut looked = 0;
    while found.len() < enough && looked < LOOKED_AT_MAX {
        let from = before.clone();
        let page = app.engine().read(move |store| store.archive(from.as_ref(), READ_AT_ONCE)).await?;
        looked += page.len();
        before = page.last().map(|last| last.flow.id.into());
        let is_last = page.len() < READ_AT_ONCE;
        for archived in page {
            let (archived, plan) = runs::with_plan(app, archived).await?;
            if wanted.fits(&archived.flow, &plan) {
                found.push(summary(&archived.flow, &plan));
            }
        }
        if is_last {
            break;
        }
    }
    Ok(found)
}

fn summary(flow: &Flow, plan: &Plan) -> Value {
    let mut wire = model::summary(flow, plan);
    if let Value::Object(fields) = &mut wire {
        fields.insert("input".to_owned(), to_value(&flow.input).to_string().into());
        fields.insert("output".to_owned(), to_value(&flow.output).to_string().into());
        let ended = flow.ended_at.map_or(0, |at| at.ms_since(flow.created_at));
        fields.insert("executionTime".to_owned(), ended.into());
    }
    wire
}

/// Runs that fit a query.
pub(crate) async fn workflows(
    State(app): State<App>,
    _: Reading,
    Params(query): Params<SearchQuery>,
) -> Result<Response, Fault> {
    if query.free_text.as_deref().is_some_and(|text| !text.is_empty() && text != "*") {
        return Err(Fault::bad("freeText is not there in Tenure; search by query"));
    }
    let wanted = Wanted::parse(query.query.as_deref().unwrap_or_default())?;
    let (start, size) = (query.start.unwrap_or(0), query.size.unwrap_or(100).min(PAGE_MAX));
    let found = find(&app, &wanted, usize::MAX).await?;
    let total = found.len();
    let page: Vec<Value> = found.into_iter().skip(start).take(size).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "totalHits": total, "results": page })))
}

/// Tasks that are not over, a page of them.
pub(crate) async fn tasks(
    State(app): State<App>,
    _: Reading,
    Params(query): Params<SearchQuery>,
) -> Result<Response, Fault> {
    let wanted = Wanted::parse(query.query.as_deref().unwrap_or_default())?;
    let (start, size) = (query.start.unwrap_or(0), query.size.unwrap_or(100).min(PAGE_MAX));
    let (mut found, mut looked, mut after) = (Vec::new(), 0, None);
    loop {
        let page = app.engine().apply(ListTasks { after, limit: LISTED_AT_ONCE, ..ListTasks::default() }).await?;
        looked += page.len();
        after = page.last().map(|view| view.task.id);
        let is_last = page.len() < LISTED_AT_ONCE || looked >= LIVE_MAX;
        found.extend(page.into_iter().filter(|view| wanted.fits_task(view)));
        if is_last {
            break;
        }
    }
    let page: Vec<WireTask<'_>> = found.iter().skip(start).take(size).map(WireTask::full).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "totalHits": found.len(), "results": page })))
}

#[derive(Deserialize)]
pub(crate) struct RunningQuery {
    version: Option<u32>,
}

/// The ids of runs of a workflow that go on.
pub(crate) async fn running(
    State(app): State<App>,
    _: Reading,
    Place(name): Place<String>,
    Params(query): Params<RunningQuery>,
) -> Result<Response, Fault> {
    let list = ListFlows { name: Some(name.into()), version: query.version, limit: 1_000, ..ListFlows::default() };
    let ids: Vec<String> = app.engine().apply(list).await?.iter().map(|flow| flow.id.to_string()).collect();
    Ok(reply::json(StatusCode::OK, &ids))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CorrelatedQuery {
    include_closed: Option<bool>,
}

async fn of_correlation(app: &App, name: &str, correlation: &str, closed: bool) -> Result<Vec<Value>, Fault> {
    let fields = [("workflowType", name), ("correlationId", correlation)];
    let wanted = Wanted(fields.map(|(field, value)| (field.to_owned(), vec![value.to_owned()])).into());
    let found = find(app, &wanted, if closed { usize::MAX } else { 0 }).await?;
    Ok(found)
}

/// Runs of a workflow with a correlation.
pub(crate) async fn correlated(
    State(app): State<App>,
    _: Reading,
    Place((name, correlation)): Place<(String, String)>,
    Params(query): Params<CorrelatedQuery>,
) -> Result<Response, Fault> {
    let found = of_correlation(&app, &name, &correlation, query.include_closed.unwrap_or(false)).await?;
    Ok(reply::json(StatusCode::OK, &found))
}

/// Runs of a workflow with any of these correlations.
pub(crate) async fn correlated_many(
    State(app): State<App>,
    _: Reading,
    Place(name): Place<String>,
    Params(query): Params<CorrelatedQuery>,
    body: Body,
) -> Result<Response, Fault> {
    let mut all = Map::new();
    for correlation in body.json::<Vec<String>>()? {
        let found = of_correlation(&app, &name, &correlation, query.include_closed.unwrap_or(false)).await?;
        all.insert(correlation, found.into());
    }
    Ok(reply::json(StatusCode::OK, &all))
}
