//! The check of a store at rest: it finds what is wrong, and changes nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use tenure_core::change::Change;
use tenure_store::{CheckReport, Error, Sqlite, Store, check};

use super::common::{archived, commit, fast_dir, journal_rows, lease, start};
use super::files::{fill, open, open_error, unfolded};

#[test]
fn the_check_finds_what_does_not_fit() {
    let cases = [
        ("tables.db", "DELETE FROM records WHERE id = '00000000000003'", "no record"),
        ("tables.db", "UPDATE sheets SET events = json_remove(events, '$[4]')", "stands where event 5 belongs"),
        ("tables.db", "UPDATE sheets SET events = json_remove(events, '$[4]')", "events 1 to 13 has 12 of them"),
        ("tables.db", "UPDATE sheets SET events = json_insert(events, '$[#]', json('{}'))", "missing field"),
        ("tables.db", "UPDATE sheets SET events = replace(events, '\"cursor\":7', '\"cursor\":8')", "event 7 says"),
        ("tables.db", "UPDATE sheets SET events = replace(events, 'agent-3', 'agent-4')", "differs"),
        ("tables.db", "UPDATE sheets SET at = at - 1", "has another time"),
        ("tables.db", "UPDATE sheets SET last = -1", "has 13 of them"),
        ("tables.db", "DELETE FROM sheets_by_token", "not found by its tokens"),
        ("tables.db", "INSERT INTO sheets_by_token VALUES (77, 13)", "1 entries lead from tokens to sheets"),
        ("tables.db", "UPDATE records SET value = replace(value, 'agent-3', 'agent-4')", "differs"),
        ("tables.db", "UPDATE sheets SET events = replace(events, 'src/3.rs', 'src/1.rs')", "while agent-1 held"),
    ];
    for (file, damage, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut pen = start(&mut store);
        fill(&mut store, &mut pen, 1..10);
        drop(store);
        let db = rusqlite::Connection::open(dir.path().join(file)).unwrap();
        assert!(db.execute(damage, []).unwrap() > 0, "{damage}");
        drop(db);
        let report = check(dir.path()).expect("a report");
        assert!(report.problems.iter().any(|text| text.contains(expected)), "{damage}: {:?}", report.problems);
    }
}

#[test]
fn a_run_that_retention_has_dropped_is_no_damage_though_the_journal_still_has_it() {
    let dir = fast_dir();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    commit(&mut store, &pen.batch(vec![Change::Put(archived(1, "{}"))], vec![]));
    drop(store);
    let tables = rusqlite::Connection::open(dir.path().join("tables.db")).unwrap();
    assert_eq!(tables.execute("DELETE FROM records WHERE kind = 'archive'", []).unwrap(), 1);
    drop(tables);
    assert_eq!(check(dir.path()).expect("a report").problems, [""; 0]);
}

#[test]
fn the_check_reads_what_only_the_journal_has() {
    let dir = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    store.flush().expect("folds");
    fill(&mut store, &mut pen, 20..30);
    commit(&mut store, &pen.grant(&lease(99, "eve", &["path:src/21.rs"])));
    copy_files(dir.path(), copy.path());
    let report = check(copy.path()).expect("a report");
    assert_eq!((report.unfolded, report.head), (16, pen.head));
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].contains("eve got path:src/21.rs"), "{:?}", report.problems);
}

/// What a server leaves behind that is killed now.
pub(super) fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn contents(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

/// Checks, and finds every file in the directory as it was.
pub(super) fn check_untouched(path: &Path, dir: &Path) -> Result<CheckReport, Error> {
    let before = contents(dir);
    let checked = check(path);
    let after = contents(dir);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(before == after, "{}", path.display());
    checked
}

#[test]
fn the_check_changes_nothing_in_what_it_checks() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(dir.path(), unfolded()).expect("opens");
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..20);
    store.flush().expect("folds");
    let flushed = tempfile::tempdir().unwrap();
    copy_files(dir.path(), flushed.path());
    fill(&mut store, &mut pen, 20..30);
    // A name that means something in an address.
    let parent = tempfile::tempdir().unwrap();
    let killed = parent.path().join("100%41 ?a=b#c");
    fs::create_dir(&killed).unwrap();
    copy_files(dir.path(), &killed);
    let backup = tempfile::tempdir().unwrap();
    store.reader().backup(&backup.path().join("copy #1?")).expect("a backup");
    drop(store);

    for (name, dir, unfolded) in [("stopped", dir.path(), 0), ("killed", &killed, 15)] {
        let report = check_untouched(dir, dir).expect("a report");
        assert_eq!((report.problems.as_slice(), report.unfolded, report.head), (&[][..], unfolded, pen.head), "{name}");
    }
    assert_eq!(check_untouched(flushed.path(), flushed.path()).expect("a report").problems, [""; 0]);
    fs::remove_file(flushed.path().join("tenure.lock")).unwrap();
    assert_eq!(check_untouched(flushed.path(), flushed.path()).expect("a report").problems, [""; 0]);
    assert!(check_untouched(&backup.path().join("copy #1?"), backup.path()).expect("a report").is_ok());
    fs::write(backup.path().join("empty"), "").unwrap();
    let empty = check_untouched(&backup.path().join("empty"), backup.path()).expect("a report");
    assert!(empty.problems[0].contains("it is empty"), "{empty:?}");
}

#[test]
fn a_directory_without_a_store_is_said_to_have_none_and_is_left_empty() {
    let dir = tempfile::tempdir().unwrap();
    let why = check_untouched(dir.path(), dir.path()).expect_err("nothing to check");
    assert!(matches!(&why, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound), "{why:?}");
    assert!(why.to_string().contains("could not find a store in"), "{why}");
}

#[test]
fn what_a_first_start_that_was_cut_short_left_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    fs::write(dir.path().join("tables.db"), "").unwrap();
    let report = check_untouched(dir.path(), dir.path()).expect("a report");
    assert_eq!((report.problems.as_slice(), report.events), (&[][..], 0));
    drop(open(dir.path()));
}

#[test]
fn a_file_that_is_no_journal_is_named_by_the_check() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join("journal.2");
    fs::write(&path, "this is a diary, not a journal. ".repeat(100)).unwrap();
    let report = check_untouched(dir.path(), dir.path()).expect("a report");
    assert!(report.problems[0].contains(&path.display().to_string()), "{:?}", report.problems);
}

#[test]
fn a_damaged_row_of_the_journal_stops_the_start_and_is_found_by_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut pen = start(&mut store);
    fill(&mut store, &mut pen, 1..10);
    drop(store);
    let rows = journal_rows(dir.path());
    let path = dir.path().join("journal.1");
    let mut book = fs::read(&path).unwrap();
    book[rows[5].start + 90] ^= 1;
    fs::write(&path, book).unwrap();
    let why = open_error(dir.path());
    assert!(matches!(&why, Error::Corrupt { path: found, .. } if *found == path), "{why}");
    assert_eq!(check(dir.path()).expect("a report").problems, [why.to_string()]);
}
