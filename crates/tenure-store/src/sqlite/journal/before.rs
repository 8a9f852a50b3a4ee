//! Owns the journal of earlier versions, a database of its own: what it has is folded into the tables, and a journal of books
//! goes on from there.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, Row as SqlRow, params};
use tenure_core::change::Head;
use tenure_core::event::Cursor;
use tenure_core::{Epoch, Timestamp, Token};

use super::super::codec::Row;
use super::super::db::Db;
use super::super::dir::{sync_directory, wal_of};
use super::super::logged::Logged;
use super::{Extent, STEP_BYTES};
use crate::Error;

/// The last version of its schema. The third keeps what is too large for a row in further ones.
const VERSION: usize = 3;

/// A journal of an earlier version.
pub(in super::super) struct Before {
    db: Db,
    has_parts: bool,
}

impl Before {
    /// Opens it; nothing if there is none.
    pub(in super::super) fn open(path: &Path) -> Result<Option<Before>, Error> {
        if !path.exists() {
            return Ok(None);
        }
        let db = Db::create(path)?;
        let version = db.version()?;
        db.check_version(version, VERSION)?;
        if version == 0 {
            // A first start was cut short before it had a table.
            drop(db);
            remove(path)?;
            return Ok(None);
        }
        Ok(Some(Before { db, has_parts: version == VERSION }))
    }

    /// The epoch claimed last.
    pub(in super::super) fn epoch(&self) -> Result<Epoch, Error> {
        let epoch = self.db.connection.query_row("SELECT epoch FROM claim", [], |row| row.get(0));
        epoch.map(Epoch).map_err(self.db.fail())
    }

    /// Its first and last row, if it has any.
    pub(in super::super) fn extent(&self) -> Result<Option<Extent>, Error> {
        let sql = "SELECT seq, epoch, at, token, cursor, (SELECT min(seq) FROM journal) FROM journal ORDER BY seq DESC LIMIT 1";
        let read = |row: &SqlRow<'_>| Ok(Extent { last: head_of(row)?, first: row.get::<_, i64>(5)? as u64 });
        self.db.connection.query_row(sql, [], read).optional().map_err(self.db.fail())
    }

    /// The next batches after this one; none at the end.
    pub(in super::super) fn read(&self, after: u64) -> Result<Vec<Logged>, Error> {
        let mut rows = Vec::new();
        self.read_rows(after, &mut rows).map_err(self.db.fail())?;
        rows.into_iter().map(|(head, row)| Logged::decode(&self.db.path, head, row)).collect()
    }

    fn read_rows(&self, after: u64, found: &mut Vec<(Head, Row)>) -> Result<(), rusqlite::Error> {
        let sql = "SELECT seq, epoch, at, token, cursor, changes, events FROM journal WHERE seq > ?1 ORDER BY seq";
        let mut statement = self.db.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![after as i64])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            let mut text = Row { changes: row.get(5)?, events: row.get(6)? };
            if self.has_parts {
                self.read_parts(row.get(0)?, &mut text)?;
            }
            bytes += text.bytes();
            found.push((head_of(row)?, text));
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Appends what did not fit into the row itself.
    fn read_parts(&self, seq: i64, row: &mut Row) -> Result<(), rusqlite::Error> {
        let sql = "SELECT changes, events FROM parts WHERE seq = ?1 ORDER BY part";
        let mut select = self.db.connection.prepare_cached(sql)?;
        let mut parts = select.query([seq])?;
        while let Some(part) = parts.next()? {
            row.changes.push_str(part.get_ref(0)?.as_str()?);
            row.events.push_str(part.get_ref(1)?.as_str()?);
        }
        Ok(())
    }

    /// Removes it for good.
    pub(in super::super) fn remove(self) -> Result<(), Error> {
        let path = self.db.path.clone();
        drop(self);
        remove(&path)
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    let files: [PathBuf; 2] = [path.to_owned(), wal_of(path)];
    for file in files.iter().filter(|file| file.exists()) {
        fs::remove_file(file).map_err(|why| Error::io("remove", file, why))?;
    }
    sync_directory(path)
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
