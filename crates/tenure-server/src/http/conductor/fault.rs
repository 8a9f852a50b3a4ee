//! Owns how this API refuses: `{status, message, instance, retryable}`, with the fields that are wrong where some are.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tenure_core::flow::command::FlowRefusal;

use crate::engine::Unavailable;
use crate::http::error::Problem;
use crate::http::reply;

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    message: String,
    /// The word that makes clients fetch a new token.
    error: Option<&'static str>,
    wrong: Vec<Value>,
}

impl Fault {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into(), error: None, wrong: Vec::new() }
    }

    pub(super) fn bad(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::NOT_FOUND, message)
    }

    /// Fields that are not as they should be: each with its path, and what is wrong with it.
    pub(super) fn invalid(wrong: Vec<(String, String)>) -> Fault {
        let said: Vec<String> = wrong.iter().map(|(path, message)| format!("{path}: {message}")).collect();
        let wrong = wrong.into_iter().map(|(path, message)| json!({ "path": path, "message": message })).collect();
        Fault { wrong, ..Fault::bad(said.join("; ")) }
    }

    /// Its reason in words.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let retryable = self.status == StatusCode::SERVICE_UNAVAILABLE;
        let mut body = json!({
            "status": self.status.as_u16(), "message": self.message, "instance": "tenure", "retryable": retryable,
        });
        if let Value::Object(fields) = &mut body {
            if !self.wrong.is_empty() {
                fields.insert("validationErrors".to_owned(), self.wrong.into());
            }
            if let Some(error) = self.error {
                fields.insert("error".to_owned(), error.into());
            }
        }
        reply::json(self.status, &body)
    }
}

impl From<Unavailable> for Fault {
    fn from(unavailable: Unavailable) -> Fault {
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, unavailable.to_string())
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Fault {
        let status = problem.status();
        let error = (status == StatusCode::UNAUTHORIZED).then_some("INVALID_TOKEN");
        Fault { error, ..Fault::new(status, problem.detail()) }
    }
}

impl From<FlowRefusal> for Fault {
    fn from(refusal: FlowRefusal) -> Fault {
        let status = match refusal {
            FlowRefusal::NotDefined { .. }
            | FlowRefusal::TaskNotDefined(_)
            | FlowRefusal::Unknown(_)
            | FlowRefusal::Archived(_)
            | FlowRefusal::NoTask { .. } => StatusCode::NOT_FOUND,
            FlowRefusal::Exists { .. }
            | FlowRefusal::Over { .. }
            | FlowRefusal::NotOver { .. }
            | FlowRefusal::NotPaused { .. }
            | FlowRefusal::KeyUsed(_)
            | FlowRefusal::NothingFailed(_)
            | FlowRefusal::Final(_) => StatusCode::CONFLICT,
            FlowRefusal::Limit { .. } => StatusCode::BAD_REQUEST,
        };
        Fault::new(status, refusal.to_string())
    }
}
