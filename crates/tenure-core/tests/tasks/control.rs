//! Pause, resume, terminate, skip; retry, restart, rerun.

use serde_json::json;
use tenure_core::event::EventKind;
use tenure_core::flow::FlowStatus;
use tenure_core::flow::command::{Again, FlowRefusal, Steer};
use tenure_core::task::Status;
use tenure_core::task::command::Outcome;

use crate::shop::{Shop, line, work};

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
    shop.control(flow, Steer::Terminate { reason: Some("enough".into()) }).unwrap();
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
