//! Owns saying a failed call in words: what happened, to what, who holds it, what to do next; and its exit code.

use std::time::SystemTime;

use serde_json::Value;
use tenure::{By, Conflict, Error, Refusal, Refused};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::span;

const SERVER_HINT: &str = "is the server running? 'tenure serve' starts one; --url or TENURE_URL says where it is";
const TLS_HINT: &str = "the server answers, but not in a way to be trusted: --ca FILE or TENURE_CA names the certificate of \
                        who signed the server's, and that is for the name in --url";

/// A failed call as a failed command.
pub(crate) fn explain(error: &Error) -> Failure {
    match error {
        Error::Refused(refused) => refusal(refused),
        Error::Unreachable { url, .. } => Failure::new(Exit::UNAVAILABLE, error.code(), chain(error))
            .detail("url", url.as_str())
            .hint(if error.is_tls() { TLS_HINT } else { SERVER_HINT }),
        Error::Setup { .. } => Failure::new(Exit::USAGE, "invalid_args", chain(error)),
        _ => Failure::new(Exit::FAILURE, error.code(), chain(error))
            .hint("is this a Tenure server? check --url or TENURE_URL"),
    }
}

/// The sentence and its first cause. What lies between is how the HTTP client is built.
fn chain(error: &dyn std::error::Error) -> String {
    let mut root = error.source();
    while let Some(deeper) = root.and_then(std::error::Error::source) {
        root = Some(deeper);
    }
    root.map_or_else(|| error.to_string(), |root| format!("{error}: {root}"))
}

fn refusal(refused: &Refused) -> Failure {
    let problem = &refused.problem;
    let exit = exit(&refused.why, &problem.code);
    let mut failure = Failure::new(exit, problem.code.as_str(), refused.to_string());
    failure.details = problem.more.clone();
    failure.details.remove("type");
    failure.details.insert("status".to_owned(), Value::from(problem.status));
    match &refused.why {
        Refusal::Held(conflict) => {
            let hint = match conflict {
                Some(conflict) if conflict.own => "that lease is your own: renew it, release it, or act --within it",
                _ => "add --wait 5m to wait for it in line",
            };
            with_conflict(failure, conflict.as_ref(), "is not free").hint(hint)
        }
        Refusal::WaitTimedOut(conflict) => with_conflict(failure, conflict.as_ref(), "did not become free in time"),
        Refusal::NotHolder { .. } => {
            failure.hint("act in the holder's name with --holder or TENURE_HOLDER, if that is you")
        }
        // The header is ours to write; its reader has a flag for it.
        Refusal::BadRequest { errors } if errors.iter().any(|bad| bad.field == HOLDER_HEADER) => {
            let text = failure.message.replace(&format!("the header {HOLDER_HEADER}"), "--holder or TENURE_HOLDER");
            Failure { message: text.replace(HOLDER_HEADER, "--holder"), ..failure }.hint(
                "an API key that may act under more than one name has no name of its own: say which with --holder",
            )
        }
        // One wrong field is the message itself.
        Refusal::BadRequest { errors } if errors.len() > 1 => {
            errors.iter().fold(failure, |failure, bad| failure.hint(format!("{}: {}", bad.field, bad.message)))
        }
        Refusal::Unauthorized => failure.hint("set TENURE_API_KEY to a key that the server knows"),
        Refusal::Overloaded | Refusal::Unavailable => failure.hint("try again in a moment"),
        _ => failure,
    }
}

/// Carries `--holder` to the server.
const HOLDER_HEADER: &str = "X-Tenure-Holder";

fn exit(why: &Refusal, code: &str) -> Exit {
    match why {
        Refusal::Held(_)
        | Refusal::WouldDeadlock { .. }
        | Refusal::NotHolder { .. }
        | Refusal::WithinOver
        | Refusal::KeyReused => Exit::CONFLICT,
        Refusal::WaitTimedOut(_) => Exit::TIMED_OUT,
        Refusal::Lost(_) => Exit::LOST,
        Refusal::UnknownLease | Refusal::Gone => Exit::NOT_FOUND,
        Refusal::BadRequest { .. } => Exit::USAGE,
        Refusal::Unauthorized | Refusal::Forbidden => Exit::DENIED,
        Refusal::Overloaded | Refusal::Unavailable => Exit::UNAVAILABLE,
        // What the other doors say without a word of its own.
        _ if code == "not_found" => Exit::NOT_FOUND,
        _ if code == "conflict" => Exit::CONFLICT,
        _ => Exit::FAILURE,
    }
}

/// For people, the facts line by line instead of the server's sentence, which speaks to programs.
fn with_conflict(failure: Failure, conflict: Option<&Conflict>, what: &str) -> Failure {
    let Some(conflict) = conflict else { return failure };
    let text = format!("Error: {} {what}\n{}", conflict.resource, describe(conflict, SystemTime::now()));
    failure.human(text)
}

/// Who stands in the way, line by line.
pub(crate) fn describe(conflict: &Conflict, now: SystemTime) -> String {
    let holder = conflict.holder.as_ref().map_or("nobody", |holder| holder.as_str());
    let verb = match conflict.by {
        By::Waiter => "First in line",
        By::Closure => "Closed after",
        _ => "Held by",
    };
    let mut lines = vec![format!("  {verb}: {holder}"), format!("  Resource: {}", conflict.overlap)];
    if let Some(id) = conflict.lease_id {
        lines.push(format!("  Lease: {id}"));
    }
    if let Some(since) = conflict.acquired_at {
        lines.push(format!("  Since: {} ({})", span::utc(since), span::ago(since, now)));
    }
    if let Some(at) = conflict.expires_at {
        let word = if conflict.by == By::Closure { "Opens" } else { "Expires" };
        lines.push(format!("  {word}: {} ({})", span::utc(at), span::until(at, now)));
    }
    if conflict.waiting > 0 {
        lines.push(format!("  Waiting: {}", conflict.waiting));
    }
    lines.join("\n")
}
