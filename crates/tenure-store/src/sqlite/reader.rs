//! Owns reading while the writer writes: the tables, then the journal where memory has a hole, then memory; or the other
//! way round for the newest first. A batch leaves memory only after the tables have it, and the journal only after that,
//! so looking in this order nothing is missed, and a cursor tells what was seen already.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::Token;
use tenure_core::change::{Record, RecordId, RecordKind};
use tenure_core::event::Cursor;
use tenure_core::flow::Archived;
use tenure_core::refusal::Ended;

use super::backup;
use super::codec::{decode_event, decode_record};
use super::digest::Probe;
use super::dir::bytes_of;
use super::journal::Journal;
use super::logged::{Edit, EventText, Logged};
use super::pool::Pool;
use super::records;
use super::scan::scan;
use super::tables;
use super::tail::Tail;
use crate::query::Search;
use crate::{Error, EventPage, EventQuery, Order, Reader, StoreStats};

/// How many events one page may look at: some 20 ms.
const EVENTS_LOOKED_AT_MAX: usize = 20_000;

/// The reading side of [`Sqlite`](super::Sqlite).
pub(super) struct SqliteReader {
    pub(super) tail: Arc<Tail>,
    pub(super) journal: Arc<Journal>,
    pub(super) pool: Pool,
    pub(super) journal_paths: [PathBuf; 2],
}

impl SqliteReader {
    /// For complaints about what only the journal has.
    fn journal_path(&self) -> &Path {
        let [path, _] = &self.journal_paths;
        path
    }

    fn forward(&self, search: &mut Search<'_>) -> Result<(), Error> {
        loop {
            let view = self.tail.view(search.looked, search.query.before.unwrap_or(Cursor(u64::MAX)));
            let folded_seq = self.pool.read(|db| {
                let head = tables::head(db)?;
                scan(db, search, head.cursor)?;
                Ok(head.seq)
            })?;
            if !search.is_open() || self.forward_in_journal(search, folded_seq, view.first_seq)? {
                return view.batches.iter().try_for_each(|logged| self.look_at(search, logged.events()));
            }
            // The journal has forgotten them meanwhile, so the tables have more now.
        }
    }

    /// Looks at the batches between the tables and memory; `false` if one of them is gone.
    fn forward_in_journal(&self, search: &mut Search<'_>, mut seq: u64, first_seq: u64) -> Result<bool, Error> {
        while search.is_open() && seq + 1 < first_seq {
            let batches = self.journal.read(seq, first_seq, Order::OldestFirst)?;
            for logged in &batches {
                if logged.head.seq != seq + 1 {
                    return Ok(false);
                }
                self.look_at(search, logged.events())?;
                seq = logged.head.seq;
            }
            if batches.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn backward(&self, search: &mut Search<'_>) -> Result<(), Error> {
        let view = self.tail.view(search.query.after, search.looked);
        view.batches.iter().rev().try_for_each(|logged| self.look_at(search, logged.events().rev()))?;
        let mut seq = view.first_seq;
        // Rows are forgotten from the old end, and only what the tables have: where the journal ends, they go on.
        while search.is_open() && seq > view.folded_seq + 1 {
            let batches = self.journal.read(view.folded_seq, seq, Order::NewestFirst)?;
            batches.iter().try_for_each(|logged| self.look_at(search, logged.events().rev()))?;
            match batches.last() {
                Some(last) => seq = last.head.seq,
                None => break,
            }
        }
        if !search.is_open() {
            return Ok(());
        }
        self.pool.read(|db| scan(db, search, tables::head(db)?.cursor))
    }

    /// Looks at events of a batch. Those that were seen in the tables already are behind the search, and only what can match is
    /// read.
    fn look_at<'a>(&self, search: &mut Search<'_>, events: impl Iterator<Item = EventText<'a>>) -> Result<(), Error> {
        let probe = Probe::new(search.query);
        for event in events {
            if !search.is_open() {
                break;
            }
            let is_asked_for = search.query.token.is_none_or(|token| event.token == Some(token));
            if !search.is_ahead(event.cursor) {
                continue;
            } else if is_asked_for && probe.matches(event.keys) {
                search.look(&decode_event(self.journal_path(), event.text)?);
            } else {
                search.skip_to(event.cursor, 1);
            }
        }
        Ok(())
    }

    /// What a batch did last to a run that is over: nothing, removed it, or wrote it.
    fn change_of(&self, logged: &Logged, id: &RecordId) -> Result<Option<Option<Archived>>, Error> {
        let is_it = |edit: &&Edit| matches!(edit, Edit::Record(RecordKind::Archive, of, _) if of == id);
        let Some(Edit::Record(kind, _, value)) = logged.edits().iter().rev().find(is_it) else { return Ok(None) };
        let text = logged.text_of(self.journal_path(), value)?;
        let record = text.map(|text| decode_record(self.journal_path(), *kind, &text)).transpose()?;
        Ok(Some(record.and_then(archived)))
    }
}

fn archived(record: Record) -> Option<Archived> {
    match record {
        Record::Archive(archived) => Some(*archived),
        _ => None,
    }
}

impl Reader for SqliteReader {
    fn events(&self, query: &EventQuery) -> Result<EventPage, Error> {
        let mut search = Search::new(query, EVENTS_LOOKED_AT_MAX.max(query.limit + 1));
        match query.order {
            Order::OldestFirst => self.forward(&mut search)?,
            Order::NewestFirst => self.backward(&mut search)?,
        }
        Ok(search.into_page())
    }

    fn ended(&self, token: Token) -> Result<Option<Ended>, Error> {
        let mut query = EventQuery { token: Some(token), ..EventQuery::ends(1) };
        loop {
            let page = self.events(&query)?;
            let ended = page.events.first().and_then(Ended::from_event);
            if ended.is_some() || !page.more {
                return Ok(ended);
            }
            query.before = Some(page.next);
        }
    }

    fn archived(&self, id: &RecordId) -> Result<Option<Archived>, Error> {
        let view = self.tail.view_all();
        for logged in view.batches.iter().rev() {
            if let Some(found) = self.change_of(logged, id)? {
                return Ok(found);
            }
        }
        if view.first_seq > view.folded_seq + 1 {
            // What memory has let go of is in the journal: wait until the tables have it.
            self.tail.flush()?;
        }
        let found = self.pool.read(|db| records::get(db, RecordKind::Archive, id))?;
        Ok(found.and_then(archived))
    }

    fn archive(&self, before: Option<&RecordId>, limit: usize) -> Result<Vec<Archived>, Error> {
        self.tail.flush()?;
        let found = self.pool.read(|db| records::newest(db, RecordKind::Archive, before, limit))?;
        Ok(found.into_iter().filter_map(archived).collect())
    }

    fn first_cursor(&self) -> Result<Cursor, Error> {
        Ok(self.tail.progress().first)
    }

    fn stats(&self) -> StoreStats {
        let progress = self.tail.progress();
        StoreStats {
            head: progress.head,
            folded: progress.folded,
            checkpointed_seq: progress.checkpointed_seq,
            first_cursor: progress.first,
            journal_bytes: self.journal_paths.iter().map(|path| bytes_of(path)).sum(),
            tables_bytes: bytes_of(self.pool.path()),
            fold_error: self.tail.error().map(|why| why.to_string()),
        }
    }

    fn backup(&self, to: &Path) -> Result<(), Error> {
        self.tail.flush()?;
        backup::write(self.pool.path(), &self.journal, to)
    }
}
