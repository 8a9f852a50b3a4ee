use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::{Outcome, TaskContext, TaskType, Worker};
use tokio::sync::{Notify, mpsc};

use crate::fake::{Fake, PATIENCE, Reply};

const POLL: &str = "GET /api/tasks/poll/batch/long";
const EXTEND: &str = "POST /api/tasks";
const UPDATE: &str = "POST /api/tasks/update-v2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_extension_that_hangs_does_not_cost_the_worker_its_task() {
    let fake = Fake::start();
    let task = json!({ "taskId": "t", "workflowInstanceId": "w", "responseTimeoutSeconds": 3 });
    fake.once(POLL, Reply::Json(200, json!([task]))).always(POLL, |_| Reply::Json(200, json!([])));
    fake.once(EXTEND, Reply::Hang).always(EXTEND, |_| Reply::Json(200, json!("t")));
    let (told, mut heard) = mpsc::unbounded_channel();
    let long = TaskType::new("long", move |context: TaskContext| {
        let told = told.clone();
        async move {
            let _ = told.send(context.lost().await);
            std::future::pending().await
        }
    });
    let worker = Worker::new(fake.client()).task(long).drain(Duration::ZERO);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async { drop(stopped.await) }));
    // The third comes when the second was accepted and most of another timeout has passed.
    tokio::task::block_in_place(|| fake.wait_for(EXTEND, 3));
    assert!(heard.try_recv().is_err(), "it was lost");
    drop(stop);
    running.await.unwrap();
}

#[tokio::test]
async fn a_worker_that_was_told_to_stop_takes_no_other_task_with_its_last_result() {
    let fake = Fake::start();
    let task = json!({ "taskId": "t", "workflowInstanceId": "w" });
    fake.once(POLL, Reply::Json(200, json!([task])));
    fake.once("POST /api/tasks", Reply::Json(200, json!("t")));
    let (began, mut begun) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    let one = TaskType::new("long", move |_| {
        let (began, wait) = (began.clone(), Arc::clone(&wait));
        async move {
            let _ = began.send(());
            wait.notified().await;
            Outcome::Completed(serde_json::Map::new())
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(Worker::new(fake.client()).task(one).run(async { drop(stopped.await) }));
    begun.recv().await.unwrap();
    // One thread: the worker is told before its function goes on.
    drop(stop);
    go_on.notify_one();
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(fake.seen("POST /api/tasks")[0].body["status"], "COMPLETED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_panics_has_failed_and_the_worker_goes_on() {
    let fake = Fake::start();
    let task = |id: &str| json!([{ "taskId": id, "workflowInstanceId": "w" }]);
    fake.once(POLL, Reply::Json(200, task("a"))).once(POLL, Reply::Json(200, task("b")));
    fake.always(POLL, |_| Reply::Json(200, json!([]))).always(UPDATE, |_| Reply::Json(200, json!(null)));
    // One panics before there is anything to await, the other behind it.
    let one = TaskType::new("long", |context: TaskContext| {
        assert!(context.task().task_id != "a", "not this one");
        async {
            tokio::task::yield_now().await;
            panic!("nor that")
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(Worker::new(fake.client()).task(one).run(async { drop(stopped.await) }));
    tokio::task::block_in_place(|| fake.wait_for(UPDATE, 2));
    drop(stop);
    running.await.unwrap();
    let said = fake.seen(UPDATE).into_iter().map(|seen| seen.body);
    let said: Vec<_> = said.map(|body| format!("{} {}", body["status"], body["reasonForIncompletion"])).collect();
    assert_eq!(said, [r#""FAILED" "it panicked: not this one""#, r#""FAILED" "it panicked: nor that""#]);
}
