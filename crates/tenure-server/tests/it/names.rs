//! Two keys on one server: a key neither acts under the other's names nor ends what they hold, through any door.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_server::Config;
use tenure_server::config::Access;
use tenure_server::keys::{self, Role};

use crate::harness::*;

/// A server with the keys `a` (names a-*), `b` (names b-*), an observer without names and an administrator.
pub(crate) struct TwoKeys {
    pub(crate) server: Server,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) eye: String,
    pub(crate) boss: String,
}

impl TwoKeys {
    pub(crate) async fn start() -> TwoKeys {
        let make = |name: &str, role, holders: &[&str]| {
            keys::generate(name, role, holders.iter().map(|name| (*name).to_owned()).collect()).expect("a key")
        };
        let made = [
            make("a", Role::Agent, &["a-*"]),
            make("b", Role::Agent, &["b-*"]),
            make("eye", Role::Observer, &[]),
            make("boss", Role::Admin, &["*"]),
        ];
        let file: String = made.iter().map(|(_, entry)| entry.as_str()).collect();
        let access = Access::Keys(Arc::new(keys::parse(&file).expect("keys")));
        let server = Server::with(Config { access, ..Config::default() }).await;
        let [a, b, eye, boss] = made.map(|(clear, _)| clear);
        TwoKeys { server, a, b, eye, boss }
    }

    /// A request as `name`, with the key whose names begin so; as an observer or administrator by their names.
    pub(crate) fn signed(&self, name: &str, request: Request) -> Request {
        let key = match name {
            "eye" => &self.eye,
            "boss" => &self.boss,
            _ if name.starts_with('a') => &self.a,
            _ => &self.b,
        };
        request.header("x-api-key", key).header("x-agent-id", name).header("x-tenure-holder", name)
    }

    pub(crate) async fn send(&self, name: &str, method: &str, path: &str, body: Value) -> Answer {
        let request = Request::new(method, path).header("if-match", "*");
        let request = if method == "GET" { request } else { request.json(&body) };
        self.server.send(self.signed(name, request)).await
    }

    pub(crate) async fn get(&self, name: &str, path: &str) -> Answer {
        self.send(name, "GET", path, Value::Null).await
    }

    /// What was made; it must have been.
    pub(crate) async fn make(&self, name: &str, path: &str, body: Value) -> Value {
        let answer = self.send(name, "POST", path, body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    pub(crate) async fn intent(&self, name: &str) -> String {
        let made = self.make(name, "/api/v1/intents", json!({ "title": "top secret", "state": { "pw": 1 } })).await;
        made["id"].as_str().expect("an id").to_owned()
    }
}

fn refused(answer: &Answer) {
    assert_eq!(answer.status, 403, "{answer:?}");
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("may not act as a-"), "{message}");
}

#[tokio::test]
async fn a_key_registers_beats_and_ends_no_agent_whose_name_it_may_not_use() {
    let keys = TwoKeys::start().await;
    let lease = keys.make("a-5", "/v1/leases", json!({ "resource": "repo:deploy", "ttl_seconds": 600 })).await;
    let me = json!({ "agent_id": "a-5" });
    refused(&keys.send("b-1", "POST", "/api/v1/agents/register", me.clone()).await);
    refused(&keys.send("b-1", "POST", "/api/v1/agents", me.clone()).await);
    // Also when its owner has not registered it with a key of its own yet.
    for is_registered in [false, true] {
        let dead = json!({ "status": "dead" });
        refused(&keys.send("b-1", "PATCH", "/api/v1/agents/a-5/status", dead).await);
        refused(&keys.send("b-1", "POST", "/api/v1/agents/a-5/heartbeat", json!({})).await);
        refused(&keys.send("b-1", "DELETE", "/api/v1/agents/a-5", json!({})).await);
        if !is_registered {
            keys.make("a-5", "/api/v1/agents/register", me.clone()).await;
        }
    }
    assert_eq!(keys.get("a-5", &path(&lease, "")).await.json()["status"], "active");
    keys.make("a-5", "/v1/leases", json!({ "resource": "repo:other", "ttl_seconds": 600 })).await;
    let ended = keys.send("boss", "PATCH", "/api/v1/agents/a-5/status", json!({ "status": "dead" })).await;
    assert_eq!(ended.status, 200, "an administrator speaks for everyone");
}

#[tokio::test]
async fn a_key_reports_no_failure_of_an_agent_whose_name_it_may_not_use() {
    let keys = TwoKeys::start().await;
    let id = keys.intent("a-1").await;
    let policy = json!({ "strategy": "fixed", "max_retries": 3, "base_delay_ms": 60_000 });
    assert_eq!(keys.send("a-1", "PUT", &format!("/api/v1/intents/{id}/retry-policy"), policy).await.status, 200);
    let lease = keys.make("a-1", &format!("/api/v1/intents/{id}/leases"), json!({ "scope": "*" })).await;
    let report = json!({ "agent_id": "a-1", "error_message": "x" });
    let failures = format!("/api/v1/intents/{id}/failures");
    refused(&keys.send("b-1", "POST", &failures, report.clone()).await);
    assert_eq!(keys.get("a-1", &path(&lease, "")).await.json()["status"], "active");
    keys.make("a-2", &failures, report).await;
    assert_eq!(keys.get("a-1", &path(&lease, "")).await.json()["status"], "released", "the same key may");
}

#[tokio::test]
async fn a_key_puts_no_name_that_it_may_not_use_under_what_it_does() {
    let keys = TwoKeys::start().await;
    let id = keys.intent("b-1").await;
    let forged = json!({ "event_type": "comment", "actor": "a-1", "payload": {} });
    refused(&keys.send("b-1", "POST", &format!("/api/v1/intents/{id}/events"), forged).await);
    let alike = json!({ "event_type": "comment", "actor": "a-1 ", "payload": {} });
    assert_eq!(keys.send("b-1", "POST", &format!("/api/v1/intents/{id}/events"), alike).await.status, 400);
    let passed_on = json!({ "agent_id": "b-2", "delegated_by": "a-1" });
    refused(&keys.send("b-1", "POST", &format!("/api/v1/intents/{id}/agents"), passed_on).await);
    keys.make("b-1", &format!("/api/v1/intents/{id}/agents"), json!({ "agent_id": "a-1", "delegated_by": "b-3" }))
        .await;
}

#[tokio::test]
async fn a_key_does_not_look_under_a_name_that_it_may_not_use() {
    let keys = TwoKeys::start().await;
    let id = keys.intent("a-1").await;
    let closed = json!({ "default_policy": "closed", "entries": [] });
    let address = format!("/api/v1/intents/{id}");
    assert_eq!(keys.send("a-1", "PUT", &format!("{address}/acl"), closed).await.status, 200);
    let as_another = Request::new("GET", &address).header("x-api-key", &keys.b).header("x-agent-id", "a-1");
    assert_eq!(keys.server.send(as_another).await.status, 403);
    let observing = Request::new("GET", &address).header("x-api-key", &keys.eye).header("x-agent-id", "a-1");
    assert_eq!(keys.server.send(observing).await.status, 403, "an observer without names is nobody");
    assert_eq!(keys.get("eye", "/api/v1/intents").await.json()["intents"], json!([]), "and may look at the rest");
    assert_eq!(keys.get("a-1", &address).await.status, 200);
    assert_eq!(keys.get("boss", &address).await.status, 200);
}

#[tokio::test]
async fn without_keys_every_name_is_believed() {
    let server = Server::start().await;
    let send = async |method: &str, path: &str, body: Value| {
        server.send(Request::new(method, path).header("x-agent-id", "b-1").json(&body)).await.status
    };
    assert_eq!(send("POST", "/api/v1/agents/register", json!({ "agent_id": "a-5" })).await, 201);
    assert_eq!(send("PATCH", "/api/v1/agents/a-5/status", json!({ "status": "dead" })).await, 200);
}
