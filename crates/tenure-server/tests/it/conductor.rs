//! The Conductor door over real sockets, with a clock that stands still.

use serde_json::{Value, json};

use crate::harness::{Answer, Request, Server};

impl Server {
    /// Registers a workflow of this one task and starts it.
    async fn one_task(&self, name: &str, rules: Value) -> String {
        let mut def = json!({ "name": name, "retryCount": 3, "retryDelaySeconds": 0, "responseTimeoutSeconds": 10 });
        def.as_object_mut().unwrap().extend(rules.as_object().unwrap().clone());
        assert_eq!(self.post("/api/metadata/taskdefs", json!([def])).await.status, 200);
        let flow = json!({ "name": "wf", "tasks": [{ "name": name, "taskReferenceName": name }] });
        self.send(Request::new("PUT", "/api/metadata/workflow").json(&json!([flow]))).await;
        let started = self.post("/api/workflow", json!({ "name": "wf" })).await;
        assert_eq!(started.status, 200, "{started:?}");
        String::from_utf8(started.body).unwrap()
    }

    async fn poll(&self, name: &str, worker: &str) -> Value {
        self.get(&format!("/api/tasks/poll/batch/{name}?workerid={worker}&timeout=0")).await.json()[0].clone()
    }

    /// An update of a polled task by its holder, with these fields besides.
    async fn update(&self, path: &str, task: &Value, more: Value) -> Answer {
        let mut body = json!({ "taskId": task["taskId"], "workflowInstanceId": task["workflowInstanceId"] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post(path, body).await
    }

    async fn late(&self) -> Vec<Value> {
        let events = self.get("/v1/events").await.json();
        events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "task.late").cloned().collect()
    }
}

const BEAT: fn() -> Value = || json!({ "status": "IN_PROGRESS", "extendLease": true });

#[tokio::test]
async fn a_polled_task_shows_the_token_of_its_lease_as_long_as_it_is_held() {
    let server = Server::start().await;
    server.one_task("a", json!({})).await;
    let task = server.poll("a", "w1").await;
    let token = task["token"].as_u64().expect("a number");
    let lease = &server.get("/v1/leases").await.json()["leases"][0];
    assert_eq!((&lease["token"], &lease["holder"]), (&json!(token), &json!("w1")));
    let path = format!("/api/tasks/{}", task["taskId"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["token"], token);
    server.update("/api/tasks", &task, json!({ "status": "IN_PROGRESS" })).await;
    assert_eq!(server.get(&path).await.json().get("token"), None, "nobody holds it");
    let again = server.poll("a", "w1").await;
    assert!(again["token"].as_u64() > Some(token), "every poll is a lease of its own");
}

#[tokio::test]
async fn a_stale_token_changes_nothing_even_from_the_worker_that_holds_the_task() {
    let server = Server::start().await;
    server.one_task("a", json!({})).await;
    let first = server.poll("a", "w1").await;
    let yielded =
        server.update("/api/tasks", &first, json!({ "status": "IN_PROGRESS", "token": first["token"] })).await;
    assert_eq!((yielded.status, yielded.header("tenure-lease")), (200, None));
    let second = server.poll("a", "w1").await;
    assert_eq!(first["taskId"], second["taskId"]);
    for (said, more) in [
        ("heartbeat", BEAT()),
        ("yield", json!({ "status": "IN_PROGRESS" })),
        ("result", json!({ "status": "COMPLETED" })),
    ] {
        let mut more = more;
        more["token"] = first["token"].clone();
        more["workerId"] = "w1".into();
        let answer = server.update("/api/tasks", &first, more).await;
        assert_eq!((answer.status, answer.header("tenure-lease")), (200, Some("lost; reason=task_held")), "{said}");
        let events = server.late().await;
        let told = events.last().expect("an event");
        assert_eq!(told["by"], "w1");
        assert_eq!(told["reason"], format!("a {said} came while w1 holds the task"));
    }
    let done = server.update("/api/tasks", &second, json!({ "status": "COMPLETED", "token": second["token"] })).await;
    assert_eq!((done.status, done.header("tenure-lease")), (200, None), "the holder is heard");
}

#[tokio::test]
async fn a_heartbeat_for_a_lost_task_says_so_where_only_those_look_who_know() {
    let server = Server::start().await;
    let flow = server.one_task("a", json!({})).await;
    let first = server.poll("a", "w1").await;
    assert_eq!(server.update("/api/tasks", &first, BEAT()).await.header("tenure-lease"), None);
    server.update("/api/tasks", &first, json!({ "status": "IN_PROGRESS", "callbackAfterSeconds": 3 })).await;
    let given_back = server.update("/api/tasks", &first, BEAT()).await;
    assert_eq!(given_back.header("tenure-lease"), Some("lost; reason=task_given_back"));
    server.clock.advance_ms(3_000);
    let again = server.poll("a", "w2").await;
    server.clock.advance_ms(11_000);
    let timed_out = server.update("/api/tasks", &again, BEAT()).await;
    assert_eq!((timed_out.status, timed_out.header("tenure-lease")), (200, Some("lost; reason=task_ended")));
    server.send(Request::new("DELETE", &format!("/api/workflow/{flow}"))).await;
    let over = server.update("/api/tasks/update-v2", &again, json!({ "status": "COMPLETED" })).await;
    assert_eq!((over.status, over.header("tenure-lease")), (204, Some("lost; reason=workflow_over")));
    for id in ["nobody", "t-2000000-1"] {
        let unknown = json!({ "taskId": id, "workflowInstanceId": "w", "status": "COMPLETED" });
        let answer = server.post("/api/tasks/update-v2", unknown).await;
        assert_eq!((answer.status, answer.header("tenure-lease")), (204, Some("lost; reason=task_unknown")));
    }
    let wrong = server.update("/api/tasks", &first, json!({ "status": "COMPLETED", "token": "seven" })).await;
    assert_eq!(wrong.status, 400, "a token is a number");
}
