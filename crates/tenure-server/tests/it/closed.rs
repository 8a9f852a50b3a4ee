//! An intent whose access list is closed, on a server with keys: those whom the list does not name neither see nor touch it,
//! through any door.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::*;
use crate::names::TwoKeys;

/// A closed intent of `a-1`, which holds its scope `s` and coordinates it.
struct Closed {
    keys: TwoKeys,
    id: String,
    lease: Value,
    term: Value,
}

impl Closed {
    async fn start() -> Closed {
        let keys = TwoKeys::start().await;
        let id = keys.intent("a-1").await;
        let lease = keys.make("a-1", &format!("/api/v1/intents/{id}/leases"), json!({ "scope": "s" })).await;
        let term = json!({ "intent_id": id, "supervisor_id": "a-boss" });
        let term = keys.make("a-1", "/api/v1/coordinators", term).await;
        let closed = Closed { keys, id, lease, term };
        closed.set_list(json!([])).await;
        closed
    }

    fn address(&self, rest: &str) -> String {
        format!("/api/v1/intents/{}{rest}", self.id)
    }

    async fn set_list(&self, entries: Value) {
        let list = json!({ "default_policy": "closed", "entries": entries });
        assert_eq!(self.keys.send("a-1", "PUT", &self.address("/acl"), list).await.status, 200);
    }

    async fn patch(&self, value: &str) {
        let body = json!({ "patches": [{ "op": "set", "path": "pw", "value": value }] });
        assert_eq!(self.keys.send("a-1", "POST", &self.address("/state"), body).await.status, 200);
    }
}

fn scope(id: &str) -> Value {
    json!({ "resource": format!("intent:{id}/s2"), "ttl_seconds": 60 })
}

#[tokio::test]
async fn whom_the_list_does_not_name_gets_no_lease_on_it_through_either_door() {
    let closed = Closed::start().await;
    let (keys, id) = (&closed.keys, &closed.id);
    let refused = keys.send("b-1", "POST", "/v1/leases", scope(id)).await.problem(403, "forbidden");
    assert_eq!(refused["intent"], json!(id));
    assert!(refused["detail"].as_str().unwrap().contains("does not let b-1 write"), "{refused}");
    for resource in [format!("intent:{id}/*"), format!("intent:{id}/s"), format!("coordinator:{id}")] {
        let body = json!({ "resources": ["job:1", resource], "wait_seconds": 60 });
        keys.send("b-1", "POST", "/v1/leases", body).await.problem(403, "forbidden");
        let check = json!({ "resources": [resource] });
        keys.send("b-1", "POST", "/v1/leases/check", check.clone()).await.problem(403, "forbidden");
        assert_eq!(keys.send("a-1", "POST", "/v1/leases/check", check).await.status, 200);
    }
    assert_eq!(keys.send("b-1", "POST", &closed.address("/leases"), json!({ "scope": "s2" })).await.status, 403);
    for (name, scope) in [("a-1", "x"), ("boss", "y")] {
        keys.make(name, "/v1/leases", json!({ "resource": format!("intent:{id}/{scope}") })).await;
    }
    closed.set_list(json!([{ "principal_id": "b-1", "permission": "write" }])).await;
    keys.make("b-1", "/v1/leases", scope(id)).await;
}

#[tokio::test]
async fn whom_the_list_does_not_name_sees_no_lease_on_it() {
    let closed = Closed::start().await;
    let keys = &closed.keys;
    let native = path(&closed.lease, "");
    let door = format!("/api/v1/leases/{}", closed.lease["id"].as_str().unwrap());
    let listed = async |name: &str, query: &str| {
        let page = keys.get(name, &format!("/v1/leases{query}")).await.json();
        page["leases"].as_array().unwrap().len()
    };
    for is_ended in [false, true] {
        for address in [native.clone(), path(&closed.lease, "/events")] {
            keys.get("b-1", &address).await.problem(403, "forbidden");
            assert_eq!(keys.get("eye", &address).await.status, 403, "an observer is bound by the list too");
        }
        assert_eq!(keys.get("b-1", &door).await.status, 403);
        for name in ["a-1", "boss"] {
            for address in [&native, &path(&closed.lease, "/events"), &door] {
                assert_eq!(keys.get(name, address).await.status, 200, "{name} at {address}");
            }
        }
        if is_ended {
            break;
        }
        // Nor by trying to end or to renew it.
        for method in ["DELETE", "PATCH"] {
            let answer = keys.send("b-1", method, &door, json!({})).await;
            assert_eq!((answer.status, answer.json().get("existing_lease")), (403, None));
        }
        assert_eq!((listed("b-1", "").await, listed("a-1", "").await, listed("boss", "").await), (0, 2, 2));
        assert_eq!(keys.send("a-1", "DELETE", &native, Value::Null).await.status, 200);
    }
    let ended = "?status=released";
    assert_eq!((listed("b-1", ended).await, listed("a-1", ended).await), (0, 1));
}

#[tokio::test]
async fn whom_the_list_does_not_name_neither_coordinates_it_nor_sees_who_does() {
    let closed = Closed::start().await;
    let keys = &closed.keys;
    let term = format!("/api/v1/coordinators/{}", closed.term["id"].as_str().unwrap());
    for address in [closed.address("/coordinators"), term.clone()] {
        assert_eq!(keys.get("b-1", &address).await.status, 403);
        assert_eq!(keys.get("a-1", &address).await.status, 200);
        assert_eq!(keys.get("boss", &address).await.status, 200);
    }
    assert_eq!(keys.get("a-boss", &term).await.status, 200, "its supervisor sees the term");
    let handed = keys.send("a-1", "POST", &format!("{term}/handoff"), json!({ "agent_id": "b-1" })).await;
    assert_eq!(handed.status, 403, "nor is it handed to one");
    let message = handed.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("does not let b-1 write it") && message.contains("access-requests"), "{message}");
    assert_eq!(keys.send("a-1", "DELETE", &term, Value::Null).await.json()["status"], "completed");
    let create = json!({ "intent_id": closed.id, "supervisor_id": "b-1" });
    assert_eq!(keys.send("b-1", "POST", "/api/v1/coordinators", create.clone()).await.status, 403);
    closed.set_list(json!([{ "principal_id": "b-1", "permission": "write" }])).await;
    keys.make("b-1", "/api/v1/coordinators", create).await;
}

#[tokio::test]
async fn whom_the_list_does_not_name_is_told_nothing_of_it_by_the_pages_of_events() {
    let closed = Closed::start().await;
    let keys = &closed.keys;
    closed.patch("topsecret").await;
    keys.make("b-1", "/v1/leases", json!({ "resource": "job:1" })).await;
    let page = async |name: &str| {
        let answer = keys.get(name, "/v1/events?after=0&limit=1000").await;
        String::from_utf8(answer.body).unwrap()
    };
    for name in ["b-1", "eye"] {
        let text = page(name).await;
        assert!(text.contains("job:1") && text.contains("ledger.opened"), "{name} reads the rest: {text}");
        for secret in ["secret", &closed.id, "a-1"] {
            assert!(!text.contains(secret), "{name} reads {secret}: {text}");
        }
    }
    for name in ["a-1", "boss"] {
        assert!(page(name).await.contains("topsecret"), "{name}");
    }
    closed.set_list(json!([{ "principal_id": "b-1", "permission": "read" }])).await;
    assert!(page("b-1").await.contains("topsecret"), "granted");
}

/// What an open stream sends, read up to a text that comes in it.
struct Stream(TcpStream);

impl Stream {
    async fn open(keys: &TwoKeys, name: &str, path: &str) -> Stream {
        let request = keys.signed(name, Request::new("GET", path).header("accept", "text/event-stream"));
        let mut stream = Stream(TcpStream::connect(keys.server.address).await.unwrap());
        stream.0.write_all(&request.bytes()).await.unwrap();
        stream.until("connected").await;
        stream
    }

    async fn until(&mut self, last: &str) -> String {
        let mut text = String::new();
        while !text.contains(last) {
            let mut bytes = vec![0; 64 * 1_024];
            let read = tokio::time::timeout(PATIENCE, self.0.read(&mut bytes)).await.expect("in time").unwrap();
            assert!(read > 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        text
    }
}

#[tokio::test]
async fn whom_the_list_does_not_name_is_told_nothing_of_it_by_the_stream_of_events() {
    let closed = Closed::start().await;
    let mut streams = Vec::new();
    for name in ["b-1", "a-1", "boss"] {
        streams.push((name, Stream::open(&closed.keys, name, "/v1/events").await));
    }
    closed.patch("topsecret").await;
    closed.keys.make("b-1", "/v1/leases", json!({ "resource": "job:last" })).await;
    for (name, stream) in &mut streams {
        let text = stream.until("job:last").await;
        assert_eq!(text.contains("topsecret"), *name != "b-1", "{name}: {text}");
    }
}

#[tokio::test]
async fn who_follows_a_portfolio_or_an_intent_hears_only_what_the_list_allows_by_then() {
    let closed = Closed::start().await;
    let (keys, id) = (&closed.keys, &closed.id);
    let portfolio = keys.make("a-1", "/api/v1/portfolios", json!({ "name": "p" })).await["id"].clone();
    let portfolio = format!("/api/v1/portfolios/{}", portfolio.as_str().unwrap());
    let other = keys.intent("a-1").await;
    for member in [id, &other] {
        keys.make("a-1", &format!("{portfolio}/intents"), json!({ "intent_id": member })).await;
    }
    closed.set_list(json!([{ "principal_id": "b-1", "permission": "read" }])).await;
    let mut streams = Vec::new();
    for name in ["b-1", "a-1"] {
        streams.push((name, Stream::open(keys, name, &format!("{portfolio}/subscribe")).await));
    }
    let mut on_intent = Stream::open(keys, "b-1", &closed.address("/subscribe")).await;
    closed.patch("allowed").await;
    on_intent.until("allowed").await;
    for (_, stream) in &mut streams {
        stream.until("allowed").await;
    }
    closed.set_list(json!([])).await;
    closed.patch("topsecret").await;
    let mark = json!({ "patches": [{ "op": "set", "path": "x", "value": "mark" }] });
    assert_eq!(keys.send("a-1", "POST", &format!("/api/v1/intents/{other}/state"), mark).await.status, 200);
    for (name, stream) in &mut streams {
        let text = stream.until("mark").await;
        assert_eq!(text.contains("topsecret"), *name != "b-1", "{name}: {text}");
    }
    // What was handed out by then did not go to this one either.
    closed.set_list(json!([{ "principal_id": "b-1", "permission": "read" }])).await;
    closed.patch("again").await;
    let text = on_intent.until("again").await;
    assert!(!text.lines().any(|line| line.contains("topsecret") && !line.contains("again")), "{text}");
}

#[tokio::test]
async fn whom_the_list_does_not_name_does_not_see_who_subscribed_to_it() {
    let closed = Closed::start().await;
    let body = json!({ "intent_id": closed.id, "webhook_url": "http://127.0.0.1:1/hook" });
    closed.keys.make("a-1", "/api/v1/subscriptions", body).await;
    let address = format!("/api/v1/subscriptions?intent_id={}", closed.id);
    for (name, count) in [("b-1", 0), ("a-1", 1), ("boss", 1)] {
        let seen = closed.keys.get(name, &address).await.json();
        assert_eq!(seen["subscriptions"].as_array().unwrap().len(), count, "{name}");
    }
}

#[tokio::test]
async fn without_keys_the_native_door_shows_and_takes_everything_as_ever() {
    let server = Server::start().await;
    let send = async |method: &str, path: &str, body: Value| {
        server.send(Request::new(method, path).header("x-agent-id", "a-1").json(&body)).await
    };
    let made = send("POST", "/api/v1/intents", json!({ "title": "top secret" })).await.json();
    let id = made["id"].as_str().unwrap();
    let list = json!({ "default_policy": "closed", "entries": [] });
    assert_eq!(send("PUT", &format!("/api/v1/intents/{id}/acl"), list).await.status, 200);
    server.acquire("b-1", &format!("intent:{id}/s")).await;
    let events = String::from_utf8(server.get("/v1/events?after=0").await.body).unwrap();
    assert!(events.contains("top secret"), "{events}");
    assert_eq!(server.get("/v1/leases").await.json()["leases"].as_array().unwrap().len(), 1);
}
