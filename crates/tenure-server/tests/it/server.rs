use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_store::Fault;

use crate::harness::{PATIENCE, Request, Server, path};

/// Where the description of the API is kept, to be read and compared.
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

#[tokio::test]
async fn a_server_says_that_it_is_alive_ready_and_which() {
    let server = Server::start().await;
    assert_eq!(server.get("/healthz").await.body, b"ok\n");
    assert_eq!(server.get("/readyz").await.body, b"ready\n");
    let version = json!({ "name": "tenure", "version": env!("CARGO_PKG_VERSION"), "api": "v1" });
    assert_eq!(server.get("/version").await.json(), version);
}

#[tokio::test]
async fn a_ping_comes_back_as_it_was_sent() {
    let server = Server::start().await;
    let body = r#"{ "b": [1, 2.50, "é"], "a": null }"#;
    let ping = Request::new("POST", "/v1/ping").header("content-type", "application/json").body(body);
    let answer = server.send(ping).await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()));
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_done_there_is_said() {
    let server = Server::start().await;
    for nowhere in ["/", "/v1", "/v2/leases", "/v1/leases/", "/v1/leases/a/b/c"] {
        server.get(nowhere).await.problem(404, "not_found");
    }
    let answer = server.send(Request::new("PUT", "/v1/leases")).await;
    let allowed: BTreeSet<_> = answer.header("allow").expect("what is allowed").split(',').collect();
    assert_eq!(allowed, BTreeSet::from(["get", "head", "post"]));
    answer.problem(405, "method_not_allowed");
}

#[tokio::test]
async fn metrics_tell_what_happened() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    server.acquire("a", "job:2").await;
    server.post("/v1/leases", json!({ "resource": "job:1", "holder": "b" })).await.problem(409, "held");
    server.send(Request::new("POST", &path(&lease, "/renew")).holder("a")).await;
    server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    server.send(Request::new("DELETE", "/v1/leases/lease-99999-1").holder("a")).await.problem(404, "unknown_lease");
    server.clock.advance_ms(10_040);
    // The server's own evaluator polls again when its poll has timed out: that may just stand in line.
    let calm = async {
        loop {
            let text = String::from_utf8(server.get("/metrics").await.body).unwrap();
            if text.lines().any(|line| line == "tenure_queue_depth 0") {
                break text;
            }
        }
    };
    let text = tokio::time::timeout(PATIENCE, calm).await.expect("the queue is empty at times");
    for line in [
        "tenure_grants_total 2",
        "tenure_renewals_total 1",
        "tenure_refusals_total{code=\"held\"} 1",
        "tenure_refusals_total{code=\"unknown_lease\"} 1",
        "tenure_lease_ends_total{how=\"released\"} 1",
        "tenure_lease_ends_total{how=\"expired\"} 1",
        "tenure_expiry_lateness_seconds_count 1",
        "tenure_expiry_lateness_seconds_sum 0.04",
        "tenure_live_leases 0",
        "tenure_waiters 0",
        "tenure_event_followers 0",
        "tenure_fold_lag_batches 0",
        "tenure_fold_failing 0",
        "tenure_events_kept 5",
        "tenure_connections 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for name in ["tenure_batch_commands_count", "tenure_commit_seconds_count"] {
        assert!(text.contains(name), "{name}");
    }
}

#[tokio::test]
async fn the_description_has_every_route_and_nothing_else() {
    let server = Server::start().await;
    let description = server.get("/openapi.json").await.json();
    let paths = description["paths"].as_object().expect("paths");
    let methods = ["get", "post", "put", "delete", "patch"];
    for (path, operations) in paths {
        let at = path.replace("{id}", "lease-1-1");
        for method in methods {
            let answer = server.send(Request::new(&method.to_uppercase(), &at)).await;
            let is_described = operations.get(method).is_some();
            let is_served = !matches!(answer.status, 405) && !is_nowhere(&answer.body);
            assert_eq!(is_described, is_served, "{method} {path}");
        }
    }
    let kinds = description["components"]["schemas"]["EventKind"]["enum"].as_array().expect("kinds of events");
    let known = tenure_core::event::EventKind::ALL.map(|kind| json!(kind.as_str()));
    assert_eq!(kinds, &known, "a refusal sends its reader here");
    let routes = include_str!("../../src/router.rs").matches(".route(").count();
    assert_eq!(routes, paths.len(), "every line of the table is described");
}

/// Not only that there is no such thing at an address: that there is no such address.
fn is_nowhere(body: &[u8]) -> bool {
    let detail = |body: Value| body["detail"].as_str().map(str::to_owned).unwrap_or_default();
    serde_json::from_slice(body).is_ok_and(|body| detail(body).starts_with("there is nothing at"))
}

#[test]
fn every_answer_is_described_and_refusals_in_their_own_type() {
    let description: Value = serde_json::from_str(tenure_server::openapi_json()).expect("JSON");
    let operations = description["paths"].as_object().expect("paths").values().flat_map(|path| path.as_object());
    for (status, answer) in operations.flatten().flat_map(|(_, one)| one["responses"].as_object()).flatten() {
        assert!(answer["description"].as_str().is_some_and(|text| !text.is_empty()), "{status}: {answer}");
        let is_refusal = answer["content"].get("application/problem+json").is_some();
        assert_eq!(is_refusal, matches!(status.as_str(), "4XX" | "503"), "{status}: {answer}");
    }
}

#[test]
fn the_description_is_the_one_in_the_docs() {
    let now = format!("{}\n", tenure_server::openapi_json());
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(SNAPSHOT, &now).expect("written");
    }
    let kept = std::fs::read_to_string(SNAPSHOT).expect("docs/openapi.json");
    assert!(kept == now, "docs/openapi.json is not what the code says; TENURE_BLESS=1 writes it anew");
}

#[tokio::test]
async fn every_code_has_its_page() {
    let pages =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md")).expect("docs/errors.md");
    for code in tenure_server::Code::ALL {
        let line = format!("## `{}` ({})", code.as_str(), code.status().as_u16());
        assert!(pages.contains(&line), "docs/errors.md lacks {line}");
    }
}

#[tokio::test]
async fn a_server_whose_store_fails_answers_nobody_from_memory_and_ends() {
    let server = Server::start().await;
    server.acquire("a", "job:1").await;
    server.memory.fail_commit(1, Fault::BeforeDurable);
    let body = json!({ "resource": "job:2", "holder": "a" });
    let answer = server.post("/v1/leases", body).await;
    answer.problem(503, "unavailable");
    let failure = server.finished().await.expect_err("a failure");
    assert!(matches!(failure, tenure_server::ServeError::Engine(_)), "{failure}");
}

#[tokio::test]
async fn a_server_that_stops_ends_waits_and_refuses_no_request_in_flight() {
    let server = Server::start().await;
    server.acquire("a", "job:1").await;
    let body = json!({ "resource": "job:1", "holder": "b", "wait_seconds": 3600 });
    let request = Request::new("POST", "/v1/leases").json(&body);
    let address = server.address;
    let waiting = tokio::spawn(async move { crate::harness::exchange(address, &request.bytes()).await });
    server.until_waiting(1).await;
    let engine = server.engine.clone();
    server.stop().await.expect("a clean end");
    waiting.await.unwrap().problem(503, "unavailable");
    assert!(engine.is_running(), "the engine is its owner's to stop");
    engine.stop();
    engine.finished().await.expect("a clean end");
}
