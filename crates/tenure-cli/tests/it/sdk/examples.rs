//! The examples of the SDK, and what they leave behind on the server.

use tenure::EventQuery;

use super::client;
use crate::rig::{Rig, Server};

macro_rules! example {
    ($name:ident, $path:literal) => {
        #[path = $path]
        #[expect(dead_code, reason = "the example as a program has a main function; here it is called")]
        mod $name;
    };
}

example!(agent, "../../../../tenure/examples/agent.rs");
example!(blocking, "../../../../tenure/examples/blocking.rs");
example!(coordinator, "../../../../tenure/examples/coordinator.rs");
example!(guard, "../../../../tenure/examples/guard.rs");
example!(optimistic_state, "../../../../tenure/examples/optimistic_state.rs");
example!(worker, "../../../../tenure/examples/worker.rs");

/// What happened to the leases that overlap this, as `holder kind`.
async fn happened(server: &Server, resource: &str) -> Vec<String> {
    let page = client(server, "observer").events(&EventQuery::default().after(0).resource(resource).limit(1_000)).await;
    let line = |event: &tenure::Event| {
        format!("{} {}", event.holder.as_ref().map_or("nobody", |holder| holder.as_str()), event.kind)
    };
    page.unwrap().events.iter().filter(|event| event.kind.starts_with("lease.")).map(line).collect()
}

#[tokio::test]
async fn the_example_of_a_guard_holds_the_file_alone_and_gives_it_back() {
    let rig = Rig::new();
    let server = rig.serve();
    let token = guard::run(&server.url).await.unwrap();
    assert_eq!(happened(&server, "path:src").await, ["agent-7 lease.granted", "agent-7 lease.released"]);
    let page = client(&server, "observer").events(&EventQuery::default().after(0).resource("path:src")).await.unwrap();
    assert_eq!(page.events[0].token, Some(token));
}

#[tokio::test]
async fn the_example_of_an_agent_writes_a_summary_under_its_leases() {
    let rig = Rig::new();
    let server = rig.serve();
    let intent = agent::run(&server.url).await.unwrap();
    let summary = intent.state["summary"].as_str().unwrap();
    assert!(summary.starts_with("A long report, under token "), "{summary}");
    let whole = ["granted", "granted", "released", "released"].map(|end| format!("summariser lease.{end}"));
    assert_eq!(happened(&server, &format!("intent:{}/*", intent.id)).await, whole);
}

#[tokio::test]
async fn the_example_of_a_worker_outlives_the_response_timeout_and_works_in_pieces() {
    let rig = Rig::new();
    let server = rig.serve();
    let workflow = worker::run(&server.url).await.unwrap();
    assert_eq!(workflow["status"], "COMPLETED", "{workflow:#}");
    let tasks = workflow["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 2, "each at its first attempt: {workflow:#}");
    assert_eq!((&tasks[0]["pollCount"], &tasks[0]["outputData"]["path"]), (&1.into(), &"a.png".into()));
    assert_eq!((&tasks[1]["pollCount"], &tasks[1]["outputData"]["colours"]), (&3.into(), &200.into()));
}

#[tokio::test]
async fn the_example_of_a_coordinator_ends_with_the_second_one_leading() {
    let rig = Rig::new();
    let server = rig.serve();
    let term = coordinator::run(&server.url).await.unwrap();
    let kept = tenure::Coordinator::new(client(&server, "observer").intents()).term(&term.id).await.unwrap();
    assert_eq!((kept.agent_id.as_str(), kept.status.as_str()), ("coordinator-2", "active"));
}

#[tokio::test]
async fn the_example_of_optimistic_state_loses_no_update() {
    let rig = Rig::new();
    let server = rig.serve();
    let intent = optimistic_state::run(&server.url).await.unwrap();
    assert_eq!((&intent.state["n"], intent.version), (&10.into(), 12));
}

#[test]
fn the_example_without_a_runtime_hands_over_in_line() {
    let rig = Rig::new();
    let server = rig.serve();
    let (first, second) = blocking::run(&server.url).unwrap();
    assert!(second > first);
    assert!(server.leases("repo:deploy").is_empty());
}
