//! `tenure workflow`: check, run and look at workflow files.
//!
//! On a terminal a run is shown as one line for each step, redrawn as it goes; anywhere else every change is a line of its own.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_server::workflow_file::{self, Remark};

use crate::connect::{self, Connect};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::refused;

/// How long a single call tries to reach the server.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a run is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Check, run and look at workflow files.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read a file and say what is wrong with it; needs no server
    Validate {
        /// The workflow file
        file: PathBuf,
    },
    /// Run a file on a server and follow it to its end; exits with 1 if a step fails
    Run {
        /// The workflow file
        file: PathBuf,
        /// Print the id and return; do not follow
        #[arg(long)]
        detach: bool,
    },
    /// Show a run
    Status {
        /// The run, as 'workflow run' printed it
        id: String,
    },
}

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    match &args.verb {
        Verb::Validate { file } => validate(file, output),
        Verb::Run { file, detach } => start(args, file, *detach, output).await,
        Verb::Status { id } => {
            let client = args.connect.client(connect::user_at_host(), PATIENCE)?;
            let view = client.workflow(id).await.map_err(|error| refused::explain(&error))?;
            output.result(&view, || page(&view).join("\n"));
            Ok(Exit::OK)
        }
    }
}

fn text_of(file: &PathBuf) -> Result<String, Failure> {
    let cannot = |error| Failure::usage(format!("{} cannot be read: {error}", file.display()));
    std::fs::read_to_string(file).map_err(cannot)
}

fn validate(file: &PathBuf, output: Output) -> Outcome {
    let text = text_of(file)?;
    let name = file.display().to_string();
    let read = workflow_file::read(&text).map_err(|remarks| wrong(&name, &remarks))?;
    for warning in &read.warnings {
        output.note(&format!("{name}: {warning}"));
    }
    let steps = read.graph.steps().len();
    let warnings: Vec<Value> = read.warnings.iter().map(placed).collect();
    output.result(&json!({ "name": read.name, "steps": steps, "warnings": warnings }), || {
        format!("{name}: {} is a valid workflow of {steps} steps", read.name)
    });
    Ok(Exit::OK)
}

fn wrong(name: &str, remarks: &[Remark]) -> Failure {
    let lines: Vec<String> = remarks.iter().map(|remark| format!("{name}: {remark}")).collect();
    let errors: Vec<Value> = remarks.iter().map(placed).collect();
    Failure::new(Exit::USAGE, "invalid_workflow", lines.join("\n")).detail("errors", errors)
}

fn placed(remark: &Remark) -> Value {
    json!({ "line": remark.place.line, "column": remark.place.column, "message": remark.message })
}

async fn start(args: &Args, file: &PathBuf, detach: bool, output: Output) -> Outcome {
    let text = text_of(file)?;
    // Said with the file's name, and before the server is asked.
    workflow_file::read(&text).map_err(|remarks| wrong(&file.display().to_string(), &remarks))?;
    let client = args.connect.client(connect::user_at_host(), PATIENCE)?;
    let started = client.run_workflow(&text).await.map_err(|error| refused::explain(&error))?;
    let id = text_in(&started, "id").to_owned();
    if detach {
        output.result(&started, || id.clone());
        return Ok(Exit::OK);
    }
    output.note(&format!("running {} as {id}", text_in(&started, "name")));
    let mut display = Display::new(output);
    let mut view = started;
    loop {
        display.show(&view);
        if text_in(&view, "status") != "running" {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        view = client.workflow(&id).await.map_err(|error| refused::explain(&error))?;
    }
    if output.json {
        output.result(&view, String::new);
    }
    Ok(if text_in(&view, "status") == "completed" { Exit::OK } else { Exit::FAILURE })
}

/// Shows a run as it goes.
struct Display {
    output: Output,
    is_live: bool,
    shown: Vec<String>,
}

impl Display {
    fn new(output: Output) -> Display {
        Display { output, is_live: !output.json && std::io::stdout().is_terminal(), shown: Vec::new() }
    }

    fn show(&mut self, view: &Value) {
        if self.output.json {
            return;
        }
        let lines = page(view);
        if self.is_live {
            let mut out = anstream::stdout();
            let up = if self.shown.is_empty() { String::new() } else { format!("\x1b[{}A", self.shown.len()) };
            let body: String = lines.iter().map(|line| format!("\x1b[2K{line}\n")).collect();
            let _ = write!(out, "{up}{body}").and_then(|()| out.flush());
        } else {
            // Countdowns are for eyes; a log is told what changed.
            let lines: Vec<String> = lines.iter().map(|line| without_countdown(line)).collect();
            for (at, line) in lines.iter().enumerate() {
                if self.shown.get(at) != Some(line) {
                    self.output.plain(line);
                }
            }
            self.shown = lines;
            return;
        }
        self.shown = lines;
    }
}

fn without_countdown(line: &str) -> String {
    line.split(", next try in").next().unwrap_or(line).to_owned()
}

/// A line for the run and one for each step.
fn page(view: &Value) -> Vec<String> {
    let steps = view.get("steps").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let width = steps.iter().map(|step| text_in(step, "name").chars().count()).max().unwrap_or(0);
    let mut lines = vec![format!("{} ({}): {}", text_in(view, "name"), text_in(view, "id"), text_in(view, "status"))];
    lines.extend(steps.iter().map(|step| format!("  {:width$}  {}", text_in(step, "name"), doing(step))));
    lines
}

fn doing(step: &Value) -> String {
    let number = |name: &str| step.get(name).and_then(Value::as_u64).unwrap_or(0);
    let attempt = format!("attempt {} of {}", number("attempt"), number("max_attempts"));
    let agent = step.get("assign").and_then(Value::as_str).unwrap_or("nobody");
    match text_in(step, "phase") {
        "running" => format!("running, {attempt}, by {}", text_in(step, "holder")),
        "ready" => format!("waiting for {agent}, {attempt}"),
        "retrying" => {
            let seconds = number("next_try_in_ms").div_ceil(1_000);
            format!("{attempt} after: {}, next try in {seconds} s", text_in(step, "last_error"))
        }
        "failed" => format!("failed: {}", text_in(step, "last_error")),
        phase => phase.to_owned(),
    }
}

fn text_in<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}
