//! A ledger with a hand-moved clock, and everything it wrote, as the store would have it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tenure_core::access::Caller;
use tenure_core::change::{Change, Record, RecordId, RecordKind, in_full};
use tenure_core::command::{Acquire, Acquired, Command, Tick};
use tenure_core::document::Refusal;
use tenure_core::event::{Event, EventKind};
use tenure_core::intent::Intent;
use tenure_core::lease::Lease;
use tenure_core::ledger::intents::{CreateIntent, GetIntent};
use tenure_core::ledger::scopes::AcquireScope;
use tenure_core::ledger::writes::{Expected, PatchState};
use tenure_core::patch::{Patch, PatchPath};
use tenure_core::serial::IntentId;
use tenure_core::{Epoch, Holder, Ledger, Resource, Timestamp, Ttl, Turn};

pub struct Bench {
    pub ledger: Ledger,
    pub now: u64,
    pub events: Vec<Event>,
    pub records: BTreeMap<(RecordKind, RecordId), Record>,
}

impl Bench {
    pub fn new() -> Bench {
        let mut bench = Bench {
            ledger: Ledger::open(Default::default(), Epoch(1)),
            now: 1_000_000,
            events: Vec::new(),
            records: BTreeMap::new(),
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        let everyone = |_| true;
        let mut turn = Turn::new(Timestamp::from_unix_ms(self.now), &everyone);
        self.ledger.start(&mut turn);
        let Turn { changes, events, .. } = turn;
        self.keep(changes, events);
    }

    pub fn apply<C: Command>(&mut self, command: C) -> C::Reply {
        let everyone = |_| true;
        let mut turn = Turn::new(Timestamp::from_unix_ms(self.now), &everyone);
        let reply = self.ledger.apply(&mut turn, command);
        let Turn { changes, events, .. } = turn;
        self.keep(changes, events);
        reply
    }

    fn keep(&mut self, changes: Vec<Change>, events: Vec<Event>) {
        for change in in_full(changes, &events) {
            match change {
                Change::Put(record) => drop(self.records.insert((record.kind(), record.id()), record)),
                Change::Delete(kind, id) => drop(self.records.remove(&(kind, id))),
                Change::Renewed(token, at) => {
                    if let Some(Record::Lease(lease)) = self.records.get_mut(&(RecordKind::Lease, token.into())) {
                        lease.expires_at = at;
                    }
                }
                Change::Granted(_) | Change::Ended(_) => panic!("not in full"),
            }
        }
        self.events.extend(events);
    }

    /// Lets time pass, deadline by deadline, as the engine does.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(next) = self.ledger.next_deadline().map(Timestamp::unix_ms).filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.apply(Tick);
        }
        self.now = until;
        self.apply(Tick);
    }

    /// The same ledger, opened again from what it wrote.
    pub fn reopen(&mut self) {
        let head = self.ledger.head();
        self.ledger = Ledger::open(head, Epoch(head.epoch.0 + 1));
        for record in self.records.values() {
            let text = record.to_json().expect("a record is JSON");
            self.ledger.restore(Record::decode(record.kind(), &text).expect("what was written can be read"));
        }
        self.start();
    }

    pub fn count(&self, kind: EventKind) -> usize {
        self.events.iter().filter(|event| event.kind == kind).count()
    }

    pub fn intent(&mut self) -> IntentId {
        self.apply(draft("an intent")).expect("there is room").id
    }

    pub fn get(&mut self, id: IntentId) -> Intent {
        let caller = Caller { holder: holder("looker"), is_admin: true };
        Intent::clone(&*self.apply(GetIntent { id, caller }).expect("it is there"))
    }

    pub fn take(&mut self, id: IntentId, scope: &str, who: &str, ttl_s: u64) -> Result<Lease, Refusal> {
        let resource = Resource::parse(&format!("intent:{id}/{scope}")).expect("a scope");
        let acquire = Acquire::new([resource], holder(who), Ttl::from_ms(ttl_s * 1_000).expect("a ttl"));
        match self.apply(AcquireScope { id, caller: caller(who), acquire })? {
            Acquired::Granted(grant) => Ok(grant.lease),
            Acquired::Refused(refusal) => Err(refusal.into()),
            Acquired::Queued(_) => panic!("nobody waits here"),
        }
    }

    /// One lease on two scopes, as the native door gives it.
    pub fn take_both(&mut self, id: IntentId, scopes: [&str; 2], who: &str, ttl_s: u64) -> Option<Lease> {
        let resources = scopes.map(|scope| Resource::parse(&format!("intent:{id}/{scope}")).expect("a scope"));
        match self.apply(Acquire::new(resources, holder(who), Ttl::from_ms(ttl_s * 1_000).expect("a ttl"))) {
            Acquired::Granted(grant) => Some(grant.lease),
            Acquired::Refused(_) => None,
            Acquired::Queued(_) => panic!("nobody waits here"),
        }
    }

    pub fn set(&mut self, id: IntentId, path: &str, who: &str, expected: Expected) -> Result<u64, Refusal> {
        let patches = vec![Patch::set(PatchPath::parse(path).expect("a path"), Value::from(who))];
        let patch = PatchState { id, caller: caller(who), expected, patches, told: Value::Null, lease: None };
        self.apply(patch).map(|intent| intent.version)
    }
}

pub fn holder(name: &str) -> Holder {
    Holder::parse(name).expect("a name")
}

pub fn caller(name: &str) -> Caller {
    Caller { holder: holder(name), is_admin: false }
}

pub fn draft(title: &str) -> CreateIntent {
    CreateIntent {
        title: title.into(),
        description: String::new(),
        state: Map::new(),
        constraints: Map::new(),
        parent: None,
        depends_on: Vec::new(),
        governance: None,
        created_by: holder("maker"),
    }
}
