//! Every refusal of a rule, with what a caller can act on (L14).

use serde_json::{Value, json};
use tenure_core::limits::{RENEWALS_PER_REQUEST_MAX, RESOURCES_PER_ACQUIRE_MAX};

use crate::harness::{Request, Server, path};

#[tokio::test]
async fn l14_held_says_who_what_since_when_until_when_and_when_to_retry() {
    let server = Server::start().await;
    let lease = server.acquire("a", "path:src").await;
    server.clock.advance_ms(2_500);
    let answer = server.post("/v1/leases", json!({ "resource": "path:src/a.rs", "holder": "b" })).await;
    assert_eq!(answer.header("retry-after"), Some("8"));
    let problem = answer.problem(409, "held");
    let conflict = json!({
        "resource": "path:src/a.rs", "overlap": "path:src", "by": "lease", "holder": "a", "token": lease["token"],
        "lease_id": lease["id"], "mode": "exclusive", "acquired_at": "2026-11-15T12:00:00.000Z",
        "expires_at": "2026-11-15T12:00:10.000Z", "waiting": 0
    });
    assert_eq!((&problem["conflict"], &problem["retry_after_ms"]), (&conflict, &json!(7_500)));
    let detail = problem["detail"].as_str().unwrap();
    for part in ["path:src/a.rs", "path:src", "held by a", "2026-11-15T12:00:10.000Z", "wait_seconds"] {
        assert!(detail.contains(part), "{detail}");
    }
}

#[tokio::test]
async fn l11_a_closed_resource_says_until_when() {
    let server = Server::start().await;
    let body = json!({ "resource": "job:1", "holder": "a", "ttl_seconds": 1, "grace_seconds": 5 });
    server.post("/v1/leases", body).await;
    server.clock.advance_ms(1_000);
    let problem = server.post("/v1/leases", json!({ "resource": "job:1", "holder": "b" })).await.problem(409, "held");
    let conflict = &problem["conflict"];
    assert_eq!((&conflict["by"], &conflict["holder"]), (&json!("closure"), &json!("a")));
    assert_eq!(problem["retry_after_ms"], 5_000);
}

#[tokio::test]
async fn l9_a_wait_that_runs_out_says_who_still_has_it() {
    let server = Server::start().await;
    server.acquire("a", "job:1").await;
    let body = json!({ "resource": "job:1", "holder": "b", "wait_seconds": 2 });
    let wait = server.post("/v1/leases", body);
    let time = async {
        server.until_waiting(1).await;
        server.clock.advance_ms(2_000);
    };
    let (answer, ()) = tokio::join!(wait, time);
    assert_eq!(answer.problem(408, "wait_timed_out")["conflict"]["holder"], "a");
}

#[tokio::test]
async fn l9_a_wait_that_would_never_end_is_refused_at_once_and_names_the_cycle() {
    let server = Server::start().await;
    server.acquire("a", "job:1").await;
    server.acquire("b", "job:2").await;
    let waits = server.post("/v1/leases", json!({ "resource": "job:2", "holder": "a", "wait_seconds": 60 }));
    let refused = async {
        server.until_waiting(1).await;
        let body = json!({ "resource": "job:1", "holder": "b", "wait_seconds": 60 });
        let problem = server.post("/v1/leases", body).await.problem(409, "would_deadlock");
        let cycle: Vec<_> = problem["cycle"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert!(cycle.contains(&"a") && cycle.contains(&"b"), "{problem}");
        server.clock.advance_ms(60_000);
    };
    tokio::join!(waits, refused);
}

#[tokio::test]
async fn l5_a_late_renewal_is_told_that_the_lease_is_lost_and_who_has_it_now() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    server.clock.advance_ms(10_000);
    server.clock.advance_ms(500);
    let renew = || server.send(Request::new("POST", &path(&lease, "/renew")).holder("a"));
    let problem = renew().await.problem(409, "lost");
    assert_eq!((&problem["reason"], &problem["holder"]), (&json!("expired"), &json!("a")));
    assert_eq!((&problem["current"], &problem["note"]), (&Value::Null, &Value::Null));
    assert!(problem["ended_at"].as_str().unwrap().starts_with("2026-11-15T12:00:10"), "{problem}");
    server.acquire("b", "job:1").await;
    let problem = renew().await.problem(409, "lost");
    assert_eq!((&problem["current"]["holder"], &problem["current"]["by"]), (&json!("b"), &json!("lease")));
    let late = server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    assert_eq!((late.status, &late.json()["status"]), (200, &json!("expired")), "a late release changes nothing");
    assert_eq!(server.counts().await.leases, 1, "b keeps it");
}

#[tokio::test]
async fn l6_someone_elses_lease_is_refused_and_its_holder_named() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    for request in [Request::new("DELETE", &path(&lease, "")), Request::new("POST", &path(&lease, "/renew"))] {
        let problem = server.send(request.clone().holder("b")).await.problem(409, "not_holder");
        assert_eq!(problem["holder"], "a");
        let nobody = server.send(request).await.problem(400, "bad_request");
        assert!(nobody["detail"].as_str().unwrap().contains("X-Tenure-Holder"), "{nobody}");
    }
}

#[tokio::test]
async fn a_lease_that_never_was_is_unknown_to_every_verb() {
    let server = Server::start().await;
    for id in ["lease-1-1", "lease-2000000-1", "lease-x", "%ff", "a%00b"] {
        let at = |rest: &str| format!("/v1/leases/{id}{rest}");
        let reason = json!({ "reason": "r" });
        for request in [
            Request::new("GET", &at("")),
            Request::new("DELETE", &at("")),
            Request::new("GET", &at("/events")),
            Request::new("POST", &at("/revoke")).json(&reason),
        ] {
            server.send(request.holder("a")).await.problem(404, "unknown_lease");
        }
    }
    // A token of an earlier epoch may have been granted; that its history is not kept is the same to who asks.
    let mut ids = vec!["lease-2000000-1".to_owned(), "lease-1-1".to_owned()];
    let lease = server.acquire("a", "job:1").await;
    ids.push(lease["id"].as_str().unwrap().rsplit_once('-').map(|(epoch, _)| format!("{epoch}-0")).unwrap());
    for id in &ids {
        let renew = Request::new("POST", &format!("/v1/leases/{id}/renew")).holder("a");
        server.send(renew).await.problem(404, "unknown_lease");
    }
    let many = Request::new("POST", "/v1/leases/renew").holder("a").json(&json!({ "ids": ids }));
    for result in server.send(many).await.json()["results"].as_array().unwrap() {
        assert_eq!(result["outcome"], "unknown", "{result}");
    }
}

#[tokio::test]
async fn who_holds_it_already_is_not_told_to_wait() {
    let server = Server::start().await;
    server.acquire("a", "path:src").await;
    let ask = |holder: &str| server.post("/v1/leases", json!({ "resource": "path:src/a.rs", "holder": holder }));
    let own = ask("a").await.problem(409, "held");
    let detail = own["detail"].as_str().unwrap();
    assert!(detail.contains("your own") && !detail.contains("wait"), "{detail}");
    assert_eq!(own["conflict"]["own"], true);
    assert_eq!(ask("b").await.problem(409, "held")["conflict"].get("own"), None);
}

#[tokio::test]
async fn l9_who_is_first_in_line_is_named_and_nothing_held_is_called_free() {
    let server = Server::start().await;
    server.post("/v1/leases", json!({ "resource": "path:f", "holder": "a", "mode": "shared" })).await;
    let wait = |holder: &str, resource: &str| {
        server.post("/v1/leases", json!({ "resource": resource, "holder": holder, "wait_seconds": 60 }))
    };
    let ask = async {
        server.until_waiting(2).await;
        let body = json!({ "resource": "path:f", "holder": "b", "mode": "shared" });
        let problem = server.post("/v1/leases", body).await.problem(409, "held");
        server.clock.advance_ms(60_000);
        problem
    };
    let second = async {
        server.until_waiting(1).await;
        wait("x2", "repo:*").await
    };
    let (first, _, problem) = tokio::join!(wait("x1", "path:f"), second, ask);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("x1 is first in line for path:f"), "{detail}");
    assert_eq!(first.status, 201, "the lease of a is over");
}

#[tokio::test]
async fn a_lease_to_live_within_must_be_active_and_ones_own() {
    let server = Server::start().await;
    let lease = server.acquire("a", "intent:x/*").await;
    let within = |holder: &str, id: &Value| json!({ "resource": "intent:x/s", "holder": holder, "within": id });
    server.post("/v1/leases", within("b", &lease["id"])).await.problem(409, "not_holder");
    server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    server.post("/v1/leases", within("a", &lease["id"])).await.problem(409, "within_over");
}

#[tokio::test]
async fn l15_a_bound_that_is_met_is_named() {
    let server = Server::start().await;
    let names = |count: usize| (0..count).map(|n| format!("job:{n}")).collect::<Vec<_>>();
    let body = json!({ "resources": names(RESOURCES_PER_ACQUIRE_MAX + 1), "holder": "a" });
    assert_eq!(server.post("/v1/leases", body).await.problem(422, "limit_reached")["max"], RESOURCES_PER_ACQUIRE_MAX);
    let body = json!({ "resources": names(RESOURCES_PER_ACQUIRE_MAX), "holder": "a" });
    assert_eq!(server.post("/v1/leases", body).await.status, 201);
    let ids = json!({ "ids": vec!["lease-1-1"; RENEWALS_PER_REQUEST_MAX + 1] });
    let many = server.send(Request::new("POST", "/v1/leases/renew").holder("a").json(&ids)).await;
    assert_eq!(many.problem(422, "limit_reached")["max"], RENEWALS_PER_REQUEST_MAX);
}
