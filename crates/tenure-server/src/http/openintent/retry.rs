//! Owns retry policies and failures over this door. Its clients count retries; the ledger counts attempts, the first included.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tenure_core::ledger::attempts::{FailedAttempt, ReportFailure, SetRetry};
use tenure_core::ledger::intents::GetIntent;
use tenure_core::limits::{ATTEMPTS_MAX, RETRY_DELAY_MS_MAX, TEXT_BYTES_MAX, TITLE_BYTES_MAX};
use tenure_core::retry::{Backoff, RetryRule};
use tenure_core::serial::IntentId;

use super::Door;
use super::body::{Body, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::model;
use crate::http::reply;

pub(crate) async fn set(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, actor: Actor, body: Body) -> Answer {
    let command = SetRetry {
        id,
        caller: actor.caller,
        rule: rule(&body)?,
        fallback: body.holder("fallback_agent_id")?,
        failure_threshold: number(&body, "failure_threshold", 3)?,
    };
    let policy = door.app.engine().apply(command).await??;
    Ok(model::ok(&model::retry_policy(id, &policy)))
}

fn rule(body: &Body) -> Result<RetryRule, No> {
    let retries = match body.text("strategy", TITLE_BYTES_MAX)? {
        Some("none") => 0,
        Some("fixed" | "exponential" | "linear") | None => {
            body.whole_or_null("max_retries", 0, u64::from(ATTEMPTS_MAX - 1))?.unwrap_or(3)
        }
        Some(_) => return Err(No::field("strategy", "one of none, fixed, exponential, linear")),
    };
    let backoff = match body.text("strategy", TITLE_BYTES_MAX)? {
        Some("fixed") => Backoff::Fixed,
        Some("linear") => Backoff::Linear,
        _ => Backoff::Exponential,
    };
    let delay =
        |name: &str, default: u64| Ok::<_, No>(body.whole_or_null(name, 0, RETRY_DELAY_MS_MAX)?.unwrap_or(default));
    let rule = RetryRule {
        backoff,
        base_delay_ms: delay("base_delay_ms", 1_000)?,
        max_delay_ms: delay("max_delay_ms", 60_000)?,
        max_attempts: u32::try_from(retries + 1).unwrap_or(ATTEMPTS_MAX),
    };
    rule.checked().map_err(|why| No::field("max_retries", why.to_string()))
}

fn number(body: &Body, name: &str, default: u32) -> Result<u32, No> {
    let number = body.whole_or_null(name, 1, u64::from(ATTEMPTS_MAX))?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).unwrap_or(default))
}

pub(crate) async fn get(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let intent = door.app.engine().apply(GetIntent { id, caller }).await??;
    let policy = intent.retry.as_ref().ok_or_else(|| No::not_found("retry policy"))?;
    Ok(model::ok(&model::retry_policy(id, policy)))
}

pub(crate) async fn record(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, actor: Actor, body: Body) -> Answer {
    let attempt = body.whole_or_null("attempt_number", 0, u64::from(u32::MAX))?;
    let agent = match body.holder("agent_id")? {
        // A failed attempt is over, and so are its leases: nobody reports it for a stranger.
        Some(named) => actor.named(named)?,
        None => actor.caller.holder.clone(),
    };
    let failed = FailedAttempt {
        agent,
        attempt: attempt.and_then(|number| u32::try_from(number).ok()),
        // The asynchronous client of the package has other names than the synchronous one.
        code: body.text("error_code", TITLE_BYTES_MAX)?.or(body.text("error_type", TITLE_BYTES_MAX)?).map(Into::into),
        message: body.text("error_message", TEXT_BYTES_MAX)?.map(Into::into),
        retry_at: body.time("retry_scheduled_at")?,
        metadata: body.object("metadata")?,
        is_final: body.get("recoverable") == Some(&Value::Bool(false)),
    };
    let failure = door.app.engine().apply(ReportFailure { id, caller: actor.caller, failed }).await??;
    Ok(reply::json(StatusCode::CREATED, &model::failure(id, &failure)))
}

pub(crate) async fn failures(State(door): State<Door>, Ids((id,)): Ids<(IntentId,)>, Looker(caller): Looker) -> Answer {
    let intent = door.app.engine().apply(GetIntent { id, caller }).await??;
    let views: Vec<Value> = intent.attempts.failures.iter().map(|one| model::failure(id, one)).collect();
    Ok(model::ok(&json!({ "failures": views })))
}
