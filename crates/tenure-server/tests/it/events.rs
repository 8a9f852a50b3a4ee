use std::collections::VecDeque;

use serde_json::{Value, json};
use tenure_server::engine::feed::RING_EVENTS_MAX;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::harness::{PATIENCE, Request, START, Server, path};

/// One event of a stream.
#[derive(Debug, PartialEq)]
struct Frame {
    id: u64,
    event: String,
    data: Value,
}

/// A reader of a stream: HTTP chunks inside, events outside.
struct Stream {
    reader: BufReader<TcpStream>,
    text: String,
    frames: VecDeque<Frame>,
}

impl Stream {
    async fn open(server: &Server, query: &str, last_seen: Option<u64>) -> Stream {
        let mut request = Request::new("GET", &format!("/v1/events{query}")).header("accept", "text/event-stream");
        if let Some(cursor) = last_seen {
            request = request.header("last-event-id", &cursor.to_string());
        }
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&request.bytes()).await.unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).await.unwrap();
        }
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        Stream { reader, text: String::new(), frames: VecDeque::new() }
    }

    /// The next event; nothing at the end of the stream.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            tokio::time::timeout(PATIENCE, self.read_chunk()).await.expect("an event in time")?;
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (parse(frame), rest.to_owned());
                self.frames.extend(frame);
                self.text = rest;
            }
        }
    }

    async fn read_chunk(&mut self) -> Option<()> {
        let mut size = String::new();
        self.reader.read_line(&mut size).await.ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).await.ok()?;
        self.text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        Some(())
    }

    async fn cursors(&mut self, count: usize) -> Vec<u64> {
        let mut cursors = Vec::new();
        while cursors.len() < count {
            cursors.push(self.next().await.expect("more events").id);
        }
        cursors
    }
}

fn parse(frame: &str) -> Option<Frame> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    let data = serde_json::from_str(field("data")?).expect("JSON");
    Some(Frame { id: field("id")?.parse().unwrap(), event: field("event")?.to_owned(), data })
}

#[tokio::test]
async fn pages_of_events_are_read_in_order_and_filtered() {
    let server = Server::start().await;
    let lease = server.acquire("a", "path:src").await;
    server.acquire("b", "job:1").await;
    server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    let all = server.get("/v1/events").await.json();
    let kinds: Vec<_> = all["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ledger.opened", "lease.granted", "lease.granted", "lease.released"]);
    let released = &all["events"][3];
    assert_eq!((&released["cursor"], &released["at"]), (&json!(4), &json!("2026-11-15T12:00:00.000Z")));
    assert_eq!((&released["lease_id"], &released["resources"]), (&lease["id"], &json!(["path:src"])));
    let page = server.get("/v1/events?limit=2&after=1").await.json();
    assert_eq!((&page["events"][0]["cursor"], &page["next"]), (&json!(2), &json!(3)));
    for (query, cursors) in [
        ("kind=lease.granted", vec![2, 3]),
        ("kind=lease.released,ledger.opened", vec![1, 4]),
        ("holder=b", vec![3]),
        ("resource=path:src/a.rs", vec![2, 4]),
        ("resource=path:src&kind=lease.released&holder=a", vec![4]),
    ] {
        let page = server.get(&format!("/v1/events?{query}")).await.json();
        let found: Vec<_> =
            page["events"].as_array().unwrap().iter().map(|event| event["cursor"].as_u64().unwrap()).collect();
        assert_eq!(found, cursors, "{query}");
    }
}

#[tokio::test]
async fn a_stream_starts_at_the_present_and_continues_where_its_reader_left_off() {
    let server = Server::start().await;
    server.acquire("a", "job:1").await;
    let mut stream = Stream::open(&server, "", None).await;
    let lease = server.acquire("a", "job:2").await;
    let frame = stream.next().await.expect("an event");
    assert_eq!((frame.id, frame.event.as_str()), (3, "lease.granted"));
    assert_eq!((&frame.data["lease_id"], &frame.data["cursor"]), (&lease["id"], &json!(3)));
    drop(stream);
    server.acquire("a", "job:3").await;
    server.acquire("a", "job:4").await;
    let mut stream = Stream::open(&server, "?after=1", Some(3)).await;
    assert_eq!(stream.cursors(2).await, [4, 5], "Last-Event-ID counts, not what the address still says");
    let mut stream = Stream::open(&server, "?after=0&holder=a&kind=lease.granted", None).await;
    assert_eq!(stream.cursors(4).await, [2, 3, 4, 5]);
}

#[tokio::test]
async fn a_reader_far_behind_reads_from_the_store_and_misses_nothing() {
    let server = Server::start().await;
    // More than the ring keeps, while the reader does not read.
    let mut stream = Stream::open(&server, "?after=0", None).await;
    let rounds = RING_EVENTS_MAX / 2 + 500;
    for _ in 0..rounds {
        let acquire = tenure_core::command::Acquire::new(
            ["job:1".parse().unwrap()],
            tenure_core::Holder::parse("a").unwrap(),
            tenure_core::Ttl::from_ms(1_000).unwrap(),
        );
        let token = server.engine.acquire(acquire).await.unwrap().unwrap().lease.token;
        let release = tenure_core::command::Release { token, holder: tenure_core::Holder::parse("a").unwrap() };
        server.engine.apply(release).await.unwrap();
    }
    let mut late = Stream::open(&server, "?after=0", None).await;
    let expected: Vec<u64> = (1..=1 + 2 * rounds as u64).collect();
    assert_eq!(stream.cursors(expected.len()).await, expected);
    assert_eq!(late.cursors(expected.len()).await, expected);
}

#[tokio::test]
async fn a_cursor_that_cannot_be_continued_from_is_told_what_is_kept() {
    let server = Server::start().await;
    for request in [
        Request::new("GET", "/v1/events?after=99"),
        Request::new("GET", "/v1/events?after=99").header("accept", "text/event-stream"),
        Request::new("GET", "/v1/events").header("accept", "text/event-stream").header("last-event-id", "99"),
    ] {
        let problem = server.send(request).await.problem(410, "gone");
        assert_eq!((&problem["first"], &problem["last"]), (&json!(1), &json!(1)));
    }
}

#[tokio::test]
async fn a_stream_resumes_after_a_restart() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, "", None).await;
    server.acquire("a", "job:1").await;
    assert_eq!(stream.cursors(1).await, [2]);
    let memory = server.memory.restart();
    server.stop().await.expect("a clean end");
    assert_eq!(stream.next().await, None, "the stream ends with its server");
    let server = Server::on(memory, START.plus_ms(1_000), Default::default()).await;
    server.acquire("a", "job:2").await;
    let mut stream = Stream::open(&server, "", Some(2)).await;
    let kinds = [stream.next().await.unwrap().event, stream.next().await.unwrap().event];
    assert_eq!(kinds, ["ledger.opened", "lease.granted"]);
}
