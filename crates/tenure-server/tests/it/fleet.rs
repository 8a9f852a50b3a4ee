//! Workers that die or go: two hundred of them at one queue of twenty thousand tasks, what came of it read from the events alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tenure_core::Holder;
use tenure_core::event::{Cursor, EventKind};
use tenure_core::flow::command::{StartFlow, Which};
use tenure_core::task::command::{Act, Claimant, Outcome, Poll, QueueName, TaskView, Update};
use tenure_core::task::{Status, empty_object};
use tenure_server::Engine;
use tenure_server::engine::clock::ManualClock;
use tenure_store::audit::Auditor;
use tenure_store::{EventQuery, Store};

use crate::harness::Server;

const WORKERS: u64 = 200;
const TASKS: u64 = 20_000;
/// One poll in so many is the worker's last.
const DIES_ONE_IN: u32 = 40;
const GIVES_BACK_ONE_IN: u32 = 50;

struct Fleet {
    engine: Engine,
    clock: ManualClock,
    completed: AtomicU64,
    late: AtomicU64,
    deaths: AtomicU64,
}

/// A worker; when it dies, one of another name takes its place, and what it would have said comes too late.
async fn work(fleet: Arc<Fleet>, number: u64) {
    let mut random = StdRng::seed_from_u64(number);
    let (mut life, mut left_behind) = (0, Vec::new());
    while fleet.completed.load(Ordering::Relaxed) < TASKS {
        let name = format!("w{number}-{life}");
        let worker = Holder::parse(&name).expect("a name");
        let asked = Poll { count: random.random_range(1..4), ..poll(&name, 0) };
        let tasks = fleet.engine.poll(asked).await.expect("an answer");
        if tasks.is_empty() {
            // Everything is held: time passes, and the leases of the dead run out. One worker moves it for all: otherwise the
            // living would be late, too.
            if number == 0 {
                fleet.clock.advance_ms(50);
            }
            tokio::task::yield_now().await;
        }
        for task in tasks {
            if random.random_ratio(1, DIES_ONE_IN) {
                fleet.deaths.fetch_add(1, Ordering::Relaxed);
                left_behind.push((worker.clone(), task));
                life += 1;
                continue;
            }
            let gives_back = random.random_ratio(1, GIVES_BACK_ONE_IN);
            let act = if gives_back { Act::Yield { after_s: 0, output: empty_object() } } else { completed() };
            say(&fleet, &worker, &task, act).await;
        }
        // The dead speak when their time is over.
        if left_behind.len() > 2
            && fleet.engine.now().ms_since(left_behind[0].1.task.updated_at.expect("polled")) > 4_000
        {
            let (worker, task) = left_behind.remove(0);
            let outcome = say(&fleet, &worker, &task, completed()).await;
            assert_ne!(outcome, Outcome::Taken, "a late result was taken");
        }
    }
}

fn completed() -> Act {
    Act::End { status: Status::Completed, output: empty_object(), reason: None }
}

async fn say(fleet: &Fleet, worker: &Holder, task: &TaskView, act: Act) -> Outcome {
    let ends = matches!(act, Act::End { .. });
    let update = Update {
        task: task.task.id,
        by: Some(worker.clone()),
        nameless_may_hold: true,
        token: task.task.token,
        act,
        logs: vec![],
        next: None,
    };
    let outcome = fleet.engine.update(update).await.expect("an answer").outcome;
    match outcome {
        Outcome::Taken if ends => fleet.completed.fetch_add(1, Ordering::Relaxed),
        Outcome::Late => fleet.late.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
    outcome
}

/// A server that knows a task `a` and a workflow of it.
async fn with_work() -> Server {
    let server = Server::start().await;
    let def = json!([{ "name": "a", "responseTimeoutSeconds": 3, "timeoutSeconds": 0, "retryCount": 10, "retryDelaySeconds": 0 }]);
    assert_eq!(server.post("/api/metadata/taskdefs", def).await.status, 200);
    let flow = json!({ "name": "wf", "tasks": [{ "name": "a", "taskReferenceName": "a" }] });
    assert_eq!(server.post("/api/metadata/workflow", flow).await.status, 200);
    server
}

async fn start(server: &Server) {
    let start = StartFlow::new(Which::Named("wf".into(), None), empty_object());
    server.engine.apply(start).await.expect("an answer").expect("it starts");
}

fn poll(worker: &str, wait_ms: u64) -> Poll {
    let by = Claimant { worker: Some(Holder::parse(worker).expect("a name")), grace_ms: 1_000 };
    Poll { queue: QueueName { name: "a".into(), domain: None }, by, count: 1, wait_ms }
}

#[tokio::test]
async fn t1_a_task_that_came_when_its_worker_had_just_gone_is_there_for_the_next() {
    let server = with_work().await;
    let mut gone = Box::pin(server.engine.poll(poll("gone", 60_000)));
    let looked = std::future::poll_fn(|context| std::task::Poll::Ready(gone.as_mut().poll(context))).await;
    assert!(looked.is_pending(), "it stands in line");
    start(&server).await;
    drop(gone);
    let tasks = server.engine.poll(poll("next", 0)).await.expect("an answer");
    assert_eq!(tasks.len(), 1, "nobody has read it, so nobody has it");
    assert_eq!(tasks[0].task.polls, 1, "and the poll that went wrong does not count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_workers_that_may_die_complete_twenty_thousand_tasks_exactly_once_each() {
    let server = with_work().await;
    for _ in 0..TASKS {
        start(&server).await;
    }
    let fleet = Arc::new(Fleet {
        engine: server.engine.clone(),
        clock: server.clock.clone(),
        completed: AtomicU64::new(0),
        late: AtomicU64::new(0),
        deaths: AtomicU64::new(0),
    });
    let workers: Vec<_> = (0..WORKERS).map(|number| tokio::spawn(work(Arc::clone(&fleet), number))).collect();
    for worker in workers {
        worker.await.expect("no worker panics");
    }
    audit(&server, &fleet);
}

/// Every run completed once, no two workers held one task at once, and every death and late word is told.
fn audit(server: &Server, fleet: &Fleet) {
    let reader = server.memory.handle().reader();
    let (mut auditor, mut after) = (Auditor::new(), Cursor(0));
    let (mut ends, mut completions) = (HashMap::new(), HashMap::<String, u64>::new());
    let mut count: HashMap<EventKind, u64> = HashMap::new();
    loop {
        let page = reader.events(&EventQuery::after(after, 10_000)).expect("a page");
        for event in &page.events {
            auditor.push(event).expect("no two leases stand against each other");
            *count.entry(event.kind).or_default() += 1;
            if event.kind != EventKind::TaskEnded {
                continue;
            }
            assert_eq!(ends.insert(event.resources[0].to_string(), event.token), None, "a task ended twice");
            let data: Value = serde_json::from_str(event.data.as_deref().expect("data").get()).expect("JSON");
            if data["status"] == "COMPLETED" {
                *completions.entry(data["workflow"].to_string()).or_default() += 1;
            }
        }
        after = page.next;
        if !page.more {
            break;
        }
    }
    let of = |kind: EventKind| count.get(&kind).copied().unwrap_or(0);
    assert_eq!((of(EventKind::FlowStarted), of(EventKind::FlowEnded)), (TASKS, TASKS), "no run is stuck");
    assert_eq!(completions.len() as u64, TASKS, "no task is lost");
    assert!(completions.values().all(|times| *times == 1), "no run is completed twice");
    assert_eq!(of(EventKind::TaskLate), fleet.late.load(Ordering::Relaxed), "every late word is told");
    let deaths = fleet.deaths.load(Ordering::Relaxed);
    assert!(deaths > TASKS / 100, "too few died to show anything: {deaths}");
    assert!(of(EventKind::LeaseExpired) >= deaths, "every death is an expiry");
}
