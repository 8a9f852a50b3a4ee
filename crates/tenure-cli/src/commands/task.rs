//! `tenure task`: who runs what, for how long, and when it last gave a sign of life.

pub(super) mod info;

use std::time::SystemTime;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure::Client;

use self::info::{Task, attempt, unreadable};
use crate::connect::{self, Connect};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table::Table;
use crate::{refused, span};

/// Look at tasks that workers poll.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List tasks that are not over: who runs what, for how long, with which attempt
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one task, what it was given, what came of it, and what its workers said
    Show {
        /// The task, as 'task ls' or 'wf show' printed it
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only tasks of this name
    #[arg(long)]
    name: Option<String>,
    /// Only tasks of this worker
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Only tasks of this workflow run
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// Only tasks in this state: SCHEDULED or IN_PROGRESS
    #[arg(long, value_parser = ["SCHEDULED", "IN_PROGRESS"], ignore_case = true)]
    status: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 1_000)]
    limit: usize,
}

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    let client = args.connect.client(connect::user_at_host(), connect::PATIENCE)?;
    match &args.verb {
        Verb::Ls(args) => list(&client, args, output).await,
        Verb::Show { id } => show(&client, id, output).await,
    }
}

async fn list(client: &Client, args: &ListArgs, output: Output) -> Outcome {
    let status = args.status.as_ref().map(|status| status.to_uppercase());
    let wanted = [
        ("taskType", args.name.as_ref()),
        ("workerId", args.worker.as_ref()),
        ("workflowId", args.workflow.as_ref()),
        ("status", status.as_ref()),
    ];
    let query = conditions(&wanted)?;
    let found = ask(client, "GET", &format!("/tasks/search?start=0&size={}&query={query}", args.limit), None).await?;
    let tasks: Vec<Task> = rows(found)?;
    output.result(&json!({ "tasks": tasks }), || table(&tasks, SystemTime::now()));
    Ok(Exit::OK)
}

/// One call of the door that tasks and workflows are asked through.
pub(super) async fn ask(client: &Client, method: &str, path: &str, body: Option<Value>) -> Result<Value, Failure> {
    client.tasks().request(method, path, body).await.map_err(|error| refused::explain(&error))
}

/// The page of a search.
pub(super) fn rows<T: serde::de::DeserializeOwned>(mut found: Value) -> Result<Vec<T>, Failure> {
    let results = found.get_mut("results").map(Value::take).unwrap_or_default();
    serde_json::from_value(results).map_err(unreadable)
}

/// What a search looks for, ready for an address.
pub(super) fn conditions(wanted: &[(&str, Option<&String>)]) -> Result<String, Failure> {
    let mut all = Vec::new();
    for (field, value) in wanted {
        let Some(value) = value else { continue };
        if value.contains(['"', ',', '(', ')']) || value.contains(" AND ") || value.contains(" IN ") {
            return Err(Failure::usage(format!(
                "{value:?} cannot be searched for: it has signs that a query is made of"
            )));
        }
        all.push(format!("{field}=\"{value}\""));
    }
    Ok(escaped(&all.join(" AND ")))
}

/// A text as a part of an address.
pub(super) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn table(tasks: &[Task], now: SystemTime) -> String {
    if tasks.is_empty() {
        return "No tasks".to_owned();
    }
    let mut table = Table::new(&["WORKER", "TASK", "STATE", "FOR", "HEARTBEAT", "ATTEMPT", "WORKFLOW", "ID"]);
    for task in tasks {
        let heartbeat = match task.is_held() {
            true => task.seen().map(|at| span::ago(at, now)).unwrap_or_default(),
            false => "-".to_owned(),
        };
        table.row([
            task.worker_id.clone().filter(|_| task.is_held()).unwrap_or_else(|| "-".to_owned()),
            task.task_def_name.clone(),
            task.status.clone(),
            task.since().and_then(|at| now.duration_since(at).ok()).map(span::format).unwrap_or_default(),
            heartbeat,
            attempt(task),
            format!("{} {}", task.workflow_type, task.workflow_instance_id),
            task.task_id.clone(),
        ]);
    }
    table.render()
}

async fn show(client: &Client, id: &str, output: Output) -> Outcome {
    let path = format!("/tasks/{}", escaped(id));
    let found = ask(client, "GET", &path, None).await?;
    let (given, made) = (found.get("inputData").cloned(), found.get("outputData").cloned());
    let task: Task = serde_json::from_value(found).map_err(unreadable)?;
    let logs = ask(client, "GET", &format!("{path}/log"), None).await?;
    let lines: Vec<&str> = logs.as_array().into_iter().flatten().filter_map(|log| log.get("log")?.as_str()).collect();
    let data = json!({ "task": task, "input": given, "output": made, "logs": lines });
    output.result(&data, || {
        let mut text = facts(&task, SystemTime::now());
        for (name, value) in [("Input", &given), ("Output", &made)] {
            let value = value.as_ref().filter(|value| value.as_object().is_some_and(|fields| !fields.is_empty()));
            text.extend(value.map(|value| format!("  {name}: {value}")));
        }
        text.extend(lines.iter().map(|line| format!("  Said: {line}")));
        text.join("\n")
    });
    Ok(Exit::OK)
}

/// The facts of one task, a line each.
fn facts(task: &Task, now: SystemTime) -> Vec<String> {
    let mut lines = vec![
        format!("Task {}", task.task_id),
        format!("  Name: {}", task.task_def_name),
        format!("  State: {}", task.status),
        format!("  Workflow: {} {}", task.workflow_type, task.workflow_instance_id),
        format!("  Step: {}", task.reference_task_name),
        format!("  Attempt: {}", attempt(task)),
    ];
    let mut line = |name: &str, text: Option<String>| lines.extend(text.map(|text| format!("  {name}: {text}")));
    let moment = |at: SystemTime| format!("{} ({})", span::utc(at), span::ago(at, now));
    line("Retry of", task.retried_task_id.clone());
    line(if task.is_held() { "Held by" } else { "Last held by" }, task.worker_id.clone());
    line("Token", task.token.map(|token| token.to_string()));
    line("Scheduled", info::at(task.scheduled_time).map(moment));
    line("Started", info::at(task.start_time).map(moment));
    line("Last heard of", task.seen().filter(|_| task.is_held()).map(moment));
    line("Ended", info::at(task.end_time).map(moment));
    line("Reason", task.reason_for_incompletion.clone());
    lines
}
