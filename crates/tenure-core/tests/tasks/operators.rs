//! T5: choices, forks, joins, workflows inside workflows, waits and ends.

use serde_json::{Value, json};
use tenure_core::flow::command::{Answer, Steer};
use tenure_core::flow::{Branch, Choice, FlowStatus, Op, Step, SubFlow};
use tenure_core::task::Status;

use crate::shop::{Shop, end, line, plan, step, work};

pub(crate) fn follow(step: Step, next: Option<u32>) -> std::sync::Arc<Step> {
    Step { next, ..step }.into()
}

pub(crate) fn shop() -> Shop {
    let mut shop = Shop::new();
    for name in ["a", "b", "c", "d"] {
        shop.define_task(name, |rules| rules.retry.max_attempts = 1);
    }
    shop
}

pub(crate) fn run(shop: &mut Shop, name: &str) {
    let task = shop.poll(name, "w").unwrap_or_else(|| panic!("{name} is not there"));
    shop.update(task.task.id, "w", end(Status::Completed, json!({ "did": &*task.task.reference })));
}

#[test]
fn t5_a_switch_goes_the_way_its_input_says_and_then_on() {
    for (input, way) in [("x", Some("a")), ("y", Some("b")), ("nothing", None), ("z", Some("c"))] {
        let mut shop = shop();
        let cases = vec![
            Branch { case: "x".into(), first: Some(1) },
            Branch { case: "y".into(), first: Some(2) },
            Branch { case: "nothing".into(), first: None },
        ];
        let switch = Op::Switch { by: Choice::Param("on".into()), cases, default: Some(3) };
        let steps = vec![
            follow(step("s", switch, json!({ "on": "${workflow.input.way}" })), Some(4)),
            follow(work("a"), Some(4)),
            follow(work("b"), Some(4)),
            follow(work("c"), Some(4)),
            follow(work("d"), None),
        ];
        shop.define(plan("wf", steps));
        let flow = shop.start("wf", json!({ "way": input }));
        if let Some(way) = way {
            run(&mut shop, way);
        }
        run(&mut shop, "d");
        assert_eq!(shop.status(flow), FlowStatus::Completed);
    }
}

fn fork() -> Vec<std::sync::Arc<Step>> {
    vec![
        follow(step("f", Op::Fork { ways: vec![1, 2] }, json!({})), Some(4)),
        follow(work("a"), None),
        follow(work("b"), Some(3)),
        follow(work("c"), None),
        follow(step("j", Op::Join { on: vec!["a".into(), "c".into()] }, json!({})), Some(5)),
        follow(step("d", Op::Work, json!({ "a": "${j.output.a.did}" })), None),
    ]
}

#[test]
fn t5_a_fork_goes_all_its_ways_and_its_join_waits_for_them() {
    let mut shop = shop();
    shop.define(plan("wf", fork()));
    let flow = shop.start("wf", json!({}));
    run(&mut shop, "b");
    run(&mut shop, "c");
    assert!(shop.poll("d", "w").is_none());
    shop.restart();
    run(&mut shop, "a");
    let d = shop.poll("d", "w").expect("the join is over");
    assert_eq!(d.task.input.get(), r#"{"a":"a"}"#);
    shop.done(d.task.id, "w");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn t5_one_failed_way_of_a_fork_ends_the_run_unless_it_is_optional() {
    for optional in [false, true] {
        let mut shop = shop();
        let mut steps = fork();
        steps[1] = follow(Step { optional, ..work("a") }, None);
        shop.define(plan("wf", steps));
        let flow = shop.start("wf", json!({}));
        let a = shop.poll("a", "w").unwrap();
        shop.fail(a.task.id, "w");
        if optional {
            run(&mut shop, "b");
            run(&mut shop, "c");
            run(&mut shop, "d");
            let archived = shop.archived(flow);
            assert_eq!(archived.flow.status, FlowStatus::Completed);
            let join = archived.tasks.iter().find(|task| &*task.reference == "j").unwrap();
            assert_eq!(join.status, Status::CompletedWithErrors);
        } else {
            assert_eq!(shop.status(flow), FlowStatus::Failed);
            assert!(shop.poll("b", "w").is_none(), "what runs beside it is not wanted any more");
        }
    }
}

#[test]
fn t5_the_ways_of_a_fork_can_be_worked_out_while_running() {
    let mut shop = shop();
    let steps = vec![
        follow(step("f", Op::DynamicFork, json!({ "n": 2 })), Some(1)),
        follow(step("j", Op::Join { on: vec![] }, json!({})), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({}));
    shop.evaluate(|asked| {
        assert_eq!(asked["what"], "fork");
        Answer::Ways(vec![vec![work("a")], vec![work("b"), work("c")]])
    });
    run(&mut shop, "b");
    shop.restart();
    run(&mut shop, "a");
    assert_eq!(shop.status(flow), FlowStatus::Running);
    run(&mut shop, "c");
    let archived = shop.archived(flow);
    let join = archived.tasks.iter().find(|task| &*task.reference == "j").unwrap();
    let output: Value = serde_json::from_str(join.output.get()).unwrap();
    assert_eq!(output, json!({ "a": { "did": "a" }, "c": { "did": "c" } }));
}

fn sub(name: &str) -> Op {
    Op::SubFlow(Box::new(SubFlow { name: name.into(), version: None, plan: None, domains: Default::default() }))
}

#[test]
fn t5_a_workflow_inside_a_workflow_answers_its_step() {
    let mut shop = shop();
    shop.define(line("inner", vec![work("a")]));
    shop.define(line("outer", vec![step("s", sub("inner"), json!({ "x": 1 })), work("b")]));
    let flow = shop.start("outer", json!({}));
    run(&mut shop, "a");
    run(&mut shop, "b");
    let archived = shop.archived(flow);
    assert_eq!(archived.flow.status, FlowStatus::Completed);
    let output: Value = serde_json::from_str(archived.tasks[0].output.get()).unwrap();
    assert_eq!(output["did"], "a");
    assert_eq!(output["subWorkflowId"], archived.tasks[0].child().unwrap().to_string());
}

#[test]
fn t5_the_end_of_the_outer_workflow_ends_the_inner_one_and_its_failure_fails_the_step() {
    let mut shop = shop();
    shop.define(line("inner", vec![work("a")]));
    shop.define(line("outer", vec![step("s", sub("inner"), json!({}))]));
    let flow = shop.start("outer", json!({}));
    let child = shop.view(flow).tasks[0].task.child().unwrap();
    shop.control(flow, Steer::Terminate { reason: None, as_failure: false }).unwrap();
    assert_eq!(shop.status(child), FlowStatus::Terminated);
    let flow = shop.start("outer", json!({}));
    let a = shop.poll("a", "w").unwrap();
    shop.fail(a.task.id, "w");
    assert_eq!(shop.status(flow), FlowStatus::Failed);
}

#[test]
fn t5_a_workflow_that_runs_itself_ends_at_its_depth() {
    let mut shop = shop();
    shop.define(line("self", vec![step("s", sub("self"), json!({}))]));
    let flow = shop.start("self", json!({}));
    shop.after(100);
    assert_eq!(shop.status(flow), FlowStatus::Failed);
}

#[test]
fn waits_end_by_their_time_or_by_an_update() {
    let mut shop = shop();
    let timed = step("t", Op::Wait, json!({ "duration": "2 minutes 5s" }));
    shop.define(line("wf", vec![timed, step("s", Op::Wait, json!({})), step("h", Op::Human, json!({}))]));
    let flow = shop.start("wf", json!({}));
    shop.after(124_999);
    assert_eq!(shop.view(flow).tasks.len(), 1);
    shop.after(1);
    assert_eq!(shop.view(flow).tasks.len(), 2);
    shop.after(1_000_000);
    shop.restart();
    shop.update_step(flow, "s", end(Status::Completed, json!({ "who": "ops" }))).expect("it waits");
    shop.update_step(flow, "h", end(Status::Completed, json!({}))).expect("it waits");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    for duration in [json!("soon"), json!(1), json!({})] {
        shop.define(line("bad", vec![step("t", Op::Wait, json!({ "duration": duration }))]));
        let bad = shop.start("bad", json!({}));
        assert_eq!(shop.status(bad), FlowStatus::Failed, "{duration}");
    }
}

#[test]
fn a_step_can_set_variables_and_end_the_run() {
    let mut shop = shop();
    let set = step("v", Op::SetVariable, json!({ "n": "${workflow.input.n}" }));
    let ends = json!({ "terminationStatus": "COMPLETED", "workflowOutput": { "n": "${workflow.variables.n}" } });
    shop.define(line("wf", vec![set, step("t", Op::Terminate, ends), work("a")]));
    let flow = shop.start("wf", json!({ "n": 5 }));
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    assert_eq!(shop.output(flow), json!({ "n": 5 }));
    assert!(shop.poll("a", "w").is_none());
}

#[test]
fn a_dynamic_step_is_polled_by_the_name_its_input_says() {
    let mut shop = shop();
    let dynamic = step("x", Op::Dynamic { param: "which".into() }, json!({ "which": "${workflow.input.which}" }));
    shop.define(line("wf", vec![dynamic]));
    let flow = shop.start("wf", json!({ "which": "b" }));
    run(&mut shop, "b");
    let nameless = shop.start("wf", json!({}));
    assert_eq!((shop.status(flow), shop.status(nameless)), (FlowStatus::Completed, FlowStatus::Failed));
}

#[test]
fn a_failed_run_starts_what_its_workflow_wants_started_then() {
    let mut shop = shop();
    shop.define(line("cleanup", vec![work("c")]));
    let mut plan = line("wf", vec![work("a")]);
    plan.on_failure = Some(("cleanup".into(), None));
    shop.define(plan);
    let flow = shop.start("wf", json!({ "x": 1 }));
    let a = shop.poll("a", "w").unwrap();
    shop.fail(a.task.id, "w");
    let c = shop.poll("c", "w").expect("cleanup runs");
    assert_eq!(shop.output(flow)["conductor.failure_workflow"], c.task.flow.to_string());
    let input: Value = serde_json::from_str(shop.view(c.task.flow).flow.input.get()).unwrap();
    assert_eq!((&input["x"], &input["workflowId"]), (&json!(1), &json!(flow.to_string())));
    let failed = &input["failedWorkflow"];
    assert_eq!((&failed["status"], &failed["input"]), (&json!("FAILED"), &json!({ "x": 1 })));
}

#[test]
fn what_somebody_ends_is_no_failure_unless_they_say_so() {
    let mut shop = shop();
    shop.define(line("cleanup", vec![work("c")]));
    let mut plan = line("wf", vec![work("a")]);
    plan.on_failure = Some(("cleanup".into(), None));
    shop.define(plan);
    for (as_failure, is_cleaned_up) in [(false, false), (true, true)] {
        let flow = shop.start("wf", json!({}));
        shop.control(flow, Steer::Terminate { reason: None, as_failure }).unwrap();
        assert_eq!(shop.status(flow), FlowStatus::Terminated);
        assert_eq!(shop.poll("c", "w").is_some(), is_cleaned_up);
    }
    let flow = shop.start("wf", json!({}));
    shop.control(flow, Steer::Remove).unwrap();
    assert!(shop.poll("c", "w").is_none());
}
