//! Random batches against a naive model, with folding, forgetting and reopening at random points.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tenure_core::Token;
use tenure_core::change::{Change, Closure, Record, RecordId, RecordKind};
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::lease::Lease;
use tenure_store::{EventQuery, Options, Order, Sqlite, Store};

use super::common::{Pen, at, commit, event, fast_dir, holder, lease, records, resource, start};

const RESOURCES: [&str; 8] =
    ["path:a", "path:a/b", "path:a/b/c", "path:z", "repo:*", "intent:X/*", "intent:X/s", "task:1"];
const HOLDERS: [&str; 3] = ["ada", "bob", "cyd"];

/// What happens to some lease; `pick` chooses which.
#[derive(Debug, Clone)]
enum Act {
    Grant { resources: Vec<usize>, holder: usize },
    End { pick: usize, kind: EventKind },
    Renew { pick: usize, until: u64 },
    PutAgain { pick: usize, until: u64 },
    Close { pick: usize },
    Reopen { pick: usize },
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Act>),
    Flush,
    Restart,
    Ask(EventQuery),
}

fn act() -> impl Strategy<Value = Act> {
    let ends = prop::sample::select(vec![EventKind::LeaseReleased, EventKind::LeaseExpired, EventKind::LeaseRevoked]);
    let grant = (prop::collection::vec(0..RESOURCES.len(), 1..3), 0..HOLDERS.len());
    prop_oneof![
        4 => grant.prop_map(|(resources, holder)| Act::Grant { resources, holder }),
        3 => (any::<usize>(), ends).prop_map(|(pick, kind)| Act::End { pick, kind }),
        3 => (any::<usize>(), 1..99_999u64).prop_map(|(pick, until)| Act::Renew { pick, until }),
        1 => (any::<usize>(), 1..99_999u64).prop_map(|(pick, until)| Act::PutAgain { pick, until }),
        1 => any::<usize>().prop_map(|pick| Act::Close { pick }),
        1 => any::<usize>().prop_map(|pick| Act::Reopen { pick }),
    ]
}

fn query() -> impl Strategy<Value = EventQuery> {
    let order = prop::sample::select(vec![Order::OldestFirst, Order::NewestFirst]);
    let kinds = prop::collection::vec(prop::sample::select(EventKind::ALL.to_vec()), 0..3);
    let filters = (
        prop::option::weighted(0.4, 0..RESOURCES.len()),
        prop::option::weighted(0.3, 0..HOLDERS.len()),
        prop::option::weighted(0.2, 0..30u64),
    );
    (0..40u64, prop::option::weighted(0.3, 0..60u64), order, 1..7usize, kinds, filters).prop_map(
        |(after, before, order, limit, kinds, (over, of, token))| EventQuery {
            after: Cursor(after),
            before: before.map(Cursor),
            order,
            limit,
            kinds,
            resource: over.map(|index| resource(RESOURCES[index])),
            holder: of.map(|index| holder(HOLDERS[index])),
            token: token.map(Token::from_u64),
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(act(), 0..6).prop_map(Step::Commit),
        2 => Just(Step::Flush),
        1 => Just(Step::Restart),
        4 => query().prop_map(Step::Ask),
    ]
}

/// The naive store: maps and a list.
#[derive(Default)]
struct Model {
    leases: BTreeMap<u64, Lease>,
    closures: BTreeMap<u64, Closure>,
    events: Vec<Event>,
    tokens: u64,
}

impl Model {
    fn picked(&self, pick: usize) -> Option<Lease> {
        self.leases.values().nth(pick.checked_rem(self.leases.len())?).cloned()
    }

    /// Does what an act says, and tells the batch of it.
    fn act(&mut self, act: &Act, changes: &mut Vec<Change>, events: &mut Vec<Event>) {
        match act {
            Act::Grant { resources, holder } => {
                self.tokens += 1;
                let names: Vec<&str> = resources.iter().map(|index| RESOURCES[*index]).collect();
                let lease = lease(self.tokens, HOLDERS[*holder], &names);
                changes.push(Change::of_grant(&lease));
                events.push(event(EventKind::LeaseGranted, &lease));
                self.leases.insert(self.tokens, lease);
            }
            Act::End { pick, kind } => {
                let Some(lease) = self.picked(*pick) else { return };
                self.leases.remove(&lease.token.as_u64());
                changes.push(Change::Ended(lease.token));
                events.push(event(*kind, &lease));
            }
            Act::Renew { pick, until } | Act::PutAgain { pick, until } => {
                let Some(mut lease) = self.picked(*pick) else { return };
                lease.expires_at = at(*until);
                changes.push(match act {
                    Act::Renew { .. } => Change::Renewed(lease.token, lease.expires_at),
                    _ => Change::Put(Record::Lease(lease.clone())),
                });
                self.leases.insert(lease.token.as_u64(), lease);
            }
            Act::Close { pick } => {
                let Some(Lease { token, holder, resources, .. }) = self.picked(*pick) else { return };
                let closure = Closure { token, holder, resources, until: at(5) };
                changes.push(Change::Put(Record::Closure(closure.clone())));
                self.closures.insert(token.as_u64(), closure);
            }
            Act::Reopen { pick } => {
                let Some(index) = pick.checked_rem(self.closures.len()) else { return };
                let Some(token) = self.closures.keys().nth(index).copied() else { return };
                self.closures.remove(&token);
                changes.push(Change::Delete(RecordKind::Closure, RecordId::from(Token::from_u64(token))));
            }
        }
    }

    fn records(&self) -> Vec<(RecordKind, String, String)> {
        let leases = self.leases.values().cloned().map(Record::Lease);
        let all = leases.chain(self.closures.values().cloned().map(Record::Closure));
        all.map(|record| (record.kind(), record.id().0, record.to_json().unwrap())).collect()
    }

    fn answer(&self, query: &EventQuery) -> Vec<u64> {
        let found = self.events.iter().filter(|event| query.matches(event)).map(|event| event.cursor.0);
        let mut found: Vec<u64> = found.collect();
        if query.order == Order::NewestFirst {
            found.reverse();
        }
        found
    }
}

/// All pages of an answer.
fn ask(store: &dyn Store, query: &EventQuery) -> Vec<u64> {
    let (reader, mut query, mut found) = (store.reader(), query.clone(), Vec::new());
    loop {
        let page = reader.events(&query).expect("events");
        assert!(page.events.len() <= query.limit);
        found.extend(page.events.iter().map(|event| event.cursor.0));
        match query.order {
            Order::OldestFirst => query.after = page.next,
            Order::NewestFirst => query.before = Some(page.next),
        }
        if !page.more {
            return found;
        }
    }
}

fn commit_acts(store: &mut Sqlite, pen: &mut Pen, model: &mut Model, acts: &[Act]) {
    let (mut changes, mut events) = (Vec::new(), Vec::new());
    acts.iter().for_each(|act| model.act(act, &mut changes, &mut events));
    let batch = pen.batch(changes, events);
    model.events.extend(batch.events.iter().cloned());
    commit(store, &batch);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_as_the_naive_model_does(
        steps in prop::collection::vec(step(), 1..40),
        tail_changes_max in prop::sample::select(vec![1, 4, 100_000]),
        folding in any::<bool>(),
    ) {
        let dir = fast_dir();
        let options = Options { tail_changes_max, folding, ..Options::default() };
        let open = || Sqlite::open(dir.path(), options).expect("opens");
        let mut store = open();
        let (mut pen, mut model) = (start(&mut store), Model::default());
        for step in &steps {
            match step {
                Step::Commit(acts) => commit_acts(&mut store, &mut pen, &mut model, acts),
                Step::Flush => store.flush().expect("folds"),
                Step::Ask(query) => prop_assert_eq!(ask(&store, query), model.answer(query)),
                Step::Restart => {
                    drop(store);
                    store = open();
                    let head = pen.head;
                    pen = start(&mut store);
                    prop_assert_eq!((pen.head.seq, pen.head.cursor, pen.head.token), (head.seq, head.cursor, head.token));
                    prop_assert_eq!(records(&mut store), model.records());
                }
            }
        }
        prop_assert_eq!(records(&mut store), model.records());
        prop_assert_eq!(ask(&store, &EventQuery::after(Cursor(0), 5)), model.answer(&EventQuery::after(Cursor(0), 5)));
    }
}
