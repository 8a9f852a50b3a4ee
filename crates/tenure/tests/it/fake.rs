//! A server that answers by script over real HTTP. A request that no rule expects is answered with 500 and fails the
//! test when the server is dropped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A test that waits for something waits this long at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// `POST /v1/leases`, without the query.
    pub(crate) line: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What the server does with a request.
pub(crate) enum Reply {
    /// Status and JSON body.
    Json(u16, Value),
    /// As it is: for answers that are not Tenure's, with headers.
    Raw(String),
    /// The connection breaks without an answer.
    Close,
    /// Nothing comes, for as long as the test runs.
    Hang,
    /// An answer after a while.
    Late(Duration, Box<Reply>),
}

type Rule = Box<dyn FnMut(&Seen) -> Reply + Send>;

#[derive(Default)]
struct Script {
    once: VecDeque<(String, Reply)>,
    always: Vec<(String, Rule)>,
    seen: Vec<Seen>,
    unexpected: Vec<String>,
}

#[derive(Default)]
struct Shared {
    script: Mutex<Script>,
    changed: Condvar,
}

pub(crate) struct Fake {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

impl Fake {
    pub(crate) fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Fake { url, shared }
    }

    /// The next request like this is answered so.
    pub(crate) fn once(&self, line: &str, reply: Reply) -> &Fake {
        self.shared.script.lock().unwrap().once.push_back((line.to_owned(), reply));
        self
    }

    /// Every request like this, unless [`Fake::once`] has an answer for it.
    pub(crate) fn always(&self, line: &str, rule: impl FnMut(&Seen) -> Reply + Send + 'static) -> &Fake {
        self.shared.script.lock().unwrap().always.push((line.to_owned(), Box::new(rule)));
        self
    }

    /// The requests like this so far.
    pub(crate) fn seen(&self, line: &str) -> Vec<Seen> {
        self.shared.script.lock().unwrap().seen.iter().filter(|seen| seen.line == line).cloned().collect()
    }

    /// Blocks the thread until this many requests like this have come.
    pub(crate) fn wait_for(&self, line: &str, count: usize) -> Vec<Seen> {
        self.wait_until(line, |seen| seen.len() >= count)
    }

    pub(crate) fn wait_until(&self, line: &str, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let deadline = Instant::now() + PATIENCE;
        let mut script = self.shared.script.lock().unwrap();
        loop {
            let seen: Vec<Seen> = script.seen.iter().filter(|seen| seen.line == line).cloned().collect();
            if enough(&seen) {
                return seen;
            }
            let left = deadline
                .checked_duration_since(Instant::now())
                .unwrap_or_else(|| panic!("only {} × {line}", seen.len()));
            script = self.shared.changed.wait_timeout(script, left).unwrap().0;
        }
    }

    /// Drops what was seen.
    pub(crate) fn forget(&self) {
        self.shared.script.lock().unwrap().seen = Vec::new();
    }

    pub(crate) fn client(&self) -> tenure::Client {
        tenure::Client::builder().url(&self.url).holder("me").patience(Duration::from_secs(5)).build().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let script = self.shared.script.lock().unwrap();
        assert!(script.unexpected.is_empty(), "requests nobody expected: {:?}", script.unexpected);
        let left: Vec<&String> = script.once.iter().map(|(line, _)| line).collect();
        assert!(left.is_empty(), "requests that never came: {left:?}");
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(seen) = read_request(&mut reader) {
        let mut reply = choose(shared, seen);
        if let Reply::Late(after, then) = reply {
            std::thread::sleep(after);
            reply = *then;
        }
        let text = match reply {
            Reply::Json(status, body) => {
                let body = body.to_string();
                format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
            Reply::Raw(text) => text,
            Reply::Hang => {
                // Until the client gives up.
                let _ = reader.read(&mut [0]);
                return;
            }
            Reply::Close | Reply::Late(..) => return,
        };
        if (&stream).write_all(text.as_bytes()).is_err() || text.contains("connection: close") {
            return;
        }
    }
}

fn choose(shared: &Shared, seen: Seen) -> Reply {
    let mut script = shared.script.lock().unwrap();
    let line = seen.line.clone();
    script.seen.push(seen.clone());
    shared.changed.notify_all();
    if let Some(index) = script.once.iter().position(|(expected, _)| *expected == line) {
        return script.once.remove(index).unwrap().1;
    }
    if let Some((_, rule)) = script.always.iter_mut().find(|(expected, _)| *expected == line) {
        return rule(&seen);
    }
    script.unexpected.push(line.clone());
    Reply::Json(500, json!({ "code": "unscripted", "detail": line }))
}

fn read_request(reader: &mut impl BufRead) -> Option<Seen> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let at = Instant::now();
    let mut words = first.split_whitespace();
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Seen { line: format!("{method} {path}"), query: query.to_owned(), headers, body, at })
}

/// A grant of `x:a` with this number and ttl.
pub(crate) fn grant(number: u64, ttl_ms: u64) -> Value {
    json!({ "id": format!("lease-1-{number}"), "token": (1_u64 << 32) + number, "resources": ["x:a"], "holder": "me",
        "mode": "exclusive", "status": "active", "acquired_at": "2026-11-15T10:00:00.000Z",
        "expires_at": "2026-11-15T10:00:30.000Z", "ttl_ms": ttl_ms, "renew_after_ms": ttl_ms / 3,
        "server_time": "2026-11-15T10:00:00.000Z" })
}

/// Renews every lease of a batch with this ttl.
pub(crate) fn renew_all(ttl_ms: u64) -> impl FnMut(&Seen) -> Reply + Send + 'static {
    move |seen| {
        let ids = seen.body.get("ids").and_then(Value::as_array).unwrap();
        let results: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "id": id, "outcome": "renewed", "status": "active", "ttl_ms": ttl_ms }))
            .collect();
        Reply::Json(200, json!({ "results": results, "server_time": "2026-11-15T10:00:00.000Z" }))
    }
}

/// Somebody else has it.
pub(crate) fn held() -> Value {
    json!({ "type": "about:blank", "title": "Held", "status": 409, "code": "held", "detail": "x:a is held by you",
        "retry_after_ms": 1_000, "conflict": { "resource": "x:a", "overlap": "x:a", "by": "lease", "holder": "you",
        "token": 7, "lease_id": "lease-0-7", "mode": "exclusive", "acquired_at": "2026-11-15T10:00:00.000Z",
        "expires_at": "2026-11-15T10:00:30.000Z", "waiting": 2 } })
}
