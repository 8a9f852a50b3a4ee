//! The Rust SDK against the real server: what its own tests script, happens here.

mod agent;
mod blocking;
mod coordinator;
mod examples;
mod state;
mod worker;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Map, Value};
use tenure::{Acquire, Client, EventQuery, Loss, Mode, Refusal, State, Status};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::rig::{PATIENCE, Rig, Server, wait_until};

fn client(server: &Server, holder: &str) -> Client {
    Client::builder().url(&server.url).holder(holder).build().unwrap()
}

/// A server, and somebody who gives it work. The folder goes last.
fn scene() -> (Rig, Server, Client) {
    let rig = Rig::new();
    let server = rig.serve();
    let author = client(&server, "author");
    (rig, server, author)
}

fn members(of: Value) -> Map<String, Value> {
    of.as_object().unwrap().clone()
}

/// An agent or a worker that runs until it is told to stop.
struct Running<T> {
    stop: oneshot::Sender<()>,
    running: JoinHandle<T>,
}

impl<T: Send + 'static> Running<T> {
    fn start<F: Future<Output = T> + Send + 'static>(run: impl FnOnce(Stopped) -> F) -> Running<T> {
        let (stop, stopped) = oneshot::channel::<()>();
        Running { stop, running: tokio::spawn(run(Box::pin(async move { drop(stopped.await) }))) }
    }

    async fn stop(self) -> T {
        self.stop.send(()).unwrap();
        soon(self.running).await.unwrap()
    }
}

type Stopped = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

/// Asks again until there is an answer.
async fn seen<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    soon(async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// How often something was counted at `/metrics`.
fn metric(server: &Server, name: &str) -> u64 {
    let text = server.ask("GET", "/metrics", "");
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit(' ').next());
    lines.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn two_hundred_guards_survive_a_killed_server_and_lose_nothing() {
    let rig = Rig::new();
    let mut server = rig.serve();
    let client = client(&server, "ann");
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(client.acquire(Acquire::one(format!("x:{number}")).ttl(Duration::from_secs(6))).await.unwrap());
    }
    let address = server.address().to_owned();
    server.child.signal(Signal::SIGKILL);
    server.child.end();
    wait_until("the heartbeat has noticed", || guards.iter().any(|guard| guard.state() == State::AtRisk));
    let server = rig.serve_with(&address, &[]);
    wait_until("all are safe again", || guards.iter().all(|guard| guard.state() == State::Held));
    let start = Instant::now();
    wait_until("more than a ttl has passed", || {
        assert!(guards.iter().all(|guard| guard.state() != State::Lost));
        start.elapsed() > Duration::from_secs(7)
    });
    let page = client.leases(&tenure::LeaseQuery::default().limit(1_000)).await.unwrap();
    assert_eq!(page.leases.len(), 200);
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(server.leases("x:7").len(), 0);
}

#[tokio::test]
async fn events_go_on_over_a_restart_of_the_server_without_a_gap() {
    let rig = Rig::new();
    let mut server = rig.serve();
    let client = client(&server, "ann");
    let mut events = client.watch(EventQuery::default().after(0));
    let opened = soon(events.next()).await.unwrap();
    client.acquire_without_heartbeat(Acquire::one("x:a")).await.unwrap();
    assert_eq!(soon(events.next()).await.unwrap().cursor, opened.cursor + 1);
    let address = server.address().to_owned();
    server.child.signal(Signal::SIGKILL);
    server.child.end();
    let _server = rig.serve_with(&address, &[]);
    client.acquire_without_heartbeat(Acquire::one("x:b")).await.unwrap();
    let mut last = opened.cursor + 1;
    loop {
        let event = soon(events.next()).await.unwrap();
        assert_eq!(event.cursor, last + 1);
        last = event.cursor;
        if event.resources.iter().any(|resource| resource.to_string() == "x:b") {
            break;
        }
    }
}

#[tokio::test]
async fn a_watch_from_now_on_starts_at_a_place_it_can_come_back_to() {
    let rig = Rig::new();
    let mut server = rig.serve();
    let client = client(&server, "ann");
    let mut events = client.watch(EventQuery::default());
    // Connects, and finds nothing yet.
    let begun = Instant::now();
    while events.cursor().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the stream says where it starts");
        let nothing = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
        assert!(nothing.is_err(), "{nothing:?}");
    }
    let start = events.cursor().unwrap();
    let address = server.address().to_owned();
    server.child.signal(Signal::SIGKILL);
    server.child.end();
    let _server = rig.serve_with(&address, &[]);
    assert_eq!(soon(events.next()).await.unwrap().cursor, start + 1, "what happened meanwhile is not skipped");
}

#[tokio::test]
async fn a_revoked_guard_is_told_why_and_a_waiter_gets_a_larger_token() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, bob) = (client(&server, "ann"), client(&server, "bob"));
    let lease = ann.acquire(Acquire::one("path:src").ttl(Duration::from_secs(2))).await.unwrap();
    let token = lease.token();
    let waiting = tokio::spawn(async move {
        bob.acquire(Acquire::one("path:src/a.rs").ttl(Duration::from_secs(2)).wait(PATIENCE)).await
    });
    let others = client(&server, "carl");
    loop {
        let check = others.check(["path:src/a.rs"], Mode::Exclusive).await.unwrap();
        if check.conflicts.first().is_some_and(|conflict| conflict.waiting == 1) {
            break;
        }
    }
    others.revoke(lease.id(), "maintenance").await.unwrap();
    let Loss::Ended(ended) = soon(lease.lost()).await else { panic!("{:?}", lease.loss()) };
    assert_eq!((ended.reason, ended.note.as_deref()), (Some(Status::Revoked), Some("maintenance")));
    assert_eq!(ended.current.unwrap().holder.unwrap().as_str(), "bob");
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Lost(_))), "{error:?}");
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(next.state(), State::Held);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_thousand_guards_are_each_renewed_three_times_per_ttl() {
    let rig = Rig::new();
    let server = rig.serve();
    let client = client(&server, "ann");
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(client.acquire(Acquire::one(format!("x:{number}")).ttl(Duration::from_secs(9))).await.unwrap());
    }
    let before = metric(&server, "tenure_renewals");
    let start = Instant::now();
    wait_until("two ttls have passed", || {
        assert!(guards.iter().all(|guard| guard.state() == State::Held));
        start.elapsed() > Duration::from_secs(18)
    });
    let renewals = metric(&server, "tenure_renewals") - before;
    assert!((5_000..=8_000).contains(&renewals), "every lease three times per ttl, six in all: {renewals}");
}

#[tokio::test]
async fn more_guards_than_one_request_may_name_are_all_kept() {
    const GUARDS: usize = 4_200;
    let rig = Rig::new();
    let server = rig.serve();
    let client = client(&server, "ann");
    let mut guards = Vec::new();
    let numbers: Vec<usize> = (0..GUARDS).collect();
    for some in numbers.chunks(50) {
        let mut taken = tokio::task::JoinSet::new();
        for number in some {
            let (client, request) = (client.clone(), Acquire::one(format!("x:{number}")).ttl(Duration::from_secs(15)));
            taken.spawn(async move { client.acquire(request).await.unwrap() });
        }
        guards.extend(taken.join_all().await);
    }
    let before = metric(&server, "tenure_renewals");
    // Twice each, so that every one has been renewed by a request that names as many as it can.
    let enough = before + 2 * GUARDS as u64;
    seen(async || (metric(&server, "tenure_renewals") >= enough).then_some(())).await;
    assert!(guards.iter().all(|guard| guard.state() == State::Held));
}
