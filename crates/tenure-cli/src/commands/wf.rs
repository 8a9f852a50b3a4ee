//! `tenure wf`: runs of registered workflows: which go on, how far they are, starting and terminating them.

mod tree;

use std::time::SystemTime;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure::Client;

use super::task::info::{self, Task, rfc3339, unreadable};
use super::task::{ask, conditions, escaped, rows};
use crate::connect::{self, Connect};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::span;
use crate::table::Table;

/// How runs stand.
const STATES: [&str; 6] = ["RUNNING", "PAUSED", "COMPLETED", "FAILED", "TIMED_OUT", "TERMINATED"];

/// Start, list, look at and terminate runs of registered workflows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List runs, the newest first
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show a run as a tree: every step, its state, who has it, for how long
    Show {
        /// The run
        id: String,
    },
    /// Start a run of a registered workflow and print its id
    Start(StartArgs),
    /// End a run: its tasks are canceled, and their workers lose their leases
    Terminate {
        /// The run
        id: String,
        /// Why; everyone who looks at the run is told
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only runs of this workflow
    #[arg(long)]
    name: Option<String>,
    /// Only runs in this state
    #[arg(long, value_parser = STATES, ignore_case = true)]
    status: Option<String>,
    /// Only runs with this correlation id
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
struct StartArgs {
    /// The workflow
    name: String,
    /// Which version [default: the latest]
    #[arg(long)]
    version: Option<u32>,
    /// What the run is given: a JSON object
    #[arg(long, value_name = "JSON", value_parser = super::lease::json_object)]
    input: Option<Value>,
    /// Your own name for the run
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// Larger is handed out first: 0 to 99
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=99), default_value_t = 0)]
    priority: u8,
    /// The same key gets the same run: makes it safe to run this command again
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    let client = args.connect.client(connect::user_at_host(), connect::PATIENCE)?;
    match &args.verb {
        Verb::Ls(args) => list(&client, args, output).await,
        Verb::Show { id } => show(&client, id, output).await,
        Verb::Start(args) => start(&client, args, output).await,
        Verb::Terminate { id, reason } => terminate(&client, id, reason.as_deref(), output).await,
    }
}

/// A run, without its steps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    workflow_id: String,
    workflow_name: String,
    workflow_version: u32,
    status: String,
    create_time: u64,
    end_time: u64,
    correlation_id: Option<String>,
    reason_for_incompletion: Option<String>,
    parent_workflow_id: Option<String>,
}

impl Run {
    fn json(&self) -> Value {
        json!({
            "id": self.workflow_id, "name": self.workflow_name, "version": self.workflow_version, "status": self.status,
            "started_at": rfc3339(self.create_time), "ended_at": rfc3339(self.end_time),
            "correlation": self.correlation_id, "reason": self.reason_for_incompletion,
            "parent": self.parent_workflow_id,
        })
    }

    /// How long it took, or has been going on.
    fn took(&self, now: SystemTime) -> String {
        let end = info::at(self.end_time).unwrap_or(now);
        let took = info::at(self.create_time).and_then(|start| end.duration_since(start).ok());
        took.map(span::format).unwrap_or_default()
    }
}

async fn list(client: &Client, args: &ListArgs, output: Output) -> Outcome {
    let status = args.status.as_ref().map(|status| status.to_uppercase());
    let wanted = [
        ("workflowType", args.name.as_ref()),
        ("status", status.as_ref()),
        ("correlationId", args.correlation.as_ref()),
    ];
    let query = conditions(&wanted)?;
    let path = format!("/workflow/search?start=0&size={}&query={query}", args.limit);
    let runs: Vec<Run> = rows(ask(client, "GET", &path, None).await?)?;
    let data: Vec<Value> = runs.iter().map(Run::json).collect();
    output.result(&json!({ "workflows": data }), || table(&runs, SystemTime::now()));
    Ok(Exit::OK)
}

fn table(runs: &[Run], now: SystemTime) -> String {
    if runs.is_empty() {
        return "No workflow runs".to_owned();
    }
    let mut table = Table::new(&["WORKFLOW", "STATE", "STARTED", "TOOK", "CORRELATION", "ID"]);
    for run in runs {
        table.row([
            format!("{} v{}", run.workflow_name, run.workflow_version),
            run.status.clone(),
            info::at(run.create_time).map(|at| span::ago(at, now)).unwrap_or_default(),
            run.took(now),
            run.correlation_id.clone().unwrap_or_else(|| "-".to_owned()),
            run.workflow_id.clone(),
        ]);
    }
    table.render()
}

async fn show(client: &Client, id: &str, output: Output) -> Outcome {
    let found = ask(client, "GET", &format!("/workflow/{}", escaped(id)), None).await?;
    let field = |name: &str| found.get(name).cloned().unwrap_or_default();
    let tasks: Vec<Task> = serde_json::from_value(field("tasks")).map_err(unreadable)?;
    let steps = tree::steps(field("workflowDefinition").get("tasks").unwrap_or(&Value::Null), &tasks);
    let run: Run = serde_json::from_value(found.clone()).map_err(unreadable)?;
    let data = json!({
        "workflow": run.json(), "input": field("input"), "output": field("output"), "variables": field("variables"),
        "steps": steps, "tasks": tasks,
    });
    output.result(&data, || {
        let now = SystemTime::now();
        let word = if run.end_time > 0 { "after" } else { "for" };
        let mut lines = vec![format!(
            "{} v{} ({}): {} {word} {}",
            run.workflow_name,
            run.workflow_version,
            run.workflow_id,
            run.status,
            run.took(now)
        )];
        lines.extend(run.reason_for_incompletion.as_ref().map(|reason| format!("Reason: {reason}")));
        lines.extend(tree::draw(&steps, now));
        lines.join("\n")
    });
    Ok(Exit::OK)
}

async fn start(client: &Client, args: &StartArgs, output: Output) -> Outcome {
    let body = json!({
        "name": args.name, "version": args.version, "input": args.input, "correlationId": args.correlation,
        "priority": args.priority, "idempotencyKey": args.idempotency_key,
    });
    let id = ask(client, "POST", "/workflow", Some(body)).await?;
    let id = id.as_str().ok_or_else(|| Failure::new(Exit::FAILURE, "bad_answer", "the server gave no id"))?;
    output.result(&json!({ "id": id }), || id.to_owned());
    Ok(Exit::OK)
}

async fn terminate(client: &Client, id: &str, reason: Option<&str>, output: Output) -> Outcome {
    let query = reason.map(|reason| format!("?reason={}", escaped(reason))).unwrap_or_default();
    ask(client, "DELETE", &format!("/workflow/{}{query}", escaped(id)), None).await?;
    output.result(&json!({ "id": id, "status": "TERMINATED", "reason": reason }), || format!("Terminated {id}"));
    Ok(Exit::OK)
}
