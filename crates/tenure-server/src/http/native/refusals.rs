//! Owns the words for what the ledger refuses, for readers who must decide what to do next (L14). No text here names a way
//! to take a lease from its holder (L10).

use serde_json::{Value, json};
use tenure_core::refusal::{Blocker, Conflict, Refusal};
use tenure_core::{Holder, LeaseId, Timestamp};

use super::model::ConflictView;
use crate::engine::{Ended, Lost};
use crate::http::error::{Code, Problem};
use crate::http::reply::At;

/// When to ask again for something whose end is not known.
const RETRY_MS_UNKNOWN: u64 = 1_000;

/// A refusal of the ledger at `now`.
pub(crate) fn refused(refusal: Refusal, now: Timestamp) -> Problem {
    match refusal {
        Refusal::Held(conflict) => {
            let next = match conflict.is_own {
                true => "that lease is your own: renew it, release it, or name it in `within`",
                false => "ask again after retry_after_ms, or wait in line with wait_seconds",
            };
            let detail = format!("{}; {next}", in_words(&conflict));
            with_conflict(Problem::new(Code::Held, detail), &conflict, now)
        }
        Refusal::WaitTimedOut(conflict) => {
            let detail = format!("the wait ran out: {}", in_words(&conflict));
            with_conflict(Problem::new(Code::WaitTimedOut, detail), &conflict, now)
        }
        Refusal::WouldDeadlock { cycle } => {
            let names = cycle.iter().map(Holder::as_str).collect::<Vec<_>>();
            let detail = format!(
                "each of these waits for something the next one holds: {}; release what you hold before you wait",
                names.join(", ")
            );
            Problem::new(Code::WouldDeadlock, detail).with("cycle", names)
        }
        Refusal::NotHolder { holder } => not_holder(&holder),
        Refusal::NoResources => Problem::field("resources", "name at least one resource"),
        Refusal::LimitReached { what, max } => {
            Problem::new(Code::LimitReached, format!("{what}: at most {max}")).with("limit", what).with("max", max)
        }
        Refusal::WithinOver => {
            let detail = "the lease named in `within` is over or was never granted; acquire it again first";
            Problem::new(Code::WithinOver, detail)
        }
        Refusal::AgentLeaving { holder, status } => {
            let detail = format!("{holder} is {} and gets no new leases; register it again first", status.as_str());
            Problem::new(Code::AgentLeaving, detail)
                .with("holder", holder.as_str())
                .with("agent_status", status.as_str())
        }
        Refusal::IntentFinished { status } => {
            let detail = format!("the intent is {} and takes no more leases", status.as_str());
            Problem::new(Code::IntentFinished, detail).with("intent_status", status.as_str())
        }
        Refusal::NotAllowed { holder, intent, needs } => {
            let detail = format!(
                "the access list of {intent} does not let {holder} {} it; those who may administer it can grant that",
                needs.as_str()
            );
            Problem::new(Code::Forbidden, detail).with("intent", intent.to_string())
        }
        Refusal::KeyReused => {
            let detail = "this Idempotency-Key was used for a different request; use a new key for a new request";
            Problem::new(Code::KeyReused, detail)
        }
    }
}

/// The lease is someone else's.
pub(crate) fn not_holder(holder: &Holder) -> Problem {
    Problem::new(Code::NotHolder, format!("the lease belongs to {holder}; nothing was changed"))
        .with("holder", holder.as_str())
}

/// There is no such lease.
pub(crate) fn unknown(id: &str) -> Problem {
    Problem::new(
        Code::UnknownLease,
        format!("no lease {id} is known: it was never granted, or its history is no longer kept"),
    )
}

/// The lease is over.
pub(crate) fn lost(id: LeaseId, lost: &Lost) -> Problem {
    let problem = Problem::new(Code::Lost, lost_in_words(id, lost));
    let fields = lost_fields(lost);
    fields.into_iter().fold(problem, |problem, (name, value)| problem.with(name, value))
}

/// What a program can act on when a lease is lost.
pub(crate) fn lost_fields(lost: &Lost) -> Vec<(&'static str, Value)> {
    let Ended(event) = &lost.ended;
    vec![
        ("reason", event.kind.end().map(|end| end.as_str()).into()),
        ("ended_at", At(event.at).into()),
        ("holder", event.holder.as_ref().map(Holder::as_str).into()),
        ("note", event.reason.as_deref().into()),
        ("current", lost.current.as_ref().map_or(Value::Null, conflict_value)),
    ]
}

fn lost_in_words(id: LeaseId, lost: &Lost) -> String {
    use tenure_core::lease::End;
    let Ended(event) = &lost.ended;
    let at = At(event.at);
    let how = match event.kind.end() {
        Some(End::Released) => format!("{id} was released at {at}"),
        Some(End::Revoked) => format!("{id} was taken back by an administrator at {at}"),
        Some(End::Expired) | None => format!("{id} expired at {at} because no renewal came in time"),
    };
    let note = event.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let next = match &lost.current {
        Some(conflict) => in_words(conflict),
        None => "nobody holds it now; acquire it again to go on".to_owned(),
    };
    format!("{how}{note}: stop the work that relied on it; {next}")
}

fn with_conflict(problem: Problem, conflict: &Conflict, now: Timestamp) -> Problem {
    let retry_ms = conflict.blocker.until().map_or(RETRY_MS_UNKNOWN, |until| until.ms_since(now));
    problem.with("conflict", conflict_value(conflict)).retry_after_ms(retry_ms)
}

fn conflict_value(conflict: &Conflict) -> Value {
    // Plain strings and numbers: this cannot fail, and a refusal without its conflict is still a refusal.
    serde_json::to_value(ConflictView::from(conflict)).unwrap_or(json!(null))
}

/// Who or what is in the way, as one clause.
fn in_words(conflict: &Conflict) -> String {
    let Conflict { resource, overlap, blocker, waiting, .. } = conflict;
    let what = if resource == overlap { resource.to_string() } else { format!("{resource} (as part of {overlap})") };
    let who = match blocker {
        Blocker::Lease { holder, expires_at, .. } => format!("{what} is held by {holder} until {}", At(*expires_at)),
        Blocker::Closure { holder, until, .. } => {
            format!("{what} stays closed until {} after {holder} lost it", At(*until))
        }
        Blocker::Waiter { holder } => format!("{holder} is first in line for {what}"),
    };
    match waiting {
        0 => who,
        1 => format!("{who} and 1 waits for it"),
        many => format!("{who} and {many} wait for it"),
    }
}
