//! Pause, resume, terminate, skip; retry, restart, rerun.

use serde_json::json;
use tenure_core::event::EventKind;
use tenure_core::flow::command::{Again, Answer, FlowRefusal, Steer};
use tenure_core::flow::{FlowStatus, Op};
use tenure_core::id::TaskId;
use tenure_core::task::Status;
use tenure_core::task::command::{Outcome, TaskView};

use crate::operators::{follow, shop};
use crate::shop::{Shop, line, plan, step, work};

fn three() -> Shop {
    let mut shop = Shop::new();
    for name in ["a", "b", "c"] {
        shop.define_task(name, |_| {});
    }
    shop.define(line("wf", vec![work("a"), work("b"), work("c")]));
    shop
}

#[test]
fn a_paused_run_schedules_nothing_new_and_goes_on_where_it_was_also_after_a_restart() {
    let mut shop = three();
    let flow = shop.start("wf", json!({}));
    let a = shop.poll("a", "w").unwrap();
    shop.control(flow, Steer::Pause).unwrap();
    assert_eq!(shop.done(a.task.id, "w"), Outcome::Taken, "what was handed out is still answered");
    assert!(shop.poll("b", "w").is_none());
    shop.restart();
    assert!(shop.poll("b", "w").is_none());
    shop.control(flow, Steer::Resume).unwrap();
    assert!(shop.poll("b", "w").is_some());
    assert!(matches!(shop.control(flow, Steer::Resume), Err(FlowRefusal::NotPaused { .. })));
    assert_eq!((shop.of_kind(EventKind::FlowPaused).len(), shop.of_kind(EventKind::FlowResumed).len()), (1, 1));
}

#[test]
fn a_terminated_run_takes_its_tasks_away_from_their_workers() {
    let mut shop = three();
    let flow = shop.start("wf", json!({}));
    let a = shop.poll("a", "w").unwrap();
    shop.control(flow, Steer::Terminate { reason: Some("enough".into()), as_failure: false }).unwrap();
    let archived = shop.archived(flow);
    assert_eq!((archived.flow.status, archived.flow.reason.as_deref()), (FlowStatus::Terminated, Some("enough")));
    assert_eq!(archived.tasks[0].status, Status::Canceled);
    assert_eq!(shop.of_kind(EventKind::LeaseRevoked).len(), 1);
    assert_eq!(shop.done(a.task.id, "w"), Outcome::Late);
    assert!(matches!(shop.control(flow, Steer::Pause), Err(FlowRefusal::Archived(_))));
}

#[test]
fn a_skipped_step_is_passed_over_when_its_turn_comes() {
    let mut shop = three();
    let flow = shop.start("wf", json!({}));
    let skip = |reference: &str| Steer::Skip { reference: reference.into(), input: None, output: None };
    shop.control(flow, skip("b")).unwrap();
    assert!(shop.control(flow, skip("a")).is_err() && shop.control(flow, skip("x")).is_err());
    let a = shop.poll("a", "w").unwrap();
    shop.done(a.task.id, "w");
    let c = shop.poll("c", "w").expect("b was passed over");
    shop.done(c.task.id, "w");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn a_retry_makes_new_tasks_of_those_that_failed_and_keeps_the_others() {
    let mut shop = three();
    let flow = shop.start("wf", json!({}));
    let a = shop.poll("a", "w").unwrap();
    shop.done(a.task.id, "w");
    for _ in 0..3 {
        let b = shop.poll("b", "w").unwrap();
        shop.fail(b.task.id, "w");
        shop.after(5_000);
    }
    assert_eq!(shop.status(flow), FlowStatus::Failed);
    let old = shop.archived(flow);
    shop.again(flow, Again::Retry).unwrap();
    assert!(shop.poll("a", "w").is_none());
    let b = shop.poll("b", "w").expect("tried again at once");
    assert_eq!(b.task.retry_of(), old.tasks.last().map(|task| task.id), "a new task: the old worker's word is late");
    shop.done(b.task.id, "w");
    let c = shop.poll("c", "w").unwrap();
    shop.done(c.task.id, "w");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    assert!(matches!(shop.again(flow, Again::Retry), Err(FlowRefusal::NothingFailed(_))));
    let stale = tenure_core::flow::command::Revive { archived: Box::new(old), how: Again::Retry };
    assert!(matches!(shop.apply(stale), Err(FlowRefusal::Archived(_))), "an old copy does not bring it back");
}

#[test]
fn a_restart_begins_anew_and_a_rerun_from_one_task() {
    let mut shop = three();
    let flow = shop.start("wf", json!({ "x": 1 }));
    let run = |shop: &mut Shop, names: &[&str]| {
        for name in names {
            let task = shop.poll(name, "w").unwrap_or_else(|| panic!("{name} is next"));
            shop.done(task.task.id, "w");
        }
    };
    run(&mut shop, &["a", "b", "c"]);
    shop.again(flow, Again::Restart { latest: false }).unwrap();
    assert_eq!(shop.status(flow), FlowStatus::Running);
    run(&mut shop, &["a", "b", "c"]);
    let b = shop.archived(flow).tasks[1].id;
    let rerun = Again::Rerun { task: Some(b), task_input: None, input: None, correlation: None };
    shop.again(flow, rerun).unwrap();
    assert!(shop.poll("a", "w").is_none());
    run(&mut shop, &["b", "c"]);
    let archived = shop.archived(flow);
    assert_eq!((archived.flow.status, archived.tasks.len(), archived.flow.lives), (FlowStatus::Completed, 3, 2));
    assert_eq!(archived.tasks[0].reference.as_ref(), "a");
}

/// `a` and `b` with `c` beside each other; `d` after both.
fn forked() -> Shop {
    let mut shop = Shop::new();
    for name in ["a", "b", "c", "d"] {
        shop.define_task(name, |rules| rules.retry.max_attempts = 1);
    }
    let steps = vec![
        follow(step("f", Op::Fork { ways: vec![1, 2] }, json!({})), Some(4)),
        follow(work("a"), None),
        follow(work("b"), Some(3)),
        follow(work("c"), None),
        follow(step("j", Op::Join { on: vec!["a".into(), "c".into()] }, json!({})), Some(5)),
        follow(step("d", Op::Work, json!({ "a": "${j.output.a.by}", "c": "${j.output.c.by}" })), None),
    ];
    shop.define(plan("wf", steps));
    shop
}

fn done(shop: &mut Shop, name: &str, worker: &str) -> TaskView {
    let task = shop.poll(name, worker).unwrap_or_else(|| panic!("{name} is next"));
    shop.done(task.task.id, worker);
    task
}

fn rerun(task: TaskId) -> Again {
    Again::Rerun { task: Some(task), task_input: None, input: None, correlation: None }
}

#[test]
fn a_rerun_from_one_way_of_a_fork_keeps_the_others_and_comes_to_what_follows_the_join() {
    let mut shop = forked();
    let flow = shop.start("wf", json!({}));
    let a = done(&mut shop, "a", "w1").task.id;
    for name in ["b", "c", "d"] {
        done(&mut shop, name, "w1");
    }
    shop.again(flow, rerun(a)).unwrap();
    shop.restart();
    assert!(shop.poll("b", "w2").is_none() && shop.poll("d", "w2").is_none());
    done(&mut shop, "a", "w2");
    let d = done(&mut shop, "d", "w2");
    assert_eq!(d.task.input.get(), r#"{"a":"w2","c":"w1"}"#);
    let archived = shop.archived(flow);
    let names: Vec<_> = archived.tasks.iter().map(|task| &*task.reference).collect();
    assert_eq!((archived.flow.status, names), (FlowStatus::Completed, vec!["f", "b", "j", "c", "a", "d"]));
}

#[test]
fn a_rerun_goes_on_with_what_was_canceled_beside_its_task() {
    let mut shop = forked();
    let flow = shop.start("wf", json!({}));
    let held = shop.poll("b", "w1").unwrap();
    let a = shop.poll("a", "w1").unwrap();
    shop.fail(a.task.id, "w1");
    assert_eq!(shop.status(flow), FlowStatus::Failed);
    shop.again(flow, rerun(a.task.id)).unwrap();
    shop.restart();
    let b = done(&mut shop, "b", "w2");
    assert_eq!(b.task.retry_of(), Some(held.task.id));
    for name in ["c", "a", "d"] {
        done(&mut shop, name, "w2");
    }
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn what_was_done_while_a_run_was_paused_counts_when_it_is_retried_after_its_end() {
    let mut shop = forked();
    let flow = shop.start("wf", json!({}));
    shop.control(flow, Steer::Pause).unwrap();
    done(&mut shop, "b", "w1");
    shop.control(flow, Steer::Terminate { reason: None, as_failure: false }).unwrap();
    shop.again(flow, Again::Retry).unwrap();
    for name in ["a", "c", "d"] {
        done(&mut shop, name, "w2");
    }
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn a_rerun_from_a_fork_that_is_worked_out_while_running_works_it_out_anew_and_one_from_a_way_does_not() {
    let mut shop = forked();
    let steps = vec![
        follow(step("f", Op::DynamicFork, json!({})), Some(1)),
        follow(step("j", Op::Join { on: vec![] }, json!({})), Some(2)),
        follow(work("d"), None),
    ];
    shop.define(plan("dynamic", steps));
    let flow = shop.start("dynamic", json!({}));
    shop.evaluate(|_| Answer::Ways(vec![vec![work("a")], vec![work("b"), work("c")]]));
    for name in ["a", "b", "c", "d"] {
        done(&mut shop, name, "w1");
    }
    let named = |shop: &Shop, name: &str| {
        let archived = shop.archived(flow);
        archived.tasks.iter().find(|task| &*task.reference == name).map(|task| task.id).expect("it ran")
    };
    let b = named(&shop, "b");
    shop.again(flow, rerun(b)).unwrap();
    assert!(shop.poll("a", "w2").is_none());
    for name in ["b", "c", "d"] {
        done(&mut shop, name, "w2");
    }
    let f = named(&shop, "f");
    shop.again(flow, rerun(f)).unwrap();
    shop.evaluate(|_| Answer::Ways(vec![vec![work("c")]]));
    for name in ["c", "d"] {
        done(&mut shop, name, "w3");
    }
    let archived = shop.archived(flow);
    let names: Vec<_> = archived.tasks.iter().map(|task| &*task.reference).collect();
    assert_eq!((archived.flow.status, names), (FlowStatus::Completed, vec!["f", "c", "j", "d"]));
}

#[test]
fn a_rerun_with_another_input_does_what_that_input_says() {
    let mut shop = shop();
    let set = step("v", Op::SetVariable, json!({ "n": "${workflow.input.n}" }));
    shop.define(line("wf", vec![set, step("o", Op::SetVariable, json!({ "seen": "${v.output.n}" }))]));
    let flow = shop.start("wf", json!({ "n": 1 }));
    let from = shop.archived(flow).tasks[0].id;
    let input = Some(tenure_core::task::to_json(&json!({ "n": 9 })));
    shop.again(flow, Again::Rerun { task: Some(from), task_input: input, input: None, correlation: None }).unwrap();
    let tasks = shop.archived(flow).tasks;
    assert_eq!((tasks[0].input.get(), tasks[0].output.get()), (r#"{"n":9}"#, r#"{"n":9}"#));
    assert_eq!(tasks[1].output.get(), r#"{"seen":9}"#);
}
