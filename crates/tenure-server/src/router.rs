//! Owns the table of all routes, and their description made from the handlers.

use std::sync::LazyLock;

use axum::Router;
use axum::routing::{get, post};
use utoipa::OpenApi;
use utoipa::openapi::RefOr;

use crate::http::native::{backup, events, history, leases, renew, workflows};
use crate::http::{App, conductor, openintent, status};

/// Every address of the server.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/v1/leases", get(history::list).post(leases::acquire))
        .route("/v1/leases/renew", post(renew::many))
        .route("/v1/leases/check", post(leases::check))
        .route("/v1/leases/{id}", get(leases::get).delete(leases::release))
        .route("/v1/leases/{id}/renew", post(renew::one))
        .route("/v1/leases/{id}/revoke", post(leases::revoke))
        .route("/v1/leases/{id}/events", get(history::of_lease))
        .route("/v1/events", get(events::read))
        .route("/v1/backup", get(backup::download))
        .route("/v1/workflows", get(workflows::list).post(workflows::run))
        .route("/v1/workflows/{id}", get(workflows::get))
        .route("/v1/ping", post(status::ping))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/version", get(status::version))
        .route("/metrics", get(status::metrics))
        .route("/openapi.json", get(status::openapi))
        .merge(conductor::routes())
        .fallback(status::not_found)
        .method_not_allowed_fallback(status::method_not_allowed)
        .with_state(app.clone())
        .merge(openintent::routes(app))
}

/// The description of the native API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tenure",
        description = "Who holds what, until when, and what happens when they stop answering. Refusals are problem+json with a stable `code`; times are RFC 3339 in UTC."
    ),
    paths(
        history::list,
        leases::acquire,
        renew::many,
        leases::check,
        leases::get,
        leases::release,
        renew::one,
        leases::revoke,
        history::of_lease,
        events::read,
        backup::download,
        workflows::list,
        workflows::run,
        workflows::get,
        status::ping,
        status::healthz,
        status::readyz,
        status::version,
        status::metrics,
        status::openapi
    )
)]
struct Api;

/// The description as JSON.
pub fn openapi_json() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| described().to_pretty_json().unwrap_or_default());
    &TEXT
}

/// The description of the handlers, with what holds for all of them: a word for every status, and how refusals travel.
fn described() -> utoipa::openapi::OpenApi {
    let mut api = Api::openapi();
    for path in api.paths.paths.values_mut() {
        for operation in [&mut path.get, &mut path.post, &mut path.delete].into_iter().flatten() {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response {
                    describe(status, response);
                }
            }
        }
    }
    api
}

fn describe(status: &str, response: &mut utoipa::openapi::Response) {
    let (words, is_refusal) = match status {
        "201" => ("Granted.", false),
        "4XX" => ("Refused; `code` says why, and docs/errors.md what to do about it.", true),
        "503" => ("No answer now; `retry_after_ms` says when to try again.", true),
        _ => ("Done.", false),
    };
    if response.description.is_empty() {
        response.description = words.to_owned();
    }
    if is_refusal {
        let content = std::mem::take(&mut response.content).into_values();
        response.content = content.map(|content| ("application/problem+json".to_owned(), content)).collect();
    }
}
