use std::time::Duration;

use serde_json::json;
use tenure::{Acquire, Client, Error, Refusal, State};

use crate::fake::{Fake, Reply, grant, held};

const ACQUIRE: &str = "POST /v1/leases";

#[tokio::test]
async fn an_acquire_says_who_asks_and_carries_a_key() {
    let fake = Fake::start();
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000)));
    let client = Client::builder().url(&fake.url).holder("agent-é").api_key("secret").build().unwrap();
    let lease = client.acquire(Acquire::one("x:a")).await.unwrap();
    assert_eq!((lease.id().to_string().as_str(), lease.token().as_u64()), ("lease-1-1", (1 << 32) + 1));
    assert_eq!((lease.resources()[0].to_string().as_str(), lease.holder().as_str()), ("x:a", "me"));
    assert_eq!(lease.state(), State::Held);
    let left = lease.trusted_for();
    assert!(left > Duration::from_secs(27) && left <= Duration::from_millis(28_500), "{left:?}");
    let seen = &fake.seen(ACQUIRE)[0];
    assert_eq!((seen.header("x-api-key"), seen.header("x-tenure-holder")), (Some("secret"), Some("agent-é")));
    assert_eq!(seen.body["holder"], "agent-é");
    assert!(seen.header("idempotency-key").is_some_and(|key| key.len() == 36));
}

#[tokio::test]
async fn a_try_whose_answer_was_lost_is_made_again_with_the_same_key() {
    let fake = Fake::start();
    fake.once(ACQUIRE, Reply::Close)
        .once(ACQUIRE, Reply::Json(503, json!({ "code": "unavailable", "status": 503 })))
        .once(ACQUIRE, Reply::Json(201, grant(1, 30_000)));
    let lease = fake.client().acquire(Acquire::one("x:a")).await.unwrap();
    let keys: Vec<_> =
        fake.seen(ACQUIRE).iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    drop(lease);
}

#[tokio::test]
async fn a_wait_that_is_used_up_while_the_server_is_away_has_run_out() {
    let fake = Fake::start();
    let outage = Reply::Late(Duration::from_millis(60), Box::new(Reply::Close));
    fake.once(ACQUIRE, outage).once(ACQUIRE, Reply::Json(409, held()));
    let error = fake.client().acquire(Acquire::one("x:a").wait(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!(error.code(), "wait_timed_out");
    assert!(matches!(error.refusal(), Some(Refusal::WaitTimedOut(Some(_)))), "{error:?}");
    assert_eq!(error.conflict().unwrap().holder.as_ref().unwrap().as_str(), "you");
    let tries = fake.seen(ACQUIRE);
    assert_eq!([&tries[0].body["wait_seconds"], &tries[1].body["wait_seconds"]], [&json!(0.05), &json!(0.0)]);
    assert_eq!(tries[0].header("idempotency-key"), tries[1].header("idempotency-key"));
}

#[tokio::test]
async fn a_refusal_is_final_and_names_the_holder() {
    let fake = Fake::start();
    fake.once(ACQUIRE, Reply::Json(409, held()));
    let error = fake.client().acquire(Acquire::one("x:a")).await.unwrap_err();
    assert_eq!(error.conflict().unwrap().holder.as_ref().unwrap().as_str(), "you");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn after_a_wait_the_lease_is_renewed_before_it_is_trusted() {
    let fake = Fake::start();
    // A third of the ttl is 100 ms; the grant could have been at any moment of the 250 ms.
    fake.once(ACQUIRE, Reply::Late(Duration::from_millis(250), Box::new(Reply::Json(201, grant(1, 300)))));
    fake.once("POST /v1/leases/lease-1-1/renew", Reply::Json(200, json!({ "id": "lease-1-1", "ttl_ms": 60_000 })));
    let lease = fake.client().acquire(Acquire::one("x:a").wait(Duration::from_secs(10))).await.unwrap();
    assert!(lease.trusted_for() > Duration::from_secs(50), "trust counts from the renewal: {:?}", lease.trusted_for());
    assert_eq!(fake.seen(ACQUIRE)[0].body["wait_seconds"], json!(10.0));
}

#[tokio::test]
async fn a_key_that_was_used_before_gets_a_lease_that_is_renewed_before_it_is_trusted() {
    let fake = Fake::start();
    let mut old = grant(1, 60_000);
    old["server_time"] = json!("2026-11-15T10:00:59.000Z");
    fake.once(ACQUIRE, Reply::Json(201, old));
    fake.once("POST /v1/leases/lease-1-1/renew", Reply::Json(200, json!({ "id": "lease-1-1", "ttl_ms": 30_000 })));
    let lease = fake.client().acquire(Acquire::one("x:a").idempotency_key("k")).await.unwrap();
    assert!(lease.trusted_for() <= Duration::from_millis(28_500), "{:?}", lease.trusted_for());
    assert_eq!(lease.info().ttl(), Duration::from_secs(30));
}

#[tokio::test]
async fn a_lease_that_was_lost_while_its_answer_was_on_the_way_is_not_handed_out() {
    let fake = Fake::start();
    fake.once(ACQUIRE, Reply::Late(Duration::from_millis(250), Box::new(Reply::Json(201, grant(1, 300)))));
    let lost = json!({ "code": "lost", "status": 409, "reason": "expired", "current": null });
    fake.once("POST /v1/leases/lease-1-1/renew", Reply::Json(409, lost));
    let error = fake.client().acquire(Acquire::one("x:a")).await.unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Lost(_))), "{error:?}");
}

#[tokio::test]
async fn a_retried_acquire_whose_lease_has_ended_since_is_a_loss() {
    let fake = Fake::start();
    let mut ended = grant(1, 30_000);
    ended["status"] = json!("expired");
    fake.once(ACQUIRE, Reply::Json(201, ended));
    let error = fake.client().acquire(Acquire::one("x:a").idempotency_key("k")).await.unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Lost(_))), "{error:?}");
    assert_eq!(fake.seen(ACQUIRE)[0].header("idempotency-key"), Some("k"));
}

#[tokio::test]
async fn without_patience_a_server_that_is_not_there_is_said_at_once() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Client::builder().url(format!("http://{nobody}")).patience(Duration::ZERO).build().unwrap();
    let error = client.acquire(Acquire::one("x:a")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(std::error::Error::source(&error).is_some(), "the cause is kept");
}

#[tokio::test]
async fn an_answer_that_is_not_tenures_is_said_to_be_so() {
    let fake = Fake::start();
    let page = "HTTP/1.1 404 Not Found\r\ncontent-length: 13\r\n\r\n<html>no page";
    fake.once(ACQUIRE, Reply::Raw(page.to_owned()));
    fake.once(ACQUIRE, Reply::Json(201, json!({ "hello": "world" })));
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 1)));
    for expected in ["status 404: <html>no page", "not the expected JSON", "a lease with an impossible ttl"] {
        match fake.client().acquire(Acquire::one("x:a")).await {
            Err(Error::BadAnswer { what, .. }) => assert_eq!(what, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_client_that_cannot_work_is_refused_when_it_is_made() {
    for url in ["", "localhost:8000", "ftp://x", "http://"] {
        assert!(matches!(Client::builder().url(url).build(), Err(Error::Setup { .. })), "{url}");
    }
    assert!(matches!(Client::builder().holder("a\nb").build(), Err(Error::Setup { .. })));
    assert!(matches!(Client::builder().ca_pem("-----BEGIN CERTIFICATE-----\nx").build(), Err(Error::Setup { .. })));
    let shown = format!("{:?}", Client::builder().api_key("tnr_secret").build().unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}
