//! A worker: it polls tasks, keeps each while its function runs, and works in pieces where that is better.
//!
//! ```sh
//! tenure serve &
//! cargo run -p tenure --example worker
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure::{Client, Outcome, TaskContext, TaskType, Tasks, Worker};

/// Gives back the workflow after its end.
pub async fn run(url: &str) -> Result<Value, Box<dyn Error>> {
    let client = Client::builder().url(url).holder("worker-1").build()?;
    let tasks = client.tasks();
    define(&tasks).await?;
    let id = tasks.start_workflow("pictures", None, json!({ "path": "a.png" })).await?;

    let worker = Worker::new(client)
        .task(TaskType::new("resize", resize).concurrency(4))
        .task(TaskType::new("count_colours", count_colours));
    worker.run(until_ended(&tasks, &id)).await;
    Ok(tasks.request("GET", &format!("/workflow/{id}?includeTasks=true"), None).await?)
}

/// Takes longer than the response timeout of a second: its lease is extended meanwhile.
async fn resize(context: TaskContext) -> Outcome {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    context.add_log("resized");
    Outcome::Completed(context.task().input_data.clone())
}

/// Gives the task back between its pieces, so that no worker is bound to it.
async fn count_colours(context: TaskContext) -> Outcome {
    let counted = Map::from_iter([("colours".to_owned(), Value::from(100 * context.poll_count()))]);
    match context.poll_count() {
        0..2 => Outcome::InProgress { callback_after: Duration::ZERO, output: counted },
        _ => Outcome::Completed(counted),
    }
}

async fn define(tasks: &Tasks) -> Result<(), tenure::Error> {
    let definitions = ["resize", "count_colours"].map(
        |name| json!({ "name": name, "responseTimeoutSeconds": 1, "retryCount": 0, "ownerEmail": "a@example.org" }),
    );
    tasks.request("POST", "/metadata/taskdefs", Some(definitions.to_vec().into())).await?;
    let step = |name: &str, input: Value| json!({ "name": name, "taskReferenceName": name, "type": "SIMPLE", "inputParameters": input });
    let workflow = json!({ "name": "pictures", "version": 1, "schemaVersion": 2, "ownerEmail": "a@example.org", "tasks": [
        step("resize", json!({ "path": "${workflow.input.path}" })),
        step("count_colours", json!({ "path": "${resize.output.path}" })),
    ] });
    tasks.request("PUT", "/metadata/workflow", Some(json!([workflow]))).await.map(drop)
}

async fn until_ended(tasks: &Tasks, id: &str) {
    let path = format!("/workflow/{id}?includeTasks=false");
    let runs = |workflow: Value| workflow.get("status").is_some_and(|status| status == "RUNNING");
    while tasks.request("GET", &path, None).await.map_or(true, runs) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_URL").unwrap_or_else(|_| tenure::DEFAULT_URL.to_owned());
    println!("{:#}", run(&url).await?);
    Ok(())
}
