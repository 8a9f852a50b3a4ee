//! Owns finding events in the tables: by cursor, by token through its bundle, by anything else block by block.

use rusqlite::Rows;
use tenure_core::Token;
use tenure_core::event::Cursor;

use super::codec::decode_event;
use super::db::Db;
use super::digest::Probe;
use super::sheets::{self, Bundle};
use crate::query::Search;
use crate::{Error, Order};

/// Looking at a block's digest costs about as much as looking at so many events.
const BLOCK_COST: usize = 4;

/// Looks through the tables, which hold events up to `last`, in the direction of the query.
pub(super) fn scan(db: &Db, search: &mut Search<'_>, last: Cursor) -> Result<(), Error> {
    let probe = Probe::new(search.query);
    if let Some(token) = search.query.token {
        scan_token(db, search, token, Range::of(search, last))?;
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

/// Looks at the sheets of a token's bundle. Only what can be about the token is decoded.
fn scan_token(db: &Db, search: &mut Search<'_>, token: Token, range: Range) -> Result<(), Error> {
    let sql = format!(
        "SELECT first, last, events FROM sheets_by_token JOIN sheets ON last = sheet WHERE bundle = ?3 AND {}",
        in_range("sheet", "sheets", search.query.order)
    );
    let mut statement = db.connection.prepare_cached(&sql).map_err(db.fail())?;
    let bounds = [range.after.0 as i64, range.last.0 as i64, Bundle::from(token).0];
    let mut rows = statement.query(bounds).map_err(db.fail())?;
    let named = format!(r#""token":{token}"#);
    look_at(db, search, &mut rows, |text| text.contains(&named))
}

/// Looks at every event of a range.
fn scan_range(db: &Db, search: &mut Search<'_>, range: Range) -> Result<(), Error> {
    if range.last <= range.after || !search.is_open() {
        return Ok(());
    }
    let sql =
        format!("SELECT first, last, events FROM sheets WHERE {}", in_range("last", "sheets", search.query.order));
    let mut statement = db.connection.prepare_cached(&sql).map_err(db.fail())?;
    let mut rows = statement.query([range.after.0 as i64, range.last.0 as i64]).map_err(db.fail())?;
    look_at(db, search, &mut rows, |_| true)
}

/// The rows of a table that have something after event ?1 and up to ?2, in order. Both ends are given by the key, so that nothing beyond
/// them is walked through in either direction.
fn in_range(key: &str, table: &str, order: Order) -> String {
    let direction = match order {
        Order::OldestFirst => "",
        Order::NewestFirst => "DESC",
    };
    format!(
        "{key} > ?1 AND {key} <= coalesce((SELECT min(last) FROM {table} WHERE last >= ?2), ?2) ORDER BY {key} {direction}"
    )
}

/// Looks at the events on these sheets that are in the range asked for. A sheet or an event whose text cannot match is passed over; a sheet
/// costs something all the same, because it was read.
fn look_at(
    db: &Db,
    search: &mut Search<'_>,
    rows: &mut Rows<'_>,
    may_match: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    while search.is_open() {
        let Some(row) = rows.next().map_err(db.fail())? else { return Ok(()) };
        let ends = (|| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))();
        let (first, last) = ends.map_err(db.fail())?;
        let sheet = row.get_ref(2).map_err(db.fail())?.as_str().unwrap_or_default();
        if may_match(sheet) {
            look_at_sheet(db, search, sheet, first, &may_match)?;
        }
        if search.is_open() {
            let end = if search.query.order == Order::NewestFirst { first } else { last };
            search.skip_to(Cursor(end), 1);
        }
    }
    Ok(())
}

fn look_at_sheet(
    db: &Db,
    search: &mut Search<'_>,
    sheet: &str,
    first: u64,
    may_match: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let mut events: Vec<_> = sheets::split(&db.path, sheet)?.into_iter().zip((first..).map(Cursor)).collect();
    if search.query.order == Order::NewestFirst {
        events.reverse();
    }
    for (text, cursor) in events {
        if !search.is_open() {
            break;
        }
        if search.query.spans(cursor) && search.is_ahead(cursor) && may_match(text.get()) {
            search.look(&decode_event(&db.path, text.get())?);
        }
    }
    Ok(())
}

/// Looks at the blocks whose digest does not rule the query out.
fn scan_blocks(db: &Db, search: &mut Search<'_>, probe: &Probe, last: Cursor) -> Result<(), Error> {
    let sql =
        format!("SELECT first, last, filter FROM blocks WHERE {}", in_range("last", "blocks", search.query.order));
    let range = Range::of(search, last);
    let mut statement = db.connection.prepare_cached(&sql).map_err(db.fail())?;
    let mut rows = statement.query([range.after.0 as i64, range.last.0 as i64]).map_err(db.fail())?;
    while search.is_open() {
        let Some(row) = rows.next().map_err(db.fail())? else { return Ok(()) };
        let block = (row.get::<_, i64>(0), row.get::<_, i64>(1));
        let (first, last) = (block.0.map_err(db.fail())? as u64, block.1.map_err(db.fail())? as u64);
        let filter = row.get_ref(2).map_err(db.fail())?;
        if probe.may_match(filter.as_blob().unwrap_or_default()) {
            let rest = Range::of(search, Cursor(last));
            scan_range(db, search, Range { after: rest.after.max(Cursor(first.saturating_sub(1))), ..rest })?;
        }
        if search.is_open() {
            let end = if search.query.order == Order::NewestFirst { first } else { last };
            search.skip_to(Cursor(end), BLOCK_COST);
        }
    }
    Ok(())
}

fn last_block(db: &Db) -> Result<Cursor, Error> {
    let last = db.connection.query_row("SELECT coalesce(max(last), 0) FROM blocks", [], |row| row.get::<_, i64>(0));
    last.map(|cursor| Cursor(cursor as u64)).map_err(db.fail())
}
