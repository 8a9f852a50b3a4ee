//! Owns how long events are kept. Only events are ever dropped, the oldest first; what is active is not one of them.

use serde::Deserialize;
use tenure_core::Timestamp;
use tenure_core::event::Cursor;

use super::db::Db;
use super::sheets::{self, Bundle};
use super::tail::FOLD_CHANGES;
use crate::Error;

/// How many events one step drops: more than the largest usual chunk adds, so that dropping keeps up with folding.
const STEP_EVENTS: usize = 2 * FOLD_CHANGES;

/// How many of the oldest runs that are over one step looks at.
const STEP_ARCHIVE: usize = 64;

/// How long events, and with them the ended leases and the runs that are over, are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// Drop what is older, by the ledger's clock.
    pub age_ms: u64,
    /// Drop the oldest while `tables.db` uses more. The records count, but are never dropped.
    pub bytes: u64,
}

impl Default for Retain {
    /// 30 days, 10 GB.
    fn default() -> Retain {
        Retain { age_ms: 30 * 24 * 3_600 * 1_000, bytes: 10_000_000_000 }
    }
}

/// Drops a few events that are too old or too many; says which is now the oldest, if any was dropped.
pub(super) fn step(db: &Db, retain: Retain, now: Timestamp) -> Result<Option<Cursor>, Error> {
    let is_large = used_bytes(db)? > retain.bytes;
    // Times are in the order of events, so the too old ones are the first.
    let oldest_kept = if is_large { u64::MAX } else { now.unix_ms().saturating_sub(retain.age_ms) };
    let oldest_kept = i64::try_from(oldest_kept).unwrap_or(i64::MAX);
    drop_archive(db, oldest_kept)?;
    let Some(last) = last_dropped(db, oldest_kept)? else { return Ok(None) };
    let transaction = db.connection.unchecked_transaction().map_err(db.fail())?;
    forget_tokens(db, last)?;
    for sql in ["DELETE FROM sheets WHERE last <= ?1", "DELETE FROM blocks WHERE last <= ?1"] {
        let delete = db.connection.prepare_cached(sql);
        delete.and_then(|mut delete| delete.execute([last])).map_err(db.fail())?;
    }
    transaction.commit().map_err(db.fail())?;
    Ok(Some(Cursor(last as u64 + 1)))
}

/// The last of the few sheets to drop. A sheet goes when its last event is too old; the others are not much older.
fn last_dropped(db: &Db, oldest_kept: i64) -> Result<Option<i64>, Error> {
    let mut select =
        db.connection.prepare_cached("SELECT last, first, at FROM sheets ORDER BY last").map_err(db.fail())?;
    let mut rows = select.query([]).map_err(db.fail())?;
    let (mut dropped, mut events) = (None, 0);
    while events < STEP_EVENTS {
        let Some(row) = rows.next().map_err(db.fail())? else { break };
        let sheet = (|| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?]))();
        let [last, first, at] = sheet.map_err(db.fail())?;
        if at >= oldest_kept {
            break;
        }
        dropped = Some(last);
        events += (last - first + 1).max(1) as usize;
    }
    Ok(dropped)
}

/// Takes away what leads from tokens to the sheets up to here.
fn forget_tokens(db: &Db, last: i64) -> Result<(), Error> {
    let prepare = |sql| db.connection.prepare_cached(sql).map_err(db.fail());
    let mut select = prepare("SELECT last, events FROM sheets WHERE last <= ?1")?;
    let mut delete = prepare("DELETE FROM sheets_by_token WHERE bundle = ?1 AND sheet = ?2")?;
    // All entries are looked at for this: only where a sheet does not say which are its own.
    let mut delete_all = prepare("DELETE FROM sheets_by_token WHERE sheet = ?1")?;
    let mut rows = select.query([last]).map_err(db.fail())?;
    while let Some(row) = rows.next().map_err(db.fail())? {
        let sheet: i64 = row.get(0).map_err(db.fail())?;
        let text = row.get_ref(1).map_err(db.fail())?.as_str().unwrap_or_default();
        match sheets::bundles(text) {
            Ok(bundles) => bundles.iter().try_for_each(|Bundle(bundle)| delete.execute([*bundle, sheet]).map(drop)),
            Err(_) => delete_all.execute([sheet]).map(drop),
        }
        .map_err(db.fail())?;
    }
    Ok(())
}

/// Drops a few runs that ended too long ago.
fn drop_archive(db: &Db, oldest_kept: i64) -> Result<(), Error> {
    let old = old_archive(db, oldest_kept).map_err(db.fail())?;
    if old.is_empty() {
        return Ok(());
    }
    let transaction = db.connection.unchecked_transaction().map_err(db.fail())?;
    for id in old {
        let delete = db.connection.prepare_cached("DELETE FROM records WHERE kind = 'archive' AND id = ?1");
        delete.and_then(|mut delete| delete.execute([id])).map_err(db.fail())?;
    }
    transaction.commit().map_err(db.fail())
}

/// The ids of those among the oldest runs that ended too long ago. Their JSON is not read by the database, which fails where it is
/// nested too deep: one run must not stop folding. One that does not read at all is kept, for the check to find.
fn old_archive(db: &Db, oldest_kept: i64) -> Result<Vec<String>, rusqlite::Error> {
    let sql = "SELECT id, value FROM records WHERE kind = 'archive' ORDER BY id LIMIT ?1";
    let mut select = db.connection.prepare_cached(sql)?;
    let mut rows = select.query([STEP_ARCHIVE as i64])?;
    let mut old = Vec::new();
    while let Some(row) = rows.next()? {
        let run: Option<Run> = serde_json::from_str(row.get_ref(1)?.as_str()?).ok();
        let ended_at = run.and_then(|run| run.flow.ended_at);
        if ended_at.is_some_and(|at| (at.unix_ms() as i64) < oldest_kept) {
            old.push(row.get(0)?);
        }
    }
    Ok(old)
}

/// What retention reads of a run that is over.
#[derive(Deserialize)]
struct Run {
    flow: Times,
}

#[derive(Deserialize)]
struct Times {
    ended_at: Option<Timestamp>,
}

/// The pages in use; dropped events leave free pages that are used again.
fn used_bytes(db: &Db) -> Result<u64, Error> {
    let pragma = |name| db.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(db.fail());
    Ok(((pragma("page_count")? - pragma("freelist_count")?) * pragma("page_size")?).max(0) as u64)
}
