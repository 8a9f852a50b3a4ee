//! Clients that go away while they wait in line (L9), also when they had said more than their request.

use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;
use tenure_core::command::Acquire;
use tenure_core::{Holder, Resource, Ttl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{PATIENCE, Request, Server, path};

const NEXT: &str = "GET /healthz HTTP/1.1\r\nhost: tenure\r\nconnection: close\r\n\r\n";

/// A request to wait in line for what is held, on a connection that stays open, and what follows it.
fn wait_and(more: &str) -> Vec<u8> {
    let body = json!({ "resource": "job:1", "holder": "b", "wait_seconds": 3600 }).to_string();
    let head = "POST /v1/leases HTTP/1.1\r\nhost: tenure\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}{more}", body.len()).into_bytes()
}

/// A server with a held lease, and a client that waits for it.
async fn waiting(more: &str) -> (Server, Value, TcpStream) {
    let server = Server::start().await;
    let held = server.acquire("a", "job:1").await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&wait_and(more)).await.unwrap();
    server.until_waiting(1).await;
    (server, held, client)
}

async fn read_all(client: &mut TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(PATIENCE, client.read_to_string(&mut text));
    read.await.expect("an end in time").expect("an end");
    text
}

#[tokio::test]
async fn l9_a_waiter_that_sent_more_than_its_request_leaves_the_line_when_it_goes() {
    for more in ["", "\r\n", "G", NEXT] {
        for is_reset in [false, true] {
            let (server, _, client) = waiting(more).await;
            if is_reset {
                SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(client);
            server.until_waiting(0).await;
        }
    }
}

#[tokio::test]
async fn l9_a_waiter_leaves_the_line_also_when_nobody_has_read_all_it_sent() {
    let (server, _, mut client) = waiting("").await;
    // More than is read ahead.
    client.write_all(&[b'x'; 64 * 1024]).await.unwrap();
    // Seen by the server before this one is answered.
    server.get("/healthz").await;
    drop(client);
    server.until_waiting(0).await;
}

#[tokio::test]
async fn l9_a_waiter_behind_tls_leaves_the_line_when_it_goes() {
    let (server, connector) = Server::encrypted().await;
    let (resource, holder) = (Resource::parse("job:1").unwrap(), Holder::parse("a").unwrap());
    let held = Acquire::new([resource], holder, Ttl::from_ms(10_000).unwrap());
    server.engine.acquire(held).await.expect("an answer").expect("a grant");
    let client = TcpStream::connect(server.address).await.unwrap();
    let mut client = connector.connect("localhost".try_into().unwrap(), client).await.expect("a handshake");
    client.write_all(&wait_and(NEXT)).await.unwrap();
    server.until_waiting(1).await;
    drop(client);
    server.until_waiting(0).await;
}

#[tokio::test]
async fn l9_a_waiter_at_the_openintent_door_leaves_the_line_when_it_goes() {
    let server = Server::start().await;
    let intent = Request::new("POST", "/api/v1/intents").header("x-agent-id", "a").json(&json!({ "title": "t" }));
    let id = server.send(intent).await.json()["id"].as_str().expect("an id").to_owned();
    let leases = format!("/api/v1/intents/{id}/leases");
    let take = |holder: &str, wait_seconds: u32| {
        let body = json!({ "scope": "s", "duration_seconds": 60, "wait_seconds": wait_seconds });
        Request::new("POST", &leases).header("x-agent-id", holder).json(&body)
    };
    assert_eq!(server.send(take("a", 0)).await.status, 201);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&[take("b", 3600).bytes(), NEXT.into()].concat()).await.unwrap();
    server.until_waiting(1).await;
    drop(client);
    server.until_waiting(0).await;
}

#[tokio::test]
async fn l9_a_waiter_that_sent_its_next_request_and_stays_is_answered() {
    let (server, held, mut client) = waiting(NEXT).await;
    server.send(Request::new("DELETE", &path(&held, "")).holder("a")).await;
    let text = read_all(&mut client).await;
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
    assert_eq!(statuses, ["201", "200"], "{text}");
}

#[tokio::test]
async fn l9_a_waiter_that_will_send_no_more_has_gone_and_is_told_nothing() {
    for more in ["", NEXT] {
        let (server, _, mut client) = waiting(more).await;
        client.shutdown().await.unwrap();
        server.until_waiting(0).await;
        assert_eq!(read_all(&mut client).await, "", "{more:?}");
    }
}
