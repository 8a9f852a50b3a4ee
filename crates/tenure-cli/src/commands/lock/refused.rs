//! Owns how a refusal or an error of the git door is told: code, exit code, text and what to do next.

use serde_json::json;
use tenure_git::error::Verb;
use tenure_git::{Conflict, Error, NotHeld, Why};

use super::text::{utc, visible};
use crate::exit::Exit;
use crate::failure::Failure;

/// An error of the git door as this program tells it.
pub(crate) fn explain(error: Error) -> Failure {
    let message = error.to_string();
    match error {
        Error::Conflict(conflict) => conflicted(&conflict),
        Error::NotHeld(why) => not_held(&why),
        Error::BadName { .. } | Error::BadInput(_) => Failure::usage(message),
        Error::NotARepository { .. } | Error::Issue(_) => not_found(message),
        Error::Actor(_) => {
            not_found(message).hint("'tenure actor list' shows the actors, 'tenure actor init' makes one")
        }
        Error::NoSuchRemote { .. } => not_found(message)
            .hint("choose with --remote NAME or 'git config tenure.remote NAME'; --local asks no remote"),
        Error::RemoteUnavailable { unknown, .. } => {
            let failure = Failure::new(Exit::UNAVAILABLE, "remote_unavailable", message);
            match unknown {
                true => failure.hint("the change may have arrived: ask 'tenure lock status' when the remote is back"),
                false => failure.hint("nothing was changed; --local takes a lock for this clone only"),
            }
        }
        Error::RemoteRefused { .. } => Failure::new(Exit::FAILURE, "remote_refused", message)
            .hint("the remote must let you push refs/grite/locks/* and refs/tenure/*"),
        Error::UnfitRemote { .. } => Failure::new(Exit::FAILURE, "unfit_remote", message),
        Error::RefLockFile { age, .. } => {
            let failure = Failure::new(Exit::FAILURE, "ref_lock_file", message);
            let hint = "it is removed by itself when it is a minute old; 'tenure lock gc' looks for such files";
            failure.hint(format!("it is {} s old; {hint}", age.as_secs()))
        }
        Error::TooLate { .. } => Failure::new(Exit::LOST, "lost", message),
        Error::Config { .. } => Failure::new(Exit::FAILURE, "invalid_args", message),
        Error::Git { .. } | Error::Io { .. } => Failure::new(Exit::FAILURE, "internal_error", message),
    }
}

fn not_found(message: String) -> Failure {
    Failure::new(Exit::NOT_FOUND, "not_found", format!("not found: {message}"))
}

fn not_held(why: &NotHeld) -> Failure {
    let failure = Failure::new(Exit::CONFLICT, "not_held", format!("not held: {why}"));
    failure.hint("an expired lock is never revived: acquire it again, and check what happened meanwhile")
}

fn conflicted(conflict: &Conflict) -> Failure {
    let failure = Failure::new(Exit::CONFLICT, "conflict", format!("conflict: {conflict}"))
        .human(human(conflict))
        .detail("resource", conflict.asked.as_str())
        .detail("held", conflict.held.as_str())
        .detail("owner", conflict.owner.as_str())
        .detail("expires_unix_ms", conflict.expires_unix_ms)
        .detail("token", json!(conflict.token))
        .detail("why", word(conflict.why));
    match conflict.why {
        Why::Held => failure,
        Why::Lapsing => failure.hint("it has expired, but clocks may differ: try again in a few seconds"),
        Why::Contended => failure.hint("others were faster every time: try again"),
        Why::LocalOnly => failure
            .hint("this lock was never published: its holder can release it, or publish it by acquiring it again here")
            .hint("if its holder is gone, it ends by itself when it expires"),
        Why::Unreadable => failure.hint(format!("look at it with 'git show {}'", conflict.held)),
    }
}

fn word(why: Why) -> &'static str {
    match why {
        Why::Held => "held",
        Why::Lapsing => "lapsing",
        Why::LocalOnly => "local_only",
        Why::Contended => "contended",
        Why::Unreadable => "unreadable",
    }
}

/// The guide's text, with a line more where the guide knows no such case.
fn human(conflict: &Conflict) -> String {
    let head = match conflict.verb {
        Verb::Acquire => "Error: Lock conflict".to_owned(),
        Verb::Renew => "Error: Lock conflict (only its holder can renew a lock)".to_owned(),
        Verb::Release => "Error: Lock conflict (only its holder can release a lock)".to_owned(),
    };
    let mut lines = vec![head, format!("  Resource: {}", visible(&conflict.asked))];
    if conflict.held != conflict.asked {
        lines.push(format!("  Held: {}", visible(&conflict.held)));
    }
    lines.push(format!("  Owner: {}", visible(&conflict.owner)));
    if conflict.expires_unix_ms > 0 {
        lines.push(format!("  Expires: {}", utc(conflict.expires_unix_ms)));
    }
    lines.join("\n")
}
