//! Owns `tables.db`: the latest value of every record and the events, for reading and for the next start.
//!
//! It is always the journal up to some batch, whole: the position is written in the same transaction. `NORMAL` means that
//! the machine's death can take it back to an earlier position, never to a mixed one, and what the journal has forgotten is
//! never lost with it, because a batch is forgotten only after a checkpoint that contains it has reached the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{OptionalExtension, params};
use tenure_core::change::{Head, RecordId, RecordKind};
use tenure_core::{Timestamp, Token};

use super::db::{Db, unreadable};
use super::logged::{Edit, Logged, Value};
use super::sheets::{self, Block};
use crate::Error;

/// The second step: what an event's text says is read from there, not written beside it. The third: times that SQLite of before
/// 3.42 can tell too, and views that show what is deeper than SQLite reads as empty instead of failing. The fourth: many events in one row.
pub(super) const SCHEMA: &[&str] = &[
    "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE records (
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE renewals (token INTEGER PRIMARY KEY, expires_at INTEGER NOT NULL) STRICT;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        resource TEXT,
        holder TEXT,
        token INTEGER,
        value TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_token ON events (token) WHERE token IS NOT NULL;
    CREATE TABLE blocks (last INTEGER PRIMARY KEY, first INTEGER NOT NULL, filter BLOB NOT NULL) STRICT;
    CREATE VIEW leases AS
        SELECT records.value ->> '$.token' AS token,
            records.value ->> '$.holder' AS holder,
            (SELECT group_concat(one.value, ', ') FROM json_each(records.value, '$.resources') AS one) AS resources,
            coalesce(records.value ->> '$.mode', 'exclusive') AS mode,
            datetime((records.value ->> '$.acquired_at') / 1000.0, 'unixepoch', 'subsec') AS acquired_at,
            datetime(coalesce(renewals.expires_at, records.value ->> '$.expires_at') / 1000.0, 'unixepoch', 'subsec')
                AS expires_at,
            records.value ->> '$.ttl_ms' AS ttl_ms,
            records.value ->> '$.within' AS within,
            records.value -> '$.metadata' AS metadata
        FROM records LEFT JOIN renewals ON renewals.token = records.value ->> '$.token'
        WHERE records.kind = 'lease';
    CREATE VIEW ended_leases AS
        SELECT token, holder, resource AS resources, substr(kind, 7) AS how,
            datetime((value ->> '$.acquired_at') / 1000.0, 'unixepoch', 'subsec') AS acquired_at,
            datetime(at / 1000.0, 'unixepoch', 'subsec') AS ended_at,
            value ->> '$.by' AS ended_by,
            value ->> '$.reason' AS reason
        FROM events WHERE kind IN ('lease.released', 'lease.expired', 'lease.revoked');
    ",
    "
    DROP VIEW ended_leases;
    DROP INDEX events_by_token;
    ALTER TABLE events RENAME TO events_before;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        token INTEGER,
        value TEXT NOT NULL
    ) STRICT;
    INSERT INTO events SELECT seq, at, token, value FROM events_before ORDER BY seq;
    DROP TABLE events_before;
    CREATE INDEX events_by_token ON events (token) WHERE token IS NOT NULL;
    CREATE VIEW history AS
        SELECT seq,
            datetime(at / 1000.0, 'unixepoch', 'subsec') AS at,
            value ->> '$.kind' AS kind,
            (SELECT group_concat(one.value, ', ') FROM json_each(events.value, '$.resources') AS one) AS resources,
            value ->> '$.holder' AS holder,
            token,
            value
        FROM events;
    CREATE VIEW ended_leases AS
        SELECT token, holder, resources, substr(kind, 7) AS how,
            datetime((value ->> '$.acquired_at') / 1000.0, 'unixepoch', 'subsec') AS acquired_at,
            at AS ended_at,
            value ->> '$.by' AS ended_by,
            value ->> '$.reason' AS reason
        FROM history WHERE kind IN ('lease.released', 'lease.expired', 'lease.revoked');
    ",
    "
    DROP VIEW ended_leases;
    DROP VIEW history;
    DROP VIEW leases;
    CREATE VIEW leases AS
        SELECT readable ->> '$.token' AS token,
            readable ->> '$.holder' AS holder,
            (SELECT group_concat(one.value, ', ') FROM json_each(readable, '$.resources') AS one) AS resources,
            coalesce(readable ->> '$.mode', 'exclusive') AS mode,
            strftime('%Y-%m-%d %H:%M:%f', (readable ->> '$.acquired_at') / 1000.0, 'unixepoch') AS acquired_at,
            strftime('%Y-%m-%d %H:%M:%f', coalesce(renewals.expires_at, readable ->> '$.expires_at') / 1000.0, 'unixepoch')
                AS expires_at,
            readable ->> '$.ttl_ms' AS ttl_ms,
            readable ->> '$.within' AS within,
            readable -> '$.metadata' AS metadata
        FROM (SELECT CASE WHEN json_valid(value) THEN value END AS readable FROM records WHERE kind = 'lease')
            LEFT JOIN renewals ON renewals.token = readable ->> '$.token';
    CREATE VIEW history AS
        SELECT seq,
            strftime('%Y-%m-%d %H:%M:%f', at / 1000.0, 'unixepoch') AS at,
            readable ->> '$.kind' AS kind,
            (SELECT group_concat(one.value, ', ') FROM json_each(readable, '$.resources') AS one) AS resources,
            readable ->> '$.holder' AS holder,
            token,
            value
        FROM (SELECT *, CASE WHEN json_valid(value) THEN value END AS readable FROM events);
    CREATE VIEW ended_leases AS
        SELECT token, holder, resources, substr(kind, 7) AS how,
            strftime('%Y-%m-%d %H:%M:%f', (value ->> '$.acquired_at') / 1000.0, 'unixepoch') AS acquired_at,
            at AS ended_at,
            value ->> '$.by' AS ended_by,
            value ->> '$.reason' AS reason
        FROM history WHERE kind IN ('lease.released', 'lease.expired', 'lease.revoked');
    ",
    "
    DROP VIEW history;
    CREATE TABLE sheets (
        last INTEGER PRIMARY KEY,
        first INTEGER NOT NULL,
        at INTEGER NOT NULL,
        events TEXT NOT NULL
    ) STRICT;
    CREATE TABLE sheets_by_token (
        bundle INTEGER NOT NULL,
        sheet INTEGER NOT NULL,
        PRIMARY KEY (bundle, sheet)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO sheets SELECT seq, seq, at, '[' || value || ']' FROM events ORDER BY seq;
    INSERT INTO sheets_by_token SELECT token >> 6, seq FROM events WHERE token IS NOT NULL ORDER BY token, seq;
    DROP TABLE events;
    CREATE VIEW history AS
        SELECT first + one.key AS seq,
            strftime('%Y-%m-%d %H:%M:%f', coalesce(one.value ->> '$.at', at) / 1000.0, 'unixepoch') AS at,
            one.value ->> '$.kind' AS kind,
            (SELECT group_concat(name.value, ', ') FROM json_each(one.value, '$.resources') AS name) AS resources,
            one.value ->> '$.holder' AS holder,
            one.value ->> '$.token' AS token,
            coalesce(one.value, substr(events, 2, length(events) - 2)) AS value,
            last AS sheet
        FROM sheets, json_each(CASE WHEN json_valid(events) THEN events ELSE '[null]' END) AS one;
    ",
];

/// The folder decides when to checkpoint. Larger pages make appending cheaper, and a single record dearer: it is written with
/// its whole page. Files made with smaller ones keep them.
const PRAGMAS: &str = "
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA cache_size = -16384;
    PRAGMA temp_store = MEMORY;
";

/// The writing side of the tables.
pub(super) struct Tables {
    pub(super) db: Db,
    /// The block that is not full yet; nothing when it must be read back from the tables.
    block: Option<Block>,
    /// The size of the write-ahead log after the last transaction.
    wal_bytes: Arc<AtomicU64>,
}

impl Tables {
    /// Opens them; makes them if they are not there.
    pub(super) fn open(path: &Path) -> Result<Tables, Error> {
        let mut db = Db::create(path)?;
        db.execute_batch(PRAGMAS)?;
        db.migrate(SCHEMA)?;
        let page_bytes = db.connection.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0));
        let page_bytes = u64::from(page_bytes.map_err(db.fail())?);
        let wal_bytes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&wal_bytes);
        let hook = move |_: &mut _, pages: i32| {
            count.store(u64::from(pages.unsigned_abs()) * page_bytes, Ordering::Relaxed);
            Ok(())
        };
        let hooked = db.connection.wal_hook(Some(hook));
        hooked.map_err(db.fail())?;
        Ok(Tables { db, block: None, wal_bytes })
    }

    /// Writes a stretch of the journal in one transaction.
    pub(super) fn fold(&mut self, chunk: &[Arc<Logged>]) -> Result<Head, Error> {
        let before = head(&self.db)?;
        let Some(last) = chunk.last().map(|logged| logged.head) else { return Ok(before) };
        let mut block = match self.block.take() {
            Some(block) => block,
            None => sheets::open_block(&self.db)?,
        };
        let fail = self.db.fail();
        let transaction = self.db.connection.unchecked_transaction().map_err(fail)?;
        write(&self.db, chunk, before, &mut block)?;
        transaction.commit().map_err(fail)?;
        self.block = Some(block);
        Ok(last)
    }

    /// How much the write-ahead log holds.
    pub(super) fn wal_bytes(&self) -> u64 {
        self.wal_bytes.load(Ordering::Relaxed)
    }

    /// Copies the log into the file as far as readers allow; says whether that was all of it. Then everything folded so
    /// far is on the disk.
    pub(super) fn checkpoint(&self) -> Result<bool, Error> {
        let done = self.db.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (busy, log, copied) = done.map_err(self.db.fail())?;
        let is_complete = busy == 0 && log == copied;
        if is_complete {
            self.wal_bytes.store(0, Ordering::Relaxed);
        }
        Ok(is_complete)
    }
}

/// Writes a stretch that follows `before`, and takes it back: whether the next start could fold it.
pub(super) fn try_fold(db: &Db, chunk: &[Arc<Logged>], before: Head) -> Result<(), Error> {
    let transaction = db.connection.unchecked_transaction().map_err(db.fail())?;
    write(db, chunk, before, &mut Block::default())?;
    transaction.rollback().map_err(db.fail())
}

fn write(db: &Db, chunk: &[Arc<Logged>], before: Head, block: &mut Block) -> Result<(), Error> {
    Latest::of(chunk, before.token).write(db)?;
    sheets::append(db, chunk, block)?;
    let last = chunk.last().map_or(before, |logged| logged.head);
    set_meta(db, "head", &encode_head(last)?)
}

/// The latest change of each record in a stretch: what came before it needs no writing.
struct Latest<'a> {
    records: BTreeMap<(RecordKind, &'a RecordId), Became<'a>>,
    /// The leases apart: they are most of it, and a token is a cheaper key than its text.
    leases: BTreeMap<Token, Became<'a>>,
    renewals: BTreeMap<Token, Timestamp>,
    /// The last token that the tables can know.
    known: Option<Token>,
}

/// What a record became, and the batch that says so.
type Became<'a> = (&'a Logged, &'a Value);

impl<'a> Latest<'a> {
    fn of(chunk: &'a [Arc<Logged>], known: Option<Token>) -> Latest<'a> {
        let (records, leases, renewals) = Default::default();
        let mut latest = Latest { records, leases, renewals, known };
        for (logged, edit) in chunk.iter().flat_map(|logged| logged.edits().iter().map(move |edit| (&**logged, edit))) {
            match edit {
                Edit::Lease(token, value) => latest.set_lease(*token, (logged, value)),
                Edit::Record(kind, id, value) => drop(latest.records.insert((*kind, id), (logged, value))),
                Edit::Renewed(token, expires_at) => drop(latest.renewals.insert(*token, *expires_at)),
            }
        }
        latest
    }

    /// A lease that was granted and ended here costs only its events.
    fn set_lease(&mut self, token: Token, became: Became<'a>) {
        self.renewals.remove(&token);
        if matches!(became.1, Value::Gone) && self.is_new(token) {
            self.leases.remove(&token);
        } else {
            self.leases.insert(token, became);
        }
    }

    fn is_new(&self, token: Token) -> bool {
        self.known.is_none_or(|known| token > known)
    }

    fn write(&self, db: &Db) -> Result<(), Error> {
        let fail = db.fail();
        let prepare = |sql| db.connection.prepare_cached(sql).map_err(fail);
        let mut put = prepare("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)")?;
        let mut delete = prepare("DELETE FROM records WHERE kind = ?1 AND id = ?2")?;
        let mut forget = prepare("DELETE FROM renewals WHERE token = ?1")?;
        let mut renew = prepare("INSERT OR REPLACE INTO renewals VALUES (?1, ?2)")?;
        let mut write = |kind: RecordKind, id: &RecordId, (logged, value): Became<'_>| {
            match logged.text_of(&db.path, value)? {
                Some(text) => put.execute(params![kind.as_str(), id.0, text]),
                None => delete.execute(params![kind.as_str(), id.0]),
            }
            .map_err(fail)
        };
        for ((kind, id), became) in &self.records {
            write(*kind, id, *became)?;
        }
        for (token, became) in &self.leases {
            if !self.is_new(*token) {
                forget.execute([token.as_u64() as i64]).map_err(fail)?;
            }
            write(RecordKind::Lease, &RecordId::from(*token), *became)?;
        }
        for (token, expires_at) in &self.renewals {
            renew.execute(params![token.as_u64() as i64, expires_at.unix_ms() as i64]).map_err(fail)?;
        }
        Ok(())
    }
}

/// The position of the tables in the journal.
pub(super) fn head(db: &Db) -> Result<Head, Error> {
    match meta(db, "head")? {
        Some(text) => serde_json::from_str(&text).map_err(|why| unreadable(&db.path, "its position", why)),
        None => Ok(Head::default()),
    }
}

pub(super) fn encode_head(head: Head) -> Result<String, Error> {
    serde_json::to_string(&head).map_err(|source| Error::Value {
        what: "the position".into(),
        doing: "written",
        source,
    })
}

pub(super) fn meta(db: &Db, key: &str) -> Result<Option<String>, Error> {
    let select = db.connection.prepare_cached("SELECT value FROM meta WHERE key = ?1");
    select.and_then(|mut select| select.query_row([key], |row| row.get(0)).optional()).map_err(db.fail())
}

pub(super) fn set_meta(db: &Db, key: &str, value: &str) -> Result<(), Error> {
    let set = db.connection.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)");
    set.and_then(|mut set| set.execute([key, value])).map(drop).map_err(db.fail())
}
