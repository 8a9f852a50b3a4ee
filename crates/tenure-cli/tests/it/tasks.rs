//! `tenure task` and `tenure wf` against a real server, with workers that are a few calls.

use serde_json::{Value, json};

use crate::rig::{Rig, Server, wait_until};

impl Server {
    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let client = tenure::Client::builder().url(&self.url).holder("w1").build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(client.tasks().request(method, path, body)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn define(&self, tasks: Value) {
        let defs = json!([{ "name": "pack", "retryCount": 2, "retryDelaySeconds": 0, "responseTimeoutSeconds": 60 }]);
        self.call("POST", "/metadata/taskdefs", Some(defs));
        self.call("PUT", "/metadata/workflow", Some(json!([{ "name": "order", "version": 1, "tasks": tasks }])));
    }

    /// What `w1` gets, as soon as there is something.
    fn poll(&self, name: &str) -> Value {
        self.call("GET", &format!("/tasks/poll/batch/{name}?workerid=w1&timeout=5000"), None)[0].clone()
    }

    fn answer(&self, task: &Value, status: &str) {
        let body = json!({
            "taskId": task["taskId"], "workflowInstanceId": task["workflowInstanceId"], "workerId": "w1",
            "status": status, "reasonForIncompletion": if status == "FAILED" { json!("no tape") } else { Value::Null },
            "logs": [{ "log": "looked for tape" }],
        });
        self.call("POST", "/tasks", Some(body));
    }
}

fn work(name: &str) -> Value {
    json!({ "name": "pack", "taskReferenceName": name })
}

/// Ids and spans made alike, blanks of columns too.
fn stable(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|sign| "(),:".contains(sign));
        let is_span = bare.bytes().next().is_some_and(|first| first.is_ascii_digit()) && bare.ends_with('s');
        let name = match bare {
            bare if bare.starts_with("t-") => "TASK",
            bare if bare.starts_with("w-") => "RUN",
            _ if is_span => "SPAN",
            _ => return word.to_owned(),
        };
        word.replace(bare, name)
    };
    let line = |line: &str| {
        let indent = &line[..line.len() - line.trim_start_matches([' ', '│', '├', '└', '─', '╴']).len()];
        let rest = line[indent.len()..].replace("just now", "1s ago");
        format!("{indent}{}", rest.split_whitespace().map(word).collect::<Vec<_>>().join(" "))
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_run_is_started_listed_drawn_as_a_tree_and_terminated() {
    let rig = Rig::new();
    let server = rig.serve();
    server.define(json!([
        work("first"),
        { "name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[work("left")], [work("right"), work("more")]] },
        { "name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["left", "more"] },
        work("last"),
    ]));
    let words = ["wf", "start", "order", "--input", r#"{"n": 7}"#, "--correlation", "o-7", "--idempotency-key", "k"];
    let id = server.run(&words).expect(0).stdout.trim().to_owned();
    assert_eq!(server.run(&words).expect(0).stdout.trim(), id, "the same key gets the same run");
    let first = server.poll("pack");
    server.answer(&first, "FAILED");
    let again = server.poll("pack");
    insta::assert_snapshot!(stable(&server.run(&["wf", "show", &id]).expect(0).stdout), @r#"
    order v1 (RUN): RUNNING for SPAN
    ├─ first IN_PROGRESS for SPAN, w1, last heard of SPAN ago, attempt 2, after: no tape
    ├─ f [FORK_JOIN] -
    │  ├╴way 1
    │  │ └─ left -
    │  └╴way 2
    │    ├─ right -
    │    └─ more -
    ├─ j [JOIN] -
    └─ last -
    "#);
    insta::assert_snapshot!(stable(&server.run(&["task", "ls"]).expect(0).stdout), @r#"
    WORKER TASK STATE FOR HEARTBEAT ATTEMPT WORKFLOW ID
    w1 pack IN_PROGRESS SPAN SPAN ago 2 order RUN TASK
    "#);
    server.answer(&again, "COMPLETED");
    let shown = server.run(&["wf", "show", &id, "--json"]).expect(0).data();
    assert_eq!(shown["steps"][0]["task"]["attempt"], 2);
    assert_eq!(shown["steps"][1]["branches"][1]["steps"][0]["task"]["status"], "SCHEDULED");
    assert_eq!((&shown["workflow"]["status"], &shown["input"]["n"]), (&json!("RUNNING"), &json!(7)));
    let listed = server.run(&["wf", "ls", "--status", "running", "--json"]).expect(0).data();
    assert_eq!((&listed["workflows"][0]["id"], &listed["workflows"][0]["correlation"]), (&json!(id), &json!("o-7")));
    server.run(&["wf", "terminate", &id, "--reason", "no more orders"]).expect(0);
    let over = server.run(&["wf", "ls", "--correlation", "o-7", "--json"]).expect(0).data();
    assert_eq!(over["workflows"][0]["status"], "TERMINATED");
    assert_eq!(over["workflows"][0]["reason"], "no more orders");
    server.run(&["wf", "terminate", &id]).expect(0);
    assert_eq!(server.run(&["task", "ls", "--json"]).expect(0).data()["tasks"], json!([]));
}

#[test]
fn the_grace_that_the_server_is_told_is_added_to_the_lease_of_a_polled_task() {
    let rig = Rig::new();
    for (words, seconds) in [(&[][..], 61), (&["--task-grace", "5s"], 65), (&["--task-grace", "0s"], 60)] {
        let server = rig.serve_with("127.0.0.1:0", words);
        server.define(json!([work("only")]));
        server.run(&["wf", "start", "order"]).expect(0);
        let task = server.poll("pack");
        let lease = server.leases(&format!("task:{}", task["taskId"].as_str().unwrap())).remove(0);
        assert_eq!(lease["ttl_ms"], seconds * 1_000, "{words:?}: {lease}");
    }
    let refused = rig.run(&["serve", "--task-grace", "61s"]).expect(2);
    assert!(refused.stderr.contains("at most 1m"), "{refused:?}");
}

#[test]
fn tasks_are_found_by_worker_name_and_state_and_shown_with_what_was_said() {
    let rig = Rig::new();
    let server = rig.serve();
    server.define(json!([work("first")]));
    for _ in 0..3 {
        server.run(&["wf", "start", "order"]).expect(0);
    }
    let held = server.poll("pack");
    let ids = |words: &[&str]| {
        let tasks = server.run(&[&["task", "ls", "--json"], words].concat()).expect(0).data()["tasks"].clone();
        tasks.as_array().unwrap().iter().map(|task| task["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]).len(), 3);
    assert_eq!(ids(&["--limit", "2"]).len(), 2);
    assert_eq!(ids(&["--status", "scheduled"]).len(), 2);
    assert_eq!(ids(&["--worker", "w1"]), [held["taskId"].clone()]);
    assert_eq!(ids(&["--name", "unpack"]).len(), 0);
    assert_eq!(ids(&["--workflow", held["workflowInstanceId"].as_str().unwrap()]), [held["taskId"].clone()]);
    let id = held["taskId"].as_str().unwrap();
    let shown = server.run(&["task", "show", id, "--json"]).expect(0).data();
    assert_eq!((&shown["task"]["token"], &shown["task"]["worker"]), (&held["token"], &json!("w1")));
    server.answer(&held, "FAILED");
    wait_until("the lines are kept", || {
        server.run(&["task", "show", id]).expect(0).stdout.contains("Said: looked for tape")
    });
    let text = server.run(&["task", "show", id]).expect(0).stdout;
    assert!(
        text.contains("State: FAILED") && text.contains("Reason: no tape") && text.contains("Last held by: w1"),
        "{text}"
    );
}

#[test]
fn a_query_transforms_its_input_and_one_that_takes_too_much_fails_its_task_only() {
    let rig = Rig::new();
    let server = rig.serve();
    let query = json!({ "queryExpression": "${workflow.input.query}", "people": "${workflow.input.people}" });
    let step =
        json!({ "name": "jq", "taskReferenceName": "jq", "type": "JSON_JQ_TRANSFORM", "inputParameters": query });
    server.define(json!([step]));
    let ended = |query: &str| {
        let input = json!({ "query": query, "people": [{ "name": "ann" }, { "name": "bob" }] }).to_string();
        let id = server.run(&["wf", "start", "order", "--input", &input]).expect(0).stdout.trim().to_owned();
        let mut shown = Value::Null;
        wait_until("the run is over", || {
            shown = server.run(&["wf", "show", &id, "--json"]).expect(0).data();
            shown["workflow"]["status"] != "RUNNING"
        });
        shown
    };
    let done = ended(".people[].name");
    assert_eq!(done["output"], json!({ "result": "ann", "resultList": ["ann", "bob"] }), "{done}");
    assert_eq!(ended("env | length")["output"]["result"], 0, "a query sees no environment");
    for (query, why) in [
        (".people |", "cannot be read"),
        (".people | nobody", "not there: nobody"),
        ("def f: f; f", "more than 5 s of time or"),
        ("[range(1000000000)] | length", "bytes of memory"),
        ("\"x\" * 4000000000", "bytes of memory"),
        ("def f: 1 + f; f", "more than 5 s of time or"),
    ] {
        let failed = ended(query);
        assert_eq!(failed["workflow"]["status"], "FAILED", "{query}: {failed}");
        assert!(failed["workflow"]["reason"].as_str().unwrap().contains(why), "{query}: {failed}");
    }
    assert_eq!(ended(".people | length")["output"]["result"], 2, "the server goes on");
}

#[test]
fn what_is_not_there_or_wrong_has_its_exit_code() {
    let rig = Rig::new();
    let server = rig.serve();
    server.run(&["task", "show", "t-1-1"]).expect(3);
    server.run(&["wf", "show", "nobody"]).expect(3);
    server.run(&["wf", "terminate", "w-1-1"]).expect(3);
    let refused = server.run(&["wf", "start", "nobody", "--json"]).expect(3).envelope();
    assert_eq!(refused["error"]["code"], "not_found");
    server.run(&["wf", "start", "x", "--input", "[]"]).expect(2);
    server.run(&["wf", "ls", "--status", "sleeping"]).expect(2);
    server.run(&["task", "ls", "--worker", "a\" OR \"b"]).expect(2);
    assert_eq!(server.run(&["wf", "ls"]).expect(0).stdout, "No workflow runs\n");
    assert_eq!(server.run(&["task", "ls"]).expect(0).stdout, "No tasks\n");
}
