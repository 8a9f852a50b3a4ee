use std::time::Duration;

use serde_json::json;
use tenure::{Acquire, Client, EventQuery, LeaseQuery, Mode, Refusal, Status};

use crate::fake::{Fake, Reply, grant, held};

#[tokio::test]
async fn every_plain_call_asks_for_what_it_says() {
    let fake = Fake::start();
    let id = "lease-1-1".parse().unwrap();
    let client = fake.client();
    fake.once("POST /v1/leases/lease-1-1/renew", Reply::Json(200, json!({ "id": "lease-1-1", "ttl_ms": 1_500 })));
    assert_eq!(client.renew(id, Some(Duration::from_millis(1_500))).await.unwrap().ttl_ms, 1_500);
    assert_eq!(fake.seen("POST /v1/leases/lease-1-1/renew")[0].body, json!({ "ttl_seconds": 1.5 }));

    let mut revoked = grant(1, 30_000);
    revoked["status"] = json!("revoked");
    fake.once("POST /v1/leases/lease-1-1/revoke", Reply::Json(200, revoked));
    assert_eq!(client.revoke(id, "stuck").await.unwrap().status, Status::Revoked);
    assert_eq!(fake.seen("POST /v1/leases/lease-1-1/revoke")[0].body, json!({ "reason": "stuck" }));

    fake.once("POST /v1/leases/check", Reply::Json(200, json!({ "free": false, "conflicts": [held()["conflict"]] })));
    let check = client.check_others(["x:a"], Mode::Shared).await.unwrap();
    assert!(!check.free && check.conflicts[0].waiting == 2);
    let asked = json!({ "resources": ["x:a"], "mode": "shared", "holder": "me" });
    assert_eq!(fake.seen("POST /v1/leases/check")[0].body, asked);

    fake.once("GET /v1/leases", Reply::Json(200, json!({ "leases": [grant(1, 30_000)], "next": "n" })));
    let query =
        LeaseQuery::default().resource("path:a b").holder("é").status(Status::Active).kind("path").after("m").limit(5);
    let page = client.leases(&query).await.unwrap();
    assert_eq!((page.leases.len(), page.next.as_deref()), (1, Some("n")));
    let asked = "after=m&holder=%C3%A9&kind=path&limit=5&resource=path%3Aa+b&status=active";
    assert_eq!(fake.seen("GET /v1/leases")[0].query, asked);

    fake.once("GET /v1/leases/lease-1-1", Reply::Json(200, grant(1, 30_000)));
    assert_eq!(client.lease(id).await.unwrap().id, id);

    let event = json!({ "cursor": 3, "at": "2026-11-15T10:00:00.000Z", "kind": "lease.granted", "acquired_at": "x" });
    fake.once("GET /v1/leases/lease-1-1/events", Reply::Json(200, json!({ "events": [event] })));
    assert_eq!(client.history(id).await.unwrap()[0].more["acquired_at"], "x", "what is not typed is kept");

    fake.once("GET /v1/events", Reply::Json(200, json!({ "events": [event], "next": 3 })));
    assert_eq!(client.events(&EventQuery::default().after(2).limit(1)).await.unwrap().next, Some(3));
    assert_eq!(fake.seen("GET /v1/events")[0].query, "after=2&limit=1");

    fake.once("GET /version", Reply::Json(200, json!({ "version": "1" })));
    assert_eq!(client.version().await.unwrap()["version"], "1");
}

#[tokio::test]
async fn a_revoke_whose_answer_was_lost_is_not_sent_twice() {
    let fake = Fake::start();
    fake.once("POST /v1/leases/lease-1-1/revoke", Reply::Close);
    fake.client().revoke("lease-1-1".parse().unwrap(), "stuck").await.unwrap_err();
}

#[tokio::test]
async fn every_code_of_the_server_becomes_its_refusal() {
    let fake = Fake::start();
    let client = Client::builder().url(&fake.url).patience(Duration::ZERO).build().unwrap();
    for (status, code, expected) in [
        (408, "wait_timed_out", Refusal::WaitTimedOut(None)),
        (409, "would_deadlock", Refusal::WouldDeadlock { cycle: Vec::new() }),
        (409, "not_holder", Refusal::NotHolder { holder: None }),
        (404, "unknown_lease", Refusal::UnknownLease),
        (429, "limit_reached", Refusal::LimitReached),
        (409, "within_over", Refusal::WithinOver),
        (422, "key_reused", Refusal::KeyReused),
        (410, "gone", Refusal::Gone),
        (400, "bad_request", Refusal::BadRequest { errors: Vec::new() }),
        (401, "unauthorized", Refusal::Unauthorized),
        (403, "forbidden", Refusal::Forbidden),
        (503, "overloaded", Refusal::Overloaded),
        (503, "unavailable", Refusal::Unavailable),
        (418, "teapot", Refusal::Other),
    ] {
        fake.once("POST /v1/leases", Reply::Json(status, json!({ "code": code, "detail": "no", "status": status })));
        let error = client.acquire_without_heartbeat(Acquire::one("x:a")).await.unwrap_err();
        assert_eq!((error.refusal(), error.code()), (Some(&expected), code));
    }
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_when_it_wants_to_be() {
    let fake = Fake::start();
    let busy = r#"{"code":"overloaded","status":503}"#;
    let busy = format!("HTTP/1.1 503 X\r\nretry-after: 1\r\ncontent-length: {}\r\n\r\n{busy}", busy.len());
    fake.once("GET /v1/leases/lease-1-1", Reply::Raw(busy))
        .once("GET /v1/leases/lease-1-1", Reply::Json(200, grant(1, 1_000)));
    fake.client().lease("lease-1-1".parse().unwrap()).await.unwrap();
    let seen = fake.seen("GET /v1/leases/lease-1-1");
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(1));
}
