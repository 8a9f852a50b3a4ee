use serde_json::Map;
use tenure_core::document::Refusal;
use tenure_core::event::EventKind;
use tenure_core::intent::Status;
use tenure_core::ledger::assign::{Assign, Untold};
use tenure_core::ledger::attempts::{FailedAttempt, ReportFailure, SetRetry};
use tenure_core::ledger::workflows::{GetWorkflow, RunWorkflow, WorkflowView};
use tenure_core::ledger::writes::{Expected, SetStatus};
use tenure_core::retry::{Backoff, RetryRule};
use tenure_core::serial::IntentId;
use tenure_core::workflow::{Graph, RunStatus, Step};

use crate::bench::{Bench, caller, holder};

fn step(name: &str, depends_on: &[&str], retry: RetryRule) -> Step {
    Step {
        name: name.into(),
        title: name.into(),
        description: String::new(),
        assign: Some(holder(&format!("{name}er"))),
        depends_on: depends_on.iter().map(|name| (*name).into()).collect(),
        retry,
        fallback: None,
        state: Map::new(),
        constraints: Map::new(),
    }
}

fn exponential(attempts: u32) -> RetryRule {
    RetryRule::new(Backoff::Exponential, 2_000, attempts).unwrap()
}

fn run(bench: &mut Bench, steps: Vec<Step>) -> WorkflowView {
    let graph = Graph::new(steps).unwrap();
    bench.apply(RunWorkflow { name: "w".into(), graph, created_by: holder("maker") }).unwrap()
}

fn view(bench: &mut Bench, run: &WorkflowView) -> WorkflowView {
    bench.apply(GetWorkflow { id: run.workflow.id, caller: caller("maker") }).unwrap()
}

fn finish(bench: &mut Bench, id: IntentId, status: Status) {
    let set = SetStatus { id, caller: caller("maker"), expected: Expected::Any, status, reason: None };
    bench.apply(set).unwrap();
}

fn statuses(view: &WorkflowView) -> Vec<Status> {
    view.steps.iter().map(|step| step.intent.status).collect()
}

fn failure(agent: &str) -> FailedAttempt {
    let message = Some("it broke".into());
    FailedAttempt {
        agent: holder(agent),
        attempt: None,
        code: None,
        message,
        retry_at: None,
        metadata: Map::new(),
        is_final: false,
    }
}

#[test]
fn t5_a_step_is_assigned_when_everything_before_it_is_completed() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("b", &["a"], RetryRule::NEVER), step("a", &[], RetryRule::NEVER)]);
    assert_eq!(statuses(&started), [Status::Draft, Status::Active]);
    assert!(bench.apply(Untold { agent: holder("ber") }).intents.is_empty());
    finish(&mut bench, started.steps[1].intent.id, Status::Completed);
    let after = view(&mut bench, &started);
    assert_eq!(statuses(&after), [Status::Active, Status::Completed]);
    assert_eq!(bench.apply(Untold { agent: holder("ber") }).intents.len(), 1);
    finish(&mut bench, started.steps[0].intent.id, Status::Completed);
    assert_eq!(view(&mut bench, &started).workflow.status, RunStatus::Completed);
}

#[test]
fn t4_an_agent_that_dies_has_its_step_retried_with_growing_delays_and_the_third_failure_fails_it() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(3)), step("b", &["a"], RetryRule::NEVER)]);
    let id = started.steps[0].intent.id;
    for (attempt, delay) in [(1, 2_000), (2, 4_000)] {
        bench.take(id, "*", "aer", 10).unwrap();
        bench.pass(10_000);
        let intent = bench.get(id);
        assert_eq!(intent.attempts.failed, attempt);
        assert_eq!(intent.attempts.next_at.unwrap().unix_ms(), bench.now + delay);
        bench.reopen();
        assert!(bench.apply(Untold { agent: holder("aer") }).intents.is_empty(), "not before its time");
        bench.pass(delay);
        let intent = bench.get(id);
        assert_eq!(intent.attempts.next_at, None);
        assert!(!intent.assignment(&holder("aer")).unwrap().told, "it is told again");
    }
    bench.take(id, "x", "aer", 10).unwrap();
    bench.pass(10_000);
    let after = view(&mut bench, &started);
    assert_eq!(statuses(&after), [Status::Abandoned, Status::Blocked]);
    assert_eq!(after.workflow.status, RunStatus::Failed);
    assert_eq!(bench.count(EventKind::IntentFailed), 3);
    assert_eq!(bench.count(EventKind::WorkflowEnded), 1);
}

#[test]
fn t4_a_lease_within_another_that_expires_with_it_is_one_failure() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(5))]);
    let id = started.steps[0].intent.id;
    bench.take(id, "*", "aer", 10).unwrap();
    bench.take(id, "x", "aer", 60).unwrap();
    bench.pass(10_000);
    assert_eq!(bench.get(id).attempts.failed, 1);
}

#[test]
fn t4_a_reported_failure_ends_the_attempts_leases_in_the_same_turn() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(3))]);
    let id = started.steps[0].intent.id;
    bench.take(id, "*", "aer", 600).unwrap();
    let report = ReportFailure { id, caller: caller("aer"), failed: failure("aer") };
    let failure = bench.apply(report).unwrap();
    assert_eq!(failure.retry_at.unwrap().unix_ms(), bench.now + 2_000);
    assert_eq!(bench.count(EventKind::LeaseReleased), 1);
    assert!(view(&mut bench, &started).steps[0].lease.is_none());
    bench.pass(2_000);
    let said = bench.events.iter().rfind(|event| event.kind == EventKind::IntentAssigned).unwrap();
    let said: serde_json::Value = serde_json::from_str(said.data.as_ref().unwrap().get()).unwrap();
    assert_eq!((said["retry_attempt"].as_u64(), said["last_error"].as_str()), (Some(1), Some("it broke")));
}

/// Reports a failure of attempt `number`, if one is said; gives how many have failed then.
fn report(bench: &mut Bench, id: IntentId, agent: &str, number: Option<u32>) -> u32 {
    let failed = FailedAttempt { attempt: number, ..failure(agent) };
    let kept = bench.apply(ReportFailure { id, caller: caller(agent), failed }).unwrap();
    assert_eq!(bench.get(id).attempts.failures.back(), Some(&kept), "it is kept in any case");
    bench.get(id).attempts.failed
}

#[test]
fn t4_a_lost_attempt_that_its_agent_also_reports_counts_once() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(3))]);
    let id = started.steps[0].intent.id;
    bench.take(id, "*", "aer", 1).unwrap();
    bench.pass(1_000);
    let next_at = bench.get(id).attempts.next_at;
    assert_eq!(report(&mut bench, id, "aer", None), 1, "while the next attempt is waited for");
    assert_eq!(bench.get(id).attempts.next_at, next_at);
    assert_eq!(bench.get(id).attempts.failures.back().unwrap().retry_at, next_at);
    bench.pass(2_000);
    bench.take(id, "*", "aer", 1).unwrap();
    bench.pass(1_000 + 4_000);
    bench.reopen();
    assert_eq!(report(&mut bench, id, "aer", None), 2, "and when it has come, before anyone has begun");
    assert_eq!(view(&mut bench, &started).workflow.status, RunStatus::Running);
    assert_eq!(report(&mut bench, id, "aer", None), 3, "the next report is about the third");
    assert_eq!(view(&mut bench, &started).workflow.status, RunStatus::Failed);
}

#[test]
fn t4_a_late_report_of_one_attempt_ends_neither_the_next_one_nor_its_lease() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(3))]);
    let id = started.steps[0].intent.id;
    bench.take(id, "*", "aer", 1).unwrap();
    bench.pass(3_000);
    let second = bench.take(id, "*", "aer", 600).unwrap();
    let events = bench.events.len();
    assert_eq!(report(&mut bench, id, "aer", Some(1)), 1);
    let kinds: Vec<_> = bench.events[events..].iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::IntentFailed], "the log shows it");
    let lease = view(&mut bench, &started).steps[0].lease.clone();
    assert_eq!(lease.map(|lease| lease.token), Some(second.token));
    assert_eq!(report(&mut bench, id, "aer", Some(2)), 2, "its own report does");
    assert_eq!(bench.count(EventKind::LeaseReleased), 1);
}

#[test]
fn t4_an_agent_that_gives_its_lease_back_before_it_reports_is_heard_also_after_a_loss() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(3))]);
    let id = started.steps[0].intent.id;
    bench.take(id, "*", "aer", 1).unwrap();
    bench.pass(3_000);
    let second = bench.take(id, "*", "aer", 600).unwrap();
    bench.reopen();
    bench.apply(tenure_core::command::Release { token: second.token, holder: holder("aer") });
    assert_eq!(report(&mut bench, id, "aer", None), 2, "nobody reported the first, and this is about the second");
}

#[test]
fn t4_a_report_of_one_who_does_not_do_the_work_changes_nothing() {
    let mut bench = Bench::new();
    let mut first = step("a", &[], exponential(2));
    first.fallback = Some(holder("spare"));
    let started = run(&mut bench, vec![first]);
    let id = started.steps[0].intent.id;
    assert_eq!(report(&mut bench, id, "stranger", None), 0);
    for attempt in 1..=2 {
        bench.take(id, "*", "aer", 60).unwrap();
        assert_eq!(report(&mut bench, id, "aer", Some(attempt)), attempt);
        bench.pass(2_000);
    }
    let lease = bench.take(id, "*", "spare", 600).unwrap();
    assert_eq!(report(&mut bench, id, "aer", None), 2, "another has taken over");
    assert_eq!(view(&mut bench, &started).steps[0].lease.clone().map(|lease| lease.token), Some(lease.token));
    assert_eq!(report(&mut bench, id, "spare", Some(1)), 3, "the fallback counts from one again");
}

#[test]
fn t4_an_agent_that_takes_no_lease_can_report_every_attempt() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(3))]);
    let id = started.steps[0].intent.id;
    for (attempt, number, delay) in [(1, Some(0), 2_000), (2, Some(2), 4_000), (3, None, 0)] {
        assert_eq!(report(&mut bench, id, "aer", number), attempt);
        bench.pass(delay);
    }
    assert_eq!(view(&mut bench, &started).workflow.status, RunStatus::Failed);
}

#[test]
fn t4_a_failure_that_the_agent_calls_final_is_not_retried() {
    let mut bench = Bench::new();
    let started = run(&mut bench, vec![step("a", &[], exponential(5))]);
    let id = started.steps[0].intent.id;
    let failed = FailedAttempt { is_final: true, ..failure("aer") };
    let reported = bench.apply(ReportFailure { id, caller: caller("aer"), failed }).unwrap();
    assert_eq!(reported.retry_at, None);
    assert_eq!(view(&mut bench, &started).workflow.status, RunStatus::Failed);
}

#[test]
fn the_fallback_takes_over_in_one_step_when_the_agent_fails_too_often() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let assign = Assign { id, caller: caller("maker"), agent: holder("w"), role: "worker".into(), delegated_by: None };
    bench.apply(assign).unwrap();
    let policy = SetRetry {
        id,
        caller: caller("maker"),
        rule: exponential(10),
        fallback: Some(holder("f")),
        failure_threshold: 2,
    };
    bench.apply(policy).unwrap();
    bench.take(id, "x", "w", 600).unwrap();
    bench.apply(ReportFailure { id, caller: caller("w"), failed: failure("w") }).unwrap();
    bench.pass(2_000);
    bench.take(id, "x", "w", 600).unwrap();
    let before = bench.events.len();
    bench.apply(ReportFailure { id, caller: caller("w"), failed: failure("w") }).unwrap();
    let kinds: Vec<_> = bench.events[before..].iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::IntentFailed, EventKind::LeaseReleased, EventKind::IntentAssigned]);
    let agents: Vec<_> = bench.get(id).assigned.iter().map(|one| one.agent.as_str().to_owned()).collect();
    assert_eq!(agents, ["f"]);
}

#[test]
fn a_plain_intent_without_a_policy_only_records_the_failure() {
    let mut bench = Bench::new();
    let id = bench.intent();
    bench.take(id, "x", "w", 600).unwrap();
    bench.apply(ReportFailure { id, caller: caller("w"), failed: failure("w") }).unwrap();
    assert_eq!(bench.count(EventKind::LeaseReleased), 0);
    assert_eq!(bench.get(id).attempts.failures.len(), 1);
    finish(&mut bench, id, Status::Abandoned);
    let late = bench.apply(ReportFailure { id, caller: caller("w"), failed: failure("w") });
    assert!(matches!(late, Err(Refusal::Finished(_))));
}

#[test]
fn t5_a_run_whose_state_does_not_fit_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let mut large = step("b", &["a"], RetryRule::NEVER);
    large.state.insert("x".into(), "y".repeat(tenure_core::limits::STATE_BYTES_MAX).into());
    let graph = Graph::new(vec![step("a", &[], RetryRule::NEVER), large]).unwrap();
    let before = bench.events.len();
    assert!(bench.apply(RunWorkflow { name: "w".into(), graph, created_by: holder("maker") }).is_err());
    assert_eq!(bench.events.len(), before);
}
