//! Owns the check of a store at rest: are the files whole, do they agree, and does the history make sense?
//!
//! Reads everything once and holds the tokens of the live leases in memory, nothing else that grows. Changes nothing: what is
//! damaged is evidence, and who checks may not even have the right to write.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rusqlite::OptionalExtension;
use tenure_core::change::{Head, Record, RecordId, RecordKind};
use tenure_core::event::{Cursor, Event};
use tenure_core::{Timestamp, Token};

use super::codec::decode_event;
use super::db::Db;
use super::dir::DataDir;
use super::journal::Journal;
use super::logged::{Edit, Logged, Value};
use super::sheets::{self, Bundle};
use super::tables::{self, SCHEMA};
use super::{check_step, records};
use crate::audit::Auditor;
use crate::{Error, Order};

/// How many problems a report lists; it counts them all.
const PROBLEMS_LISTED_MAX: usize = 100;

/// What stood in a row for each event, as sheets: nothing is brought forward by a check.
const SHEETS_OF_BEFORE: &str = "
    CREATE TEMP VIEW sheets AS SELECT seq AS last, seq AS first, at, '[' || value || ']' AS events FROM main.events;
    CREATE TEMP VIEW sheets_by_token AS
        SELECT token >> 6 AS bundle, seq AS sheet FROM main.events WHERE token IS NOT NULL;
";

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Where the ledger stands.
    pub head: Head,
    /// The oldest event kept.
    pub first_cursor: Cursor,
    /// How many events were read.
    pub events: u64,
    /// How many records the tables have.
    pub records: u64,
    /// How many leases are live.
    pub leases: u64,
    /// How many batches only the journal has; the next start folds them.
    pub unfolded: u64,
    /// The first problems, in words.
    pub problems: Vec<String>,
    /// How many there are in all.
    pub problems_found: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems_found == 0
    }

    fn problem(&mut self, what: impl ToString) {
        self.problems_found += 1;
        if self.problems.len() < PROBLEMS_LISTED_MAX {
            self.problems.push(what.to_string());
        }
    }
}

/// Checks a data directory that no server uses, or a backup file, and changes neither. An error means that the check could not be
/// made; what is wrong with the files is in the report.
pub fn check(path: &Path) -> Result<CheckReport, Error> {
    std::fs::metadata(path).map_err(|why| Error::io("open", path, why))?;
    let mut report = CheckReport::default();
    let checked = if path.is_file() { check_file(&mut report, path) } else { check_dir(&mut report, path) };
    match checked {
        Err(why @ (Error::Corrupt { .. } | Error::OutOfStep { .. } | Error::Newer { .. })) => report.problem(why),
        other => other?,
    }
    Ok(report)
}

fn check_dir(report: &mut CheckReport, path: &Path) -> Result<(), Error> {
    let dir = DataDir::at_rest(path)?;
    let (tables, before) = (dir.tables(), dir.journal_before());
    if before.exists() {
        let why = io::Error::other("an earlier version wrote it; start the server once, which brings it forward");
        return Err(Error::io("check", before, why));
    }
    let journal = dir.journal();
    match (tables.exists(), Journal::is_begun(&journal) || journal.iter().all(|book| book.exists())) {
        (false, false) => {
            let why = io::Error::new(io::ErrorKind::NotFound, "neither tables.db nor journal.1 is there");
            Err(Error::io("find a store in", path, why))
        }
        // Without a journal it may be one that a backup was put into.
        (_, false) => check_files(report, &tables, None),
        (_, true) => check_files(report, &tables, Some(&Journal::at_rest(&journal)?)),
    }
}

fn check_file(report: &mut CheckReport, path: &Path) -> Result<(), Error> {
    // A server may have the tables of its directory; a backup is nobody's.
    let _dir = path.parent().filter(|dir| dir.join("tables.db") == path).map(DataDir::at_rest).transpose()?;
    check_files(report, path, None)
}

fn check_files(report: &mut CheckReport, tables: &Path, journal: Option<&Journal>) -> Result<(), Error> {
    std::fs::metadata(tables).map_err(|why| Error::io("open", tables, why))?;
    let mut tables = Db::at_rest(tables)?;
    let form = form_of(&tables)?;
    match (tables.version()?, journal) {
        (0, None) => return Err(Error::Corrupt { path: tables.path, detail: "it is empty".to_owned() }),
        // What a first start that was cut short leaves; the next one goes on from there.
        (0, Some(_)) => tables = form_of(&tables)?,
        (1..4, _) => tables.execute_batch(SHEETS_OF_BEFORE)?,
        _ => {}
    }
    check_integrity(report, &tables)?;
    let folded = tables::head(&tables)?;
    report.head = folded;
    let extent = journal.map(Journal::extent).transpose()?.flatten();
    report.head = check_step(extent, &tables)?;
    report.unfolded = report.head.seq - folded.seq;
    let mut check = Check::new(report, &tables, form, folded)?;
    check.records()?;
    check.events()?;
    if let Some(journal) = journal {
        check.journal(journal)?;
    }
    check.finish();
    Ok(())
}

/// An empty database of the same form, brought forward as the next start does: what is folded on trial goes there.
fn form_of(tables: &Db) -> Result<Db, Error> {
    let version = tables.version()?;
    tables.check_version(version, SCHEMA.len())?;
    let form = Db::in_memory(&tables.path)?;
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY rowid";
    let mut statement = tables.connection.prepare(sql).map_err(tables.fail())?;
    for sql in statement.query_map([], |row| row.get::<_, String>(0)).map_err(tables.fail())? {
        form.execute_batch(&sql.map_err(tables.fail())?)?;
    }
    form.connection.pragma_update(None, "user_version", version as u32).map_err(tables.fail())?;
    form.migrate(SCHEMA)?;
    Ok(form)
}

fn check_integrity(report: &mut CheckReport, db: &Db) -> Result<(), Error> {
    let mut statement = db.connection.prepare("PRAGMA integrity_check(100)").map_err(db.fail())?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).map_err(db.fail())?;
    for line in lines {
        let line = line.map_err(db.fail())?;
        if line != "ok" {
            report.problem(format_args!("{}: {line}", db.path.display()));
        }
    }
    Ok(())
}

struct Check<'a> {
    report: &'a mut CheckReport,
    tables: &'a Db,
    form: Db,
    folded: Head,
    auditor: Auditor,
    /// The leases with a record.
    live: BTreeSet<Token>,
    /// The latest change of each record in the folded part of the journal.
    changed: BTreeMap<(RecordKind, RecordId), Option<String>>,
    renewed: BTreeMap<Token, Timestamp>,
    /// How many entries lead from tokens to sheets, by what is on the sheets.
    bundles: u64,
    /// The events of the sheet that was compared last.
    sheet: BTreeMap<Cursor, String>,
}

impl<'a> Check<'a> {
    fn new(report: &'a mut CheckReport, tables: &'a Db, form: Db, folded: Head) -> Result<Check<'a>, Error> {
        let first = sheets::first_event(tables)?.unwrap_or_else(|| folded.cursor.next());
        report.first_cursor = first;
        Ok(Check {
            report,
            tables,
            form,
            folded,
            auditor: Auditor::starting_at(first),
            live: BTreeSet::new(),
            changed: BTreeMap::new(),
            renewed: BTreeMap::new(),
            bundles: 0,
            sheet: BTreeMap::new(),
        })
    }

    /// Every record reads.
    fn records(&mut self) -> Result<(), Error> {
        let mut count = 0;
        records::load(self.tables, &mut |record| {
            count += 1;
            if let Record::Lease(lease) = record {
                self.live.insert(lease.token);
            }
        })?;
        self.report.records = count;
        Ok(())
    }

    /// Every event reads, is in its place, is found by its token, and the history makes sense.
    fn events(&mut self) -> Result<(), Error> {
        let tables = self.tables;
        let sql = "SELECT last, first, at, events FROM sheets ORDER BY last";
        let mut statement = tables.connection.prepare(sql).map_err(tables.fail())?;
        let mut rows = statement.query([]).map_err(tables.fail())?;
        let mut end = Cursor(self.report.first_cursor.0.saturating_sub(1));
        while let Some(row) = rows.next().map_err(tables.fail())? {
            let numbers = (|| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(|number| number as u64)))();
            let [last, first, at] = numbers.map_err(tables.fail())?;
            let text = row.get_ref(3).map_err(tables.fail())?.as_str().unwrap_or_default();
            let events = sheets::split(&tables.path, text)?;
            if events.len() as u64 != last.wrapping_sub(first).wrapping_add(1) {
                self.report.problem(format_args!("the sheet of events {first} to {last} has {} of them", events.len()));
            }
            let (mut bundles, mut until) = (BTreeSet::new(), None);
            for (event, seq) in events.iter().zip(first..) {
                let event = decode_event(&tables.path, event.get())?;
                if event.cursor.0 != seq {
                    self.report.problem(format_args!("event {seq} says that it is event {}", event.cursor.0));
                }
                bundles.extend(event.token.map(Bundle::from));
                (end, until) = (event.cursor, Some(event.at.unix_ms()));
                self.audit(&event);
            }
            if until != Some(at) {
                self.report.problem(format_args!("the sheet that ends with event {last} has another time than that"));
            }
            self.tokens(last, &bundles)?;
        }
        if end != self.folded.cursor {
            let expected = self.folded.cursor.0;
            self.report.problem(format_args!("the tables end at event {}, not at {expected}", end.0));
        }
        self.no_other_tokens()
    }

    /// The tokens on a sheet lead to it.
    fn tokens(&mut self, sheet: u64, bundles: &BTreeSet<Bundle>) -> Result<(), Error> {
        self.bundles += bundles.len() as u64;
        for Bundle(bundle) in bundles {
            let sql = "SELECT '' FROM sheets_by_token WHERE bundle = ?1 AND sheet = ?2";
            if self.text(sql, [*bundle, sheet as i64])?.is_none() {
                self.report.problem(format_args!("the sheet that ends with event {sheet} is not found by its tokens"));
            }
        }
        Ok(())
    }

    fn no_other_tokens(&mut self) -> Result<(), Error> {
        let count = self.tables.connection.query_row("SELECT count(*) FROM sheets_by_token", [], |row| row.get(0));
        let found = count.map(|count: i64| count as u64).map_err(self.tables.fail())?;
        if found > self.bundles {
            let extra = found - self.bundles;
            self.report.problem(format_args!("{extra} entries lead from tokens to sheets that do not have them"));
        }
        Ok(())
    }

    fn audit(&mut self, event: &Event) {
        self.report.events += 1;
        if let Err(violation) = self.auditor.push(event) {
            self.report.problem(violation);
        }
    }

    /// The folded rows agree with the tables; the others are the rest of the history, and the next start can fold them.
    fn journal(&mut self, journal: &Journal) -> Result<(), Error> {
        let mut seq = 0;
        loop {
            let batches = journal.read(seq, u64::MAX, Order::OldestFirst)?;
            if batches.is_empty() {
                break;
            }
            for logged in &batches {
                seq = logged.head.seq;
                if logged.head.seq <= self.folded.seq { self.folded_batch(logged)? } else { self.new_batch(logged)? }
            }
            self.try_fold(batches);
        }
        self.compare_records()
    }

    fn try_fold(&mut self, mut batches: Vec<Logged>) {
        batches.retain(|logged| logged.head.seq > self.folded.seq);
        let chunk: Vec<Arc<Logged>> = batches.into_iter().map(Arc::new).collect();
        if let (Some(first), Err(why)) = (chunk.first(), tables::try_fold(&self.form, &chunk, self.folded)) {
            self.report.problem(format_args!("what follows batch {} cannot be folded: {why}", first.head.seq - 1));
        }
    }

    fn new_batch(&mut self, logged: &Logged) -> Result<(), Error> {
        for edit in logged.edits() {
            match edit {
                Edit::Lease(token, Value::Gone) => drop(self.live.remove(token)),
                Edit::Lease(token, _) => drop(self.live.insert(*token)),
                Edit::Record(..) | Edit::Renewed(..) => {}
            }
        }
        logged.events().try_for_each(|event| {
            self.audit(&decode_event(&self.tables.path, event.text)?);
            Ok(())
        })
    }

    fn folded_batch(&mut self, logged: &Logged) -> Result<(), Error> {
        for edit in logged.edits() {
            let (kind, id, value) = match edit {
                Edit::Lease(token, value) => {
                    self.renewed.remove(token);
                    (RecordKind::Lease, RecordId::from(*token), value)
                }
                Edit::Record(kind, id, value) => (*kind, id.clone(), value),
                Edit::Renewed(token, expires_at) => {
                    self.renewed.insert(*token, *expires_at);
                    continue;
                }
            };
            let text = logged.text_of(&self.tables.path, value)?;
            self.changed.insert((kind, id), text.map(Cow::into_owned));
        }
        let first = self.report.first_cursor;
        for event in logged.events().filter(|event| event.cursor >= first) {
            if self.event(event.cursor)? != Some(event.text) {
                self.report.problem(format_args!("event {} differs between journal and tables", event.cursor.0));
            }
        }
        Ok(())
    }

    /// The text of an event in the tables. They are asked for in order, so a sheet is read once.
    fn event(&mut self, cursor: Cursor) -> Result<Option<&str>, Error> {
        if !self.sheet.contains_key(&cursor) {
            let sql = "SELECT first, events FROM sheets WHERE last >= ?1 ORDER BY last LIMIT 1";
            let select = self.tables.connection.prepare_cached(sql);
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, String>(1)?));
            let found = select.and_then(|mut select| select.query_row([cursor.0 as i64], read).optional());
            let (first, text) = found.map_err(self.tables.fail())?.unwrap_or((0, "[]".to_owned()));
            let events = sheets::split(&self.tables.path, &text)?;
            self.sheet = (first..).map(Cursor).zip(events.iter().map(|event| event.get().to_owned())).collect();
        }
        Ok(self.sheet.get(&cursor).map(String::as_str))
    }

    fn compare_records(&mut self) -> Result<(), Error> {
        for ((kind, id), expected) in std::mem::take(&mut self.changed) {
            let sql = "SELECT value FROM records WHERE kind = ?1 AND id = ?2";
            let found = self.text(sql, [kind.as_str(), id.0.as_str()])?;
            // Retention drops runs that are over from the tables, and the journal still has them for a while.
            let is_dropped = kind == RecordKind::Archive && found.is_none();
            if found != expected && !is_dropped {
                let what = format!("{} {} differs between journal and tables", kind.as_str(), id.0);
                self.report.problem(what);
            }
        }
        for (token, expires_at) in std::mem::take(&mut self.renewed) {
            let sql = "SELECT CAST(expires_at AS TEXT) FROM renewals WHERE token = ?1";
            let kept = self.text(sql, [token.as_u64() as i64])?;
            if self.live.contains(&token) && kept != Some(expires_at.unix_ms().to_string()) {
                self.report.problem(format_args!("the renewal of token {token} differs between journal and tables"));
            }
        }
        Ok(())
    }

    fn text<P: rusqlite::Params>(&self, sql: &str, key: P) -> Result<Option<String>, Error> {
        let select = self.tables.connection.prepare_cached(sql);
        let found = select.and_then(|mut select| select.query_row(key, |row| row.get(0)).optional());
        found.map_err(self.tables.fail())
    }

    /// What the history says is active is what the records say.
    fn finish(self) {
        let Check { report, auditor, live, .. } = self;
        report.leases = live.len() as u64;
        let active: BTreeSet<Token> = auditor.active().collect();
        for token in active.difference(&live) {
            report.problem(format_args!("token {token} was granted and has not ended, but has no record"));
        }
        for token in live.difference(&active).filter(|token| !auditor.may_predate(**token)) {
            report.problem(format_args!("token {token} has a record, but the history does not show it active"));
        }
        if let Err(violation) = auditor.finish() {
            report.problem(violation);
        }
    }
}
