//! A server on a free port with the store of tests and a clock that stands still, and a client that sends any bytes at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure_core::Timestamp;
use tenure_core::command::{Count, Counts};
use tenure_server::config::load_tls;
use tenure_server::engine::clock::ManualClock;
use tenure_server::{Config, Engine, ServeError};
use tenure_store::Memory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// 2026-11-15 12:00 UTC.
pub(crate) const START: Timestamp = Timestamp::from_unix_ms(1_794_744_000_000);
/// Nothing in these tests takes this long unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
    pub(crate) memory: Memory,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Server {
        Server::on(Memory::new(), START, config).await
    }

    /// One with a certificate, and who trusts it.
    pub(crate) async fn encrypted() -> (Server, TlsConnector) {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let tls = Some(load_tls(&certificate, &key).expect("a certificate"));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        (Server::with(Config { tls, ..Config::default() }).await, TlsConnector::from(Arc::new(client)))
    }

    pub(crate) async fn on(memory: Memory, now: Timestamp, config: Config) -> Server {
        let clock = ManualClock::at(now);
        let engine = Engine::open(Box::new(memory.handle()), Arc::new(clock.clone())).expect("an engine");
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = tenure_server::bind(&[loopback], &config).await.expect("a free port");
        let address = listeners[0].local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            stopped.await.ok();
        };
        let serving = tokio::spawn(tenure_server::serve(listeners, engine.clone(), config, shutdown));
        Server { address, engine, clock, memory, stop: Some(stop), serving }
    }

    /// Tells it to stop and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<(), ServeError> {
        drop(self.stop.take());
        self.finished().await
    }

    /// Waits until it has stopped by itself.
    pub(crate) async fn finished(self) -> Result<(), ServeError> {
        tokio::time::timeout(PATIENCE, self.serving).await.expect("it stops").expect("no panic")
    }

    pub(crate) async fn send(&self, request: Request) -> Answer {
        exchange(self.address, &request.bytes()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::new("GET", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Request::new("POST", path).json(&body)).await
    }

    pub(crate) async fn counts(&self) -> Counts {
        self.engine.apply(Count).await.expect("an answer")
    }

    /// Comes back when so many wait in line.
    pub(crate) async fn until_waiting(&self, waiters: usize) {
        let met = async {
            while self.counts().await.waiters != waiters {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, met).await.expect("it comes to that");
    }

    /// A lease of 10 seconds.
    pub(crate) async fn acquire(&self, holder: &str, resource: &str) -> Value {
        let body = serde_json::json!({ "resource": resource, "holder": holder, "ttl_seconds": 10 });
        let answer = self.post("/v1/leases", body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }
}

/// The address of a lease.
pub(crate) fn path(lease: &Value, rest: &str) -> String {
    format!("/v1/leases/{}{rest}", lease["id"].as_str().expect("an id"))
}

/// A request, one piece at a time.
#[derive(Clone)]
pub(crate) struct Request {
    head: String,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Request {
        Request { head: format!("{method} {path} HTTP/1.1\r\nhost: tenure\r\nconnection: close\r\n"), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn holder(self, name: &str) -> Request {
        self.header("x-tenure-holder", name)
    }

    pub(crate) fn json(self, body: &Value) -> Request {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.header("content-length", &length)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.head).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_lowercase(), body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }

    /// A refusal with this code, in its full form.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["code"], code, "{text}");
        assert_eq!(body["status"], status, "{text}");
        assert_eq!(body["type"], format!("urn:tenure:error:{code}"));
        assert!(body["title"].is_string() && !body["detail"].as_str().unwrap_or_default().is_empty(), "{text}");
        let told = body["detail"].as_str().unwrap_or_default().to_lowercase();
        assert!(!told.contains("revoke"), "no refusal text names it: {text}");
        body
    }
}

/// Sends bytes and reads until the other side closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer));
    read.await.expect("an answer in time").expect("an answer");
    Answer::parse(&answer)
}
