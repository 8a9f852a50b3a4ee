//! Owns looking at queues: how long they are, and who polls them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_core::ledger::EVALUATOR_QUEUE;
use tenure_core::task::command::{ListQueues, QueueView};

use super::asker::Reading;
use super::fault::Fault;
use super::params::Params;
use crate::http::{App, reply};

async fn queues(app: &App, name: Option<&str>) -> Result<Vec<QueueView>, Fault> {
    let queues = app.engine().apply(ListQueues { name: name.map(Into::into) }).await?;
    Ok(queues.into_iter().filter(|queue| &*queue.queue.name != EVALUATOR_QUEUE).collect())
}

fn title(queue: &QueueView) -> String {
    match &queue.queue.domain {
        Some(domain) => format!("{domain}:{}", queue.queue.name),
        None => queue.queue.name.to_string(),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueQuery {
    task_type: Option<String>,
    domain: Option<String>,
}

/// The length of one queue.
pub(crate) async fn size(
    State(app): State<App>,
    _: Reading,
    Params(query): Params<QueueQuery>,
) -> Result<Response, Fault> {
    let queues = queues(&app, query.task_type.as_deref()).await?;
    let wanted = queues.iter().filter(|queue| queue.queue.domain.as_deref() == query.domain.as_deref());
    Ok(reply::json(StatusCode::OK, &wanted.map(|queue| queue.waiting).sum::<usize>()))
}

/// The lengths of the queues that are named, each as often as it is asked for.
pub(crate) async fn sizes(
    State(app): State<App>,
    _: Reading,
    Params(query): Params<Vec<(String, String)>>,
) -> Result<Response, Fault> {
    let mut sizes = Map::new();
    for (_, name) in query.iter().filter(|(field, _)| field == "taskType") {
        let queues = queues(&app, Some(name)).await?;
        let open = queues.iter().filter(|queue| queue.queue.domain.is_none());
        sizes.insert(name.clone(), open.map(|queue| queue.waiting).sum::<usize>().into());
    }
    Ok(reply::json(StatusCode::OK, &sizes))
}

/// The lengths of all queues.
pub(crate) async fn all(State(app): State<App>, _: Reading) -> Result<Response, Fault> {
    let queues = queues(&app, None).await?;
    let sizes: Map<String, Value> = queues.iter().map(|queue| (title(queue), queue.waiting.into())).collect();
    Ok(reply::json(StatusCode::OK, &sizes))
}

/// Who polled a queue last.
pub(crate) async fn polls(
    State(app): State<App>,
    _: Reading,
    Params(query): Params<QueueQuery>,
) -> Result<Response, Fault> {
    let queues = queues(&app, query.task_type.as_deref()).await?;
    Ok(reply::json(StatusCode::OK, &poll_data(&queues)))
}

/// Who polled each queue last.
pub(crate) async fn all_polls(State(app): State<App>, _: Reading) -> Result<Response, Fault> {
    let queues = queues(&app, None).await?;
    Ok(reply::json(StatusCode::OK, &poll_data(&queues)))
}

fn poll_data(queues: &[QueueView]) -> Vec<Value> {
    let polled = queues.iter().filter_map(|queue| {
        let (at, worker) = queue.last_poll.as_ref()?;
        Some(json!({
            "queueName": queue.queue.name, "domain": queue.queue.domain, "workerId": worker, "lastPollTime": at.unix_ms(),
        }))
    });
    polled.collect()
}
