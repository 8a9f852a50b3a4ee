//! A disk that is full or cannot be written. The tests make small file systems of their own; where that is not permitted
//! they say so and pass.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure_core::event::{Cursor, EventKind};
use tenure_store::{CommitError, Error, EventQuery, Options, Sqlite, Store, check};

use super::common::{commit, lease, records, start};

/// A file system in memory that goes away with this.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(options: &str) -> Option<Disk> {
        let dir = tempfile::tempdir().expect("a directory");
        if !mount(options, dir.path()) {
            println!("skipped: mounting a small file system is not permitted here");
            return None;
        }
        Some(Disk(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, options: &str) {
        assert!(mount(&format!("remount,{options}"), self.path()), "remount {options}");
    }
}

fn mount(options: &str, at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
    command.output().is_ok_and(|output| output.status.success())
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_fails_the_commit_and_loses_nothing_that_was_answered() {
    let Some(disk) = Disk::new("size=2m") else { return };
    let mut store = Sqlite::open(disk.path(), Options::default()).expect("opens");
    let mut pen = start(&mut store);
    let mut answered = pen.head;
    let failed = loop {
        let number = pen.head.seq + 1;
        let batch = pen.grant(&lease(number, "ada", &[&format!("path:{number}/{}", "long/".repeat(100) + "name")]));
        match store.commit(&batch) {
            Ok(()) => answered = batch.head,
            Err(why) => break why,
        }
        assert!(pen.head.seq < 100_000, "the disk never fills");
    };
    assert!(matches!(&failed, CommitError::Failed(Error::Full { .. })), "{failed:?}");
    assert!(failed.to_string().contains("no space left"), "{failed}");
    let again = store.commit(&pen.batch(vec![], vec![]));
    assert!(matches!(again, Err(CommitError::Failed(Error::Poisoned))), "{again:?}");
    drop(store);
    disk.remount("size=64m");
    let mut store = Sqlite::open(disk.path(), Options::default()).expect("opens once there is space");
    let head = store.load(&mut |_| {}).expect("loads");
    assert!(head.seq == answered.seq || head.seq == answered.seq + 1, "{} answered, {} found", answered.seq, head.seq);
    assert_eq!(records(&mut store).len() as u64, head.seq);
    let mut pen = start(&mut store);
    commit(&mut store, &pen.end(EventKind::LeaseReleased, &lease(1, "ada", &["path:x"])));
    drop(store);
    let report = check(disk.path()).expect("a report");
    assert!(report.is_ok(), "{:?}", report.problems.first());
}

/// Only the tables have no room: commits and reads go on, and folding does when there is space again.
#[test]
fn tables_without_space_do_not_stop_commits_and_catch_up_later() {
    let Some(disk) = Disk::new("size=64m") else { return };
    let mut store = Sqlite::open(disk.path(), Options { folding: false, ..Options::default() }).expect("opens");
    let mut pen = start(&mut store);
    commit(&mut store, &pen.grant(&lease(1, "ada", &["path:x"])));
    store.flush().expect("folds");
    // Room for the journal, which writes over its log, and none for the log of the tables to grow.
    for number in 2..600 {
        commit(&mut store, &pen.grant(&lease(number, "ada", &[&format!("path:{number}")])));
    }
    let filler = disk.path().join("filler");
    let wrote = std::fs::write(&filler, vec![0; 64 << 20]);
    assert!(wrote.is_err(), "the disk is full now");
    let full = store.flush();
    assert!(matches!(&full, Err(why) if why.code() == "store_full"), "{full:?}");
    let reader = store.reader();
    assert!(reader.stats().fold_error.is_some_and(|text| text.contains("no space left")));
    assert_eq!(reader.events(&EventQuery::after(Cursor(0), 1_000)).expect("events").events.len(), 599);
    std::fs::remove_file(filler).expect("removes");
    // The folder tries again by itself after about a second.
    let caught_up = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        store.flush().is_ok()
    });
    assert!(caught_up, "{:?}", reader.stats());
    assert_eq!((reader.stats().lag(), reader.stats().fold_error), (0, None));
    commit(&mut store, &pen.grant(&lease(600, "ada", &["path:last"])));
    assert_eq!(records(&mut store).len(), 600);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let Some(disk) = Disk::new("size=8m") else { return };
    drop(Sqlite::open(disk.path(), Options::default()).expect("opens"));
    disk.remount("ro");
    let why = Sqlite::open(disk.path(), Options::default()).err().expect("refused");
    assert!(matches!(why, Error::Denied { .. }), "{why:?}");
    let text = why.to_string();
    assert!(text.contains("no permission") && text.contains(&disk.path().display().to_string()), "{text}");
    let new = Sqlite::open(&disk.path().join("new"), Options::default()).err().expect("refused");
    assert!(matches!(new, Error::Denied { .. }), "{new:?}");
}
