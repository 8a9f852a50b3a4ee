//! Owns how this door says no: a JSON object with `message` at its top, and the fields that the client package reads.
//!
//! That package tells a lease conflict from any other conflict by the letters «lease» anywhere in a 409 body. So they stand in
//! the bodies about leases, and no other 409 body carries any text of a user.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tenure_core::Holder;
use tenure_core::access::Permission;
use tenure_core::document::Refusal;
use tenure_core::lease::Lease;
use tenure_core::refusal::{Blocker, Conflict, Refusal as LeaseRefusal};
use tenure_core::serial::IntentId;

use super::model;
use crate::engine::Unavailable;
use crate::http::error::Problem;
use crate::http::reply;

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct No {
    status: StatusCode,
    body: Map<String, Value>,
    retry_after_s: Option<u64>,
}

pub(crate) type Answer = Result<Response, No>;

impl No {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> No {
        let mut body = Map::new();
        body.insert("message".to_owned(), Value::String(message.into()));
        No { status, body, retry_after_s: None }
    }

    /// One field that is not as it should be.
    pub(crate) fn field(field: &str, message: impl Into<String>) -> No {
        let message = message.into();
        let errors = json!([{ "field": field, "message": message }]);
        No::new(StatusCode::BAD_REQUEST, format!("{field}: {message}")).with("errors", errors)
    }

    pub(crate) fn with(mut self, name: &str, value: Value) -> No {
        self.body.insert(name.to_owned(), value);
        self
    }

    pub(crate) fn not_found(what: &str) -> No {
        No::new(StatusCode::NOT_FOUND, format!("there is no such {what}"))
    }

    /// A lease stands in the way.
    pub(crate) fn held(message: String, lease: Value, holder: &str) -> No {
        No::new(StatusCode::CONFLICT, message).with("existing_lease", lease).with("current_holder", json!(holder))
    }

    /// The access list says no.
    fn not_allowed(holder: &Holder, intent: IntentId, needs: Permission) -> No {
        let message = format!(
            "the access list of {intent} does not let {holder} {} it; POST /api/v1/intents/{intent}/access-requests asks for it",
            needs.as_str()
        );
        No::new(StatusCode::FORBIDDEN, message)
    }

    /// The lease is another's.
    pub(crate) fn not_holder(lease: &Lease) -> No {
        No::held(format!("this lease belongs to {}", lease.holder), model::lease(lease, None), lease.holder.as_str())
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        let mut response = reply::json(self.status, &Value::Object(self.body));
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Problem> for No {
    fn from(problem: Problem) -> No {
        // What other doors call unsupported or too large is bad input to this one's clients.
        let status = match problem.code().status() {
            StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        let mut no = No::new(status, problem.detail());
        no.retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        let errors = problem.fields().get("errors").cloned();
        let is_bad = status == StatusCode::BAD_REQUEST;
        match errors.or(is_bad.then(|| json!([{ "message": problem.detail() }]))) {
            Some(errors) => no.with("errors", errors),
            None => no,
        }
    }
}

impl From<Unavailable> for No {
    fn from(unavailable: Unavailable) -> No {
        Problem::from(unavailable).into()
    }
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> No {
        let bad = |message: String| {
            No::new(StatusCode::BAD_REQUEST, message.clone()).with("errors", json!([{ "message": message }]))
        };
        match refusal {
            Refusal::Unknown { what, .. } => No::not_found(what),
            Refusal::Stale { current } => {
                let message = format!("the version is {current} now: read the intent again and repeat the change");
                No::new(StatusCode::CONFLICT, message).with("current_version", json!(current))
            }
            Refusal::Guarded { resource, lease } => {
                let message = format!("{resource} is leased by {}; only the holder writes there", lease.holder);
                let holder = lease.holder.clone();
                No::held(message, model::lease(&lease, None), holder.as_str())
            }
            Refusal::Late { resource, .. } => {
                let message = format!("your lease on {resource} is over; acquire it again before you write there");
                No::new(StatusCode::PRECONDITION_FAILED, message)
            }
            Refusal::Finished(_) | Refusal::Transition { .. } | Refusal::Over { .. } => {
                No::new(StatusCode::CONFLICT, refusal.to_string())
            }
            Refusal::Registered(_) => {
                No::new(StatusCode::CONFLICT, "this agent is registered and alive; it registers again when it is dead")
            }
            Refusal::NotAllowed { holder, intent, needs } => No::not_allowed(&holder, intent, needs),
            Refusal::NotYours { owner } => {
                No::new(StatusCode::FORBIDDEN, format!("this belongs to {owner}")).with("owner", json!(owner))
            }
            Refusal::OtherCredential(_) => No::new(
                StatusCode::FORBIDDEN,
                "this agent registered with another API key; only that key speaks for it",
            ),
            Refusal::Gone { status, .. } => {
                let message = format!("this agent is {}; it has to register again", status.as_str());
                No::new(StatusCode::GONE, message).with("agent_status", json!(status))
            }
            Refusal::Patch(_) | Refusal::Senseless(_) | Refusal::Limit { .. } => bad(refusal.to_string()),
            Refusal::Lease(refusal) => refusal.into(),
        }
    }
}

impl From<LeaseRefusal> for No {
    fn from(refusal: LeaseRefusal) -> No {
        match refusal {
            LeaseRefusal::Held(conflict) => held(&conflict),
            LeaseRefusal::WaitTimedOut(conflict) => {
                let no = held(&conflict);
                let message = "the wait ran out before the lease was free";
                no.with("message", json!(message))
            }
            LeaseRefusal::AgentLeaving { status, .. } => {
                let message = format!("this agent is {} and gets no new leases", status.as_str());
                No::new(StatusCode::FORBIDDEN, message).with("agent_status", json!(status))
            }
            LeaseRefusal::NotAllowed { holder, intent, needs } => No::not_allowed(&holder, intent, needs),
            LeaseRefusal::IntentFinished { status } => Refusal::Finished(status).into(),
            LeaseRefusal::NotHolder { .. } | LeaseRefusal::WithinOver | LeaseRefusal::WouldDeadlock { .. } => {
                No::new(StatusCode::CONFLICT, format!("no lease: {refusal}"))
            }
            LeaseRefusal::NoResources | LeaseRefusal::LimitReached { .. } | LeaseRefusal::KeyReused => {
                let message = refusal.to_string();
                No::new(StatusCode::BAD_REQUEST, message.clone()).with("errors", json!([{ "message": message }]))
            }
        }
    }
}

fn held(conflict: &Conflict) -> No {
    let holder = conflict.blocker.holder();
    let message = match &conflict.blocker {
        Blocker::Lease { .. } => format!("lease held by {holder}"),
        Blocker::Closure { .. } => format!("no lease yet: it stays closed for a while after {holder} lost it"),
        Blocker::Waiter { .. } => format!("no lease yet: {holder} is first in line"),
    };
    No::held(message, model::conflict(conflict), holder.as_str())
}
