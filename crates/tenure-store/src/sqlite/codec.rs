//! Owns the text of a journal row: a batch's changes and events as two JSON arrays.
//!
//! ```text
//! changes  [{"told":0}, {"put":["key",{…}]}, {"delete":["key","0000…1a"]}, {"renewed":[4294967322,1700000030000]}]
//! events   [{…}, {…}]
//! ```
//!
//! `told` has the place of the event that says all of the change: grants and ends would write everything twice.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_core::change::{Change, Record, RecordId, RecordKind};
use tenure_core::event::Event;
use tenure_core::json::Object;
use tenure_core::{Timestamp, Token};

use super::db::unreadable;
use crate::Error;

/// The text columns of a journal row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) changes: String,
    pub(super) events: String,
}

impl Row {
    pub(super) fn bytes(&self) -> usize {
        self.changes.len() + self.events.len()
    }
}

/// Writes an array, each member by `encode`.
pub(super) fn write_array<T>(
    text: &mut Vec<u8>,
    items: &[T],
    mut encode: impl FnMut(&mut Vec<u8>, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    text.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        encode(text, item)?;
    }
    text.push(b']');
    Ok(())
}

/// What was written, as the text that it is.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|why| unwritable("a batch".to_owned(), serde::ser::Error::custom(why)))
}

/// Written by hand around the record's own JSON, which would otherwise be parsed once more to be embedded. Says where that is.
pub(super) fn encode_change(text: &mut Vec<u8>, change: &Change) -> Result<Range<usize>, Error> {
    let mut value = 0..0;
    let written = match change {
        Change::Put(record) => write!(text, r#"{{"put":["{}","#, record.kind().as_str()).and_then(|()| {
            let start = text.len();
            record.encode(text)?;
            value = start..text.len();
            text.write_all(b"]}")
        }),
        Change::Delete(kind, id) => {
            let id = serde_json::to_string(id).map_err(|source| unwritable(format!("record {}", id.0), source))?;
            write!(text, r#"{{"delete":["{}",{id}]}}"#, kind.as_str())
        }
        Change::Ended(token) => {
            return encode_change(text, &Change::Delete(RecordKind::Lease, RecordId::from(*token)));
        }
        Change::Granted(token) => Err(io::Error::other(format!("no event tells of the grant of lease {token}"))),
        Change::Renewed(token, expires_at) => {
            write!(text, r#"{{"renewed":[{token},{}]}}"#, expires_at.unix_ms())
        }
    };
    written.map_err(|why| unwritable("a change".to_owned(), serde::ser::Error::custom(why)))?;
    Ok(value)
}

pub(super) fn encode_told(text: &mut Vec<u8>, place: usize) {
    let mut object = Object::new(text);
    object.number("told", place as u64);
    object.end();
}

pub(super) fn encode_record(record: &Record) -> Result<String, Error> {
    record.to_json().map_err(|source| unwritable(format!("{} {}", record.kind().as_str(), record.id().0), source))
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

pub(super) fn tells_nothing(path: &Path, place: usize) -> Error {
    Error::Corrupt { path: path.to_owned(), detail: format!("event {place} of a batch tells no change") }
}

fn unwritable(what: String, source: serde_json::Error) -> Error {
    Error::Value { what, doing: "written", source }
}

/// A change as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry<'a> {
    Told(usize),
    Put(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] &'a RawValue),
    Delete(#[serde(borrow)] Cow<'a, str>, RecordId),
    Renewed(Token, Timestamp),
}

impl Entry<'_> {
    pub(super) fn into_change(self, path: &Path, events: &[Event]) -> Result<Change, Error> {
        Ok(match self {
            Entry::Told(place) => {
                events.get(place).and_then(Change::told_by).ok_or_else(|| tells_nothing(path, place))?
            }
            Entry::Put(kind, value) => Change::Put(decode_record(path, record_kind(path, &kind)?, value.get())?),
            Entry::Delete(kind, id) => Change::Delete(record_kind(path, &kind)?, id),
            Entry::Renewed(token, expires_at) => Change::Renewed(token, expires_at),
        })
    }
}
