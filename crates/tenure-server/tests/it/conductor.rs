//! The Conductor door over real sockets, with a clock that stands still.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_server::Config;

use crate::harness::{Answer, PATIENCE, Request, Server};

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

#[tokio::test]
async fn the_events_of_a_worker_say_at_once_that_its_task_was_taken_away() {
    let server = Server::start().await;
    let flow = server.one_task("a", json!({})).await;
    let task = server.poll("a", "w1").await;
    server.send(Request::new("DELETE", &format!("/api/workflow/{flow}"))).await;
    let told = server.get("/v1/events?holder=w1&kind=lease.revoked,lease.expired").await.json();
    let told = told["events"].as_array().unwrap();
    assert_eq!((told.len(), &told[0]["kind"], &told[0]["token"]), (1, &json!("lease.revoked"), &task["token"]));
    assert_eq!(told[0]["resources"], json!([format!("task:{}", task["taskId"].as_str().unwrap())]));
}

#[tokio::test]
async fn a_silent_worker_keeps_its_task_for_the_response_timeout_and_the_grace_and_no_longer() {
    let server = Server::with(Config { task_grace: Duration::from_millis(2_500), ..Config::default() }).await;
    server.one_task("a", json!({})).await;
    let task = server.poll("a", "w").await;
    server.clock.advance_ms(12_499);
    assert_eq!(server.poll("a", "w2").await, Value::Null, "ten seconds, and the grace");
    let beat = server.update("/api/tasks", &task, BEAT()).await;
    assert_eq!(beat.header("tenure-lease"), None, "late by less than the grace");
    server.clock.advance_ms(12_500);
    assert_eq!(server.poll("a", "w2").await["retriedTaskId"], task["taskId"], "a heartbeat counts as long as a poll");
    let late = server.update("/api/tasks", &task, BEAT()).await;
    assert_eq!(late.header("tenure-lease"), Some("lost; reason=task_ended"));
}

#[tokio::test]
async fn many_runs_are_controlled_at_once_and_each_is_answered_on_its_own() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(server.one_task("a", json!({})).await);
    }
    let asked = json!([ids[0], ids[1], "nobody"]);
    let bulk = async |method: &str, what: &str, ids: &Value| {
        let answer = server.send(Request::new(method, &format!("/api/workflow/bulk/{what}")).json(ids)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let said = answer.json();
        let done = said["bulkSuccessfulResults"].as_array().unwrap().len();
        (done, said["bulkErrorResults"].as_object().unwrap().len())
    };
    let status = async |id: &str| server.get(&format!("/api/workflow/{id}")).await.json()["status"].clone();
    assert_eq!(bulk("PUT", "pause", &asked).await, (2, 1));
    assert_eq!((status(&ids[0]).await, status(&ids[2]).await), (json!("PAUSED"), json!("RUNNING")));
    assert_eq!(bulk("PUT", "resume", &asked).await, (2, 1));
    assert_eq!(bulk("POST", "terminate?reason=enough", &asked).await, (2, 1));
    assert_eq!(status(&ids[1]).await, "TERMINATED");
    assert_eq!(bulk("POST", "retry", &asked).await, (2, 1));
    assert_eq!(bulk("POST", "terminate", &asked).await, (2, 1));
    assert_eq!(bulk("POST", "restart", &asked).await, (2, 1));
    assert_eq!(status(&ids[0]).await, "RUNNING");
    bulk("POST", "terminate", &asked).await;
    assert_eq!(bulk("DELETE", "remove", &asked).await, (2, 1));
    assert_eq!(server.get(&format!("/api/workflow/{}", ids[0])).await.status, 404);
    let too_many: Vec<String> = (0..1_001).map(|n| format!("w-1-{n}")).collect();
    let refused = server.send(Request::new("PUT", "/api/workflow/bulk/pause").json(&json!(too_many))).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn an_exclusive_join_goes_on_with_the_one_way_that_was_taken() {
    let server = Server::start().await;
    let work = |name: &str| json!({ "name": "a", "taskReferenceName": name });
    server.one_task("a", json!({})).await;
    server.poll("a", "w").await;
    let flow = json!({ "name": "either", "tasks": [
        { "name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "value-param", "expression": "way",
          "inputParameters": { "way": "${workflow.input.way}" },
          "decisionCases": { "left": [work("left")], "right": [work("right")] } },
        { "name": "x", "taskReferenceName": "x", "type": "EXCLUSIVE_JOIN", "joinOn": ["left", "right"] },
        { "name": "a", "taskReferenceName": "last", "inputParameters": { "got": "${x.output.by}" } },
    ] });
    assert_eq!(server.post("/api/metadata/workflow", flow).await.status, 200);
    assert_eq!(
        server.post("/api/workflow", json!({ "name": "either", "input": { "way": "right" } })).await.status,
        200
    );
    let task = server.poll("a", "w").await;
    assert_eq!(task["referenceTaskName"], "right");
    server.update("/api/tasks", &task, json!({ "status": "COMPLETED", "outputData": { "by": "right" } })).await;
    let last = server.poll("a", "w").await;
    assert_eq!((&last["referenceTaskName"], &last["inputData"]["got"]), (&json!("last"), &json!("right")));
}

#[tokio::test]
async fn a_do_while_inside_a_do_while_runs_also_in_a_fork_and_a_switch_of_it() {
    let server = Server::start().await;
    let inner = json!({ "name": "inner", "taskReferenceName": "inner", "type": "DO_WHILE",
        "loopCondition": "$.inner['iteration'] < $.max", "inputParameters": { "max": "${workflow.input.max}" },
        "loopOver": [{ "name": "a", "taskReferenceName": "a" }] });
    let switch = json!({ "name": "s", "taskReferenceName": "s", "type": "SWITCH", "expression": "way",
        "inputParameters": { "way": "deep" }, "decisionCases": { "deep": [inner] } });
    let flow = json!({ "name": "nested", "outputParameters": { "all": "${outer.output}" }, "tasks": [
        { "name": "outer", "taskReferenceName": "outer", "type": "DO_WHILE", "loopCondition": "$.outer.iteration < 2",
          "loopOver": [
            { "name": "f", "taskReferenceName": "f", "type": "FORK_JOIN",
              "forkTasks": [[switch], [{ "name": "b", "taskReferenceName": "b" }]] },
            { "name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["inner", "b"] },
          ] },
    ] });
    assert_eq!(server.post("/api/metadata/workflow", flow).await.status, 200);
    let started = server.post("/api/workflow", json!({ "name": "nested", "input": { "max": 2 } })).await;
    let id = String::from_utf8(started.body).unwrap();
    let mut names = Vec::new();
    for name in ["a", "b", "a", "b", "a", "a"] {
        // A condition is worked out beside the ledger: the poll waits for it.
        let polled = server.get(&format!("/api/tasks/poll/batch/{name}?workerid=w&timeout=5000")).await.json();
        let task = &polled[0];
        names.push(task["referenceTaskName"].as_str().unwrap().to_owned());
        server.update("/api/tasks", task, json!({ "status": "COMPLETED", "outputData": { "n": names.len() } })).await;
    }
    assert_eq!(names, ["a__1__1", "b__1", "a__1__2", "b__2", "a__2__1", "a__2__2"]);
    let path = format!("/api/workflow/{id}");
    let over = async {
        while server.get(&path).await.json()["status"] != "COMPLETED" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("it completes");
    let all = server.get(&path).await.json()["output"]["all"].clone();
    assert_eq!((&all["iteration"], &all["2"]["inner"]["2"]["a"]["n"]), (&json!(2), &json!(6)), "{all}");
    assert_eq!(all["1"]["j"]["b"]["n"], 2, "{all}");
}

#[tokio::test]
async fn an_idempotency_key_answers_with_the_run_it_started_also_for_a_while_after_its_end() {
    let server = Server::start().await;
    server.one_task("a", json!({})).await;
    let start = async |strategy: &str| {
        let body = json!({ "name": "wf", "idempotencyKey": "k", "idempotencyStrategy": strategy });
        let answer = server.post("/api/workflow", body).await;
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let (_, first) = start("RETURN_EXISTING").await;
    assert_eq!(start("RETURN_EXISTING").await, (200, first.clone()));
    assert_eq!(start("FAIL").await.0, 409);
    assert_eq!(start("FAIL_ON_RUNNING").await.0, 409);
    assert_eq!(start("SOMETIMES").await.0, 400);
    server.send(Request::new("DELETE", &format!("/api/workflow/{first}"))).await;
    assert_eq!(start("RETURN_EXISTING").await, (200, first.clone()), "a retry that comes after the end starts nothing");
    assert_eq!(start("FAIL").await.0, 409);
    let (status, second) = start("FAIL_ON_RUNNING").await;
    assert_eq!(status, 200);
    assert_ne!(second, first, "it does not go on any more");
    assert_eq!(start("RETURN_EXISTING").await, (200, second.clone()));
    server.send(Request::new("DELETE", &format!("/api/workflow/{second}"))).await;
    server.clock.advance_ms(tenure_core::limits::IDEMPOTENCY_KEEP_MS);
    assert_ne!(start("RETURN_EXISTING").await.1, second, "it is not remembered for ever");
}

#[tokio::test]
async fn an_idempotency_key_is_known_after_a_restart_of_the_server_though_its_run_is_over() {
    let server = Server::start().await;
    server.one_task("a", json!({})).await;
    let body = json!({ "name": "wf", "idempotencyKey": "k" });
    let first = server.post("/api/workflow", body.clone()).await.body;
    let path = format!("/api/workflow/{}", String::from_utf8_lossy(&first));
    server.send(Request::new("DELETE", &path)).await;
    let (memory, now) = (server.memory.handle(), server.engine.now());
    server.stop().await.expect("it stops");
    let server = Server::on(memory, now, Config::default()).await;
    assert_eq!(server.get(&path).await.json()["status"], "TERMINATED");
    assert_eq!(server.post("/api/workflow", body).await.body, first);
    let refused = server.post("/api/workflow", json!({ "name": "wf", "idempotencyKey": "k".repeat(1_025) })).await;
    assert_eq!((refused.status, &refused.json()["status"]), (400, &json!(400)));
}

#[tokio::test]
async fn requests_of_any_wrong_shape_are_refused_in_the_shape_of_this_api() {
    let server = Server::start().await;
    server.one_task("a", json!({})).await;
    let wrong = [json!(null), json!(7), json!("x"), json!([]), json!({}), json!([[]]), json!({ "name": 7 })];
    let step = |more: Value| {
        let mut step = json!({ "name": "x", "taskReferenceName": "x" });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "name": "x", "tasks": [step] })
    };
    let flows = [
        step(json!({ "type": "HTTP" })),
        step(json!({ "type": "FORK_JOIN", "forkTasks": [] })),
        step(json!({ "type": "DO_WHILE", "loopOver": [], "loopCondition": "true" })),
        step(json!({ "type": "DO_WHILE", "loopOver": [{ "name": "y", "taskReferenceName": "y" }] })),
        step(json!({ "type": "SWITCH" })),
        step(json!({ "type": "SUB_WORKFLOW" })),
        step(json!({ "type": "JSON_JQ_TRANSFORM" })),
        step(json!({ "type": 7 })),
        step(json!({ "inputParameters": [] })),
        step(json!({ "startDelay": -1 })),
        step(json!({ "retryCount": 1_000 })),
        step(json!({ "name": " evaluator" })),
        step(json!({ "inputParameters": nested(101) })),
        step(json!({ "taskReferenceName": "" })),
        json!({ "name": "x", "tasks": [{ "name": "y", "taskReferenceName": "y" }, { "name": "y", "taskReferenceName": "y" }] }),
        json!({ "name": "x", "timeoutPolicy": "NEVER", "tasks": [{ "name": "y", "taskReferenceName": "y" }] }),
    ];
    let shapes = wrong.iter().flat_map(|body| {
        let places = [
            ("POST", "/api/tasks"),
            ("POST", "/api/tasks/update-v2"),
            ("POST", "/api/workflow"),
            ("POST", "/api/metadata/workflow"),
            ("POST", "/api/token"),
            ("POST", "/api/workflow/wf/correlated"),
        ];
        places.map(|(method, path)| (method, path.to_owned(), body.clone()))
    });
    let places = flows.iter().map(|flow| ("POST", "/api/metadata/workflow".to_owned(), flow.clone()));
    for (method, path, body) in shapes.chain(places) {
        let answer = server.send(Request::new(method, &path).json(&body)).await;
        let is_list = path.ends_with("correlated") && body == json!([]);
        assert_eq!(answer.status, if is_list { 200 } else { 400 }, "{method} {path} {body}: {answer:?}");
        if !is_list {
            assert_eq!(answer.json()["status"], 400, "{method} {path} {body}");
            assert!(answer.json()["message"].as_str().is_some_and(|said| !said.is_empty()), "{method} {path} {body}");
        }
    }
    for path in [
        "/api/tasks/nobody",
        "/api/tasks/t-1-1",
        "/api/workflow/nobody",
        "/api/metadata/workflow/nobody",
        "/api/metadata/taskdefs/nobody",
        "/api",
        "/api/nobody",
        "/api/tasks/nobody/log",
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.json()["status"]), (404, &json!(404)), "{path}");
    }
    for path in ["/api/tasks/%ff", "/api/workflow/%ff", "/api/tasks/poll/%ff", "/api/metadata/workflow/%ff"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.json()["status"]), (400, &json!(400)), "{path}");
    }
    for (method, path) in [("PUT", "/api/tasks"), ("PATCH", "/api/workflow/x"), ("FOO", "/api/metadata/taskdefs")] {
        let answer = server.send(Request::new(method, path)).await;
        assert_eq!((answer.status, &answer.json()["status"]), (405, &json!(405)), "{method} {path}");
        assert!(answer.json()["message"].is_string() && answer.header("allow").is_some(), "{method} {path}");
    }
    let raw = server
        .send(Request::new("POST", "/api/tasks").header("content-type", "application/json").body("{\"a\":"))
        .await;
    assert_eq!(raw.status, 400);
}

/// An object in an object, so many times.
fn nested(deep: usize) -> Value {
    (1..deep).fold(json!({}), |inside, _| json!({ "a": inside }))
}

#[tokio::test]
async fn an_output_that_could_not_be_read_back_is_refused_and_the_task_stays_held() {
    let server = Server::start().await;
    let flow = server.one_task("a", json!({})).await;
    let task = server.poll("a", "w1").await;
    let ids = format!(r#""taskId":{},"workflowInstanceId":{}"#, task["taskId"], task["workflowInstanceId"]);
    let deep = |levels: usize| format!("{}{}", r#"{"a":"#.repeat(levels), "1".to_owned() + &"}".repeat(levels));
    let unreadable = [r#"{"a":1e999,"b":1}"#.to_owned(), r#"{"a":"\ud800"}"#.to_owned(), deep(101), deep(1_005)];
    for output in unreadable {
        let body = format!(r#"{{{ids},"status":"COMPLETED","workerId":"w1","outputData":{output}}}"#);
        let answer = server.send(Request::new("POST", "/api/tasks").body(body)).await;
        let said = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && said.starts_with("outputData"), "{output:.40}: {answer:?}");
    }
    let body = format!(r#"{{{ids},"status":"COMPLETED","workerId":"w1","outputData":{}}}"#, deep(100));
    assert_eq!(server.send(Request::new("POST", "/api/tasks").body(body)).await.status, 200);
    let seen = server.get(&format!("/api/workflow/{flow}")).await.json();
    assert_eq!(seen["status"], "COMPLETED");
    assert!(seen["tasks"][0]["outputData"]["a"]["a"].is_object(), "{seen}");
    let start = json!({ "name": "wf", "input": nested(101) });
    assert_eq!(server.post("/api/workflow", start).await.status, 400);
}

#[tokio::test]
async fn questions_to_the_servers_evaluator_cannot_be_polled_from_outside() {
    let server = Server::start().await;
    for name in ["%20evaluator", "evaluator%20", "%20"] {
        let answer = server.get(&format!("/api/tasks/poll/batch/{name}?count=10&timeout=0")).await;
        assert_eq!((answer.status, &answer.json()["status"]), (400, &json!(400)), "{name}");
    }
    assert_eq!(server.get("/api/tasks/poll/batch/tenure%20evaluator?timeout=0").await.json(), json!([]));
}

#[tokio::test]
async fn one_document_that_is_no_workflow_does_not_take_the_others_with_it() {
    let server = Server::start().await;
    let good = json!({ "name": "good", "tasks": [{ "name": "a", "taskReferenceName": "a" }] });
    let put = |body: Value| server.send(Request::new("PUT", "/api/metadata/workflow").json(&body));
    let answer = put(json!([good, { "name": "bad" }])).await.json();
    assert_eq!(answer["bulkSuccessfulResults"], json!(["good"]));
    assert!(answer["bulkErrorResults"]["bad"].as_str().is_some_and(|why| why.contains("tasks")), "{answer}");
    assert_eq!(put(json!([{ "name": "bad" }])).await.status, 400);
}

#[tokio::test]
async fn a_terminated_run_starts_its_failure_workflow_only_if_asked_to() {
    let server = Server::start().await;
    let step = json!([{ "name": "a", "taskReferenceName": "a" }]);
    let flows =
        json!([{ "name": "clean", "tasks": step }, { "name": "wf", "tasks": step, "failureWorkflow": "clean" }]);
    server.send(Request::new("PUT", "/api/metadata/workflow").json(&flows)).await;
    for (query, is_started) in [("", false), ("?triggerFailureWorkflow=true", true)] {
        let flow = String::from_utf8(server.post("/api/workflow", json!({ "name": "wf" })).await.body).unwrap();
        server.send(Request::new("DELETE", &format!("/api/workflow/{flow}{query}"))).await;
        let seen = server.get(&format!("/api/workflow/{flow}")).await.json();
        assert_eq!(seen["status"], "TERMINATED");
        assert_eq!(seen["output"].get("conductor.failure_workflow").is_some(), is_started, "{query}");
    }
}
