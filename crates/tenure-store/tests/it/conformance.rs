//! What every driver must do, run by every driver.

use std::sync::Arc;

use tenure_core::change::{Change, Closure, Head, Record, RecordId, RecordKind};
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::id::FlowId;
use tenure_core::lease::{End, Lease};
use tenure_core::{Epoch, Token};
use tenure_store::{CommitError, Error, EventQuery, Memory, Options, Order, Sqlite, Store};

use super::common::{Pen, at, commit, event, holder, lease, records, resource, start};

/// A store that can be closed and opened again.
trait Subject {
    fn open(&mut self) -> Box<dyn Store>;
}

struct InMemory(Memory);

impl Subject for InMemory {
    fn open(&mut self) -> Box<dyn Store> {
        self.0 = self.0.restart();
        Box::new(self.0.handle())
    }
}

struct OnDisk(tempfile::TempDir, Options);

impl OnDisk {
    fn new(options: Options) -> OnDisk {
        OnDisk(tempfile::tempdir().expect("a directory"), options)
    }
}

impl Subject for OnDisk {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(Sqlite::open(self.0.path(), self.1).expect("opens"))
    }
}

/// SQLite as it runs, as it runs when nothing is folded, and when memory forgets at once.
const AS_IT_RUNS: fn() -> Options = Options::default;
const UNFOLDED: fn() -> Options = || Options { folding: false, ..Options::default() };
const FORGETFUL: fn() -> Options = || Options { folding: false, tail_changes_max: 2, ..Options::default() };

macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&mut super::OnDisk::new(super::AS_IT_RUNS())) })*
        }
        mod sqlite_unfolded {
            $(#[test] fn $name() { super::$name(&mut super::OnDisk::new(super::UNFOLDED())) })*
        }
        mod sqlite_forgetful {
            $(#[test] fn $name() { super::$name(&mut super::OnDisk::new(super::FORGETFUL())) })*
        }
        mod memory {
            $(#[test] fn $name() { super::$name(&mut super::InMemory(tenure_store::Memory::new())) })*
        }
    };
}

conformance!(
    an_empty_store_has_nothing_and_its_first_epoch_is_one,
    records_are_put_replaced_and_deleted,
    renewals_are_part_of_the_lease_until_it_is_put_again,
    the_head_is_what_the_last_batch_left,
    every_claim_takes_a_larger_epoch_also_after_reopening,
    a_claim_is_larger_than_every_batch_and_token_and_not_smaller_than_asked,
    an_older_epoch_is_fenced_and_writes_nothing,
    a_gap_or_a_repeat_in_the_numbers_is_refused,
    events_come_in_order_page_by_page,
    events_are_found_by_every_filter,
    the_newest_come_first_when_asked,
    how_a_lease_ended_is_known,
    everything_is_there_after_reopening,
    runs_that_are_over_are_read_by_id_and_newest_first_and_never_loaded,
    a_run_that_is_over_is_found_though_nothing_else_has_happened,
    a_batch_without_changes_or_events_is_a_batch,
);

fn token(number: u64) -> Token {
    Token::from_u64(number)
}

fn cursors(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.cursor.0).collect()
}

fn an_empty_store_has_nothing_and_its_first_epoch_is_one(subject: &mut dyn Subject) {
    let mut store = subject.open();
    assert_eq!(store.claim(Epoch(0)).expect("claim"), Epoch(1));
    assert_eq!(records(&mut *store), []);
    assert_eq!(store.load(&mut |_| {}).expect("load"), Head::default());
    let reader = store.reader();
    assert_eq!(reader.first_cursor().expect("first"), Cursor(1));
    let page = reader.events(&EventQuery::after(Cursor(0), 10)).expect("events");
    assert_eq!((page.events.len(), page.next, page.more), (0, Cursor(0), false));
    assert_eq!(reader.ended(token(1)).expect("ended"), None);
    assert_eq!(reader.stats().events_kept(), 0);
}

fn records_are_put_replaced_and_deleted(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    let (a, b) = (lease(1, "ada", &["task:1"]), lease(2, "bob", &["task:2"]));
    let closure = Closure { token: token(2), holder: holder("bob"), resources: b.resources.clone(), until: at(9) };
    let moved = Lease { holder: holder("ann"), ..a.clone() };
    let put = |lease: &Lease| Change::Put(Record::Lease(lease.clone()));
    commit(&mut *store, &pen.batch(vec![put(&a), put(&b)], vec![]));
    let delete = Change::Ended(b.token);
    commit(&mut *store, &pen.batch(vec![put(&moved), delete, Change::Put(Record::Closure(closure))], vec![]));
    let found = records(&mut *store);
    let kinds: Vec<_> = found.iter().map(|(kind, id, _)| (*kind, id.as_str())).collect();
    assert_eq!(kinds, [(RecordKind::Lease, "00000000000001"), (RecordKind::Closure, "00000000000002")]);
    assert!(found[0].2.contains("\"ann\""), "the latest value: {}", found[0].2);
}

fn renewals_are_part_of_the_lease_until_it_is_put_again(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    let a = lease(1, "ada", &["task:1"]);
    let expires_at = |store: &mut dyn Store| {
        let mut found = Vec::new();
        let mut each = |record| match record {
            Record::Lease(lease) => found.push(lease.expires_at),
            other => panic!("{other:?}"),
        };
        store.load(&mut each).expect("load");
        found
    };
    commit(&mut *store, &pen.grant(&a));
    commit(&mut *store, &pen.renew(1, 40_000));
    commit(&mut *store, &pen.renew(1, 50_000));
    commit(&mut *store, &pen.renew(7, 60_000));
    assert_eq!(expires_at(&mut *store), [at(50_000)], "a renewal of a lease that is not there is nothing");
    let shortened = Lease { expires_at: at(45_000), ..a };
    commit(&mut *store, &pen.batch(vec![Change::Put(Record::Lease(shortened.clone()))], vec![]));
    assert_eq!(expires_at(&mut *store), [at(45_000)]);
    let both = vec![Change::Renewed(token(1), at(70_000)), Change::Put(Record::Lease(shortened))];
    commit(&mut *store, &pen.batch(both, vec![]));
    assert_eq!(expires_at(&mut *store), [at(45_000)], "in the order of the batch");
}

fn the_head_is_what_the_last_batch_left(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    for number in 1..=3 {
        commit(&mut *store, &pen.grant(&lease(number, "ada", &["task:1"])));
    }
    let head = store.load(&mut |_| {}).expect("load");
    assert_eq!(head, pen.head);
    assert_eq!((head.seq, head.cursor, head.token), (3, Cursor(3), Some(token(3))));
    drop(store);
    assert_eq!(subject.open().load(&mut |_| {}).expect("load"), head);
}

fn every_claim_takes_a_larger_epoch_also_after_reopening(subject: &mut dyn Subject) {
    let epochs: Vec<u32> = (0..3)
        .flat_map(|_| {
            let mut store = subject.open();
            [0, 0].map(|at_least| store.claim(Epoch(at_least)).expect("claim").0)
        })
        .collect();
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6]);
}

fn a_claim_is_larger_than_every_batch_and_token_and_not_smaller_than_asked(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut claim = |at_least| store.claim(Epoch(at_least)).expect("claim").0;
    assert_eq!([claim(500), claim(500), claim(20), claim(600)], [500, 501, 502, 600]);
    let mut pen = start(&mut *store);
    pen.head.epoch = Epoch(700);
    commit(&mut *store, &pen.batch(vec![], vec![]));
    assert_eq!(store.claim(Epoch(0)).expect("claim"), Epoch(701), "the writer took a later one than it claimed");
    pen.head.epoch = Epoch(701);
    commit(&mut *store, &pen.grant(&lease(Token::start_of(Epoch(800)).as_u64(), "ada", &["task:1"])));
    assert_eq!(store.claim(Epoch(0)).expect("claim"), Epoch(801), "a counter ran over");
    drop(store);
    assert_eq!(subject.open().claim(Epoch(0)).expect("claim"), Epoch(802));
}

fn an_older_epoch_is_fenced_and_writes_nothing(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut old = start(&mut *store);
    commit(&mut *store, &old.grant(&lease(1, "ada", &["task:1"])));
    let mut new = start(&mut *store);
    let refused = store.commit(&old.grant(&lease(2, "bob", &["task:2"])));
    assert!(matches!(refused, Err(CommitError::Fenced { ours: Epoch(1), now: Epoch(2) })), "{refused:?}");
    assert_eq!(records(&mut *store).len(), 1);
    commit(&mut *store, &new.grant(&lease(3, "cyd", &["task:3"])));
    let page = store.reader().events(&EventQuery::after(Cursor(0), 10)).expect("events");
    assert_eq!(page.events.iter().filter_map(|event| event.token).collect::<Vec<_>>(), [token(1), token(3)]);
}

fn a_gap_or_a_repeat_in_the_numbers_is_refused(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    let first = pen.grant(&lease(1, "ada", &["task:1"]));
    commit(&mut *store, &first);
    for (batch, number) in [(Arc::clone(&first), 1), (pen.clone().skip().grant(&lease(2, "bob", &["task:2"])), 3)] {
        match store.commit(&batch) {
            Err(CommitError::Failed(Error::Sequence { expected: 2, got })) => assert_eq!(got, number),
            other => panic!("batch {number}: {other:?}"),
        }
    }
    commit(&mut *store, &pen.grant(&lease(2, "bob", &["task:2"])));
}

fn a_batch_without_changes_or_events_is_a_batch(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    commit(&mut *store, &pen.batch(vec![], vec![]));
    drop(store);
    assert_eq!(subject.open().load(&mut |_| {}).expect("load"), pen.head);
}

fn events_come_in_order_page_by_page(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    for number in 0..10 {
        let some = (0..number % 4).map(|_| event(EventKind::LeaseGranted, &lease(number, "ada", &["task:1"])));
        commit(&mut *store, &pen.batch(vec![], some.collect()));
    }
    let reader = store.reader();
    let (mut after, mut seen) = (Cursor(0), Vec::new());
    loop {
        let page = reader.events(&EventQuery::after(after, 4)).expect("events");
        assert!(page.events.len() <= 4);
        seen.extend(cursors(&page.events));
        after = page.next;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (1..=pen.head.cursor.0).collect::<Vec<_>>());
    assert_eq!(after, pen.head.cursor, "a reader that has caught up knows where it stands");
    commit(&mut *store, &pen.grant(&lease(99, "ada", &["task:1"])));
    let page = reader.events(&EventQuery::after(after, 4)).expect("events");
    assert_eq!(page.events.iter().filter_map(|event| event.token).collect::<Vec<_>>(), [token(99)]);
}

/// Four leases and their ends: events 1 to 8.
fn small_history(store: &mut dyn Store) -> Pen {
    let mut pen = start(store);
    let leases = [
        lease(1, "ada", &["path:src", "gpu:0"]),
        lease(2, "bob", &["path:doc/a.md"]),
        lease(3, "ada", &["intent:X/*"]),
        lease(4, "bob", &["repo:*"]),
    ];
    let ends = [EventKind::LeaseReleased, EventKind::LeaseExpired, EventKind::LeaseRevoked, EventKind::LeaseReleased];
    for (lease, end) in leases.iter().zip(ends) {
        commit(store, &pen.grant(lease));
        commit(store, &pen.end(end, lease));
    }
    pen
}

fn events_are_found_by_every_filter(subject: &mut dyn Subject) {
    let mut store = subject.open();
    small_history(&mut *store);
    let reader = store.reader();
    let all = EventQuery::after(Cursor(0), 100);
    let over = |text: &str| EventQuery { resource: Some(resource(text)), ..all.clone() };
    let cases = [
        (all.clone(), vec![1, 2, 3, 4, 5, 6, 7, 8]),
        (EventQuery { kinds: vec![EventKind::LeaseExpired, EventKind::LeaseRevoked], ..all.clone() }, vec![4, 6]),
        (EventQuery { holder: Some(holder("bob")), ..all.clone() }, vec![3, 4, 7, 8]),
        (EventQuery { holder: Some(holder("nobody")), ..all.clone() }, vec![]),
        (EventQuery { token: Some(token(3)), ..all.clone() }, vec![5, 6]),
        (EventQuery { after: Cursor(2), before: Some(Cursor(5)), ..all.clone() }, vec![3, 4]),
        (over("path:src/deep/file.rs"), vec![1, 2, 7, 8]),
        (over("path:doc"), vec![3, 4, 7, 8]),
        (over("path:**"), vec![1, 2, 3, 4, 7, 8]),
        (over("gpu:0"), vec![1, 2]),
        (over("intent:X/research"), vec![5, 6]),
        (over("issue:9"), vec![7, 8]),
        (over("path:src2"), vec![7, 8]),
        (EventQuery { holder: Some(holder("ada")), kinds: vec![EventKind::LeaseGranted], ..over("path:src") }, vec![1]),
    ];
    for (query, expected) in cases {
        let page = reader.events(&query).expect("events");
        assert_eq!(cursors(&page.events), expected, "{query:?}");
        assert!(!page.more);
    }
}

fn the_newest_come_first_when_asked(subject: &mut dyn Subject) {
    let mut store = subject.open();
    small_history(&mut *store);
    let reader = store.reader();
    let page = reader.events(&EventQuery::ends(3)).expect("events");
    assert_eq!((cursors(&page.events), page.more), (vec![8, 6, 4], true));
    let rest = reader.events(&EventQuery { before: Some(page.next), ..EventQuery::ends(3) }).expect("events");
    assert_eq!((cursors(&rest.events), rest.more), (vec![2], false));
    let of_bob = EventQuery { holder: Some(holder("bob")), ..EventQuery::ends(1) };
    let page = reader.events(&of_bob).expect("events");
    assert_eq!((cursors(&page.events), page.more), (vec![8], true));
    let none = EventQuery { order: Order::NewestFirst, ..EventQuery::after(Cursor(8), 5) };
    assert_eq!(reader.events(&none).expect("events").events.len(), 0);
}

fn how_a_lease_ended_is_known(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = small_history(&mut *store);
    let live = lease(5, "cyd", &["task:5"]);
    commit(&mut *store, &pen.grant(&live));
    for _ in 0..2 {
        let reader = store.reader();
        let ended = reader.ended(token(3)).expect("ended").expect("it is over");
        assert_eq!((ended.end, ended.holder, ended.token), (End::Revoked, holder("ada"), token(3)));
        assert_eq!(reader.ended(live.token).expect("ended"), None, "it is active");
        assert_eq!(reader.ended(token(99)).expect("ended"), None, "it never was");
        drop(store);
        store = subject.open();
    }
}

/// A run that is over.
fn archived(number: u64) -> Record {
    super::common::archived(number, &format!(r#"{{"n":{number}}}"#))
}

fn a_run_that_is_over_is_found_though_nothing_else_has_happened(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    commit(&mut *store, &pen.batch(vec![Change::Put(archived(1))], vec![]));
    let found = store.reader().archived(&RecordId::from(FlowId::from(token(1)))).expect("a read");
    assert!(found.is_some(), "a batch needs no event to be seen");
}

fn runs_that_are_over_are_read_by_id_and_newest_first_and_never_loaded(subject: &mut dyn Subject) {
    let id = |number: u64| RecordId::from(FlowId::from(token(number)));
    let mut store = subject.open();
    let mut pen = start(&mut *store);
    for number in 1..=5 {
        let ended = event(EventKind::FlowEnded, &lease(number, "ada", &["task:1"]));
        commit(&mut *store, &pen.batch(vec![Change::Put(archived(number))], vec![ended]));
    }
    commit(&mut *store, &pen.batch(vec![Change::Delete(RecordKind::Archive, id(3))], vec![]));
    for _ in 0..2 {
        let reader = store.reader();
        let found = reader.archived(&id(4)).expect("a read").expect("it is kept");
        assert_eq!((found.flow.id, found.flow.output.get()), (FlowId::from(token(4)), r#"{"n":4}"#));
        assert!(reader.archived(&id(3)).expect("a read").is_none(), "it was removed");
        assert!(reader.archived(&id(9)).expect("a read").is_none(), "it never was");
        let page = |before: Option<u64>, limit| -> Vec<FlowId> {
            let before = before.map(id);
            let page = reader.archive(before.as_ref(), limit).expect("a page");
            page.into_iter().map(|archived| archived.flow.id).collect()
        };
        let ids =
            |numbers: &[u64]| -> Vec<FlowId> { numbers.iter().map(|number| FlowId::from(token(*number))).collect() };
        assert_eq!(page(None, 10), ids(&[5, 4, 2, 1]));
        assert_eq!(page(None, 2), ids(&[5, 4]));
        assert_eq!(page(Some(4), 2), ids(&[2, 1]));
        assert_eq!(page(Some(1), 2), ids(&[]));
        drop(store);
        store = subject.open();
        assert!(records(&mut *store).is_empty(), "they cost no memory");
    }
}

fn everything_is_there_after_reopening(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let mut pen = small_history(&mut *store);
    commit(&mut *store, &pen.grant(&lease(5, "cyd", &["task:5"])));
    commit(&mut *store, &pen.renew(5, 77_000));
    let before = records(&mut *store);
    assert!(before[0].2.contains(&at(77_000).unix_ms().to_string()));
    for _ in 0..3 {
        drop(store);
        store = subject.open();
        pen = start(&mut *store);
        assert_eq!(records(&mut *store), before);
        let page = store.reader().events(&EventQuery::after(Cursor(0), 100)).expect("events");
        assert_eq!(cursors(&page.events), (1..=9).collect::<Vec<_>>());
        commit(&mut *store, &pen.batch(vec![], vec![]));
    }
}
