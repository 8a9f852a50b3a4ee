//! Owns the addresses that are about the server itself: alive, ready, version, metrics, the API's description, the ping.

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::App;
use super::auth::Caller;
use super::error::{Code, Problem};
use super::payload::Payload;
use super::reply;

/// A refusal (RFC 9457). Members beyond these depend on the code.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ProblemBody {
    /// A name for the kind of problem, `urn:tenure:error:<code>`.
    r#type: String,
    /// What the code means in general.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What happened here, in words.
    detail: String,
    /// The stable code.
    code: String,
}

/// Which server this is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Version {
    /// `tenure`.
    name: &'static str,
    /// Its version.
    version: &'static str,
    /// The version of the native API.
    api: &'static str,
}

/// Whether the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn healthz() -> Response {
    reply::typed(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
}

/// Whether requests are answered: 200, or 503 while the server stops.
#[utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, body = String, content_type = "text/plain"), (status = 503, body = ProblemBody)))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    if *app.0.closing.borrow() || !app.engine().is_running() {
        return Err(Problem::new(Code::Unavailable, "the server is stopping"));
    }
    Ok(reply::typed(StatusCode::OK, "text/plain; charset=utf-8", "ready\n"))
}

/// Which server this is.
#[utoipa::path(get, path = "/version", tag = "server", responses((status = 200, body = Version)))]
pub(crate) async fn version() -> Response {
    reply::json(StatusCode::OK, &Version { name: "tenure", version: env!("CARGO_PKG_VERSION"), api: "v1" })
}

/// What the server counts, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = "4XX", body = ProblemBody),
              (status = 503, body = ProblemBody)))]
pub(crate) async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    caller.reading()?;
    let snapshot = app.engine().snapshot().await?;
    let encode = |_| Problem::new(Code::Internal, "the metrics could not be written");
    let text = app.engine().metrics().encode(snapshot).map_err(encode)?;
    Ok(reply::typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
pub(crate) async fn openapi() -> Response {
    reply::typed(StatusCode::OK, "application/json", crate::router::openapi_json())
}

/// Sends its JSON body back: what HTTP and JSON cost without the ledger.
#[utoipa::path(post, path = "/v1/ping", tag = "server", request_body = Object,
    responses((status = 200, body = Object), (status = "4XX", body = ProblemBody)))]
pub(crate) async fn ping(caller: Caller, payload: Payload) -> Result<Response, Problem> {
    caller.reading()?;
    payload.json::<IgnoredAny>()?;
    Ok(reply::typed(StatusCode::OK, "application/json", payload.bytes()))
}

/// Nothing is here.
pub(crate) async fn not_found(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(Code::NotFound, format!("there is nothing at {path}; /openapi.json lists the native API"))
}

/// Something is here, but not for this method.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let (method, path): (String, String) = (method.as_str().chars().take(20).collect(), uri.path().to_owned());
    Problem::new(Code::MethodNotAllowed, format!("{path} does not take {method}; the header Allow says what it takes"))
}
