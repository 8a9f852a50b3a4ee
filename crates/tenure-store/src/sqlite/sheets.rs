//! Owns the events in the tables: sheets of them, the way from a token to its sheets, and the digests over blocks of sheets.
//!
//! ```text
//!  block of ≥ 1,024 events ┌──────────────── digest ────────────────┐
//!  sheets                  [e, e, … 64] [e, e, … 64] [one long event] [e, e] …    one row each, JSON as the journal has it
//!                              ▲
//!  bundles of 64 tokens ───────┘
//! ```
//!
//! A row for every event cost more than everything else that is done with it: the place for it, its head, an entry in an index. Events
//! that are folded together stand on sheets together; a sheet is written once and dropped as a whole.
//!
//! The cursors on a sheet follow each other, so that its first one tells them all.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{CachedStatement, params};
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_core::event::Cursor;
use tenure_core::{Timestamp, Token};

use super::codec::decode_event;
use super::db::{Db, unreadable};
use super::digest::{Digest, push_keys};
use super::logged::{EventText, Logged};
use crate::Error;

/// How many events stand on one sheet: to find one of them all are read.
const SHEET_EVENTS: u64 = 64;
/// A longer event has a sheet of its own. It may be nested deeper than SQLite reads, and the view of a sheet that SQLite cannot read is
/// empty.
const SHARED_BYTES_MAX: usize = 1_024;
/// From the first to the last event of a sheet it is less than this: a sheet is dropped as a whole, when its last event is too old.
const SHEET_MS: u64 = 1_000;
/// How many events share one digest, at least.
const BLOCK_EVENTS: u64 = 1_024;
/// So many tokens in a row, by their last bits, lead to their sheets by one entry: leases that are granted together mostly end together. Part of the
/// file format: it must not change without a new schema version.
const BUNDLE_BITS: u32 = 6;

/// The tokens that lead to their sheets together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bundle(pub(super) i64);

impl From<Token> for Bundle {
    fn from(token: Token) -> Bundle {
        Bundle((token.as_u64() >> BUNDLE_BITS) as i64)
    }
}

/// Appends the events of a stretch of the journal, and a digest for every block that becomes full.
pub(super) fn append(db: &Db, chunk: &[Arc<Logged>], block: &mut Block) -> Result<(), Error> {
    let mut writer = Writer::new(db)?;
    let mut sheet = Sheet::default();
    for event in chunk.iter().flat_map(|logged| logged.events()) {
        if !sheet.takes(&event) {
            writer.write(&mut sheet, block)?;
        }
        sheet.add(&event);
        block.digest.add(event.keys);
    }
    if sheet.count > 0 {
        writer.write(&mut sheet, block)?;
    }
    Ok(())
}

/// A sheet in the making.
#[derive(Debug, Default)]
struct Sheet {
    count: u64,
    last: Cursor,
    /// When its first event happened.
    since: Timestamp,
    /// When its last one did.
    at: Timestamp,
    text: String,
    has_long: bool,
    bundles: Vec<Bundle>,
}

impl Sheet {
    /// Whether the next event can stand on it too.
    fn takes(&self, event: &EventText<'_>) -> bool {
        let has_room = self.count < SHEET_EVENTS && !self.has_long && event.text.len() <= SHARED_BYTES_MAX;
        let follows = event.cursor == self.last.next() && event.at.ms_since(self.since) < SHEET_MS;
        self.count == 0 || (has_room && follows)
    }

    fn add(&mut self, event: &EventText<'_>) {
        if self.count == 0 {
            self.since = event.at;
        }
        self.text.push(if self.count == 0 { '[' } else { ',' });
        self.text.push_str(event.text);
        self.count += 1;
        (self.last, self.at) = (event.cursor, event.at);
        self.has_long = event.text.len() > SHARED_BYTES_MAX;
        let bundle = event.token.map(Bundle::from);
        self.bundles.extend(bundle.filter(|bundle| !self.bundles.contains(bundle)));
    }

    fn first(&self) -> Cursor {
        Cursor(self.last.0 + 1 - self.count)
    }

    /// An empty one, with the room of this one.
    fn clear(&mut self) {
        self.text.clear();
        self.bundles.clear();
        (self.count, self.has_long) = (0, false);
    }
}

/// What writes sheets.
struct Writer<'a> {
    db: &'a Db,
    sheet: CachedStatement<'a>,
    bundle: CachedStatement<'a>,
    block: CachedStatement<'a>,
}

impl<'a> Writer<'a> {
    fn new(db: &'a Db) -> Result<Writer<'a>, Error> {
        let prepare = |sql| db.connection.prepare_cached(sql).map_err(db.fail());
        Ok(Writer {
            db,
            sheet: prepare("INSERT INTO sheets VALUES (?1, ?2, ?3, ?4)")?,
            bundle: prepare("INSERT INTO sheets_by_token VALUES (?1, ?2)")?,
            block: prepare("INSERT INTO blocks VALUES (?1, ?2, ?3)")?,
        })
    }

    /// Writes a sheet that has events, and the digest of its block if that is full with it.
    fn write(&mut self, sheet: &mut Sheet, block: &mut Block) -> Result<(), Error> {
        let fail = self.db.fail();
        sheet.text.push(']');
        let (first, last) = (sheet.first(), sheet.last.0 as i64);
        let row = params![last, first.0 as i64, sheet.at.unix_ms() as i64, sheet.text];
        self.sheet.execute(row).map_err(fail)?;
        for Bundle(bundle) in &sheet.bundles {
            self.bundle.execute([*bundle, last]).map_err(fail)?;
        }
        block.count_in(first, sheet.count);
        if block.count >= BLOCK_EVENTS {
            let row = params![last, block.first.0 as i64, block.digest.filter()];
            self.block.execute(row).map_err(fail)?;
            *block = Block::default();
        }
        sheet.clear();
        Ok(())
    }
}

/// The sheets that have no digest yet.
#[derive(Debug, Default)]
pub(super) struct Block {
    first: Cursor,
    count: u64,
    digest: Digest,
}

impl Block {
    fn count_in(&mut self, first: Cursor, count: u64) {
        if self.count == 0 {
            self.first = first;
        }
        self.count += count;
    }
}

/// The block that was not full when the tables were written last.
pub(super) fn open_block(db: &Db) -> Result<Block, Error> {
    let sql = "SELECT first, events FROM sheets WHERE last > (SELECT coalesce(max(last), 0) FROM blocks) ORDER BY last";
    let mut statement = db.connection.prepare_cached(sql).map_err(db.fail())?;
    let mut rows = statement.query([]).map_err(db.fail())?;
    let (mut block, mut keys) = (Block::default(), Vec::new());
    while let Some(row) = rows.next().map_err(db.fail())? {
        let first = Cursor(row.get::<_, i64>(0).map_err(db.fail())? as u64);
        let texts = split(&db.path, row.get_ref(1).map_err(db.fail())?.as_str().unwrap_or_default())?;
        for text in &texts {
            keys.clear();
            push_keys(&decode_event(&db.path, text.get())?, &mut keys);
            block.digest.add(&keys);
        }
        block.count_in(first, texts.len() as u64);
    }
    Ok(block)
}

/// The texts of the events on a sheet.
pub(super) fn split<'a>(path: &Path, sheet: &'a str) -> Result<Vec<&'a RawValue>, Error> {
    serde_json::from_str(sheet).map_err(|why| unreadable(path, "a sheet of events", why))
}

/// The bundles whose tokens are on a sheet, if it reads.
pub(super) fn bundles(sheet: &str) -> Result<BTreeSet<Bundle>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named {
        token: Option<Token>,
    }
    let events: Vec<Named> = serde_json::from_str(sheet)?;
    Ok(events.into_iter().filter_map(|event| event.token).map(Bundle::from).collect())
}

/// The oldest event kept, if there is any.
pub(super) fn first_event(db: &Db) -> Result<Option<Cursor>, Error> {
    let sql = "SELECT (SELECT first FROM sheets ORDER BY last LIMIT 1)";
    let first: Option<i64> = db.connection.query_row(sql, [], |row| row.get(0)).map_err(db.fail())?;
    Ok(first.map(|cursor| Cursor(cursor as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_part_of_the_file_format_and_stay() {
        assert_eq!(
            [63, 64, 6_400].map(|token| Bundle::from(Token::from_u64(token))),
            [Bundle(0), Bundle(1), Bundle(100)]
        );
    }
}
