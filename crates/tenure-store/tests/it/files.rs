//! What only a store with files has: its lock, its errors, its folding, backup, check and retention.

use std::fs;
use std::path::Path;

use tenure_core::change::{Change, RecordId};
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::id::FlowId;
use tenure_core::{Epoch, Token};
use tenure_store::{CommitError, Error, EventQuery, Options, Retain, Sqlite, Store, check};

use super::common::{Pen, archived, at, commit, deep, event, fast_dir, lease, records, start};

pub(super) fn open(dir: &Path) -> Sqlite {
    Sqlite::open(dir, Options::default()).expect("opens")
}

pub(super) fn unfolded() -> Options {
    Options { folding: false, ..Options::default() }
}

pub(super) fn open_error(dir: &Path) -> Error {
    match Sqlite::open(dir, Options::default()) {
        Ok(_) => panic!("{} opened", dir.display()),
        Err(why) => why,
    }
}

/// Grants `count` leases, one batch each, and ends every second one.
pub(super) fn fill(store: &mut dyn Store, pen: &mut Pen, tokens: std::ops::Range<u64>) {
    for number in tokens {
        let lease = lease(number, &format!("agent-{}", number % 7), &[&format!("path:src/{number}.rs")]);
        commit(store, &pen.grant(&lease));
        if number % 2 == 0 {
            commit(store, &pen.end(EventKind::LeaseReleased, &lease));
        }
    }
}

pub(super) fn all_events(store: &dyn Store) -> Vec<Event> {
    let reader = store.reader();
    let (mut events, mut after) = (Vec::new(), Cursor(0));
    loop {
        let page = reader.events(&EventQuery::after(after, 1_000)).expect("events");
        events.extend(page.events);
        after = page.next;
        if !page.more {
            return events;
        }
    }
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let why = open_error(dir.path());
    assert!(matches!(&why, Error::InUse { pid: Some(pid), .. } if *pid == std::process::id()), "{why:?}");
    let text = why.to_string();
    assert!(
        text.contains(&std::process::id().to_string()) && text.contains(&dir.path().display().to_string()),
        "{text}"
    );
    for path in [dir.path(), &dir.path().join("tables.db")] {
        assert!(matches!(check(path), Err(Error::InUse { .. })), "a check needs it to be at rest");
    }
    drop(store);
    open(dir.path());
}

#[test]
fn a_reader_that_outlives_its_store_does_not_keep_the_next_one_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    commit(&mut store, &pen.grant(&lease(1, "ada", &["task:1"])));
    let reader = store.reader();
    drop(store);
    let mut next = open(dir.path());
    assert_eq!(records(&mut next).len(), 1);
    assert_eq!(reader.events(&EventQuery::after(Cursor(0), 9)).expect("events").events.len(), 1);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    for name in ["journal.db", "tables.db"] {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()));
        let path = dir.path().join(name);
        rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let why = open_error(dir.path());
        assert!(matches!(&why, Error::Newer { path: found, .. } if *found == path), "{why}");
        assert!(why.to_string().contains("99"), "{why}");
        assert!(!check(dir.path()).is_ok_and(|report| report.is_ok()));
    }
}

#[test]
fn records_and_events_of_a_newer_version_are_refused_not_left_out() {
    for change in [
        "INSERT INTO records VALUES ('wormhole', '1', '{}')",
        "UPDATE sheets SET events = replace(events, 'lease.granted', 'wormhole.opened')",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut pen = start(&mut store);
        commit(&mut store, &pen.grant(&lease(1, "ada", &["task:1"])));
        drop(store);
        rusqlite::Connection::open(dir.path().join("tables.db")).unwrap().execute(change, []).unwrap();
        let mut store = open(dir.path());
        let loaded = store.load(&mut |_| {});
        let read = store.reader().events(&EventQuery::after(Cursor(0), 9));
        let why = loaded.err().or(read.err()).expect("refused");
        assert!(matches!(why, Error::Newer { .. }) && why.to_string().contains("wormhole"), "{why}");
    }
}

#[test]
fn a_file_that_is_no_database_is_named() {
    for name in ["journal.db", "journal.1", "journal.2", "tables.db"] {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()));
        fs::write(dir.path().join(name), "this is a diary, not a database. ".repeat(100)).unwrap();
        let why = open_error(dir.path());
        assert!(matches!(&why, Error::Corrupt { path, .. } if path.ends_with(name)), "{why:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    rusqlite::Connection::open(dir.path().join("tables.db")).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    assert!(open_error(dir.path()).to_string().contains("not one of tenure"));
}

#[test]
fn a_damaged_page_is_found_by_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..200);
    drop(store);
    assert_eq!(check(dir.path()).expect("a report").problems, [""; 0]);
    let path = dir.path().join("tables.db");
    let mut bytes = fs::read(&path).unwrap();
    let tables = rusqlite::Connection::open(&path).unwrap();
    let page: u32 = tables.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    drop(tables);
    let middle = bytes.len() / 2 / page as usize * page as usize;
    bytes[middle..middle + 512].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let report = check(dir.path()).expect("a report");
    assert!(!report.is_ok(), "{report:?}");
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    for lost in ["journal.1", "tables.db"] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut pen = start(&mut store);
        // Enough for the journal to have forgotten how it began.
        for _ in 0..3 {
            let many = (0..40_000).map(|number| event(EventKind::LeaseRenewed, &lease(1 + number, "ada", &["task:1"])));
            commit(&mut store, &pen.batch(vec![], many.collect()));
            store.flush().expect("folds");
        }
        drop(store);
        fs::remove_file(dir.path().join(lost)).unwrap();
        // Before the store is opened, which may make the missing file anew.
        let checked = check(dir.path());
        assert!(!checked.as_ref().is_ok_and(|report| report.is_ok()), "{lost}: {checked:?}");
        let why = open_error(dir.path());
        assert!(matches!(why, Error::OutOfStep { .. }), "{lost}: {why}");
        assert_eq!(
            check(dir.path()).expect("a report").problems,
            [why.to_string()],
            "the check says what the start says"
        );
    }
}

#[test]
fn the_check_of_tables_that_are_no_backup_misses_their_journal() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..10);
    drop(store);
    let report = check(&dir.path().join("tables.db")).expect("a report");
    assert!(report.problems.len() == 1 && report.problems[0].contains("the journal has none"), "{:?}", report.problems);
}

#[test]
fn a_restore_that_was_cut_short_before_its_journal_had_a_row_is_sound_and_starts() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..10);
    let restored = tempfile::tempdir().unwrap();
    store.reader().backup(&restored.path().join("tables.db")).expect("a backup");
    let empty = tempfile::tempdir().unwrap();
    drop(open(empty.path()));
    for name in ["journal.1", "journal.2"] {
        fs::copy(empty.path().join(name), restored.path().join(name)).unwrap();
    }
    assert_eq!(check(restored.path()).expect("a report").problems, [""; 0]);
    assert_eq!(open(restored.path()).load(&mut |_| {}).expect("load").seq, pen.head.seq);
}

/// Both are asked for an epoch within the same hour.
#[test]
fn l2_a_restored_store_begins_later_than_its_original_after_1024_starts() {
    let hours = Epoch(60_000);
    let dir = fast_dir();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    pen.head.epoch = store.claim(hours).expect("claim");
    commit(&mut store, &pen.grant(&lease(Token::start_of(pen.head.epoch).next().as_u64(), "ada", &["task:1"])));
    let restored = fast_dir();
    store.reader().backup(&restored.path().join("tables.db")).expect("a backup");
    let last = (0..1_024).map(|_| store.claim(hours).expect("claim")).max().expect("many");
    assert_eq!(last, Epoch(61_024));
    // A start that is cut short before it claims leaves the leap to the next one.
    drop(open(restored.path()));
    let mut copy = open(restored.path());
    assert_eq!(copy.claim(hours).expect("claim"), Epoch(61_025));
    assert_eq!(copy.claim(hours).expect("claim"), Epoch(61_026), "it leaps once");
    drop(copy);
    assert_eq!(open(restored.path()).claim(hours).expect("claim"), Epoch(61_027));
    assert_eq!(check(restored.path()).expect("a report").problems, [""; 0]);
}

#[test]
fn the_journal_may_forget_only_up_to_a_finished_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..100);
    assert_eq!(store.reader().stats().folded.seq, 0, "nothing was folded");
    let rows = |store: &Sqlite| store.reader().stats().head.seq - store.reader().stats().checkpointed_seq;
    assert_eq!(rows(&store), pen.head.seq);
    store.flush().expect("folds");
    let stats = store.reader().stats();
    assert_eq!((stats.lag(), stats.lag_ms(), stats.checkpointed_seq), (0, 0, pen.head.seq));
    fill(&mut store, &mut pen, 100..300);
    assert_eq!(store.reader().stats().checkpointed_seq, stats.checkpointed_seq, "what follows waits for the next one");
}

#[test]
fn a_reader_in_the_way_of_a_checkpoint_keeps_the_journal_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    store.flush().expect("folds");
    let before = store.reader().stats().checkpointed_seq;
    let reading = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    reading.execute_batch("BEGIN; SELECT count(*) FROM sheets").unwrap();
    fill(&mut store, &mut pen, 20..40);
    store.flush().expect("folds");
    let stats = store.reader().stats();
    assert_eq!((stats.folded.seq, stats.checkpointed_seq), (pen.head.seq, before));
    drop(reading);
    fill(&mut store, &mut pen, 40..41);
    store.flush().expect("folds");
    assert_eq!(store.reader().stats().checkpointed_seq, pen.head.seq);
}

#[test]
fn a_lease_that_lived_and_died_unfolded_writes_only_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    let short = lease(1, "ada", &["task:1"]);
    commit(&mut store, &pen.grant(&short));
    commit(&mut store, &pen.renew(1, 99_000));
    commit(&mut store, &pen.end(EventKind::LeaseExpired, &short));
    drop(store);
    let count = |table: &str| number(dir.path(), &format!("SELECT count(*) FROM {table}"));
    assert_eq!((count("records"), count("renewals"), count("history")), (0, 0, 2));
}

/// One number from the tables of a store at rest.
fn number(dir: &Path, sql: &str) -> i64 {
    let tables = rusqlite::Connection::open(dir.join("tables.db")).unwrap();
    tables.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn events_that_are_folded_together_share_a_row_and_are_found_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    // Every lease ends a hundred grants later, so that its events are on two sheets.
    let leases: Vec<_> = (1..=300).map(|token| lease(token, "ada", &[&format!("task:{token}")])).collect();
    for (number, lease) in leases.iter().enumerate() {
        commit(&mut store, &pen.grant(lease));
        if let Some(older) = number.checked_sub(100).and_then(|older| leases.get(older)) {
            commit(&mut store, &pen.end(EventKind::LeaseReleased, older));
        }
    }
    store.flush().expect("folds");
    let reader = store.reader();
    let found = |query: EventQuery| -> Vec<u64> {
        reader.events(&query).expect("events").events.iter().map(|event| event.cursor.0).collect()
    };
    let any = || EventQuery::after(Cursor(0), 1_000);
    let all: Vec<u64> = (1..=pen.head.cursor.0).collect();
    assert_eq!(found(any()), all);
    let newest = || EventQuery { order: tenure_store::Order::NewestFirst, ..any() };
    assert_eq!(found(newest()), all.iter().rev().copied().collect::<Vec<_>>());
    // A page begins and ends anywhere on a sheet.
    for middle in [1, 63, 64, 65, 200] {
        assert_eq!(found(EventQuery::after(Cursor(middle), 3)), [middle + 1, middle + 2, middle + 3]);
        let before = EventQuery { before: Some(Cursor(middle + 4)), limit: 3, ..newest() };
        assert_eq!(found(before), [middle + 3, middle + 2, middle + 1]);
    }
    for token in [1, 64, 65, 128, 200] {
        let of = |query| EventQuery { token: Some(Token::from_u64(token)), ..query };
        let granted = if token <= 100 { token } else { 2 * token - 101 };
        let ended = 100 + 2 * token;
        assert_eq!(found(of(any())), [granted, ended], "token {token}");
        assert_eq!(found(of(newest())), [ended, granted], "token {token}");
        assert_eq!(found(of(EventQuery::after(Cursor(granted), 9))), [ended], "token {token}");
        assert!(reader.ended(Token::from_u64(token)).expect("a read").is_some());
    }
    assert!(reader.ended(Token::from_u64(201)).expect("a read").is_none());
    drop(store);
    assert_eq!(check(dir.path()).expect("a report").problems, [""; 0]);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sheets"), 8, "of 500 events");
}

#[test]
fn an_event_that_is_long_has_a_sheet_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    let long = serde_json::value::to_raw_value(&"x".repeat(1_024)).ok();
    let some = (1..=5).map(|token| {
        let data = long.clone().filter(|_| token == 3);
        Event { data, ..event(EventKind::LeaseRenewed, &lease(token, "ada", &["task:1"])) }
    });
    commit(&mut store, &pen.batch(vec![], some.collect()));
    store.flush().expect("folds");
    assert_eq!(all_events(&store).len(), 5);
    drop(store);
    let sheets = "SELECT group_concat(last - first + 1, '') = '212' FROM sheets";
    assert_eq!(number(dir.path(), sheets), 1);
}

#[test]
fn a_page_by_token_looks_at_a_bounded_number_of_sheets() {
    let dir = fast_dir();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    let (quiet, busy) = (lease(65, "ada", &["task:1"]), lease(66, "bob", &["task:2"]));
    commit(&mut store, &pen.grant(&quiet));
    commit(&mut store, &pen.end(EventKind::LeaseReleased, &quiet));
    // Each has a sheet of its own, and all of them are in the bundle of the other lease.
    let long = serde_json::value::to_raw_value(&"x".repeat(1_024)).ok();
    let some = (0..25_000).map(|_| Event { data: long.clone(), ..event(EventKind::LeaseRenewed, &busy) });
    commit(&mut store, &pen.batch(vec![], some.collect()));
    store.flush().expect("folds");
    let reader = store.reader();
    let last = EventQuery { token: Some(quiet.token), ..EventQuery::ends(1) };
    let page = reader.events(&last).expect("events");
    assert!(page.events.is_empty() && page.more && page.next > Cursor(1_000), "{:?} {}", page.next, page.more);
    let rest = reader.events(&EventQuery { before: Some(page.next), ..last }).expect("events");
    assert_eq!((rest.events.len(), rest.more), (1, false));
    assert_eq!(reader.ended(quiet.token).expect("a read").map(|ended| ended.at), Some(at(0)));
}

#[test]
fn an_event_that_cannot_be_read_is_in_the_way_of_no_page_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    drop(store);
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    let damage = "UPDATE sheets SET events = replace(events, '\"cursor\":9,', '\"cursor\":9,\"kind\":0,')";
    assert_eq!(tables.execute(damage, []).unwrap(), 1);
    drop(tables);
    let reader = open(dir.path()).reader();
    assert_eq!(reader.events(&EventQuery::after(Cursor(3), 3)).expect("a page").events.len(), 3);
    assert!(reader.events(&EventQuery::after(Cursor(6), 3)).is_err());
}

#[test]
fn a_sheet_that_cannot_be_read_is_dropped_in_its_time_with_what_leads_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { retain: Retain { age_ms: 10_000, ..Retain::default() }, ..unfolded() };
    let mut store = Sqlite::open(dir.path(), options).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    store.flush().expect("folds");
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    assert_eq!(tables.execute("UPDATE sheets SET events = 'damaged'", []).unwrap(), 1);
    drop(tables);
    let later = Event { at: at(60_000), ..event(EventKind::LeaseRenewed, &lease(1, "ada", &["task:1"])) };
    commit(&mut store, &pen.batch(vec![], vec![later]));
    store.flush().expect("folds");
    drop(store);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sheets"), 1);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sheets_by_token"), 1);
}

#[test]
fn people_can_read_the_leases_with_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    let (mut gone, held) = (lease(1, "ada", &["task:1"]), lease(2, "bob", &["path:a", "path:b"]));
    gone.acquired_at = at(7);
    commit(&mut store, &pen.grant(&gone));
    let released = Event { at: at(1_999), ..event(EventKind::LeaseReleased, &gone) };
    commit(&mut store, &pen.batch(vec![Change::Ended(gone.token)], vec![released]));
    commit(&mut store, &pen.grant(&held));
    store.flush().expect("folds");
    commit(&mut store, &pen.renew(2, 60_001));
    drop(store);
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    let row = |sql: &str| -> Vec<String> {
        tables
            .query_row(sql, [], |row| (0..row.as_ref().column_count()).map(|at| row.get(at)).collect())
            .expect("a row")
    };
    assert_eq!(
        row("SELECT CAST(token AS TEXT), holder, resources, mode, acquired_at, expires_at FROM leases"),
        ["2", "bob", "path:a, path:b", "exclusive", "2023-11-14 22:13:20.000", "2023-11-14 22:14:20.001"]
    );
    assert_eq!(
        row("SELECT CAST(token AS TEXT), holder, how, acquired_at, ended_at FROM ended_leases"),
        ["1", "ada", "released", "2023-11-14 22:13:20.007", "2023-11-14 22:13:21.999"]
    );
    assert_eq!(row("SELECT at, kind FROM history WHERE seq = 2"), ["2023-11-14 22:13:21.999", "lease.released"]);
    // What docs/decisions/0007 says of a long history.
    let latest = "SELECT * FROM history WHERE sheet > (SELECT max(last) FROM sheets) - 1000";
    assert_eq!(row(&format!("SELECT CAST(count(*) AS TEXT) FROM ({latest})")), ["3"]);
    let plan: String = tables.query_row(&format!("EXPLAIN QUERY PLAN {latest}"), [], |row| row.get(3)).unwrap();
    assert!(plan.contains("SEARCH sheets USING INTEGER PRIMARY KEY"), "{plan}");
    let of_token = "SELECT kind FROM history
        WHERE sheet IN (SELECT sheet FROM sheets_by_token WHERE bundle = 2 >> 6) AND token = 2";
    assert_eq!(row(of_token), ["lease.granted"]);
    // What SQLite before 3.42 does not know gives NULL there, and this one would not notice.
    let views = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND sql LIKE '%subsec%'";
    assert_eq!(tables.query_row(views, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

/// SQLite reads JSON of up to 1,000 levels.
const TOO_DEEP: usize = 1_100;

#[test]
fn a_run_deeper_than_sqlite_reads_does_not_stop_folding_and_is_dropped_in_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let retain = Retain { age_ms: 10_000, ..Retain::default() };
    let mut store = Sqlite::open(dir.path(), Options { retain, ..unfolded() }).expect("opens");
    let mut pen = start(&mut store);
    let id = |number| RecordId::from(FlowId::from(Token::from_u64(number)));
    commit(&mut store, &pen.batch(vec![Change::Put(archived(1, &deep(TOO_DEEP)))], vec![]));
    commit(&mut store, &pen.batch(vec![Change::Put(archived(2, "{}"))], vec![]));
    store.flush().expect("folds");
    assert!(store.reader().archived(&id(1)).expect("a read").is_some());
    let later = Event { at: at(10_002), ..event(EventKind::LeaseGranted, &lease(9, "ada", &["task:1"])) };
    commit(&mut store, &pen.batch(vec![], vec![later]));
    store.flush().expect("folds");
    let stats = store.reader().stats();
    assert_eq!((stats.lag(), stats.fold_error), (0, None));
    assert!(store.reader().archived(&id(1)).expect("a read").is_none(), "it is too old");
    assert!(store.reader().archived(&id(2)).expect("a read").is_some(), "it is not");
}

#[test]
fn events_and_leases_deeper_than_sqlite_reads_are_found_among_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    for number in 1..=3 {
        let mut lease = lease(number, "ada", &[&format!("task:{number}")]);
        if number == 2 {
            lease.metadata = Some(serde_json::from_str(&deep(TOO_DEEP)).expect("JSON"));
        }
        let granted = Event { data: lease.metadata.clone(), ..event(EventKind::LeaseGranted, &lease) };
        commit(&mut store, &pen.batch(vec![Change::of_grant(&lease)], vec![granted]));
    }
    store.flush().expect("folds");
    let found = |query| store.reader().events(&query).expect("events").events.len();
    let any = || EventQuery::after(Cursor(0), 9);
    assert_eq!(found(EventQuery { kinds: vec![EventKind::LeaseGranted], ..any() }), 3);
    assert_eq!(found(EventQuery { kinds: vec![EventKind::LeaseReleased], ..any() }), 0);
    assert_eq!(found(EventQuery { holder: Some(super::common::holder("ada")), ..any() }), 3);
    drop(store);
    assert_eq!(check(dir.path()).expect("a report").problems, [""; 0]);
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    for view in ["leases", "history"] {
        let count = format!("SELECT count(*), count(holder) FROM (SELECT * FROM {view})");
        let count = tables.query_row(&count, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
        assert_eq!(count, (3, 2), "{view}");
    }
}

#[test]
fn tables_that_refuse_what_is_folded_are_told_by_the_lag_by_the_check_and_by_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..10);
    store.flush().expect("folds");
    let folded = pen.head.seq;
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    tables.execute_batch("CREATE TRIGGER no BEFORE INSERT ON sheets BEGIN SELECT RAISE(ABORT, 'no'); END").unwrap();
    drop(tables);
    for number in 10..13 {
        fill(&mut store, &mut pen, number..number + 1);
        assert!(store.flush().is_err());
        let stats = store.reader().stats();
        assert_eq!((stats.lag(), stats.fold_error.is_some()), (pen.head.seq - folded, true));
    }
    drop(store);
    let problems = check(dir.path()).expect("a report").problems;
    assert!(matches!(&problems[..], [one] if one.contains("cannot be folded")), "{problems:?}");
    assert!(matches!(open_error(dir.path()), Error::Database { .. }));
}

#[test]
fn a_backup_taken_while_commits_run_opens_as_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..300);
    let (held_before, head_before) = (records(&mut store), pen.head);
    let file = dir.path().join("backup.tenure");
    let reader = store.reader();
    let to = file.clone();
    let backup = std::thread::spawn(move || reader.backup(&to));
    let mut next = 300;
    while !backup.is_finished() {
        fill(&mut store, &mut pen, next..next + 1);
        next += 1;
    }
    backup.join().unwrap().expect("a backup");
    assert!(check(&file).expect("a report").is_ok());
    let restored = tempfile::tempdir().unwrap();
    fs::copy(&file, restored.path().join("tables.db")).unwrap();
    assert_eq!(check(restored.path()).expect("a report").problems, [""; 0]);
    let mut copy = open(restored.path());
    let head = copy.load(&mut |_| {}).expect("load");
    assert!(head_before.seq <= head.seq && head.seq <= pen.head.seq);
    let found = records(&mut copy);
    assert!(held_before.iter().all(|record| found.contains(record)), "nothing held before is missing");
    assert_eq!(all_events(&copy).len() as u64, head.cursor.0);
    let mut pen = start(&mut copy);
    assert!(pen.head.epoch > Epoch(1_000), "no token can be granted twice: {:?}", pen.head.epoch);
    let token = Token::start_of(pen.head.epoch).next().as_u64();
    commit(&mut copy, &pen.grant(&lease(token, "eve", &["task:new"])));
    drop(copy);
    assert_eq!(check(restored.path()).expect("a report").problems, [""; 0]);
    assert_eq!(records(&mut open(restored.path())).len(), found.len() + 1);
}

#[test]
fn a_backup_overwrites_nothing_and_leaves_nothing_half_done() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let file = dir.path().join("precious");
    fs::write(&file, "mine").unwrap();
    assert!(matches!(store.reader().backup(&file), Err(Error::Exists { .. })));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let nowhere = dir.path().join("no/such/place");
    assert!(matches!(store.reader().backup(&nowhere), Err(Error::Io { .. })));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn old_events_are_dropped_and_live_records_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let retain = Retain { age_ms: 10_000, ..Retain::default() };
    let mut store = Sqlite::open(dir.path(), Options { retain, ..unfolded() }).expect("opens");
    let mut pen = start(&mut store);
    let held = lease(1, "ada", &["task:1"]);
    commit(&mut store, &pen.grant(&held));
    for ms in 1..30 {
        let other = lease(ms + 1, "bob", &["task:2"]);
        let later = |kind| Event { at: at(ms * 1_000), ..event(kind, &other) };
        let both = vec![later(EventKind::LeaseGranted), later(EventKind::LeaseReleased)];
        commit(&mut store, &pen.batch(vec![], both));
    }
    store.flush().expect("folds");
    let reader = store.reader();
    let first = reader.first_cursor().expect("first");
    let events = all_events(&store);
    assert_eq!(events[0].cursor, first);
    assert_eq!(events[0].at, at(19_000), "10 s before the last");
    assert_eq!(reader.stats().events_kept(), events.len() as u64);
    assert_eq!(records(&mut store).len(), 1);
    assert_eq!(reader.ended(Token::from_u64(5)).expect("ended"), None);
    assert!(reader.ended(Token::from_u64(25)).expect("ended").is_some());
    drop(store);
    assert_eq!(check(dir.path()).expect("a report").problems, [""; 0]);
    assert_eq!(open(dir.path()).reader().first_cursor().expect("first"), first);
}

#[test]
fn events_beyond_the_size_are_dropped_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let retain = Retain { bytes: 3_000_000, ..Retain::default() };
    let mut store = Sqlite::open(dir.path(), Options { retain, ..unfolded() }).expect("opens");
    let mut pen = start(&mut store);
    commit(&mut store, &pen.grant(&lease(1, "ada", &["task:1"])));
    for turn in 0..30 {
        let some =
            (0..1_000).map(|number| event(EventKind::LeaseRenewed, &lease(1 + turn + number, "ada", &["task:1"])));
        commit(&mut store, &pen.batch(vec![], some.collect()));
        store.flush().expect("folds");
    }
    let stats = store.reader().stats();
    assert!(stats.first_cursor > Cursor(10_000) && stats.events_kept() > 1_000, "{stats:?}");
    assert_eq!(all_events(&store).len() as u64, stats.events_kept());
    assert_eq!(records(&mut store).len(), 1);
    assert!(stats.tables_bytes < 10_000_000, "{stats:?}");
}

#[test]
fn filters_find_events_across_many_blocks_in_bounded_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    for turn in 0..60u64 {
        let some = (0..1_000u64).map(|number| {
            let name = if (turn, number) == (7, 77) || (turn, number) == (55, 5) { "rare" } else { "common" };
            event(EventKind::LeaseGranted, &lease(turn * 1_000 + number + 1, name, &[&format!("path:{turn}/{number}")]))
        });
        commit(&mut store, &pen.batch(vec![], some.collect()));
    }
    store.flush().expect("folds");
    let reader = store.reader();
    let search = |mut query: EventQuery| {
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = reader.events(&query).expect("events");
            found.extend(page.events.iter().map(|event| event.cursor.0));
            pages += 1;
            match query.order {
                tenure_store::Order::OldestFirst => query.after = page.next,
                tenure_store::Order::NewestFirst => query.before = Some(page.next),
            }
            if !page.more {
                return (found, pages);
            }
        }
    };
    let rare = EventQuery { holder: Some(super::common::holder("rare")), ..EventQuery::after(Cursor(0), 10) };
    assert_eq!(search(rare.clone()), (vec![7_078, 55_006], 1), "digests rule the other blocks out");
    let newest = EventQuery { order: tenure_store::Order::NewestFirst, ..rare.clone() };
    assert_eq!(search(newest), (vec![55_006, 7_078], 1));
    let over = |text| EventQuery { resource: Some(super::common::resource(text)), ..EventQuery::after(Cursor(0), 300) };
    assert_eq!(search(over("path:31/5")).0, [31_006]);
    assert_eq!(search(over("path:31/5/deeper/than/that")).0, [31_006], "what covers it");
    assert_eq!(search(over("path:31")).0, (31_001..=32_000).collect::<Vec<_>>(), "what it covers");
    let dense = EventQuery { kinds: vec![EventKind::LeaseGranted], token: None, ..rare };
    let none = EventQuery { resource: Some(super::common::resource("task:9")), ..dense };
    assert_eq!(search(none).0, [0u64; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_commit_poisons_the_store() {
    let dir = tempfile::tempdir().unwrap();
    // The journal changes to its second book when the first is full.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("journal.2")).unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    let many = (0..40_000).map(|number| event(EventKind::LeaseRenewed, &lease(1 + number, "ada", &["task:1"])));
    commit(&mut store, &pen.batch(vec![], many.collect()));
    let batch = pen.batch(vec![Change::Renewed(Token::from_u64(1), at(1))], vec![]);
    let failed = store.commit(&batch);
    assert!(matches!(&failed, Err(CommitError::Failed(Error::Full { .. }))), "{failed:?}");
    assert!(matches!(store.commit(&batch), Err(CommitError::Failed(Error::Poisoned))));
}

#[test]
fn a_program_that_locks_the_tables_holds_up_folding_but_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    let other = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    fill(&mut store, &mut pen, 1..20);
    assert_eq!(all_events(&store).len() as u64, pen.head.cursor.0, "readable, though not in the tables");
    assert_eq!(store.reader().stats().folded.seq, 0);
    other.execute_batch("COMMIT").unwrap();
    store.flush().expect("folds");
    assert_eq!(store.reader().stats().folded.seq, pen.head.seq);
}
