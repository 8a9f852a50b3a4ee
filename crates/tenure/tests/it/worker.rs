use std::time::Duration;

use serde_json::json;
use tenure::{TaskContext, TaskType, Worker};
use tokio::sync::mpsc;

use crate::fake::{Fake, Reply};

const EXTEND: &str = "POST /api/tasks";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_extension_that_hangs_does_not_cost_the_worker_its_task() {
    let fake = Fake::start();
    let task = json!({ "taskId": "t", "workflowInstanceId": "w", "responseTimeoutSeconds": 3 });
    fake.once("GET /api/tasks/poll/batch/long", Reply::Json(200, json!([task])))
        .always("GET /api/tasks/poll/batch/long", |_| Reply::Json(200, json!([])));
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
