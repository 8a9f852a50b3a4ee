//! The ledger against a naive model: random commands, random time, restarts, shrinking.
//!
//! After every command both must have given the same answer, hold the same leases, have the same line and have answered
//! the same waits; and the records that the changes left must open into the same ledger (I5).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

#[path = "model/naive.rs"]
mod naive;

use std::collections::{BTreeMap, BTreeSet};

use naive::{Answer, Kept, Naive, Want};
use proptest::prelude::*;
use proptest::sample::Index;
use tenure_core::change::{Change, Head, Record, RecordId, RecordKind, in_full};
use tenure_core::command::{
    Acquire, Acquired, Count, Ending, Leave, List, Release, Renew, Renewal, Revoke, Tick, WaiterId,
};
use tenure_core::event::Event;
use tenure_core::lease::Mode;
use tenure_core::refusal::Refusal;
use tenure_core::{Epoch, Holder, Ledger, Resource, Timestamp, Token, Ttl, Turn};

#[derive(Debug, Clone)]
enum Op {
    Acquire {
        resources: Vec<usize>,
        holder: usize,
        shared: bool,
        ttl: u64,
        wait: Option<u64>,
        grace: u64,
        within: Option<Index>,
        key: Option<u8>,
    },
    Renew {
        lease: Index,
        holder: Option<usize>,
        ttl: Option<u64>,
    },
    Release {
        lease: Index,
        holder: Option<usize>,
    },
    Revoke {
        lease: Index,
    },
    Leave {
        waiter: Index,
    },
    /// The client of a wait goes away, and nobody has told the ledger yet.
    Vanish {
        waiter: Index,
    },
    Wait {
        ms: u64,
    },
    Reopen {
        after: u64,
    },
}

const RESOURCES: [&str; 10] = [
    "path:a",
    "path:a/b",
    "path:a/b/c",
    "path:d",
    "path:**",
    "repo:*",
    "issue:1",
    "intent:x/*",
    "intent:x/s",
    "task:1",
];
const HOLDERS: [&str; 12] = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ivy", "jon", "kim", "lee"];

/// Who meets where. Nobody waits for itself, so a line is as long as there are holders at most.
#[derive(Clone, Copy)]
struct Scene {
    resources: &'static [usize],
    holders: usize,
    waits: f64,
    within: f64,
    pauses: &'static [u64],
}

/// Everything overlaps something.
const CROWD: Scene = Scene {
    resources: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    holders: 4,
    waits: 0.6,
    within: 0.25,
    pauses: &[0, 1, 499, 500, 1_000, 2_500, 700_000],
};
/// Long lines at few places, with nested waits in them and beside them.
const LINES: Scene =
    Scene { resources: &[0, 1, 6, 9], holders: HOLDERS.len(), waits: 0.95, within: 0.4, pauses: &[0, 1, 499] };

fn resource(at: usize) -> Resource {
    Resource::parse(RESOURCES[at]).unwrap()
}

fn holder(at: usize) -> Holder {
    Holder::parse(HOLDERS[at]).unwrap()
}

fn op(scene: Scene) -> impl Strategy<Value = Op> {
    let name = move || 0..scene.holders;
    let resources = prop::collection::vec(prop::sample::select(scene.resources), 1..3);
    let ttl = || prop::sample::select(vec![1_000u64, 2_000, 5_000]);
    let wait = prop::option::weighted(scene.waits, prop::sample::select(vec![0u64, 500, 3_000, 9_000]));
    let grace = prop::sample::select(vec![0u64, 0, 0, 1_500]);
    let within = prop::option::weighted(scene.within, any::<Index>());
    let key = prop::option::weighted(0.2, 0u8..3);
    let acquire = (resources, name(), any::<bool>(), ttl(), wait, grace, within, key).prop_map(
        |(resources, holder, shared, ttl, wait, grace, within, key)| Op::Acquire {
            resources,
            holder,
            shared,
            ttl,
            wait,
            grace,
            within,
            key,
        },
    );
    let someone = move || prop::option::weighted(0.2, name());
    prop_oneof![
        10 => acquire,
        4 => (any::<Index>(), someone(), prop::option::weighted(0.3, ttl())).prop_map(|(lease, holder, ttl)| Op::Renew { lease, holder, ttl }),
        4 => (any::<Index>(), someone()).prop_map(|(lease, holder)| Op::Release { lease, holder }),
        1 => any::<Index>().prop_map(|lease| Op::Revoke { lease }),
        1 => any::<Index>().prop_map(|waiter| Op::Leave { waiter }),
        1 => any::<Index>().prop_map(|waiter| Op::Vanish { waiter }),
        5 => prop::sample::select(scene.pauses).prop_map(|ms| Op::Wait { ms }),
        1 => prop::sample::select(vec![0u64, 700, 60_000]).prop_map(|after| Op::Reopen { after }),
    ]
}

/// Both sides, and what the ledger made durable.
struct Pair {
    ledger: Ledger,
    naive: Naive,
    records: BTreeMap<(RecordKind, RecordId), Record>,
    renewals: BTreeMap<Token, Timestamp>,
    events: Vec<Event>,
    head: Head,
    granted: Vec<Token>,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            ledger: Ledger::open(Head::default(), Epoch(1)),
            naive: Naive::new(1_000_000, Token::start_of(Epoch(1)).as_u64()),
            records: BTreeMap::new(),
            renewals: BTreeMap::new(),
            events: Vec::new(),
            head: Head::default(),
            granted: Vec::new(),
        };
        pair.turn(|ledger, turn| ledger.start(turn));
        pair
    }

    /// Lets the ledger act, keeps what it leaves, and compares the answered waits.
    fn turn<T>(&mut self, act: impl FnOnce(&mut Ledger, &mut Turn<'_>) -> T) -> T {
        let gone: BTreeSet<u64> = self.naive.gone.clone();
        let is_waiting = |waiter: WaiterId| !gone.contains(&waiter.0);
        let mut turn = Turn::new(Timestamp::from_unix_ms(self.naive.now), &is_waiting);
        let reply = act(&mut self.ledger, &mut turn);
        let settled: Vec<(u64, Answer)> =
            turn.settled.iter().map(|(id, answer)| (id.0, settled_answer(answer))).collect();
        let mut expected = std::mem::take(&mut self.naive.settled);
        let mut found = settled.clone();
        expected.sort_by_key(|(id, _)| *id);
        found.sort_by_key(|(id, _)| *id);
        assert_eq!(found, expected, "answered waits");
        self.granted
            .extend(turn.settled.iter().filter_map(|(_, answer)| answer.as_ref().ok()).map(|grant| grant.lease.token));
        self.keep(&turn);
        reply
    }

    fn keep(&mut self, turn: &Turn<'_>) {
        for change in in_full(turn.changes.clone(), &turn.events) {
            match change {
                Change::Put(record) => drop(self.records.insert((record.kind(), record.id()), record)),
                Change::Delete(kind, id) => drop(self.records.remove(&(kind, id))),
                Change::Renewed(token, at) => drop(self.renewals.insert(token, at)),
                Change::Granted(_) | Change::Ended(_) => panic!("not in full"),
            }
        }
        self.events.extend(turn.events.iter().cloned());
        self.head = self.ledger.head();
    }

    fn lease(&self, index: &Index) -> Token {
        if self.granted.is_empty() { Token::from_u64(u64::MAX >> 12) } else { *index.get(&self.granted) }
    }

    /// As [`Pair::lease`], but one that is active as often as not.
    fn parent(&self, index: &Index) -> Token {
        let active = self.naive.leases.keys().map(|token| Token::from_u64(*token)).cycle().take(self.granted.len());
        let active: Vec<Token> = if self.naive.leases.is_empty() { Vec::new() } else { active.collect() };
        let all = [&self.granted[..], &active[..]].concat();
        if all.is_empty() { self.lease(index) } else { *index.get(&all) }
    }

    fn holder_of(&self, token: Token, other: Option<usize>) -> Holder {
        let own = self.naive.leases.get(&token.as_u64()).map(|lease| lease.holder.clone());
        other.map(holder).or(own).unwrap_or_else(|| holder(0))
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Acquire { .. } => self.acquire(op),
            Op::Renew { lease, holder, ttl } => {
                let token = self.lease(&lease);
                let holder = self.holder_of(token, holder);
                let expected = self.naive.renew(token.as_u64(), &holder, ttl);
                let ttl = ttl.map(|ms| Ttl::from_ms(ms).unwrap());
                let replies = self.turn(|l, t| l.apply(t, Renew { tokens: vec![token], holder, ttl }));
                assert_eq!(kept(&replies[0]), expected, "renew {token}");
            }
            Op::Release { lease, holder } => {
                let token = self.lease(&lease);
                let holder = self.holder_of(token, holder);
                let expected = self.naive.finish(token.as_u64(), Some(&holder));
                let reply = self.turn(|l, t| l.apply(t, Release { token, holder }));
                assert_eq!(ending(&reply), expected, "release {token}");
            }
            Op::Revoke { lease } => {
                let token = self.lease(&lease);
                let expected = self.naive.finish(token.as_u64(), None);
                let revoke = Revoke { token, by: holder(0), reason: "test".into() };
                assert_eq!(ending(&self.turn(|l, t| l.apply(t, revoke))), expected, "revoke {token}");
            }
            Op::Leave { waiter } => {
                if let Some(id) = self.someone_waiting(&waiter) {
                    self.naive.leave(id);
                    self.turn(|l, t| l.apply(t, Leave(WaiterId(id))));
                }
            }
            Op::Vanish { waiter } => {
                if let Some(id) = self.someone_waiting(&waiter) {
                    self.naive.gone.insert(id);
                }
            }
            Op::Wait { ms } => {
                self.naive.advance(self.naive.now + ms);
                self.turn(|l, t| l.apply(t, Tick));
            }
            Op::Reopen { after } => self.reopen(after),
        }
    }

    fn someone_waiting(&self, index: &Index) -> Option<u64> {
        let waiting = self.naive.waiting();
        (!waiting.is_empty()).then(|| *index.get(&waiting))
    }

    fn acquire(&mut self, op: Op) {
        let Op::Acquire { resources, holder: name, shared, ttl, wait, grace, within, key } = op else { return };
        let within = within.map(|index| self.parent(&index));
        // Mostly the parent's holder asks: that is the interesting case.
        let parent = within.and_then(|token| self.naive.leases.get(&token.as_u64())).map(|lease| lease.holder.clone());
        let holder = parent.filter(|_| name != 0).unwrap_or_else(|| holder(name));
        let resources: Vec<Resource> = resources.into_iter().map(resource).collect();
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let key = key.map(|key| format!("key-{key}"));
        let expected = self.naive.acquire(Want {
            resources: resources.clone(),
            holder: holder.clone(),
            mode,
            ttl,
            grace,
            within: within.map(Token::as_u64),
            wait,
            key: key.clone(),
        });
        let request = Acquire {
            mode,
            wait_ms: wait,
            grace_ms: grace as u32,
            within,
            key: key.map(Into::into),
            ..Acquire::new(resources, holder, Ttl::from_ms(ttl).unwrap())
        };
        let reply = self.turn(|ledger, turn| ledger.apply(turn, request));
        if let Acquired::Granted(grant) = &reply {
            self.granted.push(grant.lease.token);
        }
        assert_eq!(answer(&reply), expected, "acquire");
    }

    /// A crash: only what is durable is left, and the last renewals are not.
    fn reopen(&mut self, after: u64) {
        let epoch = Epoch(self.head.epoch.0 + 1);
        self.ledger = Ledger::open(self.head, epoch);
        for record in self.records.values() {
            // Through the text that the store keeps.
            let text = record.to_json().unwrap();
            self.ledger.restore(Record::decode(record.kind(), &text).unwrap());
        }
        self.naive.reopen(self.naive.now + after, Token::start_of(epoch).as_u64());
        self.renewals.clear();
        self.turn(|ledger, turn| ledger.start(turn));
        self.naive.advance(self.naive.now);
        self.turn(|ledger, turn| ledger.apply(turn, Tick));
    }

    fn compare(&mut self) {
        let page = self.turn(|ledger, turn| ledger.apply(turn, List { limit: 1_000, ..List::default() }));
        let found: Vec<naive::Held> = page.leases.iter().map(held).collect();
        let expected: Vec<naive::Held> = self.naive.leases.values().cloned().collect();
        assert_eq!(found, expected, "active leases");
        let counts = self.turn(|ledger, turn| ledger.apply(turn, Count));
        assert_eq!(counts.waiters, self.naive.waiting().len(), "waits");
        let due = self.ledger.next_deadline();
        assert!(due.is_none_or(|due| due.unix_ms() > self.naive.now), "something due has not lapsed");
        assert!(due.is_some() || self.naive.leases.is_empty(), "a lease without a deadline");
    }
}

fn held(lease: &tenure_core::lease::Lease) -> naive::Held {
    naive::Held {
        token: lease.token.as_u64(),
        resources: lease.resources.to_vec(),
        holder: lease.holder.clone(),
        mode: lease.mode,
        expires_at: lease.expires_at.unix_ms(),
        ttl: lease.ttl.ms(),
        grace: u64::from(lease.grace_ms),
        within: lease.within.map(Token::as_u64),
    }
}

fn answer(reply: &Acquired) -> Answer {
    match reply {
        Acquired::Granted(grant) => match grant.ended {
            None => Answer::Granted(grant.lease.token.as_u64()),
            Some(end) => Answer::Ended(grant.lease.token.as_u64(), end),
        },
        Acquired::Queued(id) => Answer::Queued(id.0),
        Acquired::Refused(refusal) => refused(refusal),
    }
}

fn settled_answer(reply: &Result<tenure_core::command::Grant, Refusal>) -> Answer {
    match reply {
        Ok(grant) => Answer::Granted(grant.lease.token.as_u64()),
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: &Refusal) -> Answer {
    match refusal {
        Refusal::Held(_) => Answer::Held,
        Refusal::WaitTimedOut(_) => Answer::TimedOut,
        Refusal::WouldDeadlock { .. } => Answer::Deadlock,
        Refusal::NotHolder { .. } => Answer::NotHolder,
        Refusal::WithinOver => Answer::WithinOver,
        Refusal::KeyReused => Answer::KeyReused,
        Refusal::NoResources
        | Refusal::LimitReached { .. }
        | Refusal::AgentLeaving { .. }
        | Refusal::IntentFinished { .. }
        | Refusal::NotAllowed { .. } => panic!("not expected here: {refusal}"),
    }
}

fn kept(reply: &Renewal) -> Kept {
    match reply {
        Renewal::Renewed { expires_at, .. } => Kept::Renewed(expires_at.unix_ms()),
        Renewal::Over => Kept::Over,
        Renewal::NotHolder { .. } => Kept::NotHolder,
        Renewal::Unknown => Kept::Unknown,
    }
}

fn ending(reply: &Ending) -> Kept {
    match reply {
        Ending::Ended(..) => Kept::Ended,
        Ending::Over => Kept::Over,
        Ending::NotHolder { .. } => Kept::NotHolder,
        Ending::Unknown => Kept::Unknown,
    }
}

/// Enough to meet every rule in a few seconds; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { 2_000 };
    ProptestConfig { cases, max_shrink_iters: 20_000, failure_persistence: None, ..given }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_ledger_does_what_a_naive_model_does(ops in prop::collection::vec(op(CROWD), 1..80)) {
        agree(ops)?;
    }

    #[test]
    fn the_ledger_does_what_a_naive_model_does_in_long_lines_with_nested_waits(ops in prop::collection::vec(op(LINES), 1..80)) {
        agree(ops)?;
    }
}

fn agree(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut pair = Pair::new();
    for op in ops {
        pair.run(op);
        pair.compare();
    }
    let cursors: Vec<u64> = pair.events.iter().map(|event| event.cursor.0).collect();
    prop_assert!(cursors.iter().zip(1..).all(|(found, expected)| *found == expected), "cursors have gaps");
    let ends: Vec<_> = pair.events.iter().filter_map(|e| Some((e.token?.as_u64(), e.kind.end()?))).collect();
    prop_assert_eq!(ends, pair.naive.ended, "L12: every end is told once, in order");
    Ok(())
}
