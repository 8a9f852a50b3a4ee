//! Owns what this door says about itself, and that it says so where it does not serve.

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use serde_json::{Value, json};
use tenure_core::retry::RetryRule;

use super::Door;
use super::caller::Looker;
use super::error::{Answer, No};
use super::model;

/// The version of the protocol whose client is spoken to.
const PROTOCOL: &str = "0.17.0";

/// Addresses of the protocol that this server knows and does not serve, with what follows them.
const LEFT_OUT: &[&str] = &[
    "/vaults",
    "/credentials",
    "/grants",
    "/invocations",
    "/tools",
    "/memory",
    "/triggers",
    "/channels",
    "/federation",
    "/escalations",
    "/tasks",
    "/plans",
    "/decisions",
    "/checkpoints",
    "/admin",
    "/identity",
    "/verify",
];

/// Parts of an intent that are not served.
const LEFT_OUT_OF_INTENTS: &[&str] = &[
    "attachments",
    "costs",
    "escalations",
    "approvals",
    "governance",
    "channels",
    "tasks",
    "plans",
    "decisions",
    "coordinator-decisions",
    "arbitrate",
];

/// Parts of an agent that are not served.
const LEFT_OUT_OF_AGENTS: &[&str] = &["memory", "grants", "identity"];

/// One answer for all of them.
pub(crate) fn left_out() -> Router<Door> {
    let mut routes = Router::new();
    let under = [("/intents/{id}/", LEFT_OUT_OF_INTENTS), ("/agents/{agent}/", LEFT_OUT_OF_AGENTS)];
    let parts = under.iter().flat_map(|(front, parts)| parts.iter().map(move |part| format!("{front}{part}")));
    for path in LEFT_OUT.iter().map(|path| (*path).to_owned()).chain(parts) {
        routes = routes.route(&path, any(not_served)).route(&format!("{path}/{{*rest}}"), any(not_served));
    }
    routes
}

async fn not_served(uri: Uri) -> No {
    let part: String = uri.path().chars().take(200).collect();
    let message =
        format!("{part} is a part of OpenIntent that this server does not serve; docs/compat/openintent.md lists them");
    No::new(StatusCode::NOT_IMPLEMENTED, message)
}

pub(crate) async fn not_found(uri: Uri) -> No {
    let path: String = uri.path().chars().take(200).collect();
    No::new(StatusCode::NOT_FOUND, format!("there is nothing at {path}"))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> No {
    let path: String = uri.path().chars().take(200).collect();
    No::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not take {method}"))
}

/// What is served; needs no key.
pub(crate) async fn discovery() -> Response {
    model::ok(&json!({
        "protocol": "OpenIntent Coordination Protocol",
        "version": PROTOCOL,
        "implementation": "tenure",
        "api": "/api/v1",
        "capabilities": [
            "intents", "intent-graphs", "events", "agents", "agent-lifecycle", "state-patches", "optimistic-concurrency",
            "leasing", "coordinator-leases", "portfolios", "retry-policies", "subscriptions", "access-control",
        ],
    }))
}

/// What is claimed, RFC by RFC; no more than what is done.
pub(crate) async fn compatibility() -> Response {
    let compliance: Value = [
        ("RFC-0001", "intents, versions, status"),
        ("RFC-0002", "intent graphs"),
        ("RFC-0003", "agent leasing"),
        ("RFC-0006", "subscriptions: webhooks and three SSE paths"),
        ("RFC-0007", "portfolios"),
        ("RFC-0010", "retry policies, failures and fallback"),
        ("RFC-0011", "access control lists and requests"),
        ("RFC-0013", "coordinator leases; no decision records"),
        ("RFC-0016", "agent lifecycle; load and capacity are kept, not used"),
    ]
    .into_iter()
    .map(|(rfc, what)| (rfc.to_owned(), json!(what)))
    .collect();
    model::ok(&json!({
        "implementation": "tenure",
        "version": env!("CARGO_PKG_VERSION"),
        "rfcCompliance": compliance,
    }))
}

/// What agents ask before they wait for a person.
pub(crate) async fn config(State(_door): State<Door>, _looker: Looker) -> Answer {
    let retry = RetryRule::default();
    Ok(model::ok(&json!({
        "protocol_version": PROTOCOL,
        "suspension": { "default_retry_policy": null },
        "retry": { "max_retries": retry.max_attempts - 1, "base_delay_ms": retry.base_delay_ms },
    })))
}
