//! Whatever is wrong with a request: a clear refusal in the door's shape, never a 5xx, and nothing taken.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, PATIENCE, Request, Server, path};

/// Says no, and why, in the form of every refusal.
fn refused(answer: &Answer, what: &str) -> Value {
    assert!((400..500).contains(&answer.status), "{what}: {}\n{}", answer.head, String::from_utf8_lossy(&answer.body));
    let body = answer.json();
    let code = body["code"].as_str().unwrap_or_else(|| panic!("{what}: {body}")).to_owned();
    answer.problem(answer.status, &code)
}

#[tokio::test]
async fn every_field_of_an_acquire_wrong_in_every_way() {
    let server = Server::start().await;
    let long = "x".repeat(2_000);
    let wrong = [
        (
            "resource",
            vec![
                json!(7),
                json!([]),
                json!({}),
                json!(""),
                json!("x"),
                json!("path:"),
                json!("path:../a"),
                json!("Path:a"),
                json!("path:a\u{0}"),
                json!("path:a\n"),
                json!(format!("path:{long}")),
                json!(true),
                json!(" path:a"),
            ],
        ),
        (
            "resources",
            vec![
                json!(7),
                json!("path:a"),
                json!([]),
                json!([7]),
                json!([null]),
                json!(["path:a", "x"]),
                json!({}),
                json!([[]]),
            ],
        ),
        (
            "holder",
            vec![json!(7), json!(""), json!("a\u{7f}"), json!(long), json!([]), json!({}), json!(" a"), json!(false)],
        ),
        (
            "ttl_seconds",
            vec![json!(0), json!(-1), json!(0.09), json!(1e300), json!("30"), json!([]), json!(true), json!(2_592_001)],
        ),
        ("mode", vec![json!("both"), json!(7), json!(""), json!("EXCLUSIVE"), json!([]), json!({})]),
        ("wait_seconds", vec![json!(-1), json!("5"), json!(86_401), json!(1e300), json!([]), json!(false)]),
        ("grace_seconds", vec![json!(-1), json!("5"), json!(86_401), json!(1e300), json!({})]),
        (
            "within",
            vec![json!(7), json!(""), json!("lease-1"), json!("lease-1-99999999999"), json!("lease--1-1"), json!([])],
        ),
        ("metadata", vec![json!(7), json!("x"), json!([]), json!(true), json!({ "a": "x".repeat(5_000) })]),
        ("surprise", vec![json!(1), json!(null)]),
    ];
    for (field, values) in wrong {
        for value in values {
            let mut body = json!({ "resource": "path:a", "holder": "a" });
            if field == "resources" {
                body.as_object_mut().unwrap().remove("resource");
            }
            body[field] = value;
            let what = body.to_string();
            let answer = server.post("/v1/leases", body).await;
            let problem = refused(&answer, &what);
            let named = problem["errors"][0]["field"].as_str().unwrap_or_else(|| panic!("{what}: {problem}"));
            assert!(named.starts_with(field), "{what} blames {named}");
        }
    }
    let both = json!({ "resource": "path:a", "resources": ["path:a"], "holder": "a" });
    refused(&server.post("/v1/leases", both).await, "both");
    refused(&server.post("/v1/leases", json!({ "holder": "a" })).await, "neither");
    assert_eq!(server.counts().await.leases, 0, "nothing was taken");
}

#[tokio::test]
async fn bodies_that_are_not_what_they_should_be() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    let deep = "[".repeat(20_000);
    let nested = format!(
        "{{\"resource\":\"job:2\",\"holder\":\"a\",\"metadata\":{{\"a\":{}1{}}}}}",
        "[".repeat(500),
        "]".repeat(500)
    );
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("blanks", b"   ".to_vec()),
        ("not JSON", b"resource=path:a".to_vec()),
        ("cut off", br#"{"resource":"job:2","holder":"a"#.to_vec()),
        ("more behind", br#"{"resource":"job:2","holder":"a"}{}"#.to_vec()),
        ("an array", b"[]".to_vec()),
        ("the values without their names", br#"["job:2",null,"a",1,"exclusive",null,null,null,null]"#.to_vec()),
        ("a string", b"\"x\"".to_vec()),
        ("null", b"null".to_vec()),
        ("deep", deep.into_bytes()),
        ("deep inside", nested.into_bytes()),
        ("a field twice", br#"{"resource":"job:2","resource":"job:3","holder":"a"}"#.to_vec()),
        ("a list twice", br#"{"ids":[],"ids":[],"resources":[],"resources":[],"reason":"a","reason":"b","ttl_seconds":1,"ttl_seconds":2}"#.to_vec()),
        ("not UTF-8", b"{\"resource\":\"job:\xff\",\"holder\":\"a\"}".to_vec()),
        ("not UTF-8 in what is not read", b"{\"resource\":\"job:2\",\"holder\":\"a\",\"metadata\":{\"a\":\"\xff\"}}".to_vec()),
        ("half a pair", br#"{"resource":"job:\ud800","holder":"a"}"#.to_vec()),
        ("a raw line break", b"{\"resource\":\"job:2\n\",\"holder\":\"a\"}".to_vec()),
        ("a huge number", br#"{"resource":"job:2","holder":"a","ttl_seconds":1e999}"#.to_vec()),
        ("not a number", br#"{"resource":"job:2","holder":"a","ttl_seconds":NaN}"#.to_vec()),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
    ];
    let addresses = [
        "/v1/leases".to_owned(),
        "/v1/leases/renew".to_owned(),
        "/v1/leases/check".to_owned(),
        path(&lease, "/revoke"),
        path(&lease, "/renew"),
    ];
    for (what, body) in &bodies {
        for address in &addresses {
            if body.is_empty() && address.ends_with("/renew") && address != "/v1/leases/renew" {
                continue;
            }
            let request = Request::new("POST", address).holder("a").header("content-type", "application/json");
            refused(&server.send(request.body(body.clone())).await, &format!("{what} to {address}"));
        }
    }
    assert_eq!(server.get(&path(&lease, "")).await.json()["status"], "active", "nothing happened to it");
}

#[tokio::test]
async fn a_ping_refuses_what_is_not_json() {
    let server = Server::start().await;
    for body in [&b""[..], b"{", b"\"\xff\"", b"x"] {
        let request = Request::new("POST", "/v1/ping").header("content-type", "application/json").body(body);
        refused(&server.send(request).await, "a ping");
    }
}

#[tokio::test]
async fn a_body_needs_its_type() {
    let server = Server::start().await;
    let body = json!({ "resource": "job:1", "holder": "a" }).to_string();
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json", ""] {
        let request = Request::new("POST", "/v1/leases").header("content-type", wrong).body(body.clone());
        server.send(request).await.problem(415, "unsupported_media_type");
    }
    server.send(Request::new("POST", "/v1/leases").body(body.clone())).await.problem(415, "unsupported_media_type");
    for right in ["application/json", "Application/JSON; charset=utf-8"] {
        let request = Request::new("POST", "/v1/leases").header("content-type", right).body(body.clone());
        assert_ne!(server.send(request).await.status, 415, "{right}");
    }
}

#[tokio::test]
async fn every_reading_address_refuses_questions_it_does_not_know() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    for address in [
        "/v1/leases?limit=0".to_owned(),
        "/v1/leases?limit=1001".to_owned(),
        "/v1/leases?limit=-1".to_owned(),
        "/v1/leases?limit=x".to_owned(),
        "/v1/leases?status=gone".to_owned(),
        "/v1/leases?status=".to_owned(),
        "/v1/leases?resource=x".to_owned(),
        "/v1/leases?resource=path:%ff".to_owned(),
        "/v1/leases?resource=path:a%00b".to_owned(),
        "/v1/leases?holder=".to_owned(),
        "/v1/leases?holder=a&holder=b".to_owned(),
        "/v1/leases?kind=".to_owned(),
        "/v1/leases?after=x".to_owned(),
        "/v1/leases?status=expired&after=x".to_owned(),
        "/v1/leases?surprise=1".to_owned(),
        "/v1/events?after=-1".to_owned(),
        "/v1/events?after=18446744073709551616".to_owned(),
        "/v1/events?kind=lease.stolen".to_owned(),
        "/v1/events?kind=".to_owned(),
        "/v1/events?limit=9999999".to_owned(),
        "/v1/events?resource=:".to_owned(),
        "/v1/events?status=active".to_owned(),
        path(&lease, "/events?holder=a"),
        path(&lease, "/events?limit=none"),
    ] {
        refused(&server.get(&address).await, &address);
    }
    for huge in [u64::MAX, i64::MAX as u64, 1 << 53] {
        for address in ["/v1/events?after=", "/v1/leases?status=released&after=", &path(&lease, "/events?after=")] {
            refused(&server.get(&format!("{address}{huge}")).await, address);
        }
    }
    server.get(&format!("/v1/events?after={}", (1_u64 << 53) - 1)).await.problem(410, "gone");
}

#[tokio::test]
async fn headers_that_are_wrong_are_refused() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    let release = || Request::new("DELETE", &path(&lease, ""));
    let body = json!({ "resource": "job:2", "holder": "a" });
    let acquire = || Request::new("POST", "/v1/leases").json(&body);
    for (what, request) in [
        ("two holders", release().holder("a").holder("a")),
        ("an empty holder", release().holder("")),
        ("a long holder", release().holder(&"a".repeat(300))),
        ("two keys", acquire().header("idempotency-key", "a").header("idempotency-key", "b")),
        ("an empty key", acquire().header("idempotency-key", "")),
        ("a long key", acquire().header("idempotency-key", &"k".repeat(129))),
        (
            "a bad cursor",
            Request::new("GET", "/v1/events").header("accept", "text/event-stream").header("last-event-id", "x"),
        ),
    ] {
        refused(&server.send(request).await, what);
    }
    let mut not_text = release().header("x-tenure-holder", "?").bytes();
    let at = not_text.iter().position(|byte| *byte == b'?').unwrap();
    not_text[at] = 0xff;
    refused(&crate::harness::exchange(server.address, &not_text).await, "a holder that is not UTF-8");
    assert_eq!(server.counts().await.leases, 1);
    // A name in any language is a name.
    let lease = server.acquire("é", "job:3").await;
    let release = Request::new("DELETE", &path(&lease, "")).holder("é");
    assert_eq!(server.send(release).await.status, 200);
}

#[tokio::test]
async fn a_body_that_ends_too_soon_takes_nothing() {
    let server = Server::start().await;
    let whole = Request::new("POST", "/v1/leases").json(&json!({ "resource": "job:1", "holder": "a" })).bytes();
    for cut in [1, 5, 20] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&whole[..whole.len() - cut]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end");
        // The connection may be gone before the refusal is out; it must not have done anything.
        if read.is_ok() && !answer.is_empty() {
            refused(&Answer::parse(&answer), "cut off");
        }
    }
    assert_eq!(server.counts().await.leases, 0);
}

#[tokio::test]
async fn what_is_no_request_at_all_does_not_hurt() {
    let server = Server::start().await;
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET /healthz HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end").ok();
        assert!(!answer.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}
