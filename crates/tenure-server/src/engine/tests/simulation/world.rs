//! The server's side: a writer without its thread, a store that survives it, and what is still on its way to it.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use tenure_core::Timestamp;
use tenure_core::event::{Cursor, Event};
use tenure_store::{EventQuery, Fault, Memory, Options, Reader, Sqlite, Store};

use super::clients::Clients;
use super::judge::{self, Kept};
use crate::engine::clock::{Clock, ManualClock};
use crate::engine::feed::Feed;
use crate::engine::job::Job;
use crate::engine::queue::Queue;
use crate::engine::recover::recover;
use crate::engine::renewals::Renewals;
use crate::engine::tests::START;
use crate::engine::waits::Waits;
use crate::engine::writer::Writer;
use crate::metrics::Metrics;

/// How often a commit fails, and how often the server just dies.
const FAULT_CHANCE: f64 = 0.03;
const CRASH_CHANCE: f64 = 0.02;

/// What outlives the server.
pub(super) enum Disk {
    Memory(Memory),
    Sqlite(tempfile::TempDir),
}

impl Disk {
    pub(super) fn memory() -> Disk {
        Disk::Memory(Memory::new())
    }

    pub(super) fn sqlite() -> Disk {
        Disk::Sqlite(tempfile::tempdir().expect("a directory"))
    }

    /// What the next process finds.
    fn open(&mut self) -> Box<dyn Store> {
        match self {
            Disk::Memory(memory) => {
                *memory = memory.restart();
                Box::new(memory.handle())
            }
            Disk::Sqlite(dir) => Box::new(Sqlite::open(dir.path(), Options::default()).expect("the store opens again")),
        }
    }
}

pub(super) struct World {
    disk: Disk,
    clock: ManualClock,
    writer: Option<Writer>,
    reader: Arc<dyn Reader>,
    /// Sent and not yet arrived.
    on_the_way: Vec<Box<dyn Job>>,
    clients: Clients,
    kept: Kept,
    /// The time that really passed; the clock may be wrong after a restart.
    elapsed_ms: u64,
}

impl World {
    pub(super) fn new(mut disk: Disk) -> World {
        let clock = ManualClock::at(START);
        let (writer, reader) = start(disk.open(), &clock);
        World {
            disk,
            clock,
            writer: Some(writer),
            reader,
            on_the_way: Vec::new(),
            clients: Clients::new(),
            kept: Kept::default(),
            elapsed_ms: 0,
        }
    }

    /// Some clients do something, some requests arrive, time passes, and now and then the server dies.
    pub(super) fn step(&mut self, rng: &mut StdRng) {
        for _ in 0..rng.random_range(0..6) {
            self.on_the_way.extend(self.clients.act(rng));
        }
        if rng.random_bool(0.5) {
            self.pass(rng.random_range(0..800));
        }
        let mut arrived = Vec::new();
        for job in std::mem::take(&mut self.on_the_way) {
            if rng.random_bool(0.7) { arrived.push(job) } else { self.on_the_way.push(job) }
        }
        self.inject_fault(rng);
        self.work(arrived, rng);
        if rng.random_bool(CRASH_CHANCE) {
            self.restart(rng);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.elapsed_ms += ms;
        self.clock.advance_ms(ms);
    }

    fn inject_fault(&self, rng: &mut StdRng) {
        if let Disk::Memory(memory) = &self.disk
            && rng.random_bool(FAULT_CHANCE)
        {
            let fault = if rng.random_bool(0.5) { Fault::BeforeDurable } else { Fault::AfterDurable };
            memory.fail_commit(1, fault);
        }
    }

    fn work(&mut self, mut jobs: Vec<Box<dyn Job>>, rng: &mut StdRng) {
        let Some(writer) = &mut self.writer else { return };
        let worked = writer.work(&mut jobs);
        // Nobody may hear anything that the store does not have.
        let events = self.kept.catch_up(&*self.reader);
        judge::check_promises(&events, &self.clients, self.elapsed_ms);
        self.clients.listen(&self.kept, worked.is_ok(), self.elapsed_ms);
        if worked.is_err() {
            drop(jobs);
            self.restart(rng);
        }
    }

    /// The process is gone with everything in memory, and comes back with a clock that may be wrong.
    fn restart(&mut self, rng: &mut StdRng) {
        drop(self.writer.take());
        // What stood in its line is gone too; its clients hear that there is no answer.
        if rng.random_bool(0.5) {
            self.on_the_way.clear();
        }
        self.clients.hear_of_crash();
        self.pass(rng.random_range(0..20_000));
        let wrong_by = rng.random_range(0..10_000);
        self.clock = ManualClock::at(Timestamp::from_unix_ms(self.clock.now().unix_ms() - wrong_by));
        let (writer, reader) = start(self.disk.open(), &self.clock);
        self.writer = Some(writer);
        self.reader = reader;
        self.kept = Kept::default();
        self.kept.catch_up(&*self.reader);
        self.clients.check_acknowledged(&self.kept);
    }

    /// Everything arrives, all time passes; then the whole history is judged.
    pub(super) fn end(mut self, rng: &mut StdRng) -> String {
        let arrived = std::mem::take(&mut self.on_the_way);
        self.work(arrived, rng);
        for _ in 0..4 {
            self.pass(60_000);
            self.work(Vec::new(), rng);
        }
        self.clients.check_nobody_waits();
        let events = history(&*self.reader, Cursor::default());
        judge::audit(&events);
        events.iter().map(|event| format!("{event:?}\n")).collect()
    }
}

fn start(mut store: Box<dyn Store>, clock: &ManualClock) -> (Writer, Arc<dyn Reader>) {
    let recovered = recover(&mut *store, Arc::new(clock.clone())).expect("it starts again");
    let reader = store.reader();
    let writer = Writer {
        queue: Arc::new(Queue::new(1)),
        feed: Feed::start(recovered.ledger.head().cursor).expect("a thread"),
        metrics: Arc::new(Metrics::default()),
        store,
        ledger: recovered.ledger,
        time: recovered.time,
        waits: Waits::default(),
        renewals: Renewals::default(),
        seq: recovered.seq,
    };
    (writer, reader)
}

/// All events after a cursor, oldest first.
pub(super) fn history(reader: &dyn Reader, after: Cursor) -> Vec<Event> {
    let mut query = EventQuery::after(after, 1_000);
    let mut events = Vec::new();
    loop {
        let page = reader.events(&query).expect("readable");
        events.extend(page.events);
        if !page.more {
            return events;
        }
        query.after = page.next;
    }
}
