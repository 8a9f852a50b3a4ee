//! Owns what happens when an attempt at an intent fails (T4): it is recorded, tried again by the intent's rule, passed on to
//! the fallback agent, or given up.
//!
//! An agent reports a failure; an attempt at a step of a workflow also fails when the assigned agent loses its lease. A failed
//! attempt is over: the leases it had on the intent end with it, in the same commit. It counts once: a report about an attempt
//! that is over is kept as history and changes nothing else, neither the count nor the attempt that runs now.

use serde_json::{Map, Value, json};

use crate::access::{Caller, Permission};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::EventKind;
use crate::intent::{Failure, Intent, RetryPolicy, Status};
use crate::lease::{End, Lease};
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::FAILURES_KEPT_MAX;
use crate::retry::RetryRule;
use crate::serial::{FailureId, IntentId};
use crate::{Holder, Timestamp};

/// Say what happens when attempts at an intent fail.
#[derive(Debug, Clone)]
pub struct SetRetry {
    /// Which intent.
    pub id: IntentId,
    /// Who.
    pub caller: Caller,
    /// When it is tried again.
    pub rule: RetryRule,
    /// Who takes over.
    pub fallback: Option<Holder>,
    /// After how many failures.
    pub failure_threshold: u32,
}

impl Command for SetRetry {
    type Reply = Result<RetryPolicy, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        let policy = RetryPolicy {
            rule: self.rule,
            fallback: self.fallback,
            failure_threshold: self.failure_threshold,
            created_at: intent.retry.as_ref().map_or(turn.now(), |policy| policy.created_at),
            updated_at: turn.now(),
        };
        let mut changed = Intent::clone(&intent);
        changed.retry = Some(policy.clone());
        ledger.put_intent(turn, changed);
        Ok(policy)
    }
}

/// Report that an attempt failed.
#[derive(Debug, Clone)]
pub struct ReportFailure {
    /// At which intent.
    pub id: IntentId,
    /// Who reports.
    pub caller: Caller,
    /// What failed.
    pub failed: FailedAttempt,
}

/// An attempt that failed.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// Whose.
    pub agent: Holder,
    /// Which, as the agent counts; nothing takes the ledger's count.
    pub attempt: Option<u32>,
    /// A short name for what went wrong.
    pub code: Option<Box<str>>,
    /// What went wrong.
    pub message: Option<Box<str>>,
    /// When the agent means to try again by itself.
    pub retry_at: Option<Timestamp>,
    /// The agent's own notes.
    pub metadata: Map<String, Value>,
    /// Another try by the same agent would be in vain.
    pub is_final: bool,
}

impl Command for ReportFailure {
    type Reply = Result<Failure, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        if intent.status.is_finished() {
            return Err(Refusal::Finished(intent.status));
        }
        let by = &self.caller.holder;
        let is_under_way = ledger.is_under_way(&intent, &self.failed);
        let mut intent = Intent::clone(&intent);
        intent.attempts.unreported.take_if(|agent| *agent == self.failed.agent);
        Ok(match is_under_way {
            true => ledger.fail_attempt(turn, &intent, self.failed, by),
            false => ledger.note_late_failure(turn, &intent, self.failed, by),
        })
    }
}

/// What follows a failed attempt.
enum Next {
    /// Another attempt by the same agent.
    Retry(Timestamp),
    /// The fallback takes over.
    Fallback(Holder),
    /// No more attempts.
    GiveUp,
    /// Nobody said.
    Nothing,
}

impl Ledger {
    /// Whether a report is about the attempt that is under way. An attempt at a step is the assigned agent's lease, so what
    /// the agent holds tells, and the number if it says one. On other intents nothing but a report ends an attempt.
    fn is_under_way(&self, intent: &Intent, failed: &FailedAttempt) -> bool {
        if intent.workflow.is_none() {
            return true;
        }
        let holds = |agent: &Holder| self.leases_on(intent.id, agent).next().is_some();
        let attempts = &intent.attempts;
        // Some count from nought; nothing comes before the first attempt.
        let is_earlier = failed.attempt.is_some_and(|number| number.max(1) <= attempts.failed_by_agent);
        // Until the next attempt begins there is none that could fail.
        if is_earlier || attempts.next_at.is_some() {
            return false;
        }
        if holds(&failed.agent) {
            return true;
        }
        let is_its_turn = intent.assigned.is_empty() || intent.assignment(&failed.agent).is_some();
        let is_anothers = intent.assigned.iter().any(|assignment| holds(&assignment.agent));
        let is_owed = failed.attempt.is_none() && attempts.unreported.as_ref() == Some(&failed.agent);
        is_its_turn && !is_anothers && !is_owed
    }

    pub(crate) fn fail_attempt(
        &mut self,
        turn: &mut Turn<'_>,
        intent: &Intent,
        failed: FailedAttempt,
        by: &Holder,
    ) -> Failure {
        let agent = failed.agent.clone();
        let mut changed = intent.clone();
        changed.attempts.failed += 1;
        changed.attempts.failed_by_agent += 1;
        let next = next_of(&changed, &agent, failed.is_final, turn.now());
        let retry_at = match next {
            Next::Retry(at) => Some(at),
            _ => failed.retry_at,
        };
        let failure = self.keep_failure(turn, &mut changed, FailedAttempt { retry_at, ..failed });
        changed.attempts.last_error = failure.message.clone().or_else(|| failure.code.clone());
        let said = json!({
            "failure": failure,
            "failed_attempts": changed.attempts.failed,
            "fallback_triggered": matches!(next, Next::Fallback(_)),
            "gave_up": matches!(next, Next::GiveUp),
        });
        self.tell(turn, EventKind::IntentFailed, intent, by, said);
        self.follow(turn, changed, &agent, next, by);
        failure
    }

    /// Keeps what is reported about an attempt that is over.
    fn note_late_failure(
        &mut self,
        turn: &mut Turn<'_>,
        intent: &Intent,
        failed: FailedAttempt,
        by: &Holder,
    ) -> Failure {
        let mut changed = intent.clone();
        let retry_at = intent.attempts.next_at.or(failed.retry_at);
        let failure = self.keep_failure(turn, &mut changed, FailedAttempt { retry_at, ..failed });
        let said = json!({ "failure": failure, "failed_attempts": changed.attempts.failed, "late": true });
        self.tell(turn, EventKind::IntentFailed, intent, by, said);
        self.put_intent(turn, changed);
        failure
    }

    /// Adds a failure to those that the intent keeps.
    fn keep_failure(&self, turn: &Turn<'_>, intent: &mut Intent, failed: FailedAttempt) -> Failure {
        let attempts = &mut intent.attempts;
        let failure = Failure {
            id: FailureId(self.serial()),
            agent: failed.agent,
            attempt: failed.attempt.unwrap_or(attempts.failed),
            code: failed.code,
            message: failed.message,
            retry_at: failed.retry_at,
            metadata: failed.metadata,
            at: turn.now(),
        };
        attempts.failures.push_back(failure.clone());
        if attempts.failures.len() > FAILURES_KEPT_MAX {
            attempts.failures.pop_front();
        }
        failure
    }

    /// Does what follows, in the same commit as the failure.
    fn follow(&mut self, turn: &mut Turn<'_>, mut intent: Intent, agent: &Holder, next: Next, by: &Holder) {
        if !matches!(next, Next::Nothing) || intent.workflow.is_some() {
            let tokens: Vec<_> = self.leases_on(intent.id, agent).map(|lease| lease.token).collect();
            for token in tokens {
                self.end_because(turn, token, End::Released, "the attempt failed");
            }
        }
        match next {
            Next::Nothing => drop(self.put_intent(turn, intent)),
            Next::Retry(at) => {
                intent.attempts.next_at = Some(at);
                intent.attempts.next_agent = Some(agent.clone());
                self.deadlines.push_again(at, Due::Retry(intent.id));
                self.put_intent(turn, intent);
            }
            Next::Fallback(fallback) => {
                intent.attempts.failed_by_agent = 0;
                let role = intent.assignment(agent).map_or("worker".into(), |assignment| assignment.role.clone());
                intent.assigned.retain(|assignment| assignment.agent != *agent);
                let assignment = self.assignment(turn, fallback, role, Some(agent.clone()));
                self.assign(turn, &intent, assignment, by);
            }
            Next::GiveUp if intent.workflow.is_some() => {
                let intent = self.put_intent(turn, intent);
                let reason = format!("attempt {} of {} failed", intent.attempts.failed, intent.attempts.failed);
                self.set_status(turn, &intent, Status::Abandoned, by, Some(reason.into()));
            }
            Next::GiveUp => drop(self.put_intent(turn, intent)),
        }
    }

    /// The time for another attempt has come: the agent is told again.
    pub(crate) fn retry(&mut self, turn: &mut Turn<'_>, id: IntentId) {
        let Some(intent) = self.intents.get(id) else { return };
        let mut changed = Intent::clone(intent);
        changed.attempts.next_at = None;
        match changed.attempts.next_agent.take() {
            Some(agent) if changed.assignment(&agent).is_some() => {
                let role = changed.assignment(&agent).map_or("worker".into(), |assignment| assignment.role.clone());
                let assignment = self.assignment(turn, agent.clone(), role, None);
                self.assign(turn, &changed, assignment, &agent);
            }
            _ => drop(self.put_intent(turn, changed)),
        }
    }

    /// A new lease of a step's agent is its next attempt: what it reports from here on is about this one.
    pub(crate) fn attempt_begins(&mut self, turn: &mut Turn<'_>, lease: &Lease) {
        let Some(intent) = self.intent_of(lease).and_then(|id| self.intents.get(id)) else { return };
        if intent.attempts.unreported.as_ref() == Some(&lease.holder) {
            let mut intent = Intent::clone(intent);
            intent.attempts.unreported = None;
            self.put_intent(turn, intent);
        }
    }

    /// The loss of the lease of a step's agent is the failure of its attempt.
    pub(crate) fn fail_lost_attempt(&mut self, turn: &mut Turn<'_>, lease: &Lease, end: End) {
        let intent = self.intent_of(lease).and_then(|id| self.intents.get(id)).cloned();
        let Some(intent) = intent.filter(|intent| is_attempt(intent, &lease.holder)) else { return };
        let mut intent = Intent::clone(&intent);
        intent.attempts.unreported = Some(lease.holder.clone());
        let failed = FailedAttempt {
            agent: lease.holder.clone(),
            attempt: None,
            code: Some(format!("lease_{}", end.as_str()).into()),
            message: Some(format!("the lease of {} was {}", lease.holder, end.as_str()).into()),
            retry_at: None,
            metadata: Map::new(),
            is_final: false,
        };
        self.fail_attempt(turn, &intent, failed, &lease.holder);
    }
}

/// Whether a lease of this holder is an attempt at a step that is under way.
fn is_attempt(intent: &Intent, holder: &Holder) -> bool {
    intent.workflow.is_some()
        && !intent.status.is_finished()
        && intent.attempts.next_at.is_none()
        && intent.assignment(holder).is_some()
}

fn next_of(intent: &Intent, agent: &Holder, is_final: bool, now: Timestamp) -> Next {
    let Some(policy) = &intent.retry else { return Next::Nothing };
    let delay = policy.rule.delay_after(intent.attempts.failed, 0).filter(|_| !is_final);
    let is_enough = delay.is_none() || intent.attempts.failed_by_agent >= policy.failure_threshold;
    match (&policy.fallback, delay) {
        (Some(fallback), _) if is_enough && fallback != agent => Next::Fallback(fallback.clone()),
        (_, Some(delay)) => Next::Retry(now.plus_ms(delay)),
        (_, None) => Next::GiveUp,
    }
}
