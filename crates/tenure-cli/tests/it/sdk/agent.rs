//! Agents: which handler is called when, what it holds meanwhile, and what ends it.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure::{Agent, Client, Handled, Intent, Intents, LeaseQuery, SignalKind, Status, Work};
use tokio::sync::mpsc;

use super::{Running, client, members, scene, seen, soon};
use crate::rig::Server;

fn run(agent: Agent) -> Running<Result<(), tenure::Error>> {
    Running::start(|stopped| agent.run(stopped))
}

async fn new_intent(author: &Intents, state: Value) -> Intent {
    author.create("A report", "Summarise it", members(state)).await.unwrap()
}

/// A new intent for this agent.
async fn assigned(author: &Client, agent: &str, state: Value) -> Intent {
    let intent = new_intent(&author.intents(), state).await;
    author.intents().assign(&intent.id, agent).await.unwrap();
    intent
}

/// Waits until the intent looks like this.
async fn until(author: &Intents, id: &str, so: impl Fn(&Intent) -> bool) -> Intent {
    seen(async || Some(author.get(id).await.unwrap()).filter(&so)).await
}

/// The active leases on an intent.
async fn held(client: &Client, id: &str) -> usize {
    let query = LeaseQuery::default().resource(format!("intent:{id}/*")).status(Status::Active);
    client.leases(&query).await.unwrap().leases.len()
}

async fn until_free(client: &Client, id: &str) {
    seen(async || (held(client, id).await == 0).then_some(())).await;
}

/// Sends a word when it is dropped.
struct OnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// Works for ever, says that it began, and says that it was dropped.
fn endless(server: &Server) -> (Agent, mpsc::UnboundedReceiver<&'static str>) {
    let (told, heard) = mpsc::unbounded_channel();
    let agent = Agent::new(client(server, "slow").intents()).ttl(Duration::from_secs(1)).on_assignment(move |_| {
        let told = told.clone();
        async move {
            let _dropped = OnDrop(told.clone());
            let _ = told.send("began");
            std::future::pending().await
        }
    });
    (agent, heard)
}

/// An agent all of whose handlers say that they were called.
fn talkative(server: &Server) -> (Agent, mpsc::UnboundedReceiver<String>) {
    let (told, heard) = mpsc::unbounded_channel();
    let says = move |word: &'static str, fails: bool| {
        let told = told.clone();
        move |work: Work| {
            let _ = told.send(match &work.signal {
                SignalKind::Retried { attempt, last_error } => format!("{word} {attempt} {last_error}"),
                SignalKind::LeaseAvailable { scope } => format!("{word} {scope}"),
                SignalKind::StateChanged { old, new } => format!("{word} {} {}", old["colour"], new["colour"]),
                _ => word.to_owned(),
            });
            let handled: Handled = if fails { Err("out of paper".into()) } else { Ok(Map::new()) };
            async move { handled }
        }
    };
    let agent = Agent::new(client(server, "listener").intents())
        .on_assignment(says("assigned", true))
        .on_retry(says("retried", false))
        .on_lease_available("review", says("available", false))
        .on_state_change(["colour"], says("changed", false))
        .on_complete(says("complete", false));
    (agent, heard)
}

#[tokio::test]
async fn every_handler_is_called_for_its_signal() {
    let (_rig, server, author) = scene();
    let other = client(&server, "other");
    let intents = author.intents();
    let intent = new_intent(&intents, json!({ "colour": "red" })).await;
    let policy = json!({ "strategy": "fixed", "max_retries": 2, "base_delay_ms": 50, "max_delay_ms": 1000 });
    let path = format!("/intents/{}", intent.id);
    intents.request("PUT", &format!("{path}/retry-policy"), Some(policy), None).await.unwrap();
    intents.assign(&intent.id, "listener").await.unwrap();
    let (agent, mut heard) = talkative(&server);
    let running = run(agent);

    assert_eq!(soon(heard.recv()).await.unwrap(), "assigned");
    let retried = soon(heard.recv()).await.unwrap();
    assert!(retried.starts_with("retried 1") && retried.contains("out of paper"), "{retried}");
    until_free(&author, &intent.id).await;

    intents.patch_state(&intent.id, &members(json!({ "shape": "round" })), tenure::Expected::Any, None).await.unwrap();
    intents.patch_state(&intent.id, &members(json!({ "colour": "blue" })), tenure::Expected::Any, None).await.unwrap();
    assert_eq!(soon(heard.recv()).await.unwrap(), "changed \"red\" \"blue\"", "and nothing for the other member");

    let scope = tenure::Acquire::one(format!("intent:{}/review", intent.id));
    other.acquire(scope).await.unwrap().release().await.unwrap();
    assert_eq!(soon(heard.recv()).await.unwrap(), "available review");

    for status in ["active", "completed"] {
        let version = intents.get(&intent.id).await.unwrap().version.to_string();
        let body = json!({ "status": status });
        intents.request("POST", &format!("{path}/status"), Some(body), Some(version)).await.unwrap();
    }
    assert_eq!(soon(heard.recv()).await.unwrap(), "complete");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_assigned_handler_holds_the_intent_and_what_it_gives_is_written() {
    let (_rig, server, author) = scene();
    let intent = assigned(&author, "summariser", json!({})).await;
    let watcher = author.clone();
    let agent = Agent::new(client(&server, "summariser").intents()).on_assignment(move |work: Work| {
        let watcher = watcher.clone();
        async move {
            let whole = held(&watcher, &work.intent.id).await;
            let scope = work.acquire("summary", Duration::from_secs(60)).await?;
            let both = held(&watcher, &work.intent.id).await;
            scope.release().await?;
            Ok(members(json!({ "whole": whole, "both": both, "holder": work.lease.unwrap().holder() })))
        }
    });
    let running = run(agent);
    let written = until(&author.intents(), &intent.id, |intent| intent.state.contains_key("whole")).await;
    assert_eq!(Value::from(written.state), json!({ "whole": 1, "both": 2, "holder": "summariser" }));
    until_free(&author, &intent.id).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_lease_is_lost_and_nothing_is_written() {
    let (_rig, server, author) = scene();
    let intent = assigned(&author, "slow", json!({})).await;
    let (agent, mut heard) = endless(&server);
    let running = run(agent);
    assert_eq!(soon(heard.recv()).await, Some("began"));
    let query = LeaseQuery::default().resource(format!("intent:{}/*", intent.id));
    let lease = author.leases(&query).await.unwrap().leases.remove(0);
    author.revoke(lease.id, "a test").await.unwrap();
    assert_eq!(soon(heard.recv()).await, Some("dropped"));
    running.stop().await.unwrap();
    assert_eq!(author.intents().get(&intent.id).await.unwrap().version, intent.version);
}

#[tokio::test]
async fn a_handler_that_does_not_finish_in_time_is_dropped_and_its_lease_is_given_back() {
    let (_rig, server, author) = scene();
    let intent = assigned(&author, "slow", json!({})).await;
    let (agent, mut heard) = endless(&server);
    let running = run(agent.ttl(Duration::from_secs(600)).drain(Duration::from_millis(50)));
    assert_eq!(soon(heard.recv()).await, Some("began"));
    running.stop().await.unwrap();
    assert_eq!(soon(heard.recv()).await, Some("dropped"));
    assert_eq!(held(&author, &intent.id).await, 0, "not after its ttl of ten minutes, but now");
}

#[tokio::test]
async fn a_failed_handler_is_reported_and_gives_the_lease_back() {
    let (_rig, server, author) = scene();
    let intent = assigned(&author, "listener", json!({})).await;
    let (agent, mut heard) = talkative(&server);
    let running = run(agent);
    assert_eq!(soon(heard.recv()).await.unwrap(), "assigned");
    let path = format!("/intents/{}/failures", intent.id);
    let reported = seen(async || {
        let answer = author.intents().request("GET", &path, None, None).await.unwrap().to_string();
        answer.contains("out of paper").then_some(answer)
    });
    assert!(reported.await.contains("listener"));
    until_free(&author, &intent.id).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_agent_without_leases_takes_none() {
    let (_rig, server, author) = scene();
    let intent = assigned(&author, "free", json!({})).await;
    let watcher = author.clone();
    let agent =
        Agent::new(client(&server, "free").intents()).without_leases().on_assignment(move |work: Work| {
            let watcher = watcher.clone();
            async move {
                Ok(members(json!({ "held": held(&watcher, &work.intent.id).await, "given": work.lease.is_some() })))
            }
        });
    let running = run(agent);
    let written = until(&author.intents(), &intent.id, |intent| intent.state.contains_key("held")).await;
    assert_eq!(Value::from(written.state), json!({ "held": 0, "given": false }));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_agent_without_a_name_is_refused() {
    let nameless = Client::builder().build().unwrap();
    let error = Agent::new(nameless.intents()).run(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("needs a name"), "{error}");
}

#[tokio::test]
async fn a_registered_agent_is_listed_while_it_runs_and_beats() {
    let (_rig, server, author) = scene();
    let author = author.intents();
    let record = async || author.request("GET", "/agents/known/record", None, None).await.unwrap_or_default();
    let agent = Agent::new(client(&server, "known").intents()).registered(["summaries"], Duration::from_secs(1));
    let running = run(agent);
    let status = async |wanted: &str, seen_after: &Value| {
        let is_so = |record: &Value| record["status"] == wanted && record["last_heartbeat_at"] != *seen_after;
        seen(async || Some(record().await).filter(is_so)).await
    };
    let first = status("active", &Value::Null).await;
    assert_eq!(first["capabilities"], json!(["summaries"]), "{first:#}");
    status("active", &first["last_heartbeat_at"]).await;
    running.stop().await.unwrap();
    status("deregistered", &Value::Null).await;
}
