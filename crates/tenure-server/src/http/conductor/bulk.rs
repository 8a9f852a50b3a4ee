//! Owns doing the same to many runs: each is answered on its own.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, json};
use tenure_core::flow::command::{Again, Steer};
use tenure_core::id::FlowId;

use super::asker::Working;
use super::body::Body;
use super::fault::Fault;
use super::params::Params;
use super::{control, runs};
use crate::http::{App, reply};

/// How many runs one request may name.
const RUNS_MAX: usize = 1_000;

async fn each<F>(body: &Body, act: impl Fn(FlowId) -> F) -> Result<Response, Fault>
where
    F: Future<Output = Result<(), Fault>>,
{
    let ids: Vec<String> = body.json()?;
    if ids.len() > RUNS_MAX {
        return Err(Fault::bad(format!("one request names at most {RUNS_MAX} workflows, not {}", ids.len())));
    }
    let (mut done, mut failed) = (Vec::new(), Map::new());
    for id in ids {
        let result = match runs::id(&id) {
            Ok(flow) => act(flow).await,
            Err(fault) => Err(fault),
        };
        match result {
            Ok(()) => done.push(id),
            Err(fault) => drop(failed.insert(id, fault.message().into())),
        }
    }
    let answer = json!({ "bulkErrorResults": failed, "bulkSuccessfulResults": done });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Pauses runs.
pub(crate) async fn pause(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    each(&body, |id| control::steer(&app, id, Steer::Pause)).await
}

/// Resumes runs.
pub(crate) async fn resume(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    each(&body, |id| control::steer(&app, id, Steer::Resume)).await
}

/// Restarts runs.
pub(crate) async fn restart(
    State(app): State<App>,
    _: Working,
    Params(query): Params<control::Restart>,
    body: Body,
) -> Result<Response, Fault> {
    let latest = query.use_latest_definitions.unwrap_or(false);
    each(&body, |id| {
        let app = app.clone();
        async move { control::again(&app, id, Again::Restart { latest }).await.map(drop) }
    })
    .await
}

/// Retries runs.
pub(crate) async fn retry(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    each(&body, |id| {
        let app = app.clone();
        async move { control::again(&app, id, Again::Retry).await.map(drop) }
    })
    .await
}

/// Ends runs.
pub(crate) async fn terminate(
    State(app): State<App>,
    _: Working,
    Params(query): Params<control::Reason>,
    body: Body,
) -> Result<Response, Fault> {
    each(&body, |id| control::end(&app, id, &query)).await
}

/// Forgets runs.
pub(crate) async fn remove(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    each(&body, |id| control::forget(&app, id)).await
}
