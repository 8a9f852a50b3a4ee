//! Owns `journal.db`: one row a batch, the durable truth until the tables have it.
//!
//! The file is locked exclusively, so everything goes through this one connection: the writer appends, and the folder
//! or a reader that has lost the memory of a stretch reads it back in small steps. [`Gate`] lets them in by turns, so
//! that neither a stream of commits starves a reader nor a reader holds a commit up for more than one step.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{OptionalExtension, Row as SqlRow, params};
use tenure_core::change::Head;
use tenure_core::event::Cursor;
use tenure_core::{Epoch, Timestamp, Token};

use super::codec::Row;
use super::db::Db;
use super::logged::Logged;
use crate::{Error, Order};

/// How much text one step reads before it lets commits in again: about 0.1 ms.
const STEP_BYTES: usize = 128 * 1024;

/// A text larger than this goes on in further rows of its batch: SQLite takes none beyond 10⁹ bytes, and what ends in one moment ends in
/// one batch, however much that is.
const PART_BYTES: usize = 256 * 1024 * 1024;

/// The second step changes no table: changes may be told by events since, which a program from before cannot read.
pub(super) const SCHEMA: &[&str] = &[
    "
    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL,
        at INTEGER NOT NULL,
        token INTEGER,
        cursor INTEGER NOT NULL,
        changes TEXT NOT NULL,
        events TEXT NOT NULL
    ) STRICT;
    CREATE TABLE claim (epoch INTEGER NOT NULL) STRICT;
    INSERT INTO claim VALUES (0);
    ",
    "",
    "
    CREATE TABLE parts (
        seq INTEGER NOT NULL,
        part INTEGER NOT NULL,
        changes TEXT NOT NULL,
        events TEXT NOT NULL,
        PRIMARY KEY (seq, part)
    ) STRICT;
    ",
];

/// FULL, because a commit that was answered must survive the machine. A log that grows costs half the speed, so it is
/// checkpointed every 1,000 pages. The cache holds what a second of full load writes: forgetting a row walks through all of
/// its pages, which would be read back one by one.
const PRAGMAS: &str = "
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 1000;
    PRAGMA cache_size = -8192;
";

/// A lock that lets its takers in by turns: who waits is next, also against one that comes back at once.
pub(super) struct Gate<T> {
    next: Mutex<()>,
    inside: Mutex<T>,
}

impl<T> Gate<T> {
    fn new(value: T) -> Gate<T> {
        Gate { next: Mutex::new(()), inside: Mutex::new(value) }
    }

    fn enter(&self) -> MutexGuard<'_, T> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal.
pub(super) struct Journal {
    db: Gate<Option<Db>>,
    part_bytes: usize,
}

/// What is in the journal: its first and last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) last: Head,
}

impl Journal {
    /// Opens it; makes it if it is not there.
    pub(super) fn open(path: &Path) -> Result<Journal, Error> {
        let db = Db::create(path)?;
        db.execute_batch(PRAGMAS)?;
        db.migrate(SCHEMA)?;
        Ok(Journal { db: Gate::new(Some(db)), part_bytes: PART_BYTES })
    }

    /// Takes the next epoch, not smaller than `at_least`, or the one that comes `leap` later; durably.
    pub(super) fn claim(&self, at_least: Epoch, leap: u32) -> Result<Epoch, Error> {
        self.with(|db| {
            let sql = "UPDATE claim SET epoch = max(epoch + 1, ?1) + ?2 RETURNING epoch";
            db.connection.query_row(sql, [at_least.0, leap], |row| row.get(0)).map(Epoch).map_err(db.fail())
        })
    }

    /// Starts a journal at a head that the tables brought along, as after a restore.
    pub(super) fn seed(&self, head: Head) -> Result<(), Error> {
        if head.seq == 0 {
            return Ok(());
        }
        let row = Row { changes: "[]".to_owned(), events: "[]".to_owned() };
        self.append(head, &row, None)
    }

    /// Makes one row durable, and forgets the rows up to `trim`.
    pub(super) fn append(&self, head: Head, row: &Row, trim: Option<u64>) -> Result<(), Error> {
        self.with(|db| {
            let fail = db.fail();
            let mut parts = row.parts(self.part_bytes).into_iter();
            let first = parts.next().unwrap_or_default();
            if trim.is_none() && parts.len() == 0 {
                return insert(db, head, first).map_err(fail);
            }
            let transaction = db.connection.unchecked_transaction().map_err(fail)?;
            insert(db, head, first).map_err(fail)?;
            parts.enumerate().try_for_each(|(part, texts)| insert_part(db, head.seq, part, texts)).map_err(fail)?;
            trim.map_or(Ok(()), |seq| forget(db, seq)).map_err(fail)?;
            transaction.commit().map_err(fail)
        })
    }

    /// Its first and last row, if it has any.
    pub(super) fn extent(&self) -> Result<Option<Extent>, Error> {
        self.with(|db| {
            let sql = "SELECT seq, epoch, at, token, cursor FROM journal ORDER BY seq DESC LIMIT 1";
            let Some(last) = db.connection.query_row(sql, [], head_of).optional().map_err(db.fail())? else {
                return Ok(None);
            };
            let first = db.connection.query_row("SELECT min(seq) FROM journal", [], |row| row.get::<_, i64>(0));
            Ok(Some(Extent { first: first.map_err(db.fail())? as u64, last }))
        })
    }

    /// The first batches within `(after, before)`, or the last for the newest first: one step, at least one batch if
    /// there is any.
    pub(super) fn read(&self, after: u64, before: u64, order: Order) -> Result<Vec<Logged>, Error> {
        let mut rows = Vec::new();
        let path = self.with(|db| {
            read_rows(db, after, before, order, &mut rows).map_err(db.fail())?;
            Ok(db.path.clone())
        })?;
        // Outside the gate: decoding is most of the work.
        rows.into_iter().map(|(head, row)| Logged::decode(&path, head, row)).collect()
    }

    /// The epoch claimed last.
    pub(super) fn epoch(&self) -> Result<Epoch, Error> {
        self.with(|db| {
            let epoch = db.connection.query_row("SELECT epoch FROM claim", [], |row| row.get(0));
            epoch.map(Epoch).map_err(db.fail())
        })
    }

    /// Closes the file for everyone.
    pub(super) fn close(&self) {
        self.db.enter().take();
    }

    /// Runs something on the connection.
    pub(super) fn with<T>(&self, run: impl FnOnce(&Db) -> Result<T, Error>) -> Result<T, Error> {
        run(self.db.enter().as_ref().ok_or(Error::Closed)?)
    }
}

fn insert(db: &Db, head: Head, (changes, events): (&str, &str)) -> Result<(), rusqlite::Error> {
    let mut insert = db.connection.prepare_cached("INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    let values = params![
        head.seq as i64,
        head.epoch.0,
        head.at.unix_ms() as i64,
        head.token.map(|token| token.as_u64() as i64),
        head.cursor.0 as i64,
        changes,
        events,
    ];
    insert.execute(values).map(drop)
}

fn insert_part(db: &Db, seq: u64, part: usize, (changes, events): (&str, &str)) -> Result<(), rusqlite::Error> {
    let mut insert = db.connection.prepare_cached("INSERT INTO parts VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![seq as i64, part as i64, changes, events]).map(drop)
}

/// Appends what did not fit into the row itself.
fn read_parts(db: &Db, seq: i64, row: &mut Row) -> Result<(), rusqlite::Error> {
    let mut select = db.connection.prepare_cached("SELECT changes, events FROM parts WHERE seq = ?1 ORDER BY part")?;
    let mut parts = select.query([seq])?;
    while let Some(part) = parts.next()? {
        row.changes.push_str(part.get_ref(0)?.as_str()?);
        row.events.push_str(part.get_ref(1)?.as_str()?);
    }
    Ok(())
}

fn forget(db: &Db, seq: u64) -> Result<(), rusqlite::Error> {
    for sql in ["DELETE FROM journal WHERE seq <= ?1", "DELETE FROM parts WHERE seq <= ?1"] {
        db.connection.prepare_cached(sql)?.execute([seq as i64])?;
    }
    Ok(())
}

fn read_rows(
    db: &Db,
    after: u64,
    before: u64,
    order: Order,
    found: &mut Vec<(Head, Row)>,
) -> Result<(), rusqlite::Error> {
    let sql = match order {
        Order::OldestFirst => {
            "SELECT seq, epoch, at, token, cursor, changes, events FROM journal
             WHERE seq > ?1 AND seq < ?2 ORDER BY seq"
        }
        Order::NewestFirst => {
            "SELECT seq, epoch, at, token, cursor, changes, events FROM journal
             WHERE seq > ?1 AND seq < ?2 ORDER BY seq DESC"
        }
    };
    let mut statement = db.connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![after as i64, before.min(i64::MAX as u64) as i64])?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let mut text = Row { changes: row.get(5)?, events: row.get(6)? };
        read_parts(db, row.get(0)?, &mut text)?;
        bytes += text.bytes();
        found.push((head_of(row)?, text));
        if bytes >= STEP_BYTES {
            break;
        }
    }
    Ok(())
}

fn head_of(row: &SqlRow<'_>) -> Result<Head, rusqlite::Error> {
    Ok(Head {
        seq: row.get::<_, i64>(0)? as u64,
        epoch: Epoch(row.get(1)?),
        at: Timestamp::from_unix_ms(row.get::<_, i64>(2)? as u64),
        token: row.get::<_, Option<i64>>(3)?.map(|token| Token::from_u64(token as u64)),
        cursor: Cursor(row.get::<_, i64>(4)? as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_too_large_for_one_row_reads_back_from_several_and_goes_with_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal.db");
        let row = Row { changes: "[]".to_owned(), events: format!("[{}]", " ".repeat(100)) };
        let small_row = Row { changes: "[\n]".to_owned(), events: "[     ]".to_owned() };
        let head = |seq| Head { seq, ..Head::default() };
        let narrow = Journal { part_bytes: 16, ..Journal::open(&path).expect("a journal") };
        narrow.append(head(1), &row, None).expect("written");
        narrow.append(head(2), &small_row, None).expect("written");
        drop(narrow);
        let journal = Journal::open(&path).expect("a journal");
        let mut rows = Vec::new();
        journal.with(|db| read_rows(db, 0, u64::MAX, Order::OldestFirst, &mut rows).map_err(db.fail())).expect("read");
        let texts: Vec<_> = rows.iter().map(|(_, row)| (&*row.changes, &*row.events)).collect();
        assert_eq!(texts, [(&*row.changes, &*row.events), (&*small_row.changes, &*small_row.events)]);
        journal.append(head(3), &small_row, Some(1)).expect("written");
        let parts = journal.with(|db| {
            db.connection.query_row("SELECT count(*) FROM parts", [], |row| row.get::<_, i64>(0)).map_err(db.fail())
        });
        assert_eq!(parts.expect("counted"), 0, "those of the first batch are gone, the others never had any");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let row = Row { changes: "äöü".repeat(7), events: "x".repeat(40) };
        let parts = row.parts(9);
        assert!(parts.iter().all(|(changes, events)| changes.len() <= 9 && events.len() <= 9), "{parts:?}");
        let (changes, events): (Vec<&str>, Vec<&str>) = parts.into_iter().unzip();
        assert_eq!((changes.concat(), events.concat()), (row.changes, row.events));
    }
}
