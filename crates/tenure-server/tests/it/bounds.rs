//! What a connection may cost: size, time, number; and TLS.

use std::time::Duration;

use serde_json::json;
use tenure_core::limits::{
    HOLDER_BYTES_MAX, METADATA_BYTES_MAX, RENEWALS_PER_REQUEST_MAX, RESOURCE_BYTES_MAX, RESOURCES_PER_ACQUIRE_MAX,
};
use tenure_server::Config;
use tenure_server::config::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, load_tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, PATIENCE, Request, Server};

const SOON: Duration = Duration::from_millis(100);

async fn read_all(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end in time").ok();
    bytes
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_its_sender_hears_it() {
    let server = Server::start().await;
    for size in [BODY_BYTES_MAX + 1, BODY_BYTES_MAX + 500_000, 4_000_000] {
        let request =
            Request::new("POST", "/v1/ping").header("content-type", "application/json").body(vec![b' '; size]);
        assert_eq!(server.send(request).await.problem(413, "payload_too_large")["max_bytes"], BODY_BYTES_MAX);
    }
    let chunked = Request::new("POST", "/v1/ping")
        .header("content-type", "application/json")
        .header("transfer-encoding", "chunked");
    for size in [BODY_BYTES_MAX + 1, 4_000_000] {
        let mut bytes = chunked.bytes();
        bytes.extend_from_slice(format!("{size:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(size)).as_bytes());
        crate::harness::exchange(server.address, &bytes).await.problem(413, "payload_too_large");
    }
    let fits = format!("{}{{}}", " ".repeat(BODY_BYTES_MAX - 2));
    let request = Request::new("POST", "/v1/ping").header("content-type", "application/json").body(fits);
    assert_eq!(server.send(request).await.status, 200);
}

#[tokio::test]
async fn a_body_without_an_end_is_cut() {
    let server = Server::start().await;
    let head = Request::new("POST", "/v1/ping").header("transfer-encoding", "chunked").bytes();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let sent = async { while stream.write_all(chunk.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, sent).await.expect("the server closes the connection");
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn l15_the_largest_requests_that_keep_to_every_bound_are_taken() {
    let server = Server::start().await;
    // Some programs write every `<` in six bytes.
    let name = |n: usize| format!("\"job:{n:02}{}\"", "\\u003c".repeat(RESOURCE_BYTES_MAX - "job:00".len()));
    let names: Vec<String> = (0..RESOURCES_PER_ACQUIRE_MAX).map(name).collect();
    let note = format!("{{\"a\":\"{}\"}}", "x".repeat(METADATA_BYTES_MAX - "{'a':''}".len()));
    let holder = "<".repeat(HOLDER_BYTES_MAX);
    let resources = names.join(", ");
    let body = format!("{{\"resources\": [{resources}], \"holder\": \"{holder}\", \"metadata\": {note}}}");
    let post = |path: &str| Request::new("POST", path).header("content-type", "application/json");
    let lease = server.send(post("/v1/leases").body(body)).await;
    assert_eq!(lease.status, 201, "{lease:?}");
    assert_eq!(lease.json()["resources"].as_array().unwrap().len(), RESOURCES_PER_ACQUIRE_MAX);
    let check = server.send(post("/v1/leases/check").body(format!("{{\"resources\": [{resources}]}}"))).await;
    assert_eq!((check.status, &check.json()["free"]), (200, &json!(false)));
    let mut ids = vec![json!("lease-2097151-4294967295"); RENEWALS_PER_REQUEST_MAX - 1];
    ids.push(lease.json()["id"].clone());
    let renew = Request::new("POST", "/v1/leases/renew").holder(&holder).json(&json!({ "ids": ids }));
    let renewed = server.send(renew).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(renewed.json()["results"][RENEWALS_PER_REQUEST_MAX - 1]["outcome"], "renewed");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_in_words() {
    let server = Server::start().await;
    let long = Request::new("GET", "/healthz").header("x-long", &"x".repeat(HEAD_BYTES_MAX));
    assert_eq!(server.send(long).await.problem(431, "head_too_large")["max_bytes"], HEAD_BYTES_MAX);
    let far = format!("/healthz?{}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(server.get(&far).await.problem(431, "head_too_large")["max_bytes"], HEAD_BYTES_MAX);
    let fields = |count: usize| {
        (0..count).fold(Request::new("GET", "/healthz"), |request, n| request.header(&format!("x-{n}"), "x"))
    };
    assert_eq!(server.send(fields(HEADERS_MAX + 1)).await.problem(431, "head_too_large")["max_fields"], HEADERS_MAX);
    assert_eq!(server.send(fields(HEADERS_MAX / 2)).await.status, 200);
}

#[tokio::test]
async fn a_head_far_beyond_the_bounds_is_cut() {
    let server = Server::start().await;
    let request = Request::new("GET", "/healthz").header("x-long", &"x".repeat(3 * HEAD_BYTES_MAX));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&request.bytes()).await.ok();
    let answer = read_all(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_client_that_is_slow_to_send_is_cut() {
    let server = Server::with(Config { body_time_max: SOON, idle_max: SOON, ..Config::default() }).await;
    let whole = Request::new("POST", "/v1/ping").json(&json!({})).bytes();
    let mut slow_body = TcpStream::connect(server.address).await.unwrap();
    slow_body.write_all(&whole[..whole.len() - 1]).await.unwrap();
    Answer::parse(&read_all(&mut slow_body).await).problem(400, "bad_request");
    let mut slow_head = TcpStream::connect(server.address).await.unwrap();
    slow_head.write_all(&whole[..10]).await.unwrap();
    read_all(&mut slow_head).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    read_all(&mut silent).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut() {
    let server = Server::with(Config { stall_max: SOON, ..Config::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request =
        String::from_utf8(Request::new("GET", "/openapi.json").bytes()).unwrap().replace("connection: close\r\n", "");
    // Ask until no more can be sent: the answers fill every buffer on the way.
    let asked = async { while stream.write_all(request.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, asked).await.expect("the server closes the connection");
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn one_connection_too_many_is_turned_away_with_a_reason() {
    let server = Server::with(Config { connections_max: 2, ..Config::default() }).await;
    let ping = String::from_utf8(Request::new("GET", "/healthz").bytes()).unwrap().replace("connection: close\r\n", "");
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(ping.as_bytes()).await.unwrap();
        stream.read_u8().await.expect("an answer");
        open.push(stream);
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    let answer = Answer::parse(&read_all(&mut third).await);
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.problem(503, "overloaded");
    open.pop();
    let again = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(&Request::new("GET", "/healthz").bytes()).await.unwrap();
            if read_all(&mut stream).await.starts_with(b"HTTP/1.1 200") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("there is room again");
}

#[tokio::test]
async fn requests_of_one_connection_are_answered_in_order() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let one = |n: u32| {
        let close = if n == 9 { "connection: close\r\n" } else { "" };
        let body = n.to_string();
        format!(
            "POST /v1/ping HTTP/1.1\r\nhost: t\r\n{close}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    stream.write_all((0..10).map(one).collect::<String>().as_bytes()).await.unwrap();
    let text = String::from_utf8(read_all(&mut stream).await).unwrap();
    let bodies: String = text.split("\r\n\r\n").skip(1).filter_map(|part| part.chars().next()).collect();
    assert_eq!(bodies, "0123456789");
}

#[tokio::test]
async fn with_a_certificate_connections_are_encrypted() {
    let (server, connector) = Server::encrypted().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.expect("a handshake");
    let body = json!({ "resource": "job:1", "holder": "a" });
    stream.write_all(&Request::new("POST", "/v1/leases").json(&body).bytes()).await.unwrap();
    assert_eq!(Answer::parse(&read_all(&mut stream).await).status, 201);

    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(&Request::new("GET", "/healthz").bytes()).await.unwrap();
    assert!(!read_all(&mut plain).await.starts_with(b"HTTP"), "nothing is said in the clear");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let missing = load_tls(&certificate, &key).expect_err("no file");
    assert!(missing.to_string().contains("cert.pem"), "{missing}");
    std::fs::write(&certificate, "nothing").unwrap();
    std::fs::write(&key, "nothing").unwrap();
    assert!(load_tls(&certificate, &key).is_err());
}
