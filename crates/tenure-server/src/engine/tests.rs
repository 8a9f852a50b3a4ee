//! The engine with the store of tests and a clock that stands still: what is promised about commits, waits, time and starts.

mod commits;
mod decisions;
mod follow;
mod history;
mod recovery;
mod simulation;
mod waits;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure_core::change::{Batch, Head, Record};
use tenure_core::command::{Acquire, Count, Counts, Grant, Release, Renew};
use tenure_core::refusal::Refusal;
use tenure_core::{Epoch, Holder, Resource, Timestamp, Token, Ttl};
use tenure_store::{CommitError, Memory, Reader, Store};

use super::clock::ManualClock;
use super::desk::Desk;
use super::{Engine, Released, Renewed};

/// 2026-11-15 12:00 UTC.
const START: Timestamp = Timestamp::from_unix_ms(1_794_744_000_000);
/// No condition in these tests takes this long unless it never comes.
const PATIENCE: Duration = Duration::from_secs(20);

fn holder(name: &str) -> Holder {
    Holder::parse(name).expect("a name")
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms_native(ms).expect("a ttl")
}

fn acquire(who: &str, what: &str) -> Acquire {
    Acquire::new([Resource::parse(what).expect("a resource")], holder(who), ttl(10_000))
}

fn waiting(who: &str, what: &str, wait_ms: u64) -> Acquire {
    Acquire { wait_ms: Some(wait_ms), ..acquire(who, what) }
}

fn renew(who: &str, token: Token) -> Renew {
    Renew { tokens: vec![token], holder: holder(who), ttl: None }
}

fn release(who: &str, token: Token) -> Release {
    Release { token, holder: holder(who) }
}

/// A store, a clock, and the engine between them.
struct Bench {
    memory: Memory,
    clock: ManualClock,
    engine: Engine,
}

impl Bench {
    fn new() -> Bench {
        Bench::on(Memory::new(), START)
    }

    fn on(memory: Memory, now: Timestamp) -> Bench {
        let clock = ManualClock::at(now);
        let engine = Engine::open(Box::new(memory.handle()), Arc::new(clock.clone())).expect("an engine");
        Bench { memory, clock, engine }
    }

    /// The machine died and came back so much later.
    fn crash(self, later_ms: u64) -> Bench {
        Bench::on(self.memory.restart(), START.plus_ms(later_ms))
    }

    async fn grant(&self, acquire: Acquire) -> Grant {
        self.engine.acquire(acquire).await.expect("an answer").expect("a grant")
    }

    async fn refusal(&self, acquire: Acquire) -> Refusal {
        self.engine.acquire(acquire).await.expect("an answer").expect_err("a refusal")
    }

    async fn renew_one(&self, who: &str, token: Token) -> Renewed {
        self.engine.renew(renew(who, token)).await.expect("an answer").remove(0)
    }

    async fn release_one(&self, who: &str, token: Token) -> Released {
        self.engine.release(release(who, token)).await.expect("an answer")
    }

    async fn counts(&self) -> Counts {
        self.engine.apply(Count).await.expect("an answer")
    }

    /// Comes back when so many wait for the batch after the one that is being written.
    async fn until_deciding(&self, commands: usize) {
        self.until_desk(|desk| desk.waiting() >= commands).await;
    }

    /// Comes back when the engine's thread waits to be called.
    async fn until_asleep(&self) {
        self.until_desk(Desk::is_asleep).await;
    }

    async fn until_desk(&self, is_so: impl Fn(&Desk) -> bool) {
        let comes_to_that = async {
            while !is_so(&self.engine.0.desk) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, comes_to_that).await.expect("it comes to that");
    }

    /// Comes back when so many wait in line.
    async fn until_waiting(&self, waiters: usize) {
        self.until(|counts| counts.waiters == waiters).await;
    }

    /// Comes back when the counts are as wanted.
    async fn until(&self, is_met: impl Fn(Counts) -> bool) {
        let met = async {
            while !is_met(self.counts().await) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, met).await.expect("it comes to that");
    }
}

/// A store whose commits stand still until they are let through.
struct Gated {
    memory: Memory,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    /// A commit stands before the gate.
    is_knocking: bool,
    /// Changes and events of every batch that came through.
    passed: Vec<Arc<Batch>>,
    /// Whether the engine's own thread brought the last one.
    is_by_thread: bool,
}

impl Gate {
    fn shut(&self) {
        self.state.lock().unwrap().is_shut = true;
    }

    fn open(&self) {
        self.state.lock().unwrap().is_shut = false;
        self.moved.notify_all();
    }

    /// Blocks until a commit stands before the gate.
    fn wait_for_knock(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.moved.wait_timeout_while(state, PATIENCE, |state| !state.is_knocking).unwrap();
        assert!(state.is_knocking, "a commit comes");
    }

    /// Blocks until so many commits came through.
    fn wait_for(&self, commits: usize) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.moved.wait_timeout_while(state, PATIENCE, |state| state.passed.len() < commits).unwrap();
        assert!(state.passed.len() >= commits, "a commit comes");
    }

    fn passed(&self) -> Vec<Arc<Batch>> {
        self.state.lock().unwrap().passed.clone()
    }
}

impl Store for Gated {
    fn claim(&mut self, at_least: Epoch) -> Result<Epoch, tenure_store::Error> {
        self.memory.claim(at_least)
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, tenure_store::Error> {
        self.memory.load(each)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        let mut state = self.gate.state.lock().unwrap();
        state.is_knocking = true;
        self.gate.moved.notify_all();
        let mut state = self.gate.moved.wait_while(state, |state| state.is_shut).unwrap();
        state.is_knocking = false;
        state.passed.push(Arc::new(batch.clone()));
        state.is_by_thread = std::thread::current().name() == Some("tenure-writer");
        self.gate.moved.notify_all();
        drop(state);
        self.memory.commit(batch)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.memory.reader()
    }
}

/// An engine whose commits can be held up.
fn gated() -> (Bench, Arc<Gate>) {
    let memory = Memory::new();
    let gate = Arc::new(Gate::default());
    let clock = ManualClock::at(START);
    let store = Gated { memory: memory.handle(), gate: Arc::clone(&gate) };
    let engine = Engine::open(Box::new(store), Arc::new(clock.clone())).expect("an engine");
    (Bench { memory, clock, engine }, gate)
}
