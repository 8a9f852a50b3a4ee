//! What a workflow may cost: how deep it calls and nests, how much of it one turn does, and that nothing of it ends the process.

use serde_json::{Value, json};
use tenure_core::event::EventKind;
use tenure_core::flow::command::Steer;
use tenure_core::flow::{FlowStatus, Looping, Op};
use tenure_core::limits::{FLOW_DEPTH_MAX, NAME_BYTES_MAX, PAYLOAD_DEPTH_MAX, STEPS_PER_PLAN_MAX};

use crate::operators::{follow, run, shop};
use crate::shop::{line, plan, step, work};

#[test]
fn t5_a_workflow_that_fails_into_itself_ends_at_its_depth() {
    let mut shop = shop();
    let fails = step("t", Op::Terminate, json!({ "terminationStatus": "FAILED" }));
    let mut plan = line("self", vec![fails]);
    plan.on_failure = Some(("self".into(), None));
    shop.define(plan);
    let first = shop.start("self", json!({ "x": 1 }));
    assert_eq!(shop.of_kind(EventKind::FlowStarted).len(), FLOW_DEPTH_MAX as usize + 1);
    assert!(shop.output(first)["conductor.failure_workflow"].is_string());
    let inputs = shop.records.values().filter(|record| record.contains("conductor.failure_workflow.refused"));
    assert_eq!(inputs.count(), 1, "the last one says why nothing follows it");
    assert!(shop.records.values().all(|record| record.len() < 4_096), "runs do not carry all runs before them");
}

#[test]
fn a_workflow_of_which_all_steps_but_one_are_passed_over_is_complete_after_that_one() {
    let mut shop = shop();
    let steps = (0..STEPS_PER_PLAN_MAX).map(|at| work(&format!("s{at}"))).collect();
    shop.define(line("wf", steps));
    let flow = shop.start("wf", json!({}));
    for at in 1..STEPS_PER_PLAN_MAX {
        let reference = format!("s{at}").into();
        shop.control(flow, Steer::Skip { reference, input: None, output: None }).unwrap();
    }
    run(&mut shop, "s0");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn t5_large_payloads_count_as_many_steps_so_that_others_have_their_turn() {
    let mut shop = shop();
    let copies = (0..50).map(|at| step(&format!("s{at}"), Op::Noop, json!({ "all": "${workflow.input}" })));
    shop.define(line("wf", copies.collect()));
    let flow = shop.start("wf", json!({ "text": "x".repeat(500_000) }));
    let begun = shop.view(flow).tasks.len();
    assert!(begun < 5, "{begun} steps with half a megabyte each in one turn");
    shop.after(50);
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

#[test]
fn t5_a_round_of_a_long_loop_copies_what_the_rounds_before_it_left() {
    let mut shop = shop();
    let until = Looping::Items(json!("${workflow.input.list}").into());
    let steps = vec![
        follow(step("l", Op::Loop { body: 1, until }, json!({})), None),
        follow(step("n", Op::SetVariable, json!({ "at": "${l.output.loopItem}" })), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({ "list": (0..500).collect::<Vec<_>>() }));
    shop.restart();
    shop.after(5_000);
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    let output: Value = serde_json::from_str(shop.archived(flow).tasks[0].output.get()).unwrap();
    let rounds = (1..=500).map(|round| (&output[round.to_string()]["n"]["at"], round - 1));
    rounds.for_each(|(at, item)| assert_eq!(*at, json!(item)));
    assert_eq!((&output["iteration"], &output["loopItem"]), (&json!(500), &json!(499)));
    assert_eq!(output.as_object().unwrap().len(), 503);
}

#[test]
fn what_grows_too_deep_to_be_read_fails_and_says_so() {
    let mut shop = shop();
    let deeper = (0..PAYLOAD_DEPTH_MAX + 20).map(|at| {
        let before = if at == 0 { json!(0) } else { json!(format!("${{s{}.output}}", at - 1)) };
        step(&format!("s{at}"), Op::SetVariable, json!({ "x": before }))
    });
    shop.define(line("wf", deeper.collect()));
    let flow = shop.start("wf", json!({}));
    assert_eq!(shop.status(flow), FlowStatus::Failed);
    let archived = shop.archived(flow);
    assert_eq!(archived.tasks.len(), PAYLOAD_DEPTH_MAX + 1);
    assert!(archived.flow.reason.unwrap().contains("nested deeper than 100"));
}

#[test]
fn what_a_join_puts_together_is_readable_too() {
    let mut shop = shop();
    let deep = (1..PAYLOAD_DEPTH_MAX).fold(json!({}), |inside, _| json!({ "x": inside }));
    let steps = vec![
        follow(step("f", Op::Fork { ways: vec![1] }, json!({})), Some(2)),
        follow(step("v", Op::SetVariable, json!("${workflow.input}")), None),
        follow(step("j", Op::Join { on: vec!["v".into()] }, json!({})), None),
    ];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", deep);
    assert_eq!(shop.status(flow), FlowStatus::Failed);
    assert!(shop.archived(flow).flow.reason.unwrap().contains("nested deeper than 100"));
}

#[test]
fn a_name_made_up_while_running_is_bounded_like_any_other() {
    let mut shop = shop();
    let dynamic = step("x", Op::Dynamic { param: "which".into() }, json!({ "which": "${workflow.input.which}" }));
    shop.define(line("wf", vec![dynamic]));
    let names = [json!("n".repeat(NAME_BYTES_MAX + 1)), json!(" evaluator"), json!("a\nb"), json!(7)];
    for name in names {
        let flow = shop.start("wf", json!({ "which": name }));
        assert_eq!(shop.status(flow), FlowStatus::Failed, "{name}");
    }
    let longest = "n".repeat(NAME_BYTES_MAX);
    shop.start("wf", json!({ "which": longest }));
    assert!(shop.poll(&longest, "w").is_some());
}

#[test]
fn what_somebody_says_about_a_loop_takes_nothing_from_its_rounds() {
    let mut shop = shop();
    let until = Looping::Items(json!("${workflow.input.list}").into());
    let steps = vec![follow(step("l", Op::Loop { body: 1, until }, json!({})), None), follow(work("a"), None)];
    shop.define(plan("wf", steps));
    let flow = shop.start("wf", json!({ "list": [1, 2] }));
    run(&mut shop, "a");
    shop.update_step(flow, "l", crate::shop::give_back(0)).expect("it is there");
    run(&mut shop, "a");
    assert_eq!(shop.status(flow), FlowStatus::Completed);
    let output: Value = serde_json::from_str(shop.archived(flow).tasks[0].output.get()).unwrap();
    assert_eq!((&output["1"]["a"]["did"], &output["2"]["a"]["did"]), (&json!("a__1"), &json!("a__2")));
}

#[test]
fn the_input_of_a_failure_workflow_keeps_to_the_bounds_of_a_payload() {
    let mut shop = shop();
    shop.define(line("clean", vec![work("c")]));
    let mut plan = line("wf", vec![work("a")]);
    plan.on_failure = Some(("clean".into(), None));
    shop.define(plan);
    let deep = (1..PAYLOAD_DEPTH_MAX).fold(json!({}), |inside, _| json!({ "x": inside }));
    shop.start("wf", deep);
    let a = shop.poll("a", "w").unwrap();
    shop.fail(a.task.id, "w");
    let c = shop.poll("c", "w").expect("it was started");
    let input: Value = serde_json::from_str(shop.view(c.task.flow).flow.input.get()).unwrap();
    assert!(input["workflowId"].is_string() && input.get("failedWorkflow").is_none());
}
