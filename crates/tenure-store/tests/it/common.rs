//! What the tests of this crate share: short ways to say events, records and batches.

use std::path::Path;
use std::sync::Arc;

use tenure_core::change::{Batch, Change, Head, Record, RecordKind};
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::id::FlowId;
use tenure_core::lease::{Lease, Mode};
use tenure_core::{Epoch, Holder, Resource, Timestamp, Token, Ttl};
use tenure_store::{CommitError, Store};

/// The ledger's time in these tests starts here.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

pub(crate) fn resource(text: &str) -> Resource {
    Resource::parse(text).expect(text)
}

pub(crate) fn holder(text: &str) -> Holder {
    Holder::parse(text).expect(text)
}

pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(START_MS + ms)
}

pub(crate) fn lease(token: u64, name: &str, resources: &[&str]) -> Lease {
    Lease {
        token: Token::from_u64(token),
        resources: resources.iter().map(|text| resource(text)).collect(),
        holder: holder(name),
        mode: Mode::Exclusive,
        acquired_at: at(0),
        expires_at: at(30_000),
        ttl: Ttl::from_ms(30_000).expect("in range"),
        grace_ms: 0,
        within: None,
        metadata: None,
    }
}

pub(crate) fn event(kind: EventKind, lease: &Lease) -> Event {
    Event {
        cursor: Cursor::default(),
        at: at(0),
        kind,
        resources: lease.resources.clone(),
        holder: Some(lease.holder.clone()),
        token: Some(lease.token),
        mode: Some(lease.mode),
        acquired_at: Some(lease.acquired_at),
        expires_at: Some(lease.expires_at),
        ttl: Some(lease.ttl),
        within: lease.within,
        ended_with: None,
        by: None,
        reason: None,
        data: None,
    }
}

/// A run that is over, with the least that one has.
pub(crate) fn archived(number: u64, output: &str) -> Record {
    let id = FlowId::from(Token::from_u64(number));
    let json = serde_json::json!({
        "flow": {
            "id": id, "plan_id": 1, "status": "COMPLETED", "input": {}, "output": "OUTPUT", "variables": {},
            "created_at": at(0), "ended_at": at(number),
        },
        "tasks": [],
    });
    let text = json.to_string().replace(r#""OUTPUT""#, output);
    Record::decode(RecordKind::Archive, &text).expect("a run that is over")
}

/// A JSON object with so many lists in each other.
pub(crate) fn deep(levels: usize) -> String {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels))
}

/// Numbers batches and events as the engine does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pen {
    pub(crate) head: Head,
}

impl Pen {
    pub(crate) fn batch(&mut self, changes: Vec<Change>, mut events: Vec<Event>) -> Arc<Batch> {
        self.head.seq += 1;
        self.head.at = self.head.at.max(at(0));
        for event in &mut events {
            self.head.cursor = self.head.cursor.next();
            event.cursor = self.head.cursor;
            self.head.at = self.head.at.max(event.at);
        }
        for change in &changes {
            self.head.token = self.head.token.max(change.lease());
        }
        Arc::new(Batch { head: self.head, changes, events })
    }

    /// Leaves a number out.
    pub(crate) fn skip(mut self) -> Pen {
        self.head.seq += 1;
        self
    }

    /// A batch that grants a lease.
    pub(crate) fn grant(&mut self, lease: &Lease) -> Arc<Batch> {
        self.batch(vec![Change::of_grant(lease)], vec![event(EventKind::LeaseGranted, lease)])
    }

    /// A batch that ends a lease.
    pub(crate) fn end(&mut self, kind: EventKind, lease: &Lease) -> Arc<Batch> {
        self.batch(vec![Change::Ended(lease.token)], vec![event(kind, lease)])
    }

    /// A batch that renews a lease.
    pub(crate) fn renew(&mut self, token: u64, until_ms: u64) -> Arc<Batch> {
        self.batch(vec![Change::Renewed(Token::from_u64(token), at(until_ms))], vec![])
    }
}

/// Claims and loads, as the engine does on start.
pub(crate) fn start(store: &mut dyn Store) -> Pen {
    let epoch: Epoch = store.claim(Epoch(1)).expect("claim");
    let head = store.load(&mut |_| {}).expect("load");
    Pen { head: Head { epoch, ..head } }
}

/// Every record with its value, as text that can be compared.
pub(crate) fn records(store: &mut dyn Store) -> Vec<(RecordKind, String, String)> {
    let mut found = Vec::new();
    store
        .load(&mut |record| found.push((record.kind(), record.id().0, record.to_json().expect("encodes"))))
        .expect("load");
    found
}

pub(crate) fn commit(store: &mut dyn Store, batch: &Arc<Batch>) {
    store.commit(batch).unwrap_or_else(|why: CommitError| panic!("batch {}: {why}", batch.head.seq));
}

/// A directory in memory where there is one: for tests that commit often and are not about the disk.
pub(crate) fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Copies the files of a data directory, as a crash would leave them.
pub(crate) fn copy_dir(from: &Path) -> tempfile::TempDir {
    let copy = fast_dir();
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        // The index of a log is made anew from the log.
        if !path.to_string_lossy().ends_with("-shm") {
            std::fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("copies");
        }
    }
    copy
}

/// A row of the journal, as it stands in its file.
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Epoch, time, token, cursor.
    pub(crate) numbers: [u64; 4],
    pub(crate) changes: String,
    pub(crate) events: String,
}

/// The rows of a journal that has not filled its first book.
pub(crate) fn journal_rows(dir: &Path) -> Vec<Row> {
    let bytes = std::fs::read(dir.join("journal.1")).expect("a journal");
    let (mut rows, mut start) = (Vec::new(), 0);
    while bytes.get(start) == Some(&0xff) {
        let number = |at: usize, width: usize| {
            bytes[start + at..start + at + width].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (changes, events) = (number(64, 8) as usize, number(72, 8) as usize);
        let text = |from: usize, size: usize| {
            String::from_utf8(bytes[start + from..start + from + size].to_vec()).expect("text")
        };
        let end = (start + 80 + changes + events).next_multiple_of(8);
        if number(20, 4) == 1 {
            let numbers = [number(56, 4), number(32, 8), number(40, 8), number(48, 8)];
            let (changes, events) = (text(80, changes), text(80 + changes, events));
            rows.push(Row { seq: number(24, 8), start, end, numbers, changes, events });
        }
        start = end;
    }
    rows
}
