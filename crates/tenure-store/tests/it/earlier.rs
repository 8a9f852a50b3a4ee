//! What earlier versions left: tables of an older schema, and a journal that is a database.

use std::fs;
use std::path::Path;

use tenure_core::Epoch;
use tenure_core::event::{Cursor, EventKind};
use tenure_store::{Error, EventQuery, Sqlite, Store, check};

use super::check::{check_untouched, copy_files};
use super::common::{commit, fast_dir, journal_rows, lease, records, start};
use super::files::{all_events, fill, open, open_error, unfolded};

/// The tables of version 3: a row for every event.
const BACK_TO_VERSION_3: &str = "
    DROP VIEW history;
    CREATE TABLE events (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, token INTEGER, value TEXT NOT NULL) STRICT;
    INSERT INTO events SELECT first + one.key, one.value ->> '$.at', one.value ->> '$.token', one.value
        FROM sheets, json_each(events) AS one;
    CREATE INDEX events_by_token ON events (token) WHERE token IS NOT NULL;
    DROP TABLE sheets;
    DROP TABLE sheets_by_token;
    CREATE VIEW history AS SELECT seq, NULL AS at, value ->> '$.kind' AS kind FROM events;
    PRAGMA user_version = 3;
";

/// Those of version 1, from version 3: with columns for what the text of an event says.
const BACK_TO_VERSION_1: &str = "
    DROP VIEW ended_leases;
    DROP VIEW history;
    ALTER TABLE events RENAME TO later;
    DROP INDEX events_by_token;
    CREATE TABLE events (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, resource TEXT, holder TEXT,
        token INTEGER, value TEXT NOT NULL) STRICT;
    INSERT INTO events SELECT seq, at, value ->> '$.kind', NULL, value ->> '$.holder', token, value FROM later;
    DROP TABLE later;
    CREATE INDEX events_by_token ON events (token) WHERE token IS NOT NULL;
    CREATE VIEW ended_leases AS SELECT token, holder FROM events WHERE kind = 'lease.released';
    PRAGMA user_version = 1;
";

/// The view of version 2, from version 3, as a SQLite of before 3.42 shows it.
const BACK_TO_VERSION_2: &str = "
    DROP VIEW leases;
    CREATE VIEW leases AS SELECT value ->> '$.token' AS token, NULL AS acquired_at FROM records WHERE kind = 'lease';
    PRAGMA user_version = 2;
";

/// Tables of the present version as those of an earlier one.
fn take_back(dir: &Path, further: &str) {
    let tables = rusqlite::Connection::open(dir.join("tables.db")).unwrap();
    tables.execute_batch(BACK_TO_VERSION_3).unwrap();
    tables.execute_batch(further).unwrap();
}

#[test]
fn an_older_schema_is_brought_forward_with_everything_in_it() {
    for (version, back) in [(1, BACK_TO_VERSION_1), (2, BACK_TO_VERSION_2), (3, "")] {
        bring_forward(version, back);
    }
}

fn bring_forward(version: u32, back: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..200);
    let gone = lease(200, "ada", &["path:a", "path:b"]);
    commit(&mut store, &pen.grant(&gone));
    commit(&mut store, &pen.end(EventKind::LeaseReleased, &gone));
    let everything = EventQuery::after(Cursor(0), 1_000);
    let of_ada = EventQuery { holder: Some(gone.holder.clone()), ..EventQuery::after(Cursor(0), 9) };
    let of_token = EventQuery { token: Some(gone.token), ..EventQuery::after(Cursor(0), 9) };
    let read = |store: &Sqlite| {
        let queries = [&everything, &of_ada, &of_token];
        queries.map(|query| format!("{:?}", store.reader().events(query).expect("events").events))
    };
    let before = read(&store);
    drop(store);
    take_back(dir.path(), back);
    journal_of_before(dir.path(), version);
    assert!(check(dir.path()).is_err_and(|why| why.to_string().contains("start the server once")));
    let store = open(dir.path());
    assert_eq!(read(&store), before);
    drop(store);
    assert_eq!(check(dir.path()).expect("a report").problems, [""; 0]);
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    let text = |sql: &str| -> String { tables.query_row(sql, [], |row| row.get(0)).unwrap() };
    let ended = "SELECT resources || ' ' || how || ' ' || ended_at FROM ended_leases WHERE holder = 'ada'";
    assert_eq!(text(ended), "path:a, path:b released 2023-11-14 22:13:20.000");
    assert_eq!(text("SELECT max(at) FROM history"), "2023-11-14 22:13:20.000");
    assert_eq!(text("SELECT max(acquired_at) FROM leases"), "2023-11-14 22:13:20.000");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("journal.db")), "{left:?}");
}

/// Turns the journal into one of an earlier version: a database.
fn journal_of_before(dir: &Path, version: u32) {
    let journal = rusqlite::Connection::open(dir.join("journal.db")).unwrap();
    journal
        .execute_batch(
            "CREATE TABLE journal (seq INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, token INTEGER,
                cursor INTEGER NOT NULL, changes TEXT NOT NULL, events TEXT NOT NULL) STRICT;
             CREATE TABLE claim (epoch INTEGER NOT NULL) STRICT;
             INSERT INTO claim VALUES (500);",
        )
        .unwrap();
    if version == 3 {
        let parts = "CREATE TABLE parts (seq INTEGER NOT NULL, part INTEGER NOT NULL, changes TEXT NOT NULL, events TEXT NOT NULL,
            PRIMARY KEY (seq, part)) STRICT;";
        journal.execute_batch(parts).unwrap();
    }
    for row in journal_rows(dir) {
        let [epoch, at, token, cursor] = row.numbers.map(|number| number as i64);
        // The last version went on in further rows where a text was too large.
        let (changes, rest) = row.changes.split_at(if version == 3 { 1 } else { row.changes.len() });
        let token = Some(token).filter(|token| *token >= 0);
        let values = rusqlite::params![row.seq as i64, epoch, at, token, cursor, changes, row.events];
        journal.execute("INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", values).unwrap();
        if version == 3 {
            let values = rusqlite::params![row.seq as i64, rest];
            journal.execute("INSERT INTO parts VALUES (?1, 0, ?2, '')", values).unwrap();
        }
    }
    journal.pragma_update(None, "user_version", version).unwrap();
    ["journal.1", "journal.2"].iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
}

#[test]
fn what_only_the_journal_of_an_earlier_version_has_is_brought_forward_also_when_that_was_cut_short() {
    for version in [1, 3] {
        let (dir, copy) = (fast_dir(), fast_dir());
        let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
        let mut pen = start(&mut store);
        fill(&mut store, &mut pen, 1..20);
        store.flush().expect("folds");
        fill(&mut store, &mut pen, 20..30);
        copy_files(dir.path(), copy.path());
        let events = format!("{:?}", all_events(&store));
        let kept = records(&mut store).len();
        let books = ["journal.1", "journal.2"].map(|name| fs::read(copy.path().join(name)).unwrap());
        journal_of_before(copy.path(), version);
        // As if a first try had made its books and was ended before it had removed the old journal.
        fs::write(copy.path().join("journal.1"), &books[0]).unwrap();
        fs::write(copy.path().join("journal.2"), &books[1]).unwrap();
        let mut store = open(copy.path());
        assert_eq!(format!("{:?}", all_events(&store)), events);
        assert_eq!((records(&mut store).len(), store.load(&mut |_| {}).expect("loads")), (kept, pen.head));
        assert!(store.claim(Epoch(1)).expect("claims") > Epoch(500));
        drop(store);
        assert_eq!(check(copy.path()).expect("a report").problems, [""; 0]);
    }
}

#[test]
fn the_empty_journal_that_an_older_program_leaves_takes_nothing_away() {
    let dir = fast_dir();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    let (copy, other) = (fast_dir(), fast_dir());
    copy_files(dir.path(), copy.path());
    drop(store);
    drop(open(other.path()));
    journal_of_before(other.path(), 3);
    fs::copy(other.path().join("journal.db"), copy.path().join("journal.db")).unwrap();
    let mut store = open(copy.path());
    assert_eq!(store.load(&mut |_| {}).expect("loads"), pen.head);
    drop(store);
    // One with rows of its own belongs to something else.
    let mut store = open(other.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..3);
    drop(store);
    journal_of_before(other.path(), 3);
    fs::copy(other.path().join("journal.db"), copy.path().join("journal.db")).unwrap();
    let why = open_error(copy.path());
    assert!(matches!(&why, Error::OutOfStep { .. }), "{why}");
}

#[test]
fn the_check_reads_an_older_schema_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    store.flush().expect("folds");
    fill(&mut store, &mut pen, 20..30);
    for (version, back) in [(1, BACK_TO_VERSION_1), (2, BACK_TO_VERSION_2), (3, "")] {
        let copy = tempfile::tempdir().unwrap();
        copy_files(dir.path(), copy.path());
        take_back(copy.path(), back);
        let report = check_untouched(copy.path(), copy.path()).expect("a report");
        assert_eq!((report.problems.as_slice(), report.unfolded, report.head), (&[][..], 15, pen.head), "{version}");
    }
}
