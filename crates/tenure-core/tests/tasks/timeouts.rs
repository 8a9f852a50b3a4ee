//! T4: time limits and what follows them.

use serde_json::json;
use tenure_core::event::EventKind;
use tenure_core::flow::FlowStatus;
use tenure_core::retry::{Backoff, RetryRule};
use tenure_core::task::command::{Act, Outcome, Poll, Polled};
use tenure_core::task::{Policy, RateLimit, Status, TaskRules};

use crate::shop::{Shop, end, give_back, line, poll, work};

fn shop(change: impl FnOnce(&mut TaskRules)) -> Shop {
    let mut shop = Shop::new();
    shop.define_task("a", change);
    shop.define(line("wf", vec![work("a")]));
    shop
}

#[test]
fn t4_a_silent_worker_loses_its_task_to_a_new_attempt_with_a_new_id() {
    let mut shop = shop(|_| {});
    let flow = shop.start("wf", json!({}));
    let first = shop.poll("a", "w1").unwrap();
    shop.after(10_999);
    assert_eq!(shop.view(flow).tasks[0].task.status, Status::InProgress);
    shop.after(1);
    let tasks = shop.view(flow).tasks;
    assert_eq!((tasks[0].task.status, tasks[0].task.retried), (Status::TimedOut, true));
    let reason = format!("responseTimeout: 10 exceeded for the taskId: {} with Task Definition: a", first.task.id);
    assert_eq!(tasks[0].task.reason(), Some(&*reason));
    assert_eq!((tasks[1].task.retry_of(), tasks[1].task.retries), (Some(first.task.id), 1));
    assert!(shop.poll("a", "w2").is_none(), "after its delay");
    let second = shop.after(5_000).poll("a", "w2").expect("the retry");
    assert_ne!(second.task.id, first.task.id);
    assert_eq!(shop.done(first.task.id, "w1"), Outcome::Late, "the late result is not taken");
    assert_eq!(shop.update(first.task.id, "", Act::Beat), Outcome::Late, "nor does a heartbeat revive it");
    assert_eq!(shop.done(second.task.id, "w2"), Outcome::Taken);
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn t4_a_result_at_the_moment_of_expiry_is_late() {
    let mut shop = shop(|_| {});
    shop.start("wf", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    shop.now += 11_000;
    assert_eq!(shop.done(task.task.id, "w1"), Outcome::Late, "no timer has run, and it counts all the same (L4)");
}

#[test]
fn t4_when_no_attempt_is_left_the_workflow_ends_with_the_reason() {
    for (status, ends) in [(Status::Failed, FlowStatus::Failed), (Status::FailedWithTerminalError, FlowStatus::Failed)]
    {
        let mut shop = shop(|_| {});
        let flow = shop.start("wf", json!({}));
        let mut attempts = 0;
        while let Some(task) = shop.poll("a", "w") {
            shop.update(task.task.id, "w", end(status, json!({ "n": attempts })));
            attempts += 1;
            shop.after(5_000);
        }
        assert_eq!(attempts, if status == Status::Failed { 3 } else { 1 });
        let archived = shop.archived(flow);
        assert_eq!(archived.flow.status, ends);
        let reason = archived.flow.reason.unwrap();
        assert!(reason.contains("failed with status: FAILED and reason: 'it did not work'"), "{reason}");
        assert_eq!(archived.flow.failed, ["a".into()]);
    }
}

#[test]
fn t4_silence_in_every_attempt_times_the_workflow_out() {
    let mut shop = shop(|_| {});
    let flow = shop.start("wf", json!({}));
    for _ in 0..3 {
        assert!(shop.poll("a", "w").is_some());
        shop.after(16_000);
    }
    assert_eq!(shop.status(flow), FlowStatus::TimedOut);
}

#[test]
fn t4_retries_wait_as_their_rule_says() {
    for (backoff, delays) in [
        (Backoff::Fixed, [2_000, 2_000, 2_000]),
        (Backoff::Linear, [2_000, 4_000, 6_000]),
        (Backoff::Exponential, [2_000, 4_000, 5_000]),
    ] {
        let mut shop = shop(|rules| {
            let rule = RetryRule::new(backoff, 2_000, 4).unwrap();
            rules.retry =
                RetryRule { max_delay_ms: if backoff == Backoff::Exponential { 5_000 } else { 60_000 }, ..rule };
        });
        shop.start("wf", json!({}));
        for delay in delays {
            let task = shop.poll("a", "w").unwrap();
            shop.fail(task.task.id, "w");
            assert!(shop.after(delay - 1).poll("a", "w").is_none(), "{backoff:?} {delay}");
            shop.after(1);
        }
        assert!(shop.poll("a", "w").is_some());
    }
}

#[test]
fn t4_an_attempt_is_bounded_whatever_heartbeats_and_yields_say() {
    for (policy, ends) in [(Policy::Retry, None), (Policy::FailWorkflow, Some(FlowStatus::TimedOut))] {
        let mut shop = shop(|rules| (rules.attempt_s, rules.policy) = (30, policy));
        let flow = shop.start("wf", json!({}));
        let task = shop.poll("a", "w").unwrap();
        shop.after(9_000).update(task.task.id, "w", Act::Beat);
        shop.after(9_000).update(task.task.id, "w", give_back(2));
        let task = shop.after(2_000).poll("a", "w").unwrap();
        shop.after(9_000).update(task.task.id, "w", Act::Beat);
        shop.after(999);
        assert_eq!(shop.status(flow), FlowStatus::Running);
        shop.after(1);
        assert_eq!(shop.done(task.task.id, "w"), Outcome::Late);
        match ends {
            Some(ends) => assert_eq!(shop.status(flow), ends),
            None => assert!(shop.after(5_000).poll("a", "w").is_some(), "the next attempt"),
        }
    }
}

#[test]
fn t4_the_policy_that_only_tells_tells_once_and_lets_the_task_go_on() {
    let mut shop = shop(|rules| (rules.attempt_s, rules.policy) = (30, Policy::AlertOnly));
    let flow = shop.start("wf", json!({}));
    let task = shop.poll("a", "w").unwrap();
    for _ in 0..10 {
        shop.after(9_000).update(task.task.id, "w", Act::Beat);
    }
    assert_eq!(shop.of_kind(EventKind::TaskOverdue).len(), 1);
    assert_eq!(shop.done(task.task.id, "w"), Outcome::Taken);
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn t4_all_attempts_together_are_bounded() {
    let mut shop = shop(|rules| (rules.total_s, rules.policy) = (40, Policy::Retry));
    let flow = shop.start("wf", json!({}));
    shop.poll("a", "w").unwrap();
    shop.after(16_000).poll("a", "w").unwrap();
    shop.after(16_000).poll("a", "w").unwrap();
    shop.after(7_999);
    assert_eq!(shop.status(flow), FlowStatus::Running);
    shop.after(1);
    assert_eq!(shop.status(flow), FlowStatus::TimedOut);
    let archived = shop.archived(flow);
    assert!(archived.tasks.last().unwrap().reason().unwrap().contains("exceeded total timeout of 40 seconds"));
}

#[test]
fn t4_waiting_for_a_worker_is_bounded_and_counts_from_when_the_task_became_visible() {
    let mut shop = shop(|rules| (rules.poll_s, rules.policy) = (20, Policy::Retry));
    let flow = shop.start("wf", json!({}));
    let task = shop.after(19_000).poll("a", "w").unwrap();
    shop.after(5_000).update(task.task.id, "w", give_back(10));
    shop.after(29_999);
    assert_eq!(shop.view(flow).tasks.len(), 1, "ten seconds hidden, twenty visible");
    shop.after(1);
    let tasks = shop.view(flow).tasks;
    assert_eq!((tasks[0].task.status, tasks.len()), (Status::TimedOut, 2));
}

#[test]
fn t4_a_run_is_bounded_by_its_workflow() {
    for ends in [true, false] {
        let mut shop = Shop::new();
        let mut plan = line("wf", vec![work("a")]);
        (plan.timeout_s, plan.timeout_ends) = (60, ends);
        shop.define(plan);
        let flow = shop.start("wf", json!({}));
        let task = shop.poll("a", "w").unwrap();
        shop.after(59_999);
        assert_eq!(shop.status(flow), FlowStatus::Running);
        shop.after(1);
        if ends {
            assert_eq!(shop.status(flow), FlowStatus::TimedOut);
            assert_eq!(shop.done(task.task.id, "w"), Outcome::Late);
        } else {
            assert_eq!(shop.of_kind(EventKind::FlowOverdue).len(), 1);
            assert_eq!(shop.done(task.task.id, "w"), Outcome::Taken);
        }
    }
}

#[test]
fn no_more_tasks_of_a_name_run_than_its_definition_allows() {
    let mut shop = shop(|rules| rules.concurrent_max = Some(2));
    for _ in 0..4 {
        shop.start("wf", json!({}));
    }
    let first = shop.poll("a", "w1").unwrap();
    assert!(shop.poll("a", "w2").is_some() && shop.poll("a", "w3").is_none());
    assert!(matches!(shop.apply(Poll { wait_ms: 5_000, ..poll("a", "w4") }), Polled::Queued(_)));
    shop.done(first.task.id, "w1");
    assert_eq!(shop.polled.len(), 1, "the poll that waited is served when a place is free");
    assert!(shop.poll("a", "w5").is_none());
    shop.after(11_000);
    assert!(shop.poll("a", "w5").is_some(), "silence frees a place too");
}

#[test]
fn no_more_tasks_of_a_name_start_in_a_while_than_its_definition_allows() {
    let mut shop = shop(|rules| rules.rate = Some(RateLimit { count: 2, seconds: 3 }));
    for _ in 0..4 {
        shop.start("wf", json!({}));
    }
    assert!(shop.poll("a", "w").is_some());
    assert!(shop.after(1_000).poll("a", "w").is_some());
    assert!(matches!(shop.apply(Poll { wait_ms: 5_000, ..poll("a", "w") }), Polled::Queued(_)));
    assert_eq!(shop.after(1_999).polled.len(), 0);
    assert_eq!(shop.after(1).polled.len(), 1, "as soon as the window moves on");
    assert!(shop.poll("a", "w").is_none());
    assert!(shop.after(1_000).poll("a", "w").is_some());
}
