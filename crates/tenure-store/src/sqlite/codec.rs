//! Owns the text of a journal row: a batch's changes and events as two JSON arrays.
//!
//! ```text
//! changes  [{"put":["lease",{…}]}, {"delete":["lease","0000…1a"]}, {"renewed":[4294967322,1700000030000]}]
//! events   [{…}, {…}]
//! ```

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_core::change::{Batch, Change, Head, Record, RecordId, RecordKind};
use tenure_core::event::Event;
use tenure_core::{Timestamp, Token};

use super::db::unreadable;
use crate::Error;

/// How much memory is kept from one row to the next: a batch of 1,024 operations fits.
const KEPT_BYTES: usize = 1024 * 1024;

/// The text columns of a journal row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) changes: String,
    pub(super) events: String,
}

impl Row {
    /// Writes a batch over what was there.
    pub(super) fn encode(&mut self, batch: &Batch) -> Result<(), Error> {
        // One huge batch must not keep its memory for ever.
        for text in [&mut self.changes, &mut self.events] {
            text.clear();
            text.shrink_to(KEPT_BYTES);
        }
        array(&mut self.changes, &batch.changes, encode_change)?;
        array(&mut self.events, &batch.events, |text, event| {
            text.push_str(&encode_event(event)?);
            Ok(())
        })
    }

    /// Reads a batch back.
    pub(super) fn decode(&self, path: &Path, head: Head) -> Result<Batch, Error> {
        let row = || format!("batch {}", head.seq);
        let entries: Vec<Entry<'_>> =
            serde_json::from_str(&self.changes).map_err(|why| unreadable(path, &row(), why))?;
        let events = serde_json::from_str(&self.events).map_err(|why| unreadable(path, &row(), why))?;
        let changes = entries.into_iter().map(|entry| entry.into_change(path)).collect::<Result<_, _>>()?;
        Ok(Batch { head, changes, events })
    }
}

fn array<T>(
    text: &mut String,
    items: &[T],
    mut encode: impl FnMut(&mut String, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    text.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        encode(text, item)?;
    }
    text.push(']');
    Ok(())
}

/// Written by hand around the record's own JSON, which would otherwise be parsed once more to be embedded.
fn encode_change(text: &mut String, change: &Change) -> Result<(), Error> {
    let written = match change {
        Change::Put(record) => {
            let value = encode_record(record)?;
            write!(text, r#"{{"put":["{}",{value}]}}"#, record.kind().as_str())
        }
        Change::Delete(kind, id) => {
            let id = serde_json::to_string(id).map_err(|source| unwritable(format!("record {}", id.0), source))?;
            write!(text, r#"{{"delete":["{}",{id}]}}"#, kind.as_str())
        }
        Change::Renewed(token, expires_at) => {
            write!(text, r#"{{"renewed":[{token},{}]}}"#, expires_at.unix_ms())
        }
    };
    written.unwrap_or_else(|_| unreachable!("writing to a string does not fail"));
    Ok(())
}

pub(super) fn encode_record(record: &Record) -> Result<String, Error> {
    record.encode().map_err(|source| unwritable(format!("{} {}", record.kind().as_str(), record.id().0), source))
}

pub(super) fn encode_event(event: &Event) -> Result<String, Error> {
    serde_json::to_string(event).map_err(|source| unwritable(format!("event {}", event.cursor.0), source))
}

pub(super) fn decode_event(path: &Path, value: &str) -> Result<Event, Error> {
    serde_json::from_str(value).map_err(|why| unreadable(path, "an event", why))
}

pub(super) fn decode_record(path: &Path, kind: RecordKind, value: &str) -> Result<Record, Error> {
    Record::decode(kind, value).map_err(|why| unreadable(path, kind.as_str(), why))
}

/// The kind of that name, if this version has it.
pub(super) fn record_kind(path: &Path, name: &str) -> Result<RecordKind, Error> {
    RecordKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == name)
        .ok_or_else(|| Error::Newer { path: path.to_owned(), detail: format!("it has records of the kind {name:?}") })
}

fn unwritable(what: String, source: serde_json::Error) -> Error {
    Error::Value { what, doing: "written", source }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry<'a> {
    Put(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] &'a RawValue),
    Delete(#[serde(borrow)] Cow<'a, str>, RecordId),
    Renewed(Token, Timestamp),
}

impl Entry<'_> {
    fn into_change(self, path: &Path) -> Result<Change, Error> {
        Ok(match self {
            Entry::Put(kind, value) => Change::Put(decode_record(path, record_kind(path, &kind)?, value.get())?),
            Entry::Delete(kind, id) => Change::Delete(record_kind(path, &kind)?, id),
            Entry::Renewed(token, expires_at) => Change::Renewed(token, expires_at),
        })
    }
}
