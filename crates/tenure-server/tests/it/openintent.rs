//! What the OpenIntent door promises where a test has to move the clock.

use serde_json::{Value, json};
use tenure_server::Config;

use crate::harness::*;

async fn as_agent(server: &Server, agent: &str, path: &str, body: Value) -> Answer {
    server.send(Request::new("POST", path).header("x-agent-id", agent).json(&body)).await
}

/// Whether an agent is given a scope; if not, who has it.
async fn acquire(server: &Server, agent: &str, intent: &str) -> Result<Value, Value> {
    let body = json!({ "scope": "x", "duration_seconds": 60 });
    let answer = as_agent(server, agent, &format!("/api/v1/intents/{intent}/leases"), body).await;
    match answer.status {
        200 | 201 => Ok(answer.json()),
        409 => Err(answer.json()["current_holder"].clone()),
        other => panic!("{other}: {answer:?}"),
    }
}

/// Defect 27 of that project's own server: its leases live by the wall clock.
#[tokio::test]
async fn a_wall_clock_that_was_set_back_or_on_ends_no_lease_early_and_none_late() {
    const HOUR: u64 = 3_600_000;
    for restarted_at in [START.unix_ms() - HOUR, START.unix_ms() + HOUR] {
        let server = Server::start().await;
        let made = as_agent(&server, "a", "/api/v1/intents", json!({ "title": "t" })).await.json();
        let intent = made["id"].as_str().expect("an id").to_owned();
        acquire(&server, "a", &intent).await.expect("free");
        let memory = server.memory.handle();
        server.stop().await.expect("stopped");
        let now = tenure_core::Timestamp::from_unix_ms(restarted_at);
        let server = Server::on(memory, now, Config::default()).await;
        assert_eq!(acquire(&server, "b", &intent).await, Err(json!("a")), "restarted at {restarted_at}");
        // It ends one ttl after the start, whatever the wall clock said then.
        server.clock.advance_ms(59_999);
        assert_eq!(acquire(&server, "b", &intent).await, Err(json!("a")));
        server.clock.advance_ms(1);
        acquire(&server, "b", &intent).await.expect("over");
    }
}

#[tokio::test]
async fn refusals_of_this_door_are_counted_too() {
    let server = Server::start().await;
    let made = as_agent(&server, "a", "/api/v1/intents", json!({ "title": "t" })).await.json();
    let intent = made["id"].as_str().expect("an id").to_owned();
    let lease = acquire(&server, "a", &intent).await.expect("free");
    acquire(&server, "b", &intent).await.expect_err("held");
    let lease = format!("/api/v1/leases/{}", lease["id"].as_str().expect("an id"));
    let renew = |agent| server.send(Request::new("PATCH", &lease).header("x-agent-id", agent).json(&json!({})));
    assert_eq!(renew("b").await.status, 409);
    server.clock.advance_ms(60_000);
    assert_eq!(renew("a").await.status, 409);
    let metrics = String::from_utf8(server.get("/metrics").await.body).expect("text");
    for code in ["held", "not_holder", "lost"] {
        let line = format!("tenure_refusals_total{{code=\"{code}\"}} 1");
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}
