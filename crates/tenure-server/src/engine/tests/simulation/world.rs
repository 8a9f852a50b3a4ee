//! The server's side: decisions and commits without a thread, a store that survives them, and what is still on its way.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use tenure_core::Timestamp;
use tenure_core::command::Tick;
use tenure_core::event::{Cursor, Event};
use tenure_store::{CommitError, EventQuery, Fault, Memory, Options, Reader, Sqlite, Store};

use super::clients::Clients;
use super::judge::{self, Kept};
use super::requests::{Reply, Request};
use crate::engine::batch::{Fate, Sealed};
use crate::engine::clock::{Clock, ManualClock};
use crate::engine::decider::Decider;
use crate::engine::recover::recover;
use crate::engine::tests::START;

/// How often a commit fails, and how often the server just dies.
const FAULT_CHANCE: f64 = 0.03;
const CRASH_CHANCE: f64 = 0.02;
/// How often a commit takes longer than until the next requests arrive.
const SLOW_CHANCE: f64 = 0.4;

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

/// A reply that nobody may hear before its batch is durable.
type Untold = (Arc<Fate>, Box<dyn FnOnce()>);

/// What dies with the process.
struct Server {
    decider: Decider,
    store: Box<dyn Store>,
    in_flight: Option<Sealed>,
    untold: Vec<Untold>,
}

impl Server {
    fn decide(&mut self, requests: Vec<Request>) {
        if requests.is_empty() {
            self.decider.apply(Tick);
        }
        for request in requests {
            let Reply { rests_on, tell } = request(&mut self.decider);
            match rests_on {
                Some(fate) => self.untold.push((fate, tell)),
                None => tell(),
            }
        }
    }

    fn seal(&mut self) {
        if self.in_flight.is_none() && self.decider.is_ready() {
            self.in_flight = Some(self.decider.seal());
        }
    }

    /// The commit that is on its way comes to its end.
    fn land(&mut self) -> Result<(), CommitError> {
        let Some(Sealed { batch, deliveries, fate, .. }) = self.in_flight.take() else { return Ok(()) };
        batch.map_or(Ok(()), |batch| self.store.commit(&batch))?;
        self.decider.landed();
        let is_on_it = |(on, _): &mut Untold| Arc::ptr_eq(on, &fate);
        self.untold.extract_if(.., is_on_it).for_each(|(_, tell)| tell());
        deliveries.into_iter().for_each(|delivery| drop(delivery.deliver()));
        Ok(())
    }
}

pub(super) struct World {
    disk: Disk,
    clock: ManualClock,
    server: Option<Server>,
    reader: Arc<dyn Reader>,
    /// Sent and not yet arrived.
    on_the_way: Vec<Request>,
    clients: Clients,
    kept: Kept,
    /// The time that really passed; the clock may be wrong after a restart.
    elapsed_ms: u64,
}

impl World {
    pub(super) fn new(mut disk: Disk) -> World {
        let clock = ManualClock::at(START);
        let (server, reader) = start(disk.open(), &clock);
        World {
            disk,
            clock,
            server: Some(server),
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

    fn work(&mut self, requests: Vec<Request>, rng: &mut StdRng) {
        let Some(server) = &mut self.server else { return };
        server.decide(requests);
        let mut worked = Ok(());
        for _ in 0..2 {
            if worked.is_ok() && !rng.random_bool(SLOW_CHANCE) {
                worked = server.land();
            }
            server.seal();
        }
        self.observe(worked.is_ok());
        if worked.is_err() {
            self.restart(rng);
        }
    }

    fn observe(&mut self, worked: bool) {
        // Nobody may hear anything that the store does not have.
        let events = self.kept.catch_up(&*self.reader);
        judge::check_promises(&events, &self.clients, self.elapsed_ms);
        let now = self.server.as_ref().map_or(START, |server| server.decider.time.now());
        self.clients.listen(&self.kept, worked, (now, self.elapsed_ms));
    }

    /// The process is gone with everything in memory, and comes back with a clock that may be wrong.
    fn restart(&mut self, rng: &mut StdRng) {
        drop(self.server.take());
        // What stood in its line is gone too; its clients hear that there is no answer.
        if rng.random_bool(0.5) {
            self.on_the_way.clear();
        }
        self.clients.hear_of_crash();
        self.pass(rng.random_range(0..20_000));
        let wrong_by = rng.random_range(0..10_000);
        self.clock = ManualClock::at(Timestamp::from_unix_ms(self.clock.now().unix_ms() - wrong_by));
        let (server, reader) = start(self.disk.open(), &self.clock);
        self.server = Some(server);
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
        while let Some(server) = self.server.as_mut().filter(|server| !server.decider.is_clean()) {
            if server.in_flight.is_none() {
                server.in_flight = Some(server.decider.seal());
            }
            let landed = server.land();
            self.observe(landed.is_ok());
            if landed.is_err() {
                self.restart(rng);
            }
        }
        self.clients.check_nobody_waits();
        let events = history(&*self.reader, Cursor::default());
        judge::audit(&events);
        events.iter().map(|event| format!("{event:?}\n")).collect()
    }
}

fn start(mut store: Box<dyn Store>, clock: &ManualClock) -> (Server, Arc<dyn Reader>) {
    let recovered = recover(&mut *store, Arc::new(clock.clone())).expect("it starts again");
    let reader = store.reader();
    let decider = Decider::new(recovered.ledger, recovered.time, recovered.seq);
    (Server { decider, store, in_flight: None, untold: Vec::new() }, reader)
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
