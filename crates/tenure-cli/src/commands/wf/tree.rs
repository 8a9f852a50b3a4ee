//! Owns the tree of a run: the steps as they are written in the workflow, with what became of each.
//!
//! A step that was tried again is one line with the latest attempt. The ways of forks and switches and the rounds of loops are
//! branches; ways that were not taken are shown without a state.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;

use crate::commands::task::info::{Task, attempt};
use crate::span;

/// How deep trees are drawn; the server allows no deeper ones.
const DEPTH_MAX: usize = 64;

/// A step with what became of it.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    step: String,
    #[serde(rename = "type")]
    kind: String,
    /// The latest attempt; nothing if it was not reached.
    task: Option<Task>,
    branches: Vec<Branch>,
}

/// A way of a fork or switch, or a round of a loop.
#[derive(Debug, Serialize)]
pub(super) struct Branch {
    name: String,
    steps: Vec<Step>,
}

/// The steps of a definition with their tasks.
pub(super) fn steps(definition: &Value, tasks: &[Task]) -> Vec<Step> {
    way(definition, tasks, "", 0)
}

fn way(definition: &Value, tasks: &[Task], round: &str, depth: usize) -> Vec<Step> {
    let listed = definition.as_array().map_or(&[][..], Vec::as_slice);
    if depth > DEPTH_MAX {
        return Vec::new();
    }
    listed.iter().map(|document| step(document, tasks, round, depth)).collect()
}

fn step(document: &Value, tasks: &[Task], round: &str, depth: usize) -> Step {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    let reference = format!("{}{round}", text("taskReferenceName"));
    let kind = Some(text("type")).filter(|kind| !kind.is_empty()).unwrap_or("SIMPLE").to_owned();
    let task = latest(tasks, &reference).cloned();
    let inner = |definition: &Value, round: &str| way(definition, tasks, round, depth + 1);
    let branches = match kind.as_str() {
        "FORK_JOIN" | "FORK" => {
            let ways = document.get("forkTasks").and_then(Value::as_array).into_iter().flatten();
            ways.enumerate().map(|(at, way)| branch(format!("way {}", at + 1), inner(way, round))).collect()
        }
        "SWITCH" => {
            let cases = document.get("decisionCases").and_then(Value::as_object).into_iter().flatten();
            let cases = cases.map(|(case, way)| branch(format!("case {case}"), inner(way, round)));
            let default = document.get("defaultCase").map(|way| branch("otherwise".to_owned(), inner(way, round)));
            cases.chain(default).filter(|branch| !branch.steps.is_empty()).collect()
        }
        "DO_WHILE" => {
            let body = document.get("loopOver").unwrap_or(&Value::Null);
            let rounds = task.as_ref().map_or(0, |task| task.iteration);
            (1..=rounds).map(|at| branch(format!("round {at}"), inner(body, &format!("{round}__{at}")))).collect()
        }
        "FORK_JOIN_DYNAMIC" => forked(task.as_ref(), tasks, round),
        _ => Vec::new(),
    };
    Step { step: reference, kind, task, branches }
}

/// The ways that a fork worked out while running: they are not in the definition.
fn forked(fork: Option<&Task>, tasks: &[Task], round: &str) -> Vec<Branch> {
    let names = fork.and_then(|fork| fork.output_data.get("forkedTasks")?.as_array());
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    let steps = names.map(|name| {
        let reference = format!("{name}{round}");
        let task = latest(tasks, &reference).cloned();
        let kind = task.as_ref().map_or("SIMPLE", |task| task.task_type.as_str()).to_owned();
        Step { step: reference, kind, task, branches: Vec::new() }
    });
    steps.enumerate().map(|(at, step)| branch(format!("way {}", at + 1), vec![step])).collect()
}

fn branch(name: String, steps: Vec<Step>) -> Branch {
    Branch { name, steps }
}

fn latest<'a>(tasks: &'a [Task], reference: &str) -> Option<&'a Task> {
    tasks.iter().rev().find(|task| task.reference_task_name == reference)
}

/// The tree, line by line.
pub(super) fn draw(steps: &[Step], now: SystemTime) -> Vec<String> {
    let mut lines = Vec::new();
    draw_into(&mut lines, steps, "", now);
    lines
}

fn draw_into(lines: &mut Vec<String>, steps: &[Step], indent: &str, now: SystemTime) {
    for (at, step) in steps.iter().enumerate() {
        let is_last = at + 1 == steps.len();
        let (corner, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{indent}{corner}{}", line(step, now)));
        let indent = format!("{indent}{below}");
        for (at, branch) in step.branches.iter().enumerate() {
            let is_last = at + 1 == step.branches.len();
            let (corner, below) = if is_last { ("└╴", "  ") } else { ("├╴", "│ ") };
            lines.push(format!("{indent}{corner}{}", branch.name));
            draw_into(lines, &branch.steps, &format!("{indent}{below}"), now);
        }
    }
}

/// `pack (SIMPLE)  IN_PROGRESS for 12s, w1, last heard of 3s ago, attempt 2`.
fn line(step: &Step, now: SystemTime) -> String {
    let name = match step.kind.as_str() {
        "SIMPLE" => step.step.clone(),
        kind => format!("{} [{kind}]", step.step),
    };
    let Some(task) = &step.task else { return format!("{name}  -") };
    let word = if task.end_time > 0 { "after" } else { "for" };
    let mut said = vec![match task.took(now) {
        Some(took) if task.start_time > 0 => format!("{} {word} {}", task.status, span::format(took)),
        _ => task.status.clone(),
    }];
    said.extend(task.worker_id.clone());
    if task.is_held() {
        said.extend(task.seen().map(|at| format!("last heard of {}", span::ago(at, now))));
    }
    if task.retry_count > 0 || task.poll_count > 1 {
        said.push(format!("attempt {}", attempt(task)));
    }
    said.extend(task.sub_workflow_id.clone());
    // An attempt that is not over has the reason of the one before it.
    let before = if task.end_time > 0 { "" } else { "after: " };
    said.extend(task.reason_for_incompletion.as_ref().map(|reason| format!("{before}{reason}")));
    format!("{name}  {}", said.join(", "))
}
