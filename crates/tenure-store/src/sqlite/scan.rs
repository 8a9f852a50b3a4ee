//! Owns finding events in the tables: by cursor, by token through its index, by anything else block by block.

use rusqlite::{Rows, params};
use tenure_core::event::Cursor;

use super::codec::decode_event;
use super::db::Db;
use super::digest::Probe;
use crate::query::Search;
use crate::{Error, Order};

/// Looking at a block's digest costs about as much as looking at so many events.
const BLOCK_COST: usize = 4;

/// Looks through the tables, which hold events up to `last`, in the direction of the query.
pub(super) fn scan(db: &Db, search: &mut Search<'_>, last: Cursor) -> Result<(), Error> {
    let probe = Probe::new(search.query);
    if search.query.token.is_some() {
        scan_token(db, search)?;
    } else if probe.is_open() {
        scan_range(db, search, Range::of(search, last))?;
    } else {
        match search.query.order {
            Order::OldestFirst => {
                scan_blocks(db, search, &probe, last)?;
                scan_range(db, search, Range::of(search, last))?;
            }
            Order::NewestFirst => {
                let in_blocks = last_block(db)?;
                let range = Range::of(search, last);
                scan_range(db, search, Range { after: range.after.max(in_blocks), ..range })?;
                scan_blocks(db, search, &probe, last)?;
            }
        }
    }
    if search.is_open() {
        let end = match search.query.order {
            Order::OldestFirst => {
                last.min(search.query.before.map_or(last, |before| Cursor(before.0.saturating_sub(1))))
            }
            Order::NewestFirst => search.query.after.next(),
        };
        search.skip_to(end, 0);
    }
    Ok(())
}

/// Events after one cursor and up to another.
#[derive(Clone, Copy)]
struct Range {
    after: Cursor,
    last: Cursor,
}

impl Range {
    /// What the search has still to look at in tables that end at `last`.
    fn of(search: &Search<'_>, last: Cursor) -> Range {
        let query = search.query;
        let up_to = |before: Cursor| last.min(Cursor(before.0.saturating_sub(1)));
        match query.order {
            Order::OldestFirst => Range { after: search.looked, last: query.before.map_or(last, up_to) },
            Order::NewestFirst => Range { after: query.after, last: up_to(search.looked) },
        }
    }
}

fn scan_token(db: &Db, search: &mut Search<'_>) -> Result<(), Error> {
    let Some(token) = search.query.token else { return Ok(()) };
    let sql = match search.query.order {
        Order::OldestFirst => "SELECT value FROM events WHERE token = ?1 ORDER BY seq",
        Order::NewestFirst => "SELECT value FROM events WHERE token = ?1 ORDER BY seq DESC",
    };
    let mut statement = db.connection.prepare_cached(sql).map_err(db.fail())?;
    let mut rows = statement.query([token.as_u64() as i64]).map_err(db.fail())?;
    look_at(db, search, &mut rows)
}

/// Looks at every event of a range; kind and holder are compared by the database, so that only what matches is decoded. The
/// search compares again, so an event whose JSON the database cannot read, because it is too deep, comes through.
fn scan_range(db: &Db, search: &mut Search<'_>, range: Range) -> Result<(), Error> {
    if range.last <= range.after || !search.is_open() {
        return Ok(());
    }
    let filter = "SELECT value, seq FROM events WHERE seq > ?1 AND seq <= ?2 AND CASE
             WHEN ?3 IS NULL AND ?4 IS NULL OR NOT json_valid(value) THEN TRUE
             ELSE (?3 IS NULL OR value ->> '$.holder' = ?3)
                 AND (?4 IS NULL OR instr(?4, ' ' || (value ->> '$.kind') || ' ') > 0)
         END ORDER BY seq";
    let descending = search.query.order == Order::NewestFirst;
    let sql = format!("{filter}{}", if descending { " DESC" } else { "" });
    let kinds: String = search.query.kinds.iter().map(|kind| format!(" {} ", kind.as_str())).collect();
    let holder = search.query.holder.as_ref().map(|holder| holder.as_str());
    let mut statement = db.connection.prepare_cached(&sql).map_err(db.fail())?;
    let bounds = params![range.after.0 as i64, range.last.0 as i64, holder, (!kinds.is_empty()).then_some(kinds),];
    let mut rows = statement.query(bounds).map_err(db.fail())?;
    look_at(db, search, &mut rows)
}

fn look_at(db: &Db, search: &mut Search<'_>, rows: &mut Rows<'_>) -> Result<(), Error> {
    while search.is_open() {
        let Some(row) = rows.next().map_err(db.fail())? else { return Ok(()) };
        let value = row.get_ref(0).map_err(db.fail())?;
        let event = decode_event(&db.path, value.as_str().unwrap_or_default())?;
        if search.query.spans(event.cursor) {
            search.look(&event);
        }
    }
    Ok(())
}

/// Looks at the blocks whose digest does not rule the query out.
fn scan_blocks(db: &Db, search: &mut Search<'_>, probe: &Probe, last: Cursor) -> Result<(), Error> {
    let sql = match search.query.order {
        Order::OldestFirst => "SELECT first, last, filter FROM blocks WHERE last > ?1 AND first <= ?2 ORDER BY last",
        Order::NewestFirst => {
            "SELECT first, last, filter FROM blocks WHERE last > ?1 AND first <= ?2 ORDER BY last DESC"
        }
    };
    let range = Range::of(search, last);
    let mut statement = db.connection.prepare_cached(sql).map_err(db.fail())?;
    let mut rows = statement.query([range.after.0 as i64, range.last.0 as i64]).map_err(db.fail())?;
    while search.is_open() {
        let Some(row) = rows.next().map_err(db.fail())? else { return Ok(()) };
        let block = (row.get::<_, i64>(0), row.get::<_, i64>(1));
        let (first, last) = (block.0.map_err(db.fail())? as u64, block.1.map_err(db.fail())? as u64);
        let filter = row.get_ref(2).map_err(db.fail())?;
        let mut cost = BLOCK_COST;
        if probe.may_match(filter.as_blob().unwrap_or_default()) {
            let rest = Range::of(search, Cursor(last));
            scan_range(db, search, Range { after: rest.after.max(Cursor(first.saturating_sub(1))), ..rest })?;
            cost += (last - first) as usize;
        }
        if search.is_open() {
            let end = if search.query.order == Order::NewestFirst { first } else { last };
            search.skip_to(Cursor(end), cost);
        }
    }
    Ok(())
}

fn last_block(db: &Db) -> Result<Cursor, Error> {
    let last = db.connection.query_row("SELECT coalesce(max(last), 0) FROM blocks", [], |row| row.get::<_, i64>(0));
    last.map(|cursor| Cursor(cursor as u64)).map_err(db.fail())
}
