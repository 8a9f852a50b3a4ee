//! Workers: what a function is given, how its task is kept, and what ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure::{Outcome, TaskContext, TaskType, Tasks, Worker, blocking};
use tokio::sync::mpsc;

use super::{Running, client, members, scene, seen, soon};
use crate::rig::{Server, wait_until};

/// A worker with these functions.
fn run(server: &Server, kinds: impl IntoIterator<Item = TaskType>) -> Running<()> {
    let worker = Worker::new(client(server, "worker-1")).drain(Duration::from_secs(2));
    Running::start(|stopped| kinds.into_iter().fold(worker, Worker::task).run(stopped))
}

/// Defines a task with these rules and starts a workflow that has only it; its id.
async fn start(tasks: &Tasks, name: &str, rules: Value, more: Value) -> String {
    let mut definition = members(json!({ "name": name, "retryCount": 0, "responseTimeoutSeconds": 30 }));
    definition.extend(members(rules));
    tasks.request("POST", "/metadata/taskdefs", Some(json!([definition]))).await.unwrap();
    let step = json!({ "name": name, "taskReferenceName": "it", "type": "SIMPLE",
        "inputParameters": { "n": "${workflow.input.n}" } });
    let flow = json!({ "name": name, "version": 1, "schemaVersion": 2, "tasks": [step] });
    tasks.request("PUT", "/metadata/workflow", Some(json!([flow]))).await.unwrap();
    let mut body = members(json!({ "name": name, "input": { "n": 7 } }));
    body.extend(members(more));
    tasks.request("POST", "/workflow", Some(body.into())).await.unwrap().as_str().unwrap().to_owned()
}

async fn workflow(tasks: &Tasks, id: &str) -> Value {
    tasks.request("GET", &format!("/workflow/{id}?includeTasks=true"), None).await.unwrap()
}

/// The workflow after its end.
async fn ended(tasks: &Tasks, id: &str) -> Value {
    seen(async || Some(workflow(tasks, id).await).filter(|flow| flow["status"] != "RUNNING")).await
}

/// Never done: says that it began, and a task of its own says how the lease was lost. The function itself says when it is
/// dropped.
fn endless(name: &str) -> (TaskType, mpsc::UnboundedReceiver<String>) {
    struct OnDrop(mpsc::UnboundedSender<String>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            let _ = self.0.send("dropped".to_owned());
        }
    }
    let (told, heard) = mpsc::unbounded_channel();
    let kind = TaskType::new(name, move |context: TaskContext| {
        let told = told.clone();
        async move {
            let _dropped = OnDrop(told.clone());
            let _ = told.send("began".to_owned());
            let lost = context.lost();
            tokio::spawn(async move { told.send(format!("lost: {}", lost.await)) });
            std::future::pending().await
        }
    });
    (kind, heard)
}

/// What the function and its task say at the end, in whatever order.
async fn last_words(heard: &mut mpsc::UnboundedReceiver<String>) -> String {
    let mut words = [soon(heard.recv()).await.unwrap(), soon(heard.recv()).await.unwrap()];
    words.sort();
    assert_eq!(words[0], "dropped");
    words[1].clone()
}

#[tokio::test]
async fn a_function_gets_its_input_and_sends_its_output_and_its_logs() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let id = start(&tasks, "double", json!({}), json!({})).await;
    let double = TaskType::new("double", |context: TaskContext| async move {
        context.add_log("doubling");
        let n = context.task().input_data["n"].as_u64().unwrap();
        Outcome::Completed(members(json!({ "n": 2 * n })))
    });
    let running = run(&server, [double]);
    let flow = ended(&tasks, &id).await;
    assert_eq!((&flow["status"], &flow["tasks"][0]["outputData"]["n"]), (&"COMPLETED".into(), &14.into()));
    assert_eq!(flow["tasks"][0]["workerId"], "worker-1");
    let path = format!("/tasks/{}/log", flow["tasks"][0]["taskId"].as_str().unwrap());
    assert_eq!(tasks.request("GET", &path, None).await.unwrap()[0]["log"], "doubling");
    running.stop().await;
}

#[tokio::test]
async fn work_in_pieces_counts_its_polls_from_zero() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let id = start(&tasks, "pieces", json!({}), json!({})).await;
    let pieces = TaskType::new("pieces", |context: TaskContext| async move {
        let output = members(json!({ "piece": context.poll_count() }));
        match context.poll_count() {
            0 | 1 => Outcome::InProgress { callback_after: Duration::ZERO, output },
            _ => Outcome::Completed(output),
        }
    });
    let running = run(&server, [pieces]);
    let flow = ended(&tasks, &id).await;
    assert_eq!((&flow["tasks"][0]["pollCount"], &flow["tasks"][0]["outputData"]["piece"]), (&3.into(), &2.into()));
    running.stop().await;
}

#[tokio::test]
async fn a_failure_is_repeated_with_its_count_and_a_hopeless_one_is_not() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let rules = json!({ "retryCount": 3, "retryDelaySeconds": 0 });
    let again = start(&tasks, "again", rules.clone(), json!({})).await;
    let hopeless = start(&tasks, "hopeless", rules, json!({})).await;
    let kinds = [
        TaskType::new("again", |context: TaskContext| async move {
            match context.retry_count() {
                0 => Outcome::Failed("out of paper".to_owned()),
                count => Outcome::Completed(members(json!({ "count": count }))),
            }
        }),
        TaskType::new("hopeless", |_| async { Outcome::FailedForGood("no printer".to_owned()) }),
    ];
    let running = run(&server, kinds);
    let flow = ended(&tasks, &again).await;
    assert_eq!(flow["tasks"][0]["reasonForIncompletion"], "out of paper");
    assert_eq!(flow["tasks"][1]["outputData"]["count"], 1);
    let flow = ended(&tasks, &hopeless).await;
    assert_eq!(flow["tasks"].as_array().unwrap().len(), 1, "{flow:#}");
    assert_eq!(flow["tasks"][0]["status"], "FAILED_WITH_TERMINAL_ERROR");
    running.stop().await;
}

#[tokio::test]
async fn no_more_run_at_the_same_time_than_allowed_and_only_of_their_domain() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, peak) = (Arc::clone(&now), Arc::clone(&most));
    let gate = TaskType::new("gate", move |_| {
        let (now, most) = (Arc::clone(&inside), Arc::clone(&peak));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(200)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Outcome::Completed(Map::new())
        }
    });
    let mut flows = Vec::new();
    for _ in 0..9 {
        flows.push(start(&tasks, "gate", json!({}), json!({ "taskToDomain": { "gate": "dev" } })).await);
    }
    let elsewhere = start(&tasks, "gate", json!({}), json!({})).await;
    let running = run(&server, [gate.domain("dev").concurrency(3)]);
    for id in flows {
        assert_eq!(ended(&tasks, &id).await["status"], "COMPLETED");
    }
    assert_eq!((most.load(Ordering::SeqCst), now.load(Ordering::SeqCst)), (3, 0));
    assert_eq!(workflow(&tasks, &elsewhere).await["tasks"][0]["status"], "SCHEDULED");
    running.stop().await;
}

#[tokio::test]
async fn a_task_is_kept_for_several_response_timeouts() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let id = start(&tasks, "slow", json!({ "responseTimeoutSeconds": 1 }), json!({})).await;
    let slow = TaskType::new("slow", |_| async {
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        Outcome::Completed(Map::new())
    });
    let running = run(&server, [slow]);
    let flow = ended(&tasks, &id).await;
    assert_eq!((&flow["status"], flow["tasks"].as_array().unwrap().len()), (&"COMPLETED".into(), 1));
    running.stop().await;
}

#[tokio::test]
async fn a_function_without_extension_is_dropped_before_the_server_takes_its_task() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let id = start(&tasks, "slow", json!({ "responseTimeoutSeconds": 1 }), json!({})).await;
    let (slow, mut heard) = endless("slow");
    let running = run(&server, [slow.extend_lease(false)]);
    assert_eq!(soon(heard.recv()).await.unwrap(), "began");
    assert_eq!(last_words(&mut heard).await, "lost: no extension was accepted in time");
    assert_eq!(workflow(&tasks, &id).await["tasks"][0]["status"], "IN_PROGRESS", "told before the server took it back");
    assert_eq!(ended(&tasks, &id).await["tasks"][0]["status"], "TIMED_OUT");
    running.stop().await;
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_dropped_when_the_worker_stops() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    start(&tasks, "slow", json!({}), json!({})).await;
    let (slow, mut heard) = endless("slow");
    let running = run(&server, [slow]);
    assert_eq!(soon(heard.recv()).await.unwrap(), "began");
    running.stop().await;
    assert_eq!(soon(heard.recv()).await.unwrap(), "dropped");
}

#[tokio::test]
async fn a_function_whose_task_was_taken_away_is_told_how_and_dropped() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let id = start(&tasks, "slow", json!({ "responseTimeoutSeconds": 1 }), json!({})).await;
    let (slow, mut heard) = endless("slow");
    let running = run(&server, [slow]);
    assert_eq!(soon(heard.recv()).await.unwrap(), "began");
    tasks.request("DELETE", &format!("/workflow/{id}?reason=enough"), None).await.unwrap();
    let said = last_words(&mut heard).await;
    assert!(said == "lost: its workflow is over" || said.starts_with("lost: it was answered"), "{said}");
    assert_eq!(workflow(&tasks, &id).await["status"], "TERMINATED");
    running.stop().await;
}

#[tokio::test]
async fn a_task_that_timed_out_while_its_worker_was_stopped_is_not_answered_by_it() {
    let (_rig, server, author) = scene();
    let tasks = author.tasks();
    let id = start(&tasks, "slow", json!({ "responseTimeoutSeconds": 1 }), json!({})).await;
    let (slow, mut heard) = endless("slow");
    let running = run(&server, [slow]);
    assert_eq!(soon(heard.recv()).await.unwrap(), "began");
    // The runtime of the worker stands still, as a stopped process does, until the server has taken the task back.
    let (url, flow) = (server.url.clone(), id.clone());
    let elsewhere = std::thread::spawn(move || {
        let author = blocking::Client::new(tenure::Client::builder().url(url).holder("author")).unwrap();
        let tasks = author.asynchronous().tasks();
        wait_until("the server takes it back", || {
            author.wait_for(workflow(&tasks, &flow))["tasks"][0]["status"] == "TIMED_OUT"
        });
    });
    elsewhere.join().unwrap();
    assert!(last_words(&mut heard).await.starts_with("lost: "));
    let flow = workflow(&tasks, &id).await;
    assert_eq!(flow["tasks"][0]["status"], "TIMED_OUT", "{flow:#}");
    running.stop().await;
}
