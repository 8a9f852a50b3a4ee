//! Owns what the ledger must not do itself: scripts and other people's documents, worked out away from its desk.
//!
//! It is a worker like any other: it polls for questions, holds each by a lease, and answers with a command. A question
//! whose evaluator died is asked again. Scripts and queries have bounds on their time, their memory and their results, and no
//! way out: nothing but the language itself is there.

mod query;
mod script;

use serde_json::{Value, json};
use tenure_core::flow::Step;
use tenure_core::flow::command::{Answer, Evaluated};
use tenure_core::ledger::EVALUATOR_QUEUE;
use tenure_core::task::command::{Claimant, Poll, QueueName, TaskView};
use tenure_core::task::{to_json, to_value};

use super::compile;
use super::fault::Fault;
use super::workflows::StartDoc;
use crate::http::App;

/// How many questions are worked on at once.
const AT_ONCE: usize = 2;
/// How long a poll for questions waits.
const POLL_MS: u64 = 5_000;
/// The ways of one fork.
const WAYS_MAX: usize = 5_000;

/// Answers questions until the server is told to stop.
pub(crate) async fn run(app: App) {
    loop {
        let poll = Poll {
            queue: QueueName { name: EVALUATOR_QUEUE.into(), domain: None },
            by: Claimant { worker: None, grace_ms: 0 },
            count: AT_ONCE,
            wait_ms: POLL_MS,
        };
        let tasks = tokio::select! {
            () = app.closing() => return,
            tasks = app.engine().poll(poll) => tasks,
        };
        match tasks {
            Ok(tasks) => futures_util::future::join_all(tasks.into_iter().map(|task| answer(&app, task))).await,
            Err(_) if !app.engine().is_running() => return,
            // Too much stands in line; the next poll comes when there is room.
            Err(_) => vec![tokio::time::sleep(std::time::Duration::from_millis(POLL_MS)).await],
        };
    }
}

async fn answer(app: &App, view: TaskView) {
    let Some(token) = view.task.token else { return };
    let task = view.task.id;
    let asked = view.task.extra.as_ref().and_then(|extra| extra.asked.as_deref()).map(to_value).unwrap_or_default();
    let answer = if asked.get("what").and_then(Value::as_str) == Some("transform") {
        let input = asked.get("input").cloned().unwrap_or_default();
        query::transform(app.0.config.query_helper.as_deref(), input).await
    } else {
        let worked_out = tokio::task::spawn_blocking(move || work_out(&view, &asked)).await;
        worked_out.unwrap_or_else(|_| Err("the evaluation failed".into()))
    };
    // Late or not, there is nobody to tell.
    app.engine().apply(Evaluated { task, token, answer }).await.ok();
}

fn work_out(view: &TaskView, asked: &Value) -> Result<Answer, Box<str>> {
    let input = asked.get("input").cloned().unwrap_or_default();
    let expression = asked.get("expression").and_then(Value::as_str);
    match asked.get("what").and_then(Value::as_str) {
        Some("script") => script::evaluate(expression.unwrap_or_default(), &input).map(Answer::Value),
        Some("inline") => inline(&input),
        Some("fork") => fork(&view.step, &input).map(Answer::Ways).map_err(|fault| fault.message().into()),
        Some("start") => start(&input).map_err(|fault| fault.message().into()),
        _ => Err("this cannot be evaluated here".into()),
    }
}

fn inline(input: &Value) -> Result<Answer, Box<str>> {
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    match text("evaluatorType").unwrap_or("javascript") {
        "javascript" | "graaljs" => {}
        "value-param" => {
            let found = text("expression").and_then(|name| input.get(name)).cloned().unwrap_or_default();
            return Ok(Answer::Output(to_json(&json!({ "result": found }))));
        }
        other => return Err(format!("evaluatorType {other} is not there in Tenure").into()),
    }
    let expression = text("expression").or_else(|| text("scriptExpression"));
    let expression = expression.ok_or("the input has no expression")?;
    let result = script::evaluate(expression, input)?;
    Ok(Answer::Output(to_json(&json!({ "result": result }))))
}

/// The ways of a fork from its input: a list of tasks with an input for each, or one task with many inputs.
fn fork(step: &Step, input: &Value) -> Result<Vec<Vec<Step>>, Fault> {
    if let Some(name) = input.get("forkTaskName").and_then(Value::as_str) {
        return fork_of_one(name, input);
    }
    let document = step.document.as_deref().map(to_value).unwrap_or_default();
    let param = |field: &str, usual: &str| {
        document.get(field).and_then(Value::as_str).filter(|name| !name.is_empty()).unwrap_or(usual).to_owned()
    };
    let tasks = input.get(param("dynamicForkTasksParam", "dynamicTasks")).and_then(Value::as_array);
    let tasks = tasks.ok_or_else(|| Fault::bad("the tasks of the fork are not a list"))?;
    let inputs = input.get(param("dynamicForkTasksInputParamName", "dynamicTasksInput"));
    check_count(tasks.len())?;
    tasks
        .iter()
        .map(|task| {
            let reference = task.get("taskReferenceName").and_then(Value::as_str).unwrap_or_default();
            Ok(vec![compile::lone_step(task, inputs.and_then(|inputs| inputs.get(reference)))?])
        })
        .collect()
}

fn fork_of_one(name: &str, input: &Value) -> Result<Vec<Vec<Step>>, Fault> {
    let inputs = input.get("forkTaskInputs").and_then(Value::as_array);
    let inputs = inputs.ok_or_else(|| Fault::bad("forkTaskInputs is not a list"))?;
    check_count(inputs.len())?;
    let kind = input.get("forkTaskType").and_then(Value::as_str).unwrap_or("SIMPLE");
    inputs
        .iter()
        .enumerate()
        .map(|(at, given)| {
            let task = json!({ "name": name, "taskReferenceName": format!("_{name}_{at}"), "type": kind });
            let given = if given.is_object() { given.clone() } else { json!({ "input": given }) };
            let mut given = given;
            if let Value::Object(fields) = &mut given {
                fields.insert("__index".to_owned(), at.into());
            }
            Ok(vec![compile::lone_step(&task, Some(&given))?])
        })
        .collect()
}

fn check_count(count: usize) -> Result<(), Fault> {
    if count > WAYS_MAX {
        return Err(Fault::bad(format!("a fork has at most {WAYS_MAX} ways, not {count}")));
    }
    Ok(())
}

fn start(input: &Value) -> Result<Answer, Fault> {
    let document = input.get("startWorkflow").cloned().unwrap_or_default();
    let doc: StartDoc =
        serde_json::from_value(document).map_err(|error| Fault::bad(format!("startWorkflow: {error}")))?;
    Ok(Answer::Start(Box::new(doc.start()?)))
}
