//! Owns the workers and the starters: connections that poll, answer and start, and what they came to.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::TASKS;
use crate::http::{Connection, find, text_member};
use crate::load::{Pace, block_on};
use crate::process::Server;
use crate::report::progress;
use crate::targets::tenure::{Tenure, expect};

/// Connections that start workflows.
const STARTERS: usize = 8;
/// Connections that fill a queue.
const FILLERS: usize = 256;
/// The longest wait in a queue that is told apart.
const WAIT_MS_MAX: u64 = 600_000;

/// A server with the definitions that are measured.
pub struct Bench<'a> {
    address: SocketAddr,
    server: &'a Server,
}

/// What a load came to.
pub struct Worked {
    elapsed: Duration,
    server_cpu: Duration,
    waits: Histogram<u64>,
}

impl Worked {
    pub fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// How long this share of the tasks waited for a worker at most.
    pub fn wait_ms(&self, share: f64) -> u64 {
        self.waits.value_at_quantile(share)
    }

    pub fn server_micros(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.waits.len().max(1) as f64
    }
}

/// What all connections of one load share.
struct Shared {
    is_over: Cell<bool>,
    is_measuring: Cell<bool>,
    completed: Cell<u64>,
    started: Cell<u64>,
    waits: RefCell<Histogram<u64>>,
}

impl<'a> Bench<'a> {
    /// Registers a workflow of ten tasks, one of one task that nobody does, and one of one task for heartbeats.
    pub fn new(tenure: &'a Tenure) -> Result<Bench<'a>> {
        let task = |name: &str, at: u64| json!({ "name": name, "taskReferenceName": format!("{name}_{at}"), "type": "SIMPLE" });
        let flow = |name: &str, task_name: &str, count: u64| {
            let tasks: Vec<Value> = (0..count).map(|at| task(task_name, at)).collect();
            json!({ "name": name, "version": 1, "schemaVersion": 2, "tasks": tasks })
        };
        let defs = ["step", "left", "held"]
            .map(|name| json!({ "name": name, "responseTimeoutSeconds": 3_600, "timeoutSeconds": 0 }));
        let flows = json!([flow("ten", "step", TASKS), flow("queued", "left", 1), flow("beating", "held", 1)]);
        let bench = Bench { address: tenure.address, server: &tenure.server };
        block_on(async {
            let mut connection = Connection::open(bench.address).await?;
            let defs = serde_json::to_vec(&defs)?;
            expect(&connection.call("POST", &["/api/metadata/taskdefs"], &[], &defs).await?, 200)?;
            let flows = serde_json::to_vec(&flows)?;
            expect(&connection.call("PUT", &["/api/metadata/workflow"], &[], &flows).await?, 200)
        })?;
        Ok(bench)
    }

    /// Works through workflows: as many as can be, with `at_once` under way, or so many started a second.
    pub fn work(&self, workers: usize, rate: Option<f64>, at_once: u64, pace: Pace) -> Result<Worked> {
        let shared = Rc::new(Shared {
            is_over: Cell::new(false),
            is_measuring: Cell::new(false),
            completed: Cell::new(0),
            started: Cell::new(0),
            waits: RefCell::new(Histogram::new_with_max(WAIT_MS_MAX, 3)?),
        });
        let (elapsed, server_cpu) = block_on(async {
            let mut tasks = JoinSet::new();
            for n in 0..workers {
                let connection = Connection::open(self.address).await?;
                tasks.spawn_local(work(connection, n, Rc::clone(&shared)));
            }
            let began = Instant::now();
            for _ in 0..STARTERS {
                let connection = Connection::open(self.address).await?;
                let due = move |began: Instant| rate.map(|rate| (began.elapsed().as_secs_f64() * rate) as u64);
                let may = move |shared: &Shared| {
                    let under_way = shared.started.get().saturating_sub(shared.completed.get() / TASKS);
                    due(began).map_or(under_way < at_once, |due| shared.started.get() < due)
                };
                tasks.spawn_local(start(connection, may, Rc::clone(&shared)));
            }
            tokio::time::sleep(pace.warm_up).await;
            let (cpu, at) = (self.server.cpu()?, Instant::now());
            shared.is_measuring.set(true);
            tokio::time::sleep(pace.measure).await;
            shared.is_measuring.set(false);
            let spent = (at.elapsed(), self.server.cpu()?.saturating_sub(cpu));
            shared.is_over.set(true);
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(spent)
        })?;
        let waits = shared.waits.borrow().clone();
        Ok(Worked { elapsed, server_cpu, waits })
    }

    /// Heartbeats a second of so many workers with one task each.
    pub fn beat(&self, workers: usize, pace: Pace) -> Result<f64> {
        block_on(async {
            let (beats, is_over) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(false)));
            let mut tasks = JoinSet::new();
            for n in 0..workers {
                let mut connection = Connection::open(self.address).await?;
                let (beats, is_over) = (Rc::clone(&beats), Rc::clone(&is_over));
                tasks.spawn_local(async move {
                    let begin = br#"{"name":"beating","version":1}"#;
                    expect(&connection.call("POST", &["/api/workflow"], &[], begin).await?, 200)?;
                    let held = claim(&mut connection, "held", n).await?.context("no task to hold")?;
                    let beat = held.update("IN_PROGRESS\",\"extendLease\":true,\"x\":\"", n);
                    while !is_over.get() {
                        expect(&connection.call("POST", &["/api/tasks"], &[], &beat).await?, 200)?;
                        beats.set(beats.get() + 1);
                    }
                    let done = held.update("COMPLETED", n);
                    expect(&connection.call("POST", &["/api/tasks"], &[], &done).await?, 200)
                });
            }
            tokio::time::sleep(pace.warm_up).await;
            let (before, at) = (beats.get(), Instant::now());
            tokio::time::sleep(pace.measure).await;
            let rate = (beats.get() - before) as f64 / at.elapsed().as_secs_f64();
            is_over.set(true);
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(rate)
        })
    }

    /// Starts so many workflows of one task that nobody does.
    pub fn queue(&self, count: u64) -> Result<()> {
        block_on(async {
            let next = Rc::new(Cell::new(0));
            let mut tasks = JoinSet::new();
            for _ in 0..FILLERS {
                let mut connection = Connection::open(self.address).await?;
                let next = Rc::clone(&next);
                tasks.spawn_local(async move {
                    while next.get() < count {
                        let n = next.replace(next.get() + 1);
                        let start = br#"{"name":"queued","version":1}"#;
                        expect(&connection.call("POST", &["/api/workflow"], &[], start).await?, 200)?;
                        if n > 0 && n.is_multiple_of(100_000) {
                            progress(format!("{n} queued"));
                        }
                    }
                    anyhow::Ok(())
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(())
        })
    }

    /// How many of them there are.
    pub fn queued(&self) -> Result<u64> {
        block_on(async {
            let mut connection = Connection::open(self.address).await?;
            let answer = connection.call("GET", &["/api/tasks/queue/size?taskType=left"], &[], &[]).await?;
            expect(&answer, 200)?;
            Ok(answer.text().trim().parse()?)
        })
    }
}

async fn start(mut connection: Connection, may: impl Fn(&Shared) -> bool, shared: Rc<Shared>) -> Result<()> {
    while !shared.is_over.get() {
        if !may(&shared) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        shared.started.set(shared.started.get() + 1);
        let answer = connection.call("POST", &["/api/workflow"], &[], br#"{"name":"ten","version":1}"#).await?;
        expect(&answer, 200)?;
    }
    Ok(())
}

/// A task that a worker has.
struct Held {
    task: String,
    flow: String,
    waited_ms: u64,
}

impl Held {
    fn read(body: &[u8]) -> Option<Held> {
        Some(Held {
            task: text_member(body, "taskId")?.to_owned(),
            flow: text_member(body, "workflowInstanceId")?.to_owned(),
            waited_ms: number_member(body, "queueWaitTime")?,
        })
    }

    fn update(&self, status: &str, worker: usize) -> Vec<u8> {
        let (flow, task) = (&self.flow, &self.task);
        format!(r#"{{"workflowInstanceId":"{flow}","taskId":"{task}","workerId":"w{worker}","status":"{status}"}}"#)
            .into()
    }
}

async fn claim(connection: &mut Connection, name: &str, worker: usize) -> Result<Option<Held>> {
    let path = format!("/api/tasks/poll/batch/{name}?workerid=w{worker}&count=1&timeout=100");
    let answer = connection.call("GET", &[&path], &[], &[]).await?;
    expect(&answer, 200)?;
    Ok(Held::read(answer.body))
}

/// A worker: polls, and takes the next task with the answer to the last. After the end it works on until nothing is left.
async fn work(mut connection: Connection, worker: usize, shared: Rc<Shared>) -> Result<()> {
    let mut held: Option<Held> = None;
    loop {
        let Some(task) = held.take() else {
            held = claim(&mut connection, "step", worker).await?;
            if held.is_none() && shared.is_over.get() && shared.completed.get() >= shared.started.get() * TASKS {
                return Ok(());
            }
            continue;
        };
        let body = task.update("COMPLETED", worker);
        let answer = connection.call("POST", &["/api/tasks/update-v2"], &[], &body).await?;
        ensure!(matches!(answer.status, 200 | 204), "{}: {}", answer.status, answer.text());
        shared.completed.set(shared.completed.get() + 1);
        if shared.is_measuring.get() {
            shared.waits.borrow_mut().record(task.waited_ms.min(WAIT_MS_MAX))?;
        }
        held = Held::read(answer.body);
    }
}

/// A number of a JSON object, found by its name.
fn number_member(body: &[u8], name: &str) -> Option<u64> {
    let key = format!("\"{name}\":");
    let rest = body.get(find(body, key.as_bytes())? + key.len()..)?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}
