//! The real heartbeat thread over real HTTP, with ttls of a second or so. Tests wait for requests, not for time.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure::{Acquire, Client, Error, Lease, Loss, Refusal, State, Status};

use crate::fake::{Fake, PATIENCE, Reply, grant, renew_all};

const ACQUIRE: &str = "POST /v1/leases";
const RENEW: &str = "POST /v1/leases/renew";
const RENEW_ONE: &str = "POST /v1/leases/lease-1-1/renew";
const RELEASE: &str = "DELETE /v1/leases/lease-1-1";

async fn guard(fake: &Fake, ttl_ms: u64) -> Lease {
    fake.once(ACQUIRE, Reply::Json(201, grant(1, ttl_ms)));
    fake.client().acquire(Acquire::one("x:a").ttl(Duration::from_millis(ttl_ms))).await.unwrap()
}

async fn lost(lease: &Lease) -> Loss {
    tokio::time::timeout(PATIENCE, lease.lost()).await.expect("lost in time")
}

#[tokio::test]
async fn the_heartbeat_goes_on_while_the_programs_runtime_is_blocked() {
    let fake = Fake::start();
    fake.always(RENEW, renew_all(900));
    let lease = guard(&fake, 900).await;
    // This blocks the only thread of the runtime for several ttls.
    let beats = fake.wait_for(RENEW, 8);
    assert_eq!(lease.state(), State::Held);
    assert_eq!(beats[0].body, json!({ "ids": ["lease-1-1"] }));
    assert_eq!(beats[0].header("x-tenure-holder"), Some("me"));
}

#[tokio::test]
async fn a_dropped_guard_is_not_renewed_any_more_and_not_released() {
    let fake = Fake::start();
    fake.always(RENEW, renew_all(300));
    let client = fake.client();
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 300))).once(ACQUIRE, Reply::Json(201, grant(2, 300)));
    let first = client.acquire(Acquire::one("x:a")).await.unwrap();
    let second = client.acquire(Acquire::one("x:b")).await.unwrap();
    fake.wait_for(RENEW, 2);
    drop(first);
    let only_second = json!({ "ids": ["lease-1-2"] });
    fake.wait_until(RENEW, |seen| seen.iter().rev().take_while(|seen| seen.body == only_second).count() >= 3);
    assert_eq!(second.state(), State::Held);
}

#[tokio::test]
async fn releasing_gives_it_back_at_once() {
    let fake = Fake::start();
    let mut released = grant(1, 30_000);
    released["status"] = json!("released");
    fake.once(RELEASE, Reply::Close).once(RELEASE, Reply::Json(200, released));
    guard(&fake, 30_000).await.release().await.unwrap();
    assert_eq!(fake.seen(RELEASE).len(), 2, "a lost answer is no reason to keep it");
}

#[tokio::test]
async fn a_release_whose_connection_has_died_is_sent_again_on_another_one() {
    let fake = Fake::start();
    let mut released = grant(1, 30_000);
    released["status"] = json!("released");
    fake.once(RELEASE, Reply::Hang).once(RELEASE, Reply::Json(200, released));
    let client = Client::builder().url(&fake.url).patience(Duration::from_secs(2)).build().unwrap();
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000)));
    client.acquire(Acquire::one("x:a")).await.unwrap().release().await.unwrap();
    assert_eq!(fake.seen(RELEASE).len(), 2);
}

#[tokio::test]
async fn a_release_that_nobody_answers_takes_no_longer_than_the_patience() {
    let fake = Fake::start();
    fake.always(RELEASE, |_| Reply::Hang);
    let client = Client::builder().url(&fake.url).patience(Duration::from_secs(1)).build().unwrap();
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000)));
    let lease = client.acquire(Acquire::one("x:a")).await.unwrap();
    let start = Instant::now();
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(fake.seen(RELEASE).len(), 2);
}

#[tokio::test]
async fn a_guard_takes_over_the_ttl_of_a_renewal_that_its_client_makes() {
    let fake = Fake::start();
    let client = fake.client();
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000))).always(RENEW, renew_all(900));
    let lease = client.acquire(Acquire::one("x:a")).await.unwrap();
    fake.once(RENEW_ONE, Reply::Json(200, json!({ "id": "lease-1-1", "ttl_ms": 900 })));
    client.renew(lease.id(), Some(Duration::from_millis(900))).await.unwrap();
    assert!(lease.trusted_for() < Duration::from_millis(900), "{:?}", lease.trusted_for());
    fake.wait_for(RENEW, 2);
    assert_eq!(lease.state(), State::Held, "and it is renewed at that pace");
}

/// A client that tries once, and a guard of 30 s.
async fn long_guard(fake: &Fake) -> (Client, Lease) {
    let client = Client::builder().url(&fake.url).holder("me").patience(Duration::ZERO).build().unwrap();
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000)));
    let lease = client.acquire(Acquire::one("x:a")).await.unwrap();
    (client, lease)
}

#[tokio::test]
async fn a_shorter_ttl_whose_answer_is_lost_is_believed_until_a_beat_says_which_holds() {
    let fake = Fake::start();
    let (client, lease) = long_guard(&fake).await;
    fake.once(RENEW_ONE, Reply::Close);
    client.renew(lease.id(), Some(Duration::from_millis(1_500))).await.unwrap_err();
    let left = lease.trusted_for();
    assert!(left < Duration::from_millis(1_500), "{left:?}");
    fake.always(RENEW, renew_all(30_000));
    fake.wait_for(RENEW, 1);
    let deadline = Instant::now() + PATIENCE;
    while lease.trusted_for() < Duration::from_secs(20) {
        assert!(Instant::now() < deadline, "{:?}", lease.trusted_for());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_ttl_is_believed_while_its_answer_is_awaited_and_after_nobody_waits_any_more() {
    let fake = Fake::start();
    let (client, lease) = long_guard(&fake).await;
    fake.once(RENEW_ONE, Reply::Hang).always(RENEW, |_| Reply::Close);
    let asking =
        tokio::spawn(async move { client.renew("lease-1-1".parse().unwrap(), Some(Duration::from_secs(1))).await });
    tokio::task::block_in_place(|| fake.wait_for(RENEW_ONE, 1));
    assert!(lease.trusted_for() < Duration::from_secs(1), "{:?}", lease.trusted_for());
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert!(lease.trusted_for() < Duration::from_secs(1), "{:?}", lease.trusted_for());
    assert_eq!(lost(&lease).await, Loss::OutOfTouch);
}

#[tokio::test]
async fn a_guard_hears_at_once_what_a_renewal_a_revoke_or_a_release_by_its_client_has_found() {
    let fake = Fake::start();
    let (client, lease) = long_guard(&fake).await;
    let expired = json!({ "code": "lost", "status": 409, "reason": "expired", "current": null });
    fake.once(RENEW_ONE, Reply::Json(409, expired));
    client.renew(lease.id(), None).await.unwrap_err();
    assert_eq!(lease.loss().map(ToString::to_string).as_deref(), Some("it expired"));

    let mut revoked = grant(1, 30_000);
    (revoked["status"], revoked["note"]) = (json!("revoked"), json!("stuck"));
    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000)));
    fake.once("POST /v1/leases/lease-1-1/revoke", Reply::Json(200, revoked));
    let lease = client.acquire(Acquire::one("x:a")).await.unwrap();
    client.revoke(lease.id(), "stuck").await.unwrap();
    assert_eq!(lease.loss().map(ToString::to_string).as_deref(), Some("it was revoked (stuck)"));

    fake.once(ACQUIRE, Reply::Json(201, grant(1, 30_000))).once(RELEASE, Reply::Close);
    let lease = client.acquire(Acquire::one("x:a")).await.unwrap();
    client.release(lease.id()).await.unwrap_err();
    assert_eq!((lease.state(), lease.loss()), (State::Lost, Some(&Loss::Released)));
}

#[tokio::test]
async fn every_guard_of_one_lease_hears_that_it_is_over() {
    let fake = Fake::start();
    let client = fake.client();
    fake.always(RENEW, renew_all(900)).always(ACQUIRE, |_| Reply::Json(201, grant(1, 900)));
    let keyed = || client.acquire(Acquire::one("x:a").idempotency_key("k"));
    let (first, second, third) = (keyed().await.unwrap(), keyed().await.unwrap(), keyed().await.unwrap());
    drop(third);
    let seen = fake.seen(RENEW).len();
    fake.wait_for(RENEW, seen + 3);
    assert_eq!((first.state(), second.state()), (State::Held, State::Held), "one that is dropped takes nothing along");

    let mut released = grant(1, 900);
    released["status"] = json!("released");
    fake.once(RELEASE, Reply::Json(200, released));
    second.release().await.unwrap();
    assert_eq!(lost(&first).await, Loss::Released);
}

#[tokio::test]
async fn a_revoked_lease_is_lost_with_the_reason_and_its_late_release_is_told() {
    let fake = Fake::start();
    let ended = json!({ "id": "lease-1-1", "outcome": "lost", "reason": "revoked", "note": "maintenance",
        "ended_at": "2026-11-15T10:00:10.000Z", "holder": "me", "current": null });
    fake.once(RENEW, Reply::Json(200, json!({ "results": [ended] })));
    let lost_too = json!({ "status": 409, "code": "lost", "reason": "revoked", "note": "maintenance" });
    fake.once(RELEASE, Reply::Json(409, lost_too));
    let lease = guard(&fake, 900).await;
    let loss = lost(&lease).await;
    assert_eq!(loss.to_string(), "it was revoked (maintenance)");
    let Loss::Ended(ended) = loss else { panic!("{loss:?}") };
    assert_eq!(ended.reason, Some(Status::Revoked));
    assert_eq!((lease.state(), lease.trusted_for()), (State::Lost, Duration::ZERO));
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Lost(_))), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_gone_makes_the_lease_risky_and_then_lost_before_the_ttl_is_over() {
    let fake = Fake::start();
    fake.always(RENEW, |_| Reply::Close);
    let lease = guard(&fake, 1_500).await;
    let sent = fake.seen(ACQUIRE)[0].at;
    fake.wait_for(RENEW, 2);
    assert_eq!(lease.state(), State::AtRisk);
    assert_eq!(lost(&lease).await, Loss::OutOfTouch);
    let held_for = sent.elapsed();
    assert!(held_for < Duration::from_millis(1_500), "{held_for:?}");
    assert_eq!(lease.state(), State::Lost);
    assert!(fake.seen(RENEW).len() >= 3, "it was tried again until the end");
}

#[tokio::test]
async fn a_server_that_hangs_does_not_keep_the_loss_from_being_told() {
    let fake = Fake::start();
    fake.always(RENEW, |_| Reply::Hang);
    let lease = guard(&fake, 900).await;
    let sent = fake.seen(ACQUIRE)[0].at;
    assert_eq!(lost(&lease).await, Loss::OutOfTouch);
    assert!(sent.elapsed() < Duration::from_millis(900), "{:?}", sent.elapsed());
}

#[tokio::test]
async fn a_renewal_whose_connection_has_died_is_sent_again_on_another_one() {
    let fake = Fake::start();
    fake.once(RENEW, Reply::Hang).once(RENEW, Reply::Hang).always(RENEW, renew_all(2_000));
    let lease = guard(&fake, 2_000).await;
    let taken = fake.seen(ACQUIRE)[0].at;
    let third = fake.wait_for(RENEW, 3)[2].at - taken;
    assert!(third < Duration::from_millis(1_250), "before a supervisor stops the work: {third:?}");
    fake.wait_for(RENEW, 6);
    assert_eq!((lease.state(), lease.loss()), (State::Held, None));
}

#[tokio::test]
async fn a_restart_of_the_server_inside_the_ttl_is_not_noticed() {
    let fake = Fake::start();
    fake.once(RENEW, Reply::Close)
        .once(RENEW, Reply::Json(503, json!({ "code": "unavailable", "status": 503 })))
        .once(RENEW, Reply::Json(200, json!({ "results": [] })))
        .always(RENEW, renew_all(3_000));
    let lease = guard(&fake, 3_000).await;
    fake.wait_for(RENEW, 5);
    assert_eq!((lease.state(), lease.loss()), (State::Held, None));
}

#[tokio::test]
async fn a_thousand_leases_are_renewed_by_one_request_per_beat() {
    let fake = Fake::start();
    let mut number = 0;
    fake.always(ACQUIRE, move |_| {
        number += 1;
        Reply::Json(201, grant(number, 6_000))
    });
    fake.always(RENEW, renew_all(6_000));
    let client = fake.client();
    let mut leases = Vec::new();
    for _ in 0..1_000 {
        leases.push(client.acquire(Acquire::one("x:a")).await.unwrap());
    }
    fake.forget();
    let whole = |seen: &crate::fake::Seen| seen.body["ids"].as_array().map(Vec::len) == Some(1_000);
    // Four beats in a row in which every lease travels. However long the leases took to take, that comes.
    let beats = fake.wait_until(RENEW, |seen| seen.iter().rev().take_while(|seen| whole(seen)).count() >= 4);
    let [.., first, _, _, last] = beats.as_slice() else { panic!("too few") };
    // Three intervals of two seconds. A busy machine may see the first request late; two requests a beat would be half.
    assert!(last.at - first.at > Duration::from_secs(4), "one request per beat");
    assert!(leases.iter().all(|lease| lease.state() == State::Held));
}

#[tokio::test]
async fn a_guard_outlives_its_client() {
    let fake = Fake::start();
    fake.always(RENEW, renew_all(300));
    let lease = guard(&fake, 300).await;
    let start = Instant::now();
    fake.wait_for(RENEW, 5);
    assert!(start.elapsed() > Duration::from_millis(300), "longer than the ttl");
    assert_eq!(lease.state(), State::Held);
}
