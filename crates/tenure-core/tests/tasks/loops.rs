//! T5: loops, also inside loops; what they go through, what their tasks are called, and how they go on after a failure.

use serde_json::{Value, json};
use tenure_core::flow::command::{Again, Answer};
use tenure_core::flow::{FlowStatus, Looping, Op, Step};
use tenure_core::task::Status;

use crate::operators::{follow, run, shop};
use crate::shop::{Shop, end, plan, step, work};

fn each(reference: &str, body: u32, items: &str) -> Step {
    step(reference, Op::Loop { body, until: Looping::Items(json!(items).into()) }, json!({}))
}

#[test]
fn t5_a_loop_over_items_makes_a_round_for_each_with_its_own_tasks() {
    let mut shop = shop();
    let each = step("a", Op::Work, json!({ "item": "${l.output.loopItem}" }));
    let until = Looping::Items(json!("${workflow.input.list}").into());
    let steps = vec![
        follow(step("l", Op::Loop { body: 1, until }, json!({})), Some(2)),
        follow(each, None),
        follow(step("d", Op::Work, json!({ "rounds": "${l.output.iteration}", "last": "${a.output.did}" })), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({ "list": ["x", "y"] }));
    for (round, item) in [(1, "x"), (2, "y")] {
        let a = shop.poll("a", "w").unwrap();
        assert_eq!((&*a.task.reference, a.task.iteration), (&*format!("a__{round}"), round));
        assert_eq!(a.task.input.get(), json!({ "item": item }).to_string());
        shop.update(a.task.id, "w", end(Status::Completed, json!({ "did": round })));
        shop.restart();
    }
    let d = shop.poll("d", "w").expect("the loop is over");
    assert_eq!(d.task.input.get(), r#"{"last":2,"rounds":2}"#);
    shop.done(d.task.id, "w");
    let empty = shop.start("wf", json!({ "list": [] }));
    run(&mut shop, "d");
    assert_eq!((shop.status(flow), shop.status(empty)), (FlowStatus::Completed, FlowStatus::Completed));
}

#[test]
fn t5_a_loop_asks_its_condition_after_each_round() {
    let mut shop = shop();
    let until = Looping::While("$.l.iteration < 3".into());
    let steps =
        vec![follow(step("l", Op::Loop { body: 1, until }, json!({ "limit": 3 })), None), follow(work("a"), None)];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({}));
    for round in 1..=3 {
        run(&mut shop, "a");
        shop.restart();
        shop.evaluate(|asked| {
            assert_eq!(asked["expression"], "$.l.iteration < 3");
            assert_eq!((&asked["input"]["l"]["iteration"], &asked["input"]["limit"]), (&json!(round), &json!(3)));
            Answer::Value(json!(round < 3))
        });
    }
    let output: Value = serde_json::from_str(shop.archived(flow).tasks[0].output.get()).unwrap();
    assert_eq!(output["3"], json!({ "a": { "did": "a__3" } }));
}

#[test]
fn t5_a_long_loop_that_no_worker_slows_down_does_not_hold_others_up() {
    let mut shop = shop();
    let list: Vec<u32> = (0..1_200).collect();
    let steps = vec![
        follow(step("l", Op::Loop { body: 1, until: Looping::Items(json!(list).into()) }, json!({})), None),
        follow(step("n", Op::Noop, json!({})), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({}));
    let tasks = shop.view(flow).tasks.len();
    assert!(tasks < 1_100, "{tasks} tasks in one turn");
    shop.after(10);
    assert_eq!(shop.status(flow), FlowStatus::Completed, "and the rest follows");
}

/// For each group and each of its items `a`; after each group `b`; after all `c`.
fn groups() -> Shop {
    let mut shop = shop();
    let of_item =
        json!({ "item": "${inner.output.loopItem}", "group": "${outer.output.iteration}", "b": "${b.output.did}" });
    let of_group = json!({ "items": "${inner.output.iteration}", "last": "${a.output.did}" });
    let steps = vec![
        follow(each("outer", 1, "${workflow.input.groups}"), Some(4)),
        follow(each("inner", 2, "${outer.output.loopItem}"), Some(3)),
        follow(step("a", Op::Work, of_item), None),
        follow(step("b", Op::Work, of_group), None),
        follow(step("c", Op::Work, json!({ "last": "${a.output.did}" })), None),
    ];
    shop.define(plan("wf", steps));
    shop
}

/// Does the one task of this name; what it is called, and what it was given.
fn done(shop: &mut Shop, name: &str) -> (String, Value) {
    let task = shop.poll(name, "w").unwrap_or_else(|| panic!("{name} is not there"));
    assert!(shop.poll(name, "w").is_none(), "one at a time");
    shop.update(task.task.id, "w", end(Status::Completed, json!({ "did": &*task.task.reference })));
    (task.task.reference.to_string(), serde_json::from_str(task.task.input.get()).unwrap())
}

#[test]
fn t5_tasks_of_a_loop_inside_a_loop_are_named_by_all_rounds_and_see_the_nearest_ones() {
    let mut shop = groups();
    let flow = shop.start("wf", json!({ "groups": [["p", "q"], [], ["r"]] }));
    let given = |item: &str, group: u32, b: Option<&str>| json!({ "item": item, "group": group, "b": b });
    assert_eq!(done(&mut shop, "a"), ("a__1__1".to_owned(), given("p", 1, None)));
    shop.restart();
    assert_eq!(done(&mut shop, "a"), ("a__1__2".to_owned(), given("q", 1, None)));
    assert_eq!(done(&mut shop, "b"), ("b__1".to_owned(), json!({ "items": 2, "last": "a__1__2" })));
    let of_second = json!({ "items": 0, "last": "a__1__2" });
    assert_eq!(done(&mut shop, "b"), ("b__2".to_owned(), of_second), "an empty list has no rounds");
    shop.restart();
    assert_eq!(done(&mut shop, "a"), ("a__3__1".to_owned(), given("r", 3, Some("b__2"))));
    done(&mut shop, "b");
    assert_eq!(done(&mut shop, "c"), ("c".to_owned(), json!({ "last": "a__3__1" })));
    let archived = shop.archived(flow);
    assert_eq!(archived.flow.status, FlowStatus::Completed);
    let rounds: Vec<_> = archived.tasks.iter().map(|task| (&*task.reference, task.iteration)).collect();
    let loops = [("outer", 3), ("inner__1", 2), ("inner__2", 0), ("inner__3", 1)];
    assert!(loops.iter().all(|one| rounds.contains(one)), "a loop counts its own rounds: {rounds:?}");
    let output: Value = serde_json::from_str(archived.tasks[0].output.get()).unwrap();
    assert_eq!(output["1"]["inner"]["2"], json!({ "a": { "did": "a__1__2" } }));
    assert_eq!((&output["3"]["b"]["did"], &output["2"]["inner"]["iteration"]), (&json!("b__3"), &json!(0)));
}

#[test]
fn t5_the_condition_of_a_loop_inside_a_loop_sees_it_by_its_plain_name() {
    let mut shop = shop();
    let until = |what: &str| Looping::While(what.into());
    let steps = vec![
        follow(step("outer", Op::Loop { body: 1, until: until("outer?") }, json!({})), None),
        follow(step("inner", Op::Loop { body: 2, until: until("inner?") }, json!({})), None),
        follow(work("a"), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({}));
    for (outer, inner) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        assert_eq!(done(&mut shop, "a").0, format!("a__{outer}__{inner}"));
        shop.restart();
        shop.evaluate(|asked| {
            assert_eq!(asked["expression"], "inner?");
            assert_eq!(asked["input"]["inner"]["iteration"], inner);
            assert_eq!(asked["input"]["a"]["did"], format!("a__{outer}__{inner}"));
            Answer::Value(json!(inner < 2))
        });
        if inner == 2 {
            shop.evaluate(|asked| {
                assert_eq!(
                    (&asked["expression"], &asked["input"]["outer"]["iteration"]),
                    (&json!("outer?"), &json!(outer))
                );
                assert_eq!(asked["input"]["inner"]["iteration"], 2);
                Answer::Value(json!(outer < 2))
            });
        }
    }
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn t5_a_list_that_the_loop_changes_neither_lengthens_nor_shortens_it() {
    for list in [json!([]), json!([1, 2, 3, 4, 5]), json!("no list at all")] {
        let mut shop = shop();
        let set = json!({ "list": list, "seen": "${l.output.loopItem}" });
        let mut plan = plan(
            "wf",
            vec![
                follow(each("l", 1, "${workflow.variables.list}"), None),
                follow(step("v", Op::SetVariable, set), Some(2)),
                follow(step("a", Op::Work, json!({ "item": "${workflow.variables.seen}" })), None),
            ],
        );
        plan.variables = Some(tenure_core::task::to_json(&json!({ "list": ["x", "y", "z"] })));
        shop.define(plan);
        let flow = shop.start("wf", json!({}));
        for item in ["x", "y", "z"] {
            assert_eq!(done(&mut shop, "a").1, json!({ "item": item }));
            shop.restart();
        }
        assert_eq!(shop.status(flow), FlowStatus::Completed, "{list}");
    }
}

#[test]
fn a_retry_goes_on_in_the_round_that_failed_also_in_a_loop_inside_a_loop() {
    let mut shop = groups();
    let flow = shop.start("wf", json!({ "groups": [["p"], ["q", "r"]] }));
    for name in ["a", "b", "a"] {
        run(&mut shop, name);
    }
    let failed = shop.poll("a", "w").unwrap();
    shop.fail(failed.task.id, "w");
    assert_eq!(shop.status(flow), FlowStatus::Failed);
    shop.again(flow, Again::Retry).unwrap();
    shop.restart();
    let (name, given) = done(&mut shop, "a");
    assert_eq!((&*name, &given["item"]), ("a__2__2", &json!("r")), "and no round is done twice");
    assert_eq!(done(&mut shop, "b"), ("b__2".to_owned(), json!({ "items": 2, "last": "a__2__2" })));
    run(&mut shop, "c");
    let archived = shop.archived(flow);
    assert_eq!((archived.flow.status, archived.tasks.len()), (FlowStatus::Completed, 10));
}

#[test]
fn a_retry_asks_again_what_a_loop_was_asking_when_its_run_ended() {
    let mut shop = shop();
    let until = Looping::While("more?".into());
    let steps = vec![
        follow(step("f", Op::Fork { ways: vec![1, 3] }, json!({})), Some(4)),
        follow(step("l", Op::Loop { body: 2, until }, json!({})), None),
        follow(work("a"), None),
        follow(work("b"), None),
        follow(step("j", Op::Join { on: vec!["l".into(), "b".into()] }, json!({})), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({}));
    run(&mut shop, "a");
    let b = shop.poll("b", "w").unwrap();
    shop.fail(b.task.id, "w");
    assert_eq!(shop.status(flow), FlowStatus::Failed);
    shop.again(flow, Again::Retry).unwrap();
    shop.evaluate(|_| Answer::Value(json!(true)));
    assert_eq!(done(&mut shop, "a").0, "a__2");
    shop.evaluate(|_| Answer::Value(json!(false)));
    run(&mut shop, "b");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn a_rerun_from_inside_a_loop_goes_on_from_that_round() {
    let mut shop = groups();
    let flow = shop.start("wf", json!({ "groups": [["p", "q"], ["r"]] }));
    let all = ["a", "a", "b", "a", "b", "c"];
    for name in all {
        run(&mut shop, name);
    }
    let from = |shop: &Shop, reference: &str| {
        let archived = shop.archived(flow);
        let task = archived.tasks.iter().find(|task| &*task.reference == reference).map(|task| task.id);
        Again::Rerun { task, task_input: None, input: None, correlation: None }
    };
    for (reference, names) in [("a__1__2", &all[1..]), ("b__2", &all[4..])] {
        assert_eq!(shop.status(flow), FlowStatus::Completed);
        let rerun = from(&shop, reference);
        shop.again(flow, rerun).unwrap();
        for (at, name) in names.iter().enumerate() {
            let (named, given) = done(&mut shop, name);
            assert!(at > 0 || named == reference, "{named}");
            assert!(named != "a__1__2" || given["item"] == "q" && given["group"] == 1, "{given}");
        }
    }
    assert_eq!(shop.archived(flow).tasks.len(), 9);
}
