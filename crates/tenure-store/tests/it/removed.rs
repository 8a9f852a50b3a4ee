//! A data directory that goes away, or becomes another one, while the store is open.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::event::Cursor;
use tenure_store::{CommitError, Error, EventQuery, Options, Sqlite, Store};

use super::common::{commit, fast_dir, lease, start};

/// The folder looks four times a second.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(dir: &Path) -> Sqlite {
    Sqlite::open(dir, Options::default()).expect("opens")
}

type Happens = fn(&Path);

fn replace(dir: &Path) {
    fs::remove_dir_all(dir).unwrap();
    drop(open(dir));
}

/// What the first commit that fails says after something `happens` to a store with one lease.
fn commits_until_it_fails(happens: Happens) -> (Sqlite, CommitError) {
    let above = fast_dir();
    let dir = above.path().join("data");
    let mut store = open(&dir);
    let mut pen = start(&mut store);
    commit(&mut store, &pen.grant(&lease(1, "ada", &["path:1"])));
    store.verify().expect("all is in its place");
    happens(&dir);
    let began = Instant::now();
    for number in 2.. {
        if let Err(why) = store.commit(&pen.grant(&lease(number, "ada", &[&format!("path:{number}")]))) {
            let again = store.commit(&pen.batch(vec![], vec![]));
            assert!(matches!(again, Err(CommitError::Failed(Error::Poisoned))), "{again:?}");
            return (store, why);
        }
        assert!(began.elapsed() < PATIENCE, "commits go on into files that nobody will find");
    }
    unreachable!()
}

#[test]
fn a_directory_that_is_removed_moved_or_replaced_fails_the_commits_that_follow() {
    let ways: [(&str, Happens, &str); 4] = [
        ("removed", |dir| fs::remove_dir_all(dir).unwrap(), "journal.1"),
        ("moved", |dir| fs::rename(dir, dir.with_file_name("moved")).unwrap(), "journal.1"),
        ("replaced", replace, "journal.1"),
        ("without tables", |dir| fs::remove_file(dir.join("tables.db")).unwrap(), "tables.db"),
    ];
    for (way, happens, names) in ways {
        let (store, why) = commits_until_it_fails(happens);
        assert!(matches!(&why, CommitError::Failed(Error::Removed { .. })), "{way}: {why:?}");
        let text = why.to_string();
        assert!(text.contains(names) && text.contains("removed or replaced while the server ran"), "{way}: {text}");
        let verified = store.verify();
        assert!(matches!(&verified, Err(why) if why.code() == "store_removed"), "{way}: {verified:?}");
        assert!(store.reader().stats().fold_error.is_some_and(|told| told == text), "{way}");
    }
}

#[test]
fn the_events_of_a_directory_that_is_gone_are_not_said_to_be_forbidden() {
    let (store, _) = commits_until_it_fails(|dir| fs::remove_dir_all(dir).unwrap());
    let why = store.reader().events(&EventQuery::after(Cursor(0), 10)).expect_err("nothing to open");
    assert!(!why.to_string().contains("permission"), "{why}");
}
