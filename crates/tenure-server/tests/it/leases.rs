use serde_json::{Value, json};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{Request, Server, exchange, path};

#[tokio::test]
async fn a_lease_is_taken_kept_looked_at_and_given_back() {
    let server = Server::start().await;
    let body = json!({
        "resources": ["path:src/a.rs", "issue:7"], "holder": "a", "ttl_seconds": 1.5, "mode": "exclusive",
        "metadata": { "why": "a fix" }
    });
    let lease = server.post("/v1/leases", body).await;
    assert_eq!(lease.status, 201);
    let lease = lease.json();
    let token = lease["token"].as_u64().expect("a number");
    let expected = json!({
        "id": format!("lease-{}-{}", token >> 32, token & 0xffff_ffff), "token": token,
        "resources": ["path:src/a.rs", "issue:7"], "holder": "a", "mode": "exclusive", "status": "active",
        "acquired_at": "2026-11-15T12:00:00.000Z", "expires_at": "2026-11-15T12:00:01.500Z", "ttl_ms": 1_500,
        "renew_after_ms": 500, "server_time": "2026-11-15T12:00:00.000Z", "metadata": { "why": "a fix" }
    });
    assert_eq!(lease, expected);
    assert_eq!(server.get(&path(&lease, "")).await.json(), expected);

    server.clock.advance_ms(1_000);
    let renewed = server.send(Request::new("POST", &path(&lease, "/renew")).holder("a")).await;
    let expected = json!({
        "id": lease["id"], "token": token, "status": "active", "expires_at": "2026-11-15T12:00:02.500Z", "ttl_ms": 1_500,
        "renew_after_ms": 500, "server_time": "2026-11-15T12:00:01.000Z"
    });
    assert_eq!((renewed.status, renewed.json()), (200, expected));

    let released = server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    assert_eq!((released.status, &released.json()["status"]), (200, &json!("released")));
    assert_eq!(released.json()["ended_at"], "2026-11-15T12:00:01.000Z");
    let again = server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    assert_eq!((again.status, &again.json()["ended_at"]), (200, &json!("2026-11-15T12:00:01.000Z")));
    assert_eq!(server.get(&path(&lease, "")).await.json()["status"], "released");
    server.stop().await.expect("a clean end");
}

#[tokio::test]
async fn the_holder_may_stand_in_the_header_and_must_not_differ_from_the_body() {
    let server = Server::start().await;
    let request = |body: Value| Request::new("POST", "/v1/leases").holder("a").json(&body);
    let lease = server.send(request(json!({ "resource": "job:1" }))).await;
    assert_eq!((lease.status, &lease.json()["holder"]), (201, &json!("a")));
    assert_eq!(lease.json()["ttl_ms"], 30_000, "the ttl if nobody says");
    assert_eq!(server.send(request(json!({ "resource": "job:2", "holder": "a" }))).await.status, 201);
    let differs = server.send(request(json!({ "resource": "job:3", "holder": "b" }))).await;
    assert_eq!(differs.problem(400, "bad_request")["errors"][0]["field"], "holder");
    let nobody = server.post("/v1/leases", json!({ "resource": "job:3" })).await.problem(400, "bad_request");
    assert!(nobody["detail"].as_str().unwrap().contains("X-Tenure-Holder"));
}

#[tokio::test]
async fn l7_a_retry_with_its_key_gets_the_same_grant_also_when_it_is_over() {
    let server = Server::start().await;
    let body = json!({ "resource": "job:1", "holder": "a", "ttl_seconds": 10 });
    let request = Request::new("POST", "/v1/leases").header("idempotency-key", "k-1").json(&body);
    let first = server.send(request.clone()).await.json();
    let again = server.send(request.clone()).await;
    assert_eq!((again.status, &again.json()["token"]), (201, &first["token"]));
    server.send(Request::new("DELETE", &path(&first, "")).holder("a")).await;
    let over = server.send(request).await.json();
    assert_eq!((&over["token"], &over["status"]), (&first["token"], &json!("released")));
    let other = json!({ "resource": "job:2", "holder": "a", "ttl_seconds": 10 });
    let reused = Request::new("POST", "/v1/leases").header("idempotency-key", "k-1").json(&other);
    server.send(reused).await.problem(422, "key_reused");
}

#[tokio::test]
async fn l9_a_client_waits_in_line_over_its_connection_and_leaves_it_when_it_goes() {
    let server = Server::start().await;
    let held = server.acquire("a", "job:1").await;
    let body = json!({ "resource": "job:1", "holder": "b", "wait_seconds": 3600 });
    let mut gone = TcpStream::connect(server.address).await.unwrap();
    gone.write_all(&Request::new("POST", "/v1/leases").json(&body).bytes()).await.unwrap();
    server.until_waiting(1).await;
    let body = json!({ "resource": "job:1", "holder": "c", "wait_seconds": 3600 });
    let next = Request::new("POST", "/v1/leases").json(&body);
    let address = server.address;
    let next = tokio::spawn(async move { exchange(address, &next.bytes()).await });
    server.until_waiting(2).await;
    drop(gone);
    server.until_waiting(1).await;
    server.send(Request::new("DELETE", &path(&held, "")).holder("a")).await;
    let granted = next.await.unwrap();
    assert_eq!((granted.status, &granted.json()["holder"]), (201, &json!("c")));
}

#[tokio::test]
async fn shared_leases_stand_side_by_side_and_a_lease_may_live_within_another() {
    let server = Server::start().await;
    for holder in ["a", "b"] {
        let body = json!({ "resource": "path:docs", "holder": holder, "mode": "shared" });
        assert_eq!(server.post("/v1/leases", body).await.status, 201);
    }
    let intent = server.acquire("a", "intent:x/*").await;
    let scope = json!({ "resource": "intent:x/research", "holder": "a", "within": intent["id"] });
    let scope = server.post("/v1/leases", scope).await;
    assert_eq!((scope.status, &scope.json()["within"]), (201, &intent["id"]));
    server.send(Request::new("DELETE", &path(&intent, "")).holder("a")).await;
    assert_eq!(server.get(&path(&scope.json(), "")).await.json()["status"], "released", "it ends with it");
}

#[tokio::test]
async fn many_leases_are_renewed_in_one_request() {
    let server = Server::start().await;
    let (alive, over) = (server.acquire("a", "job:1").await, server.acquire("a", "job:2").await);
    let others = server.acquire("b", "job:3").await;
    server.send(Request::new("DELETE", &path(&over, "")).holder("a")).await;
    server.acquire("c", "job:2").await;
    let never = "lease-1-1";
    let ids = json!({ "ids": [alive["id"], over["id"], others["id"], never] });
    let answer = server.send(Request::new("POST", "/v1/leases/renew").holder("a").json(&ids)).await.json();
    let results = answer["results"].as_array().expect("results");
    let outcomes: Vec<_> = results.iter().map(|result| result["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["renewed", "lost", "not_holder", "unknown"], "{answer}");
    assert_eq!(results[0]["expires_at"], "2026-11-15T12:00:10.000Z");
    assert_eq!((&results[1]["reason"], &results[1]["current"]["holder"]), (&json!("released"), &json!("c")));
    assert_eq!(results[2]["holder"], "b");
    // One that cannot be an id says nothing about the others, and each answer stands where it was asked for.
    let odd = ["", "nonsense", "lease-01-1", "LEASE-1-1", "lease-1-99999999999", "\u{0}é\"", "lease-1-1 "];
    let mut asked = vec![alive["id"].clone()];
    asked.extend(odd.map(Value::from));
    asked.extend([alive["id"].clone(), others["id"].clone()]);
    let renew = |ids: Value| Request::new("POST", "/v1/leases/renew").holder("a").json(&json!({ "ids": ids }));
    let answer = server.send(renew(json!(asked))).await.json();
    let results = answer["results"].as_array().expect("results");
    let expected = ["renewed"].into_iter().chain(odd.map(|_| "unknown")).chain(["renewed", "not_holder"]);
    assert!(results.iter().map(|result| &result["outcome"]).eq(expected), "{answer}");
    assert!(results.iter().map(|result| &result["id"]).eq(&asked), "{answer}");
    let answer = server.send(renew(json!(["nonsense"]))).await.json();
    assert_eq!(answer["results"], json!([{ "id": "nonsense", "outcome": "unknown" }]));
    for wrong in [json!([alive["id"], 7]), json!([null]), json!([["x"]]), json!("x"), json!([])] {
        server.send(renew(wrong)).await.problem(400, "bad_request");
    }
    let later = json!({ "ids": ["lease-2000000-1"] });
    let answer = server.send(Request::new("POST", "/v1/leases/renew").holder("a").json(&later)).await.json();
    assert_eq!(answer["results"][0]["outcome"], "unknown");
}

#[tokio::test]
async fn a_renewal_may_change_the_ttl() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    let renew = Request::new("POST", &path(&lease, "/renew")).holder("a").json(&json!({ "ttl_seconds": 60 }));
    let renewed = server.send(renew).await.json();
    assert_eq!((&renewed["ttl_ms"], &renewed["renew_after_ms"]), (&json!(60_000), &json!(20_000)));
}

#[tokio::test]
async fn a_check_says_who_would_stop_me_and_takes_nothing() {
    let server = Server::start().await;
    server.acquire("a", "path:src").await;
    let check = |body: Value| server.post("/v1/leases/check", body);
    let answer = check(json!({ "resources": ["path:src/a.rs", "job:9"] })).await.json();
    assert_eq!((&answer["free"], &answer["conflicts"][0]["holder"]), (&json!(false), &json!("a")));
    assert_eq!(answer["conflicts"][0]["overlap"], "path:src");
    assert_eq!(check(json!({ "resources": ["path:src/a.rs"], "holder": "a" })).await.json()["free"], true);
    assert_eq!(check(json!({ "resources": ["job:9"] })).await.json()["free"], true);
    assert_eq!(server.counts().await.leases, 1);
}

#[tokio::test]
async fn l10_an_administrator_takes_a_lease_back_and_its_holder_is_told_why() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    let revoked = server.post(&path(&lease, "/revoke"), json!({ "reason": "deploy at noon" })).await;
    assert_eq!((revoked.status, &revoked.json()["status"]), (200, &json!("revoked")));
    let told = server.send(Request::new("POST", &path(&lease, "/renew")).holder("a")).await.problem(409, "lost");
    assert_eq!((&told["reason"], &told["note"]), (&json!("revoked"), &json!("deploy at noon")));
    let again = server.post(&path(&lease, "/revoke"), json!({ "reason": "again" })).await;
    assert_eq!((again.status, &again.json()["note"]), (200, &json!("deploy at noon")), "the first one counts");
}

#[tokio::test]
async fn the_answer_to_a_revoke_says_all_that_is_said_of_it_later() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    server.clock.advance_ms(250);
    let revoke = Request::new("POST", &path(&lease, "/revoke")).holder("root").json(&json!({ "reason": "stuck" }));
    let revoked = server.send(revoke).await.json();
    assert_eq!((&revoked["ended_by"], &revoked["note"]), (&json!("root"), &json!("stuck")));
    assert_eq!(server.get(&path(&lease, "")).await.json(), revoked);
}

#[tokio::test]
async fn metadata_comes_back_as_it_was_sent_and_no_deeper_than_others_can_read() {
    let server = Server::start().await;
    let take = |resource: &str, note: &str| {
        let body = format!(r#"{{"resource": "{resource}", "holder": "a", "metadata": {note}}}"#);
        Request::new("POST", "/v1/leases").header("content-type", "application/json").body(body)
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let long = server.send(take("job:1", r#"{"n": 12345678901234567890123, "m": 1.10}"#)).await;
    assert!(text(&long.body).ends_with(r#""metadata":{"n":12345678901234567890123,"m":1.10}}"#), "{long:?}");
    let found = server.get(&path(&long.json(), "")).await;
    assert!(text(&found.body).contains(r#"{"n":12345678901234567890123,"m":1.10}"#), "{found:?}");
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert_eq!(server.send(take("job:2", &nested(64))).await.status, 201);
    for depth in [65, 125, 126, 127] {
        let refused = server.send(take("job:3", &nested(depth))).await.problem(400, "bad_request");
        assert_eq!(refused["errors"][0]["field"], "metadata", "{depth}");
    }
    for list in ["/v1/leases", "/v1/events"] {
        assert!(server.get(list).await.json().is_object(), "everyone can read {list}");
    }
}
