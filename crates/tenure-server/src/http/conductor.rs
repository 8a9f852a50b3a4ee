//! Owns the Conductor door: workers and clients of that API, unchanged, on Tenure's ledger.
//!
//! It translates and decides nothing: a poll is a claim, an update with `extendLease` a renewal, a definition a plan.
//! Foreign words end here. What differs from the original on purpose is in `docs/compat/conductor.md`.

mod asker;
mod body;
mod bulk;
mod compile;
mod control;
mod defs;
pub(crate) mod evaluate;
mod fault;
mod metadata;
mod model;
mod params;
mod queues;
mod runs;
mod search;
mod tasks;
mod token;
mod workflows;

use axum::Router;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};

use self::fault::Fault;
use super::{App, status};

/// Every address of the door.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/api/token", post(token::exchange))
        .merge(task_routes())
        .merge(metadata_routes())
        .merge(workflow_routes())
        .route("/api", any(not_found))
        .route("/api/{*rest}", any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
}

fn task_routes() -> Router<App> {
    Router::new()
        .route("/api/tasks", post(tasks::update))
        .route("/api/tasks/update-v2", post(tasks::update_and_next))
        .route("/api/tasks/poll/{name}", get(tasks::poll_one))
        .route("/api/tasks/poll/batch/{name}", get(tasks::poll_many))
        .route("/api/tasks/search", get(search::tasks))
        .route("/api/tasks/queue/size", get(queues::size))
        .route("/api/tasks/queue/sizes", get(queues::sizes))
        .route("/api/tasks/queue/all", get(queues::all))
        .route("/api/tasks/queue/polldata", get(queues::polls))
        .route("/api/tasks/queue/polldata/all", get(queues::all_polls))
        .route("/api/tasks/{id}", get(tasks::get))
        .route("/api/tasks/{id}/log", get(tasks::logs).post(tasks::add_log))
        .route("/api/tasks/{workflow}/{status}/signal", post(tasks::signal))
        .route("/api/tasks/{workflow}/{status}/signal/sync", post(tasks::signal_sync))
        .route("/api/tasks/{workflow}/{reference}/{status}", post(tasks::update_step))
        .route("/api/tasks/{workflow}/{reference}/{status}/sync", post(tasks::update_step_sync))
}

fn metadata_routes() -> Router<App> {
    Router::new()
        .route("/api/metadata/taskdefs", get(metadata::tasks).post(metadata::add_tasks).put(metadata::change_task))
        .route("/api/metadata/taskdefs/{name}", get(metadata::task).delete(metadata::remove_task))
        .route(
            "/api/metadata/workflow",
            get(metadata::workflows).post(metadata::add_workflow).put(metadata::put_workflows),
        )
        .route("/api/metadata/workflow/validate", post(metadata::validate))
        .route("/api/metadata/workflow/{name}", get(metadata::workflow))
        .route("/api/metadata/workflow/{name}/{version}", axum::routing::delete(metadata::remove_workflow))
}

fn workflow_routes() -> Router<App> {
    Router::new()
        .route("/api/workflow", post(workflows::start))
        .route("/api/workflow/search", get(search::workflows))
        .route("/api/workflow/execute/{name}/{version}", post(workflows::execute))
        .route("/api/workflow/bulk/pause", put(bulk::pause))
        .route("/api/workflow/bulk/resume", put(bulk::resume))
        .route("/api/workflow/bulk/restart", post(bulk::restart))
        .route("/api/workflow/bulk/retry", post(bulk::retry))
        .route("/api/workflow/bulk/terminate", post(bulk::terminate))
        .route("/api/workflow/bulk/remove", axum::routing::delete(bulk::remove))
        .route("/api/workflow/running/{name}", get(search::running))
        .route("/api/workflow/{id}", get(workflows::get).post(workflows::start_named).delete(control::terminate))
        .route("/api/workflow/{id}/status", get(workflows::status))
        .route("/api/workflow/{id}/tasks", get(workflows::tasks))
        .route("/api/workflow/{id}/remove", axum::routing::delete(control::remove))
        .route("/api/workflow/{id}/pause", put(control::pause))
        .route("/api/workflow/{id}/resume", put(control::resume))
        .route("/api/workflow/{id}/skiptask/{reference}", put(control::skip))
        .route("/api/workflow/{id}/restart", post(control::restart))
        .route("/api/workflow/{id}/retry", post(control::retry))
        .route("/api/workflow/{id}/rerun", post(control::rerun))
        .route("/api/workflow/{id}/resetcallbacks", post(control::reset_callbacks))
        .route("/api/workflow/{name}/correlated/{correlation}", get(search::correlated))
        .route("/api/workflow/{name}/correlated", post(search::correlated_many))
}

/// Something is here, but not for this method.
async fn method_not_allowed(method: Method, uri: Uri) -> Fault {
    status::method_not_allowed(method, uri).await.into()
}

/// Nothing of this API is here.
async fn not_found(uri: Uri) -> Response {
    if uri.path().starts_with("/api/v1") {
        return status::not_found(uri).await.into_response();
    }
    let path: String = uri.path().chars().take(200).collect();
    Fault::not_found(format!("there is nothing at {path}")).into_response()
}
