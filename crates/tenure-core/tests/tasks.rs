//! The rules of tasks and workflows, one by one, each with the number it has in the design.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

#[path = "tasks/bounds.rs"]
mod bounds;
#[path = "tasks/control.rs"]
mod control;
#[path = "tasks/graphs.rs"]
mod graphs;
#[path = "tasks/keys.rs"]
mod keys;
#[path = "tasks/loops.rs"]
mod loops;
#[path = "tasks/operators.rs"]
mod operators;
#[path = "tasks/random.rs"]
mod random;
#[path = "tasks/shop.rs"]
mod shop;
#[path = "tasks/timeouts.rs"]
mod timeouts;

use serde_json::json;
use tenure_core::command::Leave;
use tenure_core::event::EventKind;
use tenure_core::flow::FlowStatus;
use tenure_core::flow::command::{GetFlow, GotFlow};
use tenure_core::task::Status;
use tenure_core::task::command::{Act, ListQueues, Outcome, Poll, Polled, Unclaim};

use self::shop::{Shop, end, give_back, line, poll, step, token, work};

fn one_task() -> Shop {
    let mut shop = Shop::new();
    shop.define_task("a", |_| {});
    shop.define(line("wf", vec![work("a")]));
    shop
}

#[test]
fn t1_a_poll_is_a_lease_on_the_task_with_a_holder_a_token_and_a_count() {
    let mut shop = one_task();
    let flow = shop.start("wf", json!({ "x": 1 }));
    let task = shop.poll("a", "w1").expect("a task");
    assert_eq!((task.task.status, task.task.polls, task.task.retries), (Status::InProgress, 1, 0));
    assert_eq!(task.task.worker.as_ref().map(|w| w.as_str()), Some("w1"));
    let granted = shop.of_kind(EventKind::LeaseGranted);
    assert_eq!(granted[0].resources[0].to_string(), format!("task:{}", task.task.id));
    assert_eq!(
        (granted[0].token, granted[0].ttl.unwrap().ms()),
        (task.task.token, 11_000),
        "ten seconds and the grace"
    );
    assert!(shop.poll("a", "w2").is_none(), "nobody else gets it");
    assert_eq!(shop.done(task.task.id, "w1"), Outcome::Taken);
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    assert_eq!(shop.of_kind(EventKind::LeaseReleased).len(), 1);
}

#[test]
fn t1_tasks_are_handed_out_by_priority_and_then_in_their_order() {
    let mut shop = one_task();
    let mut start = |priority| {
        use tenure_core::flow::command::{StartFlow, Which};
        let start = StartFlow::new(Which::Named("wf".into(), None), tenure_core::task::empty_object());
        shop.apply(StartFlow { priority, ..start }).unwrap()
    };
    let (low, high, low_too) = (start(0), start(9), start(0));
    let order: Vec<_> = (0..3).map(|_| shop.poll("a", "w").unwrap().task.flow).collect();
    assert_eq!(order, [high, low, low_too]);
}

#[test]
fn t1_a_waiting_poll_is_answered_as_soon_as_there_is_a_task_in_the_order_of_polls() {
    let mut shop = one_task();
    let mut wait = |worker| match shop.apply(Poll { wait_ms: 5_000, ..poll("a", worker) }) {
        Polled::Queued(id) => id,
        Polled::Tasks(_) => panic!("there is no task"),
    };
    let (first, gone, third) = (wait("w1"), wait("w2"), wait("w3"));
    shop.gone.push(gone);
    shop.start("wf", json!({}));
    shop.start("wf", json!({}));
    assert_eq!(shop.polled.iter().map(|(id, tasks)| (*id, tasks.len())).collect::<Vec<_>>(), [(first, 1), (third, 1)]);
    let late = match shop.apply(Poll { wait_ms: 5_000, ..poll("a", "w4") }) {
        Polled::Queued(id) => id,
        Polled::Tasks(_) => panic!("there is no task"),
    };
    shop.after(5_000);
    assert_eq!(shop.polled.last().map(|(id, tasks)| (*id, tasks.len())), Some((late, 0)), "in vain, and told so");
    shop.apply(Leave(late));
}

#[test]
fn t1_a_claim_that_was_never_delivered_goes_back_and_does_not_count() {
    let mut shop = one_task();
    shop.start("wf", json!({}));
    let lost = shop.poll("a", "w1").unwrap();
    shop.apply(Unclaim(vec![(lost.task.id, token(&lost))]));
    let again = shop.poll("a", "w2").expect("it is back");
    assert_eq!((again.task.id, again.task.polls), (lost.task.id, 1));
    shop.apply(Unclaim(vec![(lost.task.id, token(&lost))]));
    assert_eq!(shop.done(again.task.id, "w2"), Outcome::Taken, "an old claim cannot take a new one back");
}

#[test]
fn t2_a_heartbeat_keeps_the_task_and_changes_nothing_else() {
    let mut shop = one_task();
    let flow = shop.start("wf", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    for _ in 0..5 {
        shop.after(8_000);
        let written = shop.records.clone();
        assert_eq!(shop.update(task.task.id, "", Act::Beat), Outcome::Taken, "no name is the holder's");
        assert_eq!(shop.records, written, "a heartbeat is not written");
    }
    assert_eq!(shop.view(flow).tasks[0].task.polls, 1);
    assert_eq!(shop.done(task.task.id, "w1"), Outcome::Taken);
}

#[test]
fn t2_a_word_after_the_end_changes_nothing_and_says_who_was_late() {
    let mut shop = one_task();
    shop.define(line("wf2", vec![work("a"), work("b")]));
    let flow = shop.start("wf2", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    assert_eq!(shop.done(task.task.id, "w1"), Outcome::Taken);
    let before = shop.records.clone();
    for act in [Act::Beat, give_back(0), end(Status::Failed, json!({})), end(Status::Completed, json!({ "x": 1 }))] {
        assert_eq!(shop.update(task.task.id, "w1", act), Outcome::Late);
    }
    assert_eq!(shop.records, before);
    let late = shop.of_kind(EventKind::TaskLate);
    assert_eq!(late.len(), 4);
    assert_eq!(late[0].by.as_ref().map(|by| by.as_str()), Some("w1"));
    assert_eq!(shop.view(flow).tasks[0].task.status, Status::Completed);
}

#[test]
fn t2_a_word_after_the_workflow_left_memory_is_late_and_an_id_never_given_is_unknown() {
    let mut shop = one_task();
    let flow = shop.start("wf", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    shop.done(task.task.id, "w1");
    assert!(matches!(shop.apply(GetFlow { id: flow, with_tasks: false }), GotFlow::Over));
    assert_eq!(shop.update(task.task.id, "w1", Act::Beat), Outcome::Late);
    assert_eq!(shop.of_kind(EventKind::TaskLate).len(), 1);
    assert_eq!(shop.update("t-9-9".parse().unwrap(), "w1", Act::Beat), Outcome::Unknown);
}

#[test]
fn t2_a_held_task_takes_no_word_from_another_worker() {
    let mut shop = one_task();
    let flow = shop.start("wf", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    assert_eq!(shop.done(task.task.id, "w2"), Outcome::Late);
    assert!(shop.update_step(flow, "a", end(Status::Completed, json!({}))).is_some());
    assert_eq!(shop.status(flow), FlowStatus::Running, "nor from outside");
    let with = |token| tenure_core::task::command::Update {
        task: task.task.id,
        by: None,
        nameless_may_hold: true,
        token: Some(token),
        act: end(Status::Completed, json!({})),
        logs: vec![],
        next: None,
    };
    assert_eq!(shop.apply(with(task.task.id.token())).outcome, Outcome::Late, "a token leaves no doubt");
    let as_another = tenure_core::task::command::Update { by: Some(shop::holder("w2")), ..with(token(&task)) };
    assert_eq!(shop.apply(as_another).outcome, Outcome::Late, "a token that another read somewhere");
    let keyed = tenure_core::task::command::Update { nameless_may_hold: false, ..with(token(&task)) };
    assert_eq!(shop.apply(keyed).outcome, Outcome::Late, "where names are bound to keys, no name is nobody's");
    assert_eq!(shop.apply(with(token(&task))).outcome, Outcome::Taken);
}

#[test]
fn t2_a_task_that_nobody_holds_can_be_answered_from_outside_and_the_event_names_the_caller() {
    let mut shop = one_task();
    let flow = shop.start("wf", json!({}));
    assert_eq!(shop.update_step(flow, "nobody", end(Status::Completed, json!({}))), None);
    assert!(shop.update_step(flow, "a", end(Status::Completed, json!({ "x": 1 }))).is_some());
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    assert_eq!(shop.of_kind(EventKind::TaskAnsweredOutside)[0].by.as_ref().map(|by| by.as_str()), Some("ops"));
    assert!(shop.poll("a", "w1").is_none());
}

#[test]
fn t3_a_yield_gives_the_task_back_and_shows_it_after_its_delay_under_the_same_id() {
    let mut shop = one_task();
    let flow = shop.start("wf", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    assert_eq!(shop.update(task.task.id, "w1", give_back(30)), Outcome::Taken);
    assert_eq!(shop.view(flow).tasks[0].task.output.get(), r#"{"so":"far"}"#);
    assert!(shop.after(29_999).poll("a", "w2").is_none());
    let again = shop.after(1).poll("a", "w2").expect("visible again");
    assert_eq!((again.task.id, again.task.polls, again.task.retries), (task.task.id, 2, 0));
    assert_eq!(again.task.started_at, task.task.started_at, "a yield does not start the clock again");
    assert_eq!(shop.done(task.task.id, "w1"), Outcome::Late, "the former holder's word");
    assert_eq!(shop.done(task.task.id, "w2"), Outcome::Taken);
}

#[test]
fn t3_a_word_about_a_task_that_was_given_back_is_late() {
    let mut shop = one_task();
    shop.start("wf", json!({}));
    let task = shop.poll("a", "w1").unwrap();
    shop.update(task.task.id, "w1", give_back(30));
    for act in [Act::Beat, give_back(0), end(Status::Completed, json!({}))] {
        assert_eq!(shop.update(task.task.id, "w1", act), Outcome::Late);
    }
    assert!(shop.poll("a", "w1").is_none(), "a repeated yield does not show it sooner");
}

#[test]
fn t5_steps_follow_each_other_and_pass_their_outputs_on() {
    let mut shop = Shop::new();
    let second =
        step("b", tenure_core::flow::Op::Work, json!({ "from_a": "${a.output.by}", "x": "${workflow.input.x}" }));
    let mut plan = line("wf", vec![work("a"), second]);
    plan.output = Some(json!({ "last": "${b.output.n}" }).into());
    shop.define(plan);
    let flow = shop.start("wf", json!({ "x": [1, 2] }));
    let a = shop.poll("a", "w1").unwrap();
    let answer = shop.update_and_next(a.task.id, "w1", end(Status::Completed, json!({ "by": "w1" })), true);
    assert!(answer.next.is_none(), "the next of the same name");
    let b = shop.poll("b", "w1").unwrap();
    assert_eq!(b.task.input.get(), r#"{"from_a":"w1","x":[1,2]}"#);
    shop.update(b.task.id, "w1", end(Status::Completed, json!({ "n": 7 })));
    assert_eq!(shop.output(flow), json!({ "last": 7 }));
    assert_eq!(shop.of_kind(EventKind::FlowEnded).len(), 1);
}

#[test]
fn t5_the_end_of_a_task_can_claim_what_it_set_off() {
    let mut shop = Shop::new();
    let again = tenure_core::flow::Step { name: "a".into(), ..work("second") };
    shop.define(line("wf", vec![work("a"), again]));
    shop.start("wf", json!({}));
    let first = shop.poll("a", "w1").unwrap();
    let next = shop.update_and_next(first.task.id, "w1", end(Status::Completed, json!({})), true).next;
    assert_eq!(next.map(|next| next.task.reference.to_string()).as_deref(), Some("second"));
}

#[test]
fn a_finished_run_leaves_nothing_in_memory_and_everything_in_the_store() {
    let mut shop = one_task();
    for _ in 0..10 {
        let flow = shop.start("wf", json!({ "x": 1 }));
        let task = shop.poll("a", "w1").unwrap();
        shop.done(task.task.id, "w1");
        let archived = shop.archived(flow);
        assert_eq!((archived.flow.status, archived.tasks.len()), (FlowStatus::Completed, 1));
    }
    use tenure_core::change::RecordKind::{Flow, Lease, Task};
    assert!(!shop.records.keys().any(|(kind, _)| [Flow, Task, Lease].contains(kind)), "{:?}", shop.records.keys());
    assert_eq!(shop.apply(ListQueues::default())[0].waiting, 0);
}

#[test]
fn after_a_restart_queues_leases_and_timers_are_where_they_were() {
    let mut shop = one_task();
    shop.define_task("b", |rules| rules.attempt_s = 60);
    shop.define(line("two", vec![work("b")]));
    let waits = shop.start("wf", json!({}));
    let held = shop.start("two", json!({}));
    let task = shop.poll("b", "w1").unwrap();
    let hidden = shop.start("two", json!({}));
    let yields = shop.poll("b", "w2").unwrap();
    shop.update(yields.task.id, "w2", give_back(20));
    shop.after(5_000).restart();
    assert_eq!(shop.update(task.task.id, "w1", Act::Beat), Outcome::Taken, "the lease is still there");
    let first = shop.poll("a", "w3").expect("still in its queue");
    assert_eq!(first.task.flow, waits);
    shop.after(9_000).update(task.task.id, "w1", Act::Beat);
    assert!(shop.after(5_999).poll("b", "w3").is_none());
    assert_eq!(shop.after(1).poll("b", "w3").map(|task| task.task.flow), Some(hidden));
    shop.update(task.task.id, "w1", Act::Beat);
    shop.done(task.task.id, "w1");
    assert_eq!(shop.status(held), FlowStatus::Completed);
    shop.after(9_000).restart();
    shop.after(11_001);
    assert_eq!(shop.of_kind(EventKind::LeaseExpired).len(), 2, "silence is noticed after a restart too");
}
