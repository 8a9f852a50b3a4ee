//! What is found after the process or the machine died in the middle of something.
//!
//! The workload is a function of the batch number alone, so that what must be found follows from how far it came: the
//! memory driver is fed the same batches and must hold the same.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tenure_core::change::{Batch, Change, RecordKind};
use tenure_core::event::{Cursor, EventKind};
use tenure_store::audit::Auditor;
use tenure_store::{EventQuery, Memory, Options, Sqlite, Store, check};

use super::common::{Pen, at, commit, copy_dir, event, fast_dir, journal_rows, lease, records, start};

/// Tells the test binary that it is the child to be killed, and where to write.
const CHILD_DIR: &str = "TENURE_TEST_CRASH_DIR";
const ROUNDS: u64 = 60;

/// Batch n grants lease n, ends lease n - 3 unless 3 divides it, and renews what stays.
fn nth(pen: &mut Pen) -> Arc<Batch> {
    let number = pen.head.seq + 1;
    let of = |number: u64| lease(number, &format!("agent-{}", number % 5), &[&format!("path:{}/{number}", number % 7)]);
    let mut changes = vec![Change::of_grant(&of(number))];
    let mut events = vec![event(EventKind::LeaseGranted, &of(number))];
    if let Some(old) = number.checked_sub(3).filter(|old| *old > 0) {
        if old % 3 == 0 {
            changes.push(Change::Renewed(of(old).token, at(30_000 + number)));
        } else {
            changes.push(Change::Ended(of(old).token));
            events.push(event(EventKind::LeaseReleased, &of(old)));
        }
    }
    pen.batch(changes, events)
}

/// Everything a store holds, as text.
fn content(store: &mut dyn Store) -> (Vec<(RecordKind, String, String)>, Vec<String>) {
    let found = records(store);
    let reader = store.reader();
    let (mut events, mut after, mut auditor) = (Vec::new(), Cursor(0), Auditor::new());
    loop {
        let page = reader.events(&EventQuery::after(after, 1_000)).expect("events");
        for event in &page.events {
            auditor.push(event).expect("a history that makes sense");
            events.push(format!("{event:?}"));
        }
        after = page.next;
        if !page.more {
            return (found, events);
        }
    }
}

/// What a store must hold after so many batches.
fn expected(batches: u64) -> (Vec<(RecordKind, String, String)>, Vec<String>) {
    let mut memory = Memory::new();
    let mut pen = start(&mut memory);
    for _ in 0..batches {
        commit(&mut memory, &nth(&mut pen));
    }
    content(&mut memory)
}

/// Opens what was left, and compares all of it. Returns how many batches there were.
fn verify(dir: &Path, options: Options) -> u64 {
    let mut store = Sqlite::open(dir, options).expect("opens after a crash");
    let batches = store.load(&mut |_| {}).expect("loads").seq;
    assert!(content(&mut store) == expected(batches), "{} holds something else after {batches} batches", dir.display());
    batches
}

fn small(folding: bool) -> Options {
    Options { folding, tail_changes_max: 64, ..Options::default() }
}

/// Not a test by itself: what the child of the next one runs until it is killed.
#[test]
fn child_that_commits_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let mut store = Sqlite::open(Path::new(&dir), small(true)).expect("opens");
    let mut pen = start(&mut store);
    println!("epoch {}", pen.head.epoch.0);
    loop {
        let batch = nth(&mut pen);
        commit(&mut store, &batch);
        println!("committed {}", batch.head.seq);
        // Folds and checkpoints, too, are to be cut short.
        if batch.head.seq.is_multiple_of(16) {
            store.flush().expect("folds");
        }
    }
}

fn spawn_child(dir: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "crash::child_that_commits_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts")
}

/// Lets the child acknowledge so many commits, then kills it; returns its epoch and the last number it told.
fn kill_after(dir: &Path, commits: u64) -> (u32, u64) {
    let mut child = spawn_child(dir);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (mut epoch, mut told, mut left) = (0, 0, commits);
    let mut hear = |line: &str| {
        if let Some((_, number)) = line.split_once("epoch ") {
            epoch = number.parse().expect("a number");
        }
        let Some((_, number)) = line.split_once("committed ") else { return false };
        told = number.parse().expect("a number");
        left = left.saturating_sub(1);
        left == 0
    };
    let enough = lines.by_ref().map(|line| line.expect("text")).any(|line| hear(&line));
    assert!(enough, "the child ended by itself");
    child.kill().expect("kills");
    child.wait().expect("ends");
    // What it told before it died counts as told; the last line may be cut short.
    for line in lines.map_while(Result::ok).filter(|line| !line.is_empty()) {
        hear(&line);
    }
    (epoch, told)
}

#[test]
fn a_process_killed_at_any_moment_loses_nothing_it_acknowledged() {
    let dir = fast_dir();
    let mut epoch = 0;
    for round in 0..ROUNDS {
        let (found, told) = kill_after(dir.path(), 1 + round * 7 % 41);
        assert!(found > epoch, "epoch {found} after {epoch}");
        epoch = found;
        let copy = copy_dir(dir.path());
        let batches = verify(copy.path(), small(round % 2 == 0));
        assert!(batches >= told, "round {round}: {told} were acknowledged, {batches} are there");
        assert!(batches <= told + 1, "round {round}: {told} were acknowledged, {batches} are there");
        if round % 10 == 0 {
            assert_eq!(check(copy_dir(dir.path()).path()).expect("a report").problems, [""; 0]);
        }
    }
}

/// A directory whose last three commits are in the journal alone.
fn torn_directory() -> tempfile::TempDir {
    let dir = fast_dir();
    let mut store = Sqlite::open(dir.path(), small(false)).expect("opens");
    let mut pen = start(&mut store);
    (0..20).for_each(|_| commit(&mut store, &nth(&mut pen)));
    store.flush().expect("folds");
    (0..3).for_each(|_| commit(&mut store, &nth(&mut pen)));
    copy_dir(dir.path())
}

#[test]
fn a_store_opens_with_a_torn_journal_and_goes_on() {
    let dir = torn_directory();
    let rows = journal_rows(dir.path());
    let book = fs::read(dir.path().join("journal.1")).expect("a book");
    let (first, last) = (rows[rows.len() - 3].start, rows[rows.len() - 1].end);
    for offset in (first..=last).step_by(61).chain([last]) {
        // The length was written before the bytes: the rest is zeros, or what was there before.
        let zeros = [&book[..offset], &vec![0; book.len() - offset]].concat();
        for torn in [&book[..offset], &zeros] {
            let copy = copy_dir(dir.path());
            fs::write(copy.path().join("journal.1"), torn).expect("writes");
            let mut store = Sqlite::open(copy.path(), small(true)).expect("opens");
            let mut pen = start(&mut store);
            let whole = rows.iter().rev().find(|row| row.start + 80 + row.changes.len() + row.events.len() <= offset);
            let found = pen.head.seq;
            assert!(whole.is_some_and(|row| row.seq == found || row.end > offset), "cut at {offset}: {found}");
            commit(&mut store, &nth(&mut pen));
            let head = pen.head.seq;
            drop(store);
            assert_eq!(verify(copy.path(), small(true)), head);
        }
    }
}

/// The machine's death takes what was not synced: all of the tables' log, or any part of its end. The journal was synced.
#[test]
fn tables_that_fall_back_to_their_last_checkpoint_are_folded_again() {
    let dir = fast_dir();
    let mut store = Sqlite::open(dir.path(), small(false)).expect("opens");
    let mut pen = start(&mut store);
    let more = |store: &mut Sqlite, pen: &mut Pen, batches: u64| {
        (0..batches).for_each(|_| commit(store, &nth(pen)));
        store.flush().expect("folds");
    };
    more(&mut store, &mut pen, 30);
    let checkpointed = store.reader().stats().checkpointed_seq;
    assert_eq!(checkpointed, 30);
    // A reader keeps what follows out of the file, so that it is in the log alone.
    let reading = rusqlite::Connection::open(dir.path().join("tables.db")).expect("opens");
    reading.execute_batch("BEGIN; SELECT count(*) FROM sheets").expect("reads");
    for _ in 0..4 {
        more(&mut store, &mut pen, 10);
    }
    let stats = store.reader().stats();
    assert_eq!((stats.folded.seq, stats.checkpointed_seq), (70, 30), "folded, but not safe");
    let log = fs::read(dir.path().join("tables.db-wal")).expect("a log");
    let parts = 40;
    for part in 0..=parts {
        let copy = copy_dir(dir.path());
        fs::write(copy.path().join("tables.db-wal"), &log[..log.len() * part / parts]).expect("writes");
        assert_eq!(verify(copy.path(), small(true)), 70, "with {part}/{parts} of the log");
    }
    drop(reading);
}
