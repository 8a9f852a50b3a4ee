//! Owns how a refusal looks: problem+json (RFC 9457) with a stable code. Every code is in [`Code`], and nowhere else.
//!
//! The words are for the person or agent that reads them: what happened, to what, who holds it, what to do next.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::reply;
use crate::engine::Unavailable;

/// How long to wait before coming back to a server that has too much to do.
pub(crate) const OVERLOAD_RETRY_MS: u64 = 1_000;

macro_rules! codes {
    ($($name:ident $text:literal $status:ident $title:literal;)*) => {
        /// Every code a refusal can have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $title] $name,)* }

        impl Code {
            /// All of them.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The code on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// The status it comes with.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }

            /// What it means in general.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    BadRequest "bad_request" BAD_REQUEST "The request is not valid";
    Unauthorized "unauthorized" UNAUTHORIZED "A valid API key is needed";
    Forbidden "forbidden" FORBIDDEN "The API key does not allow this";
    NotFound "not_found" NOT_FOUND "There is nothing at this address";
    UnknownLease "unknown_lease" NOT_FOUND "No such lease";
    MethodNotAllowed "method_not_allowed" METHOD_NOT_ALLOWED "This address does not take this method";
    WaitTimedOut "wait_timed_out" REQUEST_TIMEOUT "The wait ran out";
    Held "held" CONFLICT "Someone holds it";
    WouldDeadlock "would_deadlock" CONFLICT "Waiting would never end";
    Lost "lost" CONFLICT "The lease is over";
    NotHolder "not_holder" CONFLICT "The lease is another holder's";
    WithinOver "within_over" CONFLICT "The lease to live within is over";
    AgentLeaving "agent_leaving" CONFLICT "The agent is leaving or gone";
    IntentFinished "intent_finished" CONFLICT "The intent is finished";
    Gone "gone" GONE "These events are no longer kept";
    PayloadTooLarge "payload_too_large" PAYLOAD_TOO_LARGE "The body is too large";
    UnsupportedMediaType "unsupported_media_type" UNSUPPORTED_MEDIA_TYPE "The body is not JSON";
    LimitReached "limit_reached" UNPROCESSABLE_ENTITY "A limit is reached";
    KeyReused "key_reused" UNPROCESSABLE_ENTITY "The idempotency key belongs to another request";
    HeadTooLarge "head_too_large" REQUEST_HEADER_FIELDS_TOO_LARGE "The head of the request is too large";
    Internal "internal" INTERNAL_SERVER_ERROR "The server could not build its answer";
    Overloaded "overloaded" SERVICE_UNAVAILABLE "The server has too much to do";
    Unavailable "unavailable" SERVICE_UNAVAILABLE "The server cannot answer now";
}

/// A refusal on its way out.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    code: Code,
    detail: String,
    fields: Map<String, Value>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A refusal with its reason in words.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem(Box::new(Parts { code, detail: detail.into(), fields: Map::new(), header: None }))
    }

    /// One field that is not as it should be.
    pub(crate) fn field(field: &str, message: impl Into<String>) -> Problem {
        let message = message.into();
        let detail = format!("{field}: {message}");
        let errors = json!([{ "field": field, "message": message }]);
        Problem::new(Code::BadRequest, detail).with("errors", errors)
    }

    /// Adds a member that a program can act on.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.0.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Says when to come back.
    #[must_use]
    pub(crate) fn retry_after_ms(mut self, ms: u64) -> Problem {
        self.0.header = Some((header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1))));
        self.with("retry_after_ms", ms)
    }

    /// Its code.
    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    /// Its members beside the usual ones.
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.0.fields
    }

    /// The status it is answered with.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    /// Its reason in words.
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.0.header = Some((name, value));
        self
    }

    /// The request shows no valid key.
    pub(crate) fn unauthorized(detail: &str) -> Problem {
        Problem::new(Code::Unauthorized, detail).header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Parts { code, detail, fields, header } = *self.0;
        let mut body = Map::new();
        body.insert("type".to_owned(), format!("urn:tenure:error:{}", code.as_str()).into());
        body.insert("title".to_owned(), code.title().into());
        body.insert("status".to_owned(), code.status().as_u16().into());
        body.insert("detail".to_owned(), detail.into());
        body.insert("code".to_owned(), code.as_str().into());
        body.extend(fields);
        let mut response = reply::typed(code.status(), "application/problem+json", Value::Object(body).to_string());
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<Unavailable> for Problem {
    fn from(unavailable: Unavailable) -> Problem {
        match unavailable {
            Unavailable::Overloaded => {
                Problem::new(Code::Overloaded, "too many requests are waiting; nothing was done, try again shortly")
                    .retry_after_ms(OVERLOAD_RETRY_MS)
            }
            Unavailable::Stopped => Problem::new(
                Code::Unavailable,
                "the server is stopping; the request may or may not have taken effect, ask again when it is back",
            )
            .retry_after_ms(OVERLOAD_RETRY_MS),
            Unavailable::Unreadable(error) => {
                tracing::error!(%error, "the history cannot be read");
                Problem::new(Code::Unavailable, "the history cannot be read now; the server's log says why")
                    .retry_after_ms(OVERLOAD_RETRY_MS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l10_no_refusal_text_names_the_way_around_it() {
        for code in Code::ALL {
            assert!(!code.title().to_lowercase().contains("revoke"), "{code:?}");
        }
    }

    #[test]
    fn codes_are_distinct() {
        let codes: std::collections::HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
    }
}
