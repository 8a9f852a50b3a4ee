//! Owns the text of a journal row: a batch's changes and events as two JSON arrays.
//!
//! ```text
//! changes  [{"told":0}, {"put":["key",{…}]}, {"delete":["key","0000…1a"]}, {"renewed":[4294967322,1700000030000]}]
//! events   [{…}, {…}]
//! ```
//!
//! `told` has the place of the event that says all of the change: grants and ends would write everything twice.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_core::change::{Batch, Change, Head, Record, RecordId, RecordKind};
use tenure_core::event::Event;
use tenure_core::json::Object;
use tenure_core::{Timestamp, Token};

use super::db::unreadable;
use crate::Error;

/// A row that was larger than this gives its memory back.
const ROW_BYTES_KEPT: usize = 1 << 20;

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

    /// Both texts in pieces of at most so many bytes; one pair, unless there is very much of them.
    pub(super) fn parts(&self, max: usize) -> Vec<(&str, &str)> {
        let (mut changes, mut events) = (&*self.changes, &*self.events);
        let mut parts = Vec::with_capacity(1);
        while parts.is_empty() || !changes.is_empty() || !events.is_empty() {
            parts.push((cut(&mut changes, max), cut(&mut events, max)));
        }
        parts
    }
}

/// Takes the first piece of a text.
fn cut<'a>(rest: &mut &'a str, max: usize) -> &'a str {
    let fits = (0..=max.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
    let (first, others) = rest.split_at(fits);
    *rest = others;
    first
}

/// A batch as the journal has it: with the text of its events, which the tables take over instead of writing it again.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) batch: Arc<Batch>,
    events: String,
    /// Where in it the text of each event is.
    spans: Vec<Range<usize>>,
}

impl Logged {
    /// Writes a batch, over what was in the row: one row serves all commits, so that they need no memory for it.
    pub(super) fn encode(batch: Arc<Batch>, row: &mut Row) -> Result<Logged, Error> {
        // Leases change in the order in which events tell it; what comes in another is written in full.
        let mut telling = batch.events.iter().enumerate().filter(|(_, event)| event.kind.step().is_some()).peekable();
        write_array(&mut row.changes, &batch.changes, |text, change| {
            let lease = change.lease();
            match telling.next_if(|(_, event)| lease.is_some() && event.token == lease) {
                Some((place, event)) if change.is_told_by(event) => encode_told(text, place),
                _ => encode_change(text, change)?,
            }
            Ok(())
        })?;
        let mut spans = Vec::with_capacity(batch.events.len());
        write_array(&mut row.events, &batch.events, |text, event| {
            let start = text.len();
            event.encode(text);
            spans.push(start..text.len());
            Ok(())
        })?;
        // In few sizes, so that the allocator gives out again what it got back.
        let mut events = String::with_capacity(row.events.len().next_power_of_two());
        events.push_str(&row.events);
        Ok(Logged { batch, events, spans })
    }

    /// Reads a batch back.
    pub(super) fn decode(path: &Path, head: Head, row: Row) -> Result<Logged, Error> {
        let fail = |why| unreadable(path, &format!("batch {}", head.seq), why);
        let texts: Vec<&RawValue> = serde_json::from_str(&row.events).map_err(fail)?;
        let events = texts.iter().map(|text| serde_json::from_str(text.get())).collect::<Result<Vec<_>, _>>();
        let events = events.map_err(fail)?;
        let entries: Vec<Entry<'_>> = serde_json::from_str(&row.changes).map_err(fail)?;
        let changes = entries.into_iter().map(|entry| entry.into_change(path, &events)).collect::<Result<_, _>>()?;
        let batch = Arc::new(Batch { head, changes, events });
        let origin = row.events.as_ptr().addr();
        let span = |text: &&RawValue| {
            let start = text.get().as_ptr().addr() - origin;
            start..start + text.get().len()
        };
        let spans = texts.iter().map(span).collect();
        Ok(Logged { spans, batch, events: row.events })
    }

    /// The events with their text.
    pub(super) fn events(&self) -> impl Iterator<Item = (&Event, &str)> {
        let texts = self.spans.iter().map(|span| self.events.get(span.clone()).unwrap_or_default());
        self.batch.events.iter().zip(texts)
    }
}

fn write_array<T>(
    text: &mut String,
    items: &[T],
    mut encode: impl FnMut(&mut Vec<u8>, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut bytes = std::mem::take(text).into_bytes();
    bytes.clear();
    bytes.shrink_to(ROW_BYTES_KEPT);
    bytes.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        encode(&mut bytes, item)?;
    }
    bytes.push(b']');
    *text = String::from_utf8(bytes).map_err(|why| unwritable("a batch".to_owned(), serde::ser::Error::custom(why)))?;
    Ok(())
}

/// Written by hand around the record's own JSON, which would otherwise be parsed once more to be embedded.
fn encode_change(text: &mut Vec<u8>, change: &Change) -> Result<(), Error> {
    let written = match change {
        Change::Put(record) => write!(text, r#"{{"put":["{}","#, record.kind().as_str()).and_then(|()| {
            record.encode(text)?;
            text.write_all(b"]}")
        }),
        Change::Delete(kind, id) => {
            let id = serde_json::to_string(id).map_err(|source| unwritable(format!("record {}", id.0), source))?;
            write!(text, r#"{{"delete":["{}",{id}]}}"#, kind.as_str())
        }
        Change::Renewed(token, expires_at) => {
            write!(text, r#"{{"renewed":[{token},{}]}}"#, expires_at.unix_ms())
        }
    };
    written.map_err(|why| unwritable("a change".to_owned(), serde::ser::Error::custom(why)))
}

fn encode_told(text: &mut Vec<u8>, place: usize) {
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

fn unwritable(what: String, source: serde_json::Error) -> Error {
    Error::Value { what, doing: "written", source }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry<'a> {
    Told(usize),
    Put(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] &'a RawValue),
    Delete(#[serde(borrow)] Cow<'a, str>, RecordId),
    Renewed(Token, Timestamp),
}

impl Entry<'_> {
    fn into_change(self, path: &Path, events: &[Event]) -> Result<Change, Error> {
        Ok(match self {
            Entry::Told(place) => events.get(place).and_then(Change::told_by).ok_or_else(|| Error::Corrupt {
                path: path.to_owned(),
                detail: format!("event {place} of a batch tells no change"),
            })?,
            Entry::Put(kind, value) => Change::Put(decode_record(path, record_kind(path, &kind)?, value.get())?),
            Entry::Delete(kind, id) => Change::Delete(record_kind(path, &kind)?, id),
            Entry::Renewed(token, expires_at) => Change::Renewed(token, expires_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::command::{Acquire, Acquired, Release, Renew};
    use tenure_core::event::EventKind;
    use tenure_core::lease::Mode;
    use tenure_core::{Holder, Ledger, Resource, Ttl, Turn};

    use super::*;

    fn acquire(name: &str) -> Acquire {
        let holder = Holder::parse("ann").expect("a holder");
        Acquire::new([Resource::parse(name).expect("a resource")], holder, Ttl::from_ms(30_000).expect("a ttl"))
    }

    fn granted(ledger: &mut Ledger, turn: &mut Turn<'_>, acquire: Acquire) -> Token {
        let Acquired::Granted(grant) = ledger.apply(turn, acquire) else { panic!("not granted") };
        grant.lease.token
    }

    /// Every way in which a lease's record changes, in one batch.
    fn eventful() -> Batch {
        let mut ledger = Ledger::default();
        let start = Timestamp::from_unix_ms(1_700_000_000_000);
        let mut turn = Turn::new(start, &|_| true);
        let whole = granted(&mut ledger, &mut turn, acquire("task:1"));
        let metadata = RawValue::from_string(r#"{"why": "\u00e9"}"#.to_owned()).ok();
        let note = Acquire { metadata, within: Some(whole), ..acquire("task:1") };
        let part = granted(&mut ledger, &mut turn, note);
        granted(&mut ledger, &mut turn, Acquire { grace_ms: 5, ..acquire("task:2") });
        let keyed = granted(&mut ledger, &mut turn, Acquire { key: Some("k".into()), ..acquire("task:3") });
        granted(&mut ledger, &mut turn, Acquire { mode: Mode::Shared, ..acquire("task:4") });
        let mut later = Turn::new(start.plus_ms(7), &|_| true);
        (later.changes, later.events) = (turn.changes, turn.events);
        let holder = acquire("task:1").holder;
        ledger.apply(&mut later, Renew { tokens: vec![part], holder: holder.clone(), ttl: Ttl::from_ms(60_000).ok() });
        ledger.apply(&mut later, Renew { tokens: vec![keyed], holder: holder.clone(), ttl: None });
        ledger.apply(&mut later, Release { token: whole, holder });
        Batch { head: ledger.head(), changes: later.changes, events: later.events }
    }

    fn written(batch: &Batch) -> Row {
        let mut row = Row::default();
        Logged::encode(Arc::new(batch.clone()), &mut row).expect("written");
        row
    }

    fn read(batch: &Batch, row: Row) -> Result<String, Error> {
        Logged::decode(Path::new("journal.db"), batch.head, row).map(|read| format!("{:?}", read.batch))
    }

    #[test]
    fn a_batch_reads_back_as_it_was_and_says_nothing_twice() {
        let batch = eventful();
        let row = written(&batch);
        // All but the lease with a grace, the key and the plain renewal are told by events.
        assert_eq!(batch.changes.len(), 10, "{:#?}", batch.changes);
        assert_eq!(row.changes.matches("told").count(), 7, "{}", row.changes);
        assert_eq!(read(&batch, row).expect("read"), format!("{batch:?}"));
    }

    #[test]
    fn a_row_from_before_that_tells_nothing_by_events_reads_back() {
        let batch = eventful();
        let mut row = written(&batch);
        write_array(&mut row.changes, &batch.changes, encode_change).expect("written");
        assert!(!row.changes.contains("told"), "{}", row.changes);
        assert_eq!(read(&batch, row).expect("read"), format!("{batch:?}"));
    }

    #[test]
    fn a_change_that_differs_from_its_event_in_anything_is_written_in_full() {
        let alter: [fn(&mut Event); 9] = [
            |event| event.resources.push(Resource::parse("task:9").expect("a resource")),
            |event| event.holder = Holder::parse("bob").ok(),
            |event| event.token = Some(Token::from_u64(77)),
            |event| event.mode = Some(Mode::Shared),
            |event| event.acquired_at = None,
            |event| event.expires_at = event.acquired_at,
            |event| event.ttl = Ttl::from_ms(1_000).ok(),
            |event| event.within = Some(Token::from_u64(77)),
            |event| event.data = RawValue::from_string("{}".to_owned()).ok(),
        ];
        for (at, alter) in alter.into_iter().enumerate() {
            let mut batch = eventful();
            batch.events.iter_mut().take(1).for_each(alter);
            let row = written(&batch);
            assert!(row.changes.starts_with(r#"[{"put":"#), "{at}: {}", row.changes);
            assert_eq!(read(&batch, row).expect("read"), format!("{batch:?}"), "{at}");
        }
    }

    #[test]
    fn a_change_told_by_an_event_that_tells_none_is_damage() {
        let mut batch = eventful();
        batch.events.iter_mut().take(1).for_each(|event| event.kind = EventKind::LedgerOpened);
        for place in [0, 70] {
            let row = Row { changes: format!(r#"[{{"told":{place}}}]"#), ..written(&batch) };
            let why = read(&batch, row).expect_err("refused");
            assert!(matches!(&why, Error::Corrupt { detail, .. } if detail.contains("tells no change")), "{why}");
        }
    }
}
