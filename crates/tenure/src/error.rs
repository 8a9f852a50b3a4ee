//! Owns how calls fail: a refusal (the server said no, and what it said) or something that broke on the way.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_core::Holder;

use crate::model::{Conflict, Ended};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server said no.
    #[error("{0}")]
    Refused(Box<Refused>),
    /// No answer came: the server could not be reached, or the connection broke. A call that changes something may or
    /// may not have been carried out.
    #[error("no answer from {url}")]
    Unreachable {
        /// Where the server was looked for.
        url: String,
        /// What happened to the last try.
        source: Source,
    },
    /// An answer came that is not Tenure's.
    #[error("{url} gave an answer that cannot be read ({what})")]
    BadAnswer {
        /// Who answered.
        url: String,
        /// What it looked like.
        what: String,
        /// Why it cannot be read.
        source: Option<Source>,
    },
    /// The client cannot be set up as asked.
    #[error("{what}")]
    Setup {
        /// What is wrong.
        what: String,
        /// Where that came from.
        source: Option<Source>,
    },
}

impl Error {
    /// The stable code: the server's for a refusal, otherwise `unreachable`, `bad_answer` or `setup`.
    pub fn code(&self) -> &str {
        match self {
            Error::Refused(refused) => &refused.problem.code,
            Error::Unreachable { .. } => "unreachable",
            Error::BadAnswer { .. } => "bad_answer",
            Error::Setup { .. } => "setup",
        }
    }

    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refused) => Some(&refused.why),
            _ => None,
        }
    }

    /// Who stands in the way, if that is the reason: of an acquire that was refused or waited in vain.
    pub fn conflict(&self) -> Option<&Conflict> {
        match self.refusal()? {
            Refusal::Held(conflict) | Refusal::WaitTimedOut(conflict) => conflict.as_ref(),
            _ => None,
        }
    }

    /// When to try again, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused(refused) => refused.problem.retry_after(),
            _ => None,
        }
    }

    /// Whether no answer came because the two sides could not agree on an encrypted connection: mostly, because the
    /// server's certificate is not trusted here or is for another name.
    pub fn is_tls(&self) -> bool {
        let Error::Unreachable { source, .. } = self else { return false };
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(source.as_ref());
        while let Some(error) = next {
            if error.is::<rustls::Error>() {
                return true;
            }
            // An I/O error does not count what it carries among its sources.
            let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            next = carried.map(|carried| carried as _).or_else(|| error.source());
        }
        false
    }

    /// Whether the same call may succeed when it is simply sent again.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Error::Refused(refused) => matches!(refused.why, Refusal::Overloaded | Refusal::Unavailable),
            Error::Unreachable { .. } => true,
            // A proxy in front of a server that restarts answers for it.
            Error::BadAnswer { what, .. } => what.starts_with("status 5"),
            Error::Setup { .. } => false,
        }
    }
}

/// The server said no, and what it said.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .problem.message())]
#[non_exhaustive]
pub struct Refused {
    /// Why, typed.
    pub why: Refusal,
    /// The whole answer.
    pub problem: Problem,
}

/// Why the server said no.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Someone holds it, it is closed, or others are first in line.
    Held(Option<Conflict>),
    /// The wait ran out; who still has it.
    WaitTimedOut(Option<Conflict>),
    /// Waiting would never end: each of these waits for the next, the last for the first.
    WouldDeadlock {
        /// Who waits for whom.
        cycle: Vec<Holder>,
    },
    /// The lease is over.
    Lost(Box<Ended>),
    /// The lease is another holder's.
    NotHolder {
        /// Whose it is.
        holder: Option<Holder>,
    },
    /// No such lease was ever granted, or its history is no longer kept.
    UnknownLease,
    /// One of the server's bounds.
    LimitReached,
    /// The lease to live within is over or was never granted.
    WithinOver,
    /// The idempotency key was used for a different request.
    KeyReused,
    /// The events asked for are no longer kept.
    Gone,
    /// The request has wrong fields.
    BadRequest {
        /// Which, and what is wrong with them.
        errors: Vec<BadField>,
    },
    /// The API key is missing or unknown.
    Unauthorized,
    /// The API key may not do this, or not in this holder's name.
    Forbidden,
    /// The server has too much to do at the moment.
    Overloaded,
    /// The server is starting or stopping.
    Unavailable,
    /// A code this version does not know; it is in [`Problem::code`].
    Other,
}

/// One wrong field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BadField {
    /// Where.
    #[serde(default)]
    pub field: String,
    /// What is wrong with it.
    #[serde(default)]
    pub message: String,
}

/// A problem document (RFC 9457), as the server sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What kind of problem, in words.
    #[serde(default)]
    pub title: String,
    /// What happened this time.
    #[serde(default)]
    pub detail: String,
    /// Everything else: `conflict`, `cycle`, `current`, `errors`, `retry_after_ms`, …
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Problem {
    /// A refusal that the client reads out of another answer.
    pub(crate) fn new(code: &str, detail: String) -> Problem {
        Problem { status: 409, code: code.to_owned(), title: String::new(), detail, more: Map::new() }
    }

    /// A refusal in the words of another protocol.
    pub(crate) fn foreign(status: u16, code: &str, detail: String, more: Map<String, Value>) -> Problem {
        Problem { status, code: code.to_owned(), title: String::new(), detail, more }
    }

    /// When to try again, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.more.get("retry_after_ms").and_then(Value::as_u64).map(Duration::from_millis)
    }

    fn message(&self) -> &str {
        [&self.detail, &self.title, &self.code]
            .into_iter()
            .find(|text| !text.is_empty())
            .map_or("refused", String::as_str)
    }

    fn member<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        T::deserialize(self.more.get(name)?).ok()
    }

    /// Reads the reason. A member that cannot be read is absent: what kind of refusal it is stands in the code alone.
    fn why(&self) -> Refusal {
        match self.code.as_str() {
            "held" => Refusal::Held(self.member("conflict")),
            "wait_timed_out" => Refusal::WaitTimedOut(self.member("conflict")),
            "would_deadlock" => Refusal::WouldDeadlock { cycle: self.member("cycle").unwrap_or_default() },
            "lost" => Refusal::Lost(Box::new(Ended {
                reason: self.member("reason"),
                ended_at: ended_at(&self.more),
                holder: self.member("holder"),
                note: self.member("note"),
                current: self.member("current"),
            })),
            "not_holder" => Refusal::NotHolder { holder: self.member("holder") },
            "unknown_lease" => Refusal::UnknownLease,
            "limit_reached" => Refusal::LimitReached,
            "within_over" => Refusal::WithinOver,
            "key_reused" => Refusal::KeyReused,
            "gone" => Refusal::Gone,
            "bad_request" => Refusal::BadRequest { errors: self.member("errors").unwrap_or_default() },
            "unauthorized" => Refusal::Unauthorized,
            "forbidden" => Refusal::Forbidden,
            "overloaded" => Refusal::Overloaded,
            "unavailable" => Refusal::Unavailable,
            _ => Refusal::Other,
        }
    }
}

fn ended_at(members: &Map<String, Value>) -> Option<std::time::SystemTime> {
    members.get("ended_at")?.as_str()?.parse::<jiff::Timestamp>().ok().map(Into::into)
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        Error::Refused(Box::new(Refused { why: problem.why(), problem }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(body: Value) -> Error {
        serde_json::from_value::<Problem>(body).unwrap().into()
    }

    #[test]
    fn a_refusal_says_who_holds_it_and_when_to_try_again() {
        let error = refused(json!({"type": "about:blank", "title": "Held", "status": 409, "code": "held",
            "detail": "x:a is held by b", "retry_after_ms": 1500, "conflict": {"resource": "x:a", "overlap": "x:a",
            "by": "lease", "holder": "b", "token": 7, "lease_id": "lease-0-7", "mode": "exclusive", "waiting": 3}}));
        let conflict = error.conflict().unwrap();
        assert_eq!((conflict.holder.as_ref().unwrap().as_str(), conflict.waiting), ("b", 3));
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1500)));
        assert_eq!((error.code(), error.to_string().as_str()), ("held", "x:a is held by b"));
        assert!(!error.is_transient());
    }

    #[test]
    fn a_lost_lease_says_how_it_ended_and_who_has_it_now() {
        let error = refused(json!({"status": 409, "code": "lost", "reason": "revoked", "note": "maintenance",
            "ended_at": "2026-11-15T10:00:00.000Z", "holder": "a", "current": null}));
        let Some(Refusal::Lost(ended)) = error.refusal() else { panic!("{error:?}") };
        assert_eq!(ended.reason, Some(crate::Status::Revoked));
        assert_eq!((ended.note.as_deref(), ended.current.as_ref()), (Some("maintenance"), None));
        assert!(ended.ended_at.is_some());
    }

    #[test]
    fn an_unknown_code_is_a_refusal_all_the_same() {
        let error = refused(json!({"status": 418, "code": "teapot", "title": "Short and stout"}));
        assert_eq!(error.refusal(), Some(&Refusal::Other));
        assert_eq!((error.code(), error.to_string().as_str()), ("teapot", "Short and stout"));
    }
}
