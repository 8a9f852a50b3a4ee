//! Owns a batch as the journal has it: its text, and where in it is what the tables and readers want.
//!
//! The batch itself is let go of once it is written. Thousands of batches wait to be folded, and what they hold would push
//! everything else out of the processor's caches.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use serde_json::value::RawValue;
use tenure_core::change::{Batch, Change, Head, Record, RecordId, RecordKind};
use tenure_core::event::{Cursor, Event};
use tenure_core::{Timestamp, Token};

use super::codec::{self, Entry, Row, decode_event, encode_record};
use super::db::unreadable;
use super::digest;
use crate::Error;

/// Text of this size weighs as much as a change.
const CHANGE_BYTES: usize = 1_024;

/// A batch as the journal has it.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) head: Head,
    pub(super) row: Row,
    edits: Vec<Edit>,
    marks: Vec<Mark>,
    /// What a digest has of the events, one after the other.
    keys: Vec<u64>,
}

/// What a change does to the tables.
#[derive(Debug)]
pub(super) enum Edit {
    /// A lease becomes something.
    Lease(Token, Value),
    /// Another record does.
    Record(RecordKind, RecordId, Value),
    /// A lease runs longer.
    Renewed(Token, Timestamp),
}

/// What a record becomes.
#[derive(Debug)]
pub(super) enum Value {
    /// What the event at this place tells.
    Told(usize),
    /// What this part of the changes says.
    Written(Range<usize>),
    /// Nothing.
    Gone,
}

/// Where the parts of an event are.
#[derive(Debug)]
struct Mark {
    cursor: Cursor,
    at: Timestamp,
    token: Option<Token>,
    text: Range<usize>,
    keys: Range<usize>,
}

/// An event in the text of its batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventText<'a> {
    pub(super) cursor: Cursor,
    pub(super) at: Timestamp,
    pub(super) token: Option<Token>,
    pub(super) text: &'a str,
    /// What a digest has of it.
    pub(super) keys: &'a [u64],
}

impl Logged {
    /// Writes a batch. The text is made in `draft`, which is used again and again and so is never far from the processor, and copied in one go: it
    /// is kept for a while, in no more room than it needs.
    pub(super) fn encode(batch: &Batch, draft: &mut Vec<u8>) -> Result<Logged, Error> {
        let mut logged = Logged::new(batch.head, Row::default(), batch.changes.len(), batch.events.len());
        draft.clear();
        codec::write_array(draft, &batch.events, |text, event| {
            let start = text.len();
            event.encode(text);
            logged.mark(event, start..text.len());
            Ok(())
        })?;
        // Leases change in the order in which events tell it; what comes in another is written in full.
        let mut telling = batch.events.iter().enumerate().filter(|(_, event)| event.kind.step().is_some()).peekable();
        let events = codec::text(draft.clone())?;
        draft.clear();
        codec::write_array(draft, &batch.changes, |text, change| {
            let lease = change.lease();
            let value = match telling.next_if(|(_, event)| lease.is_some() && event.token == lease) {
                Some((place, event)) if change.is_told_by(event) => {
                    codec::encode_told(text, place);
                    Value::Told(place)
                }
                _ => Value::Written(codec::encode_change(text, change)?),
            };
            logged.edits.push(Edit::of(change, value));
            Ok(())
        })?;
        logged.row = Row { changes: codec::text(draft.clone())?, events };
        Ok(logged)
    }

    /// Reads a row of the journal.
    pub(super) fn decode(path: &Path, head: Head, row: Row) -> Result<Logged, Error> {
        let fail = |why| unreadable(path, &format!("batch {}", head.seq), why);
        let texts: Vec<&RawValue> = serde_json::from_str(&row.events).map_err(fail)?;
        let entries: Vec<Entry<'_>> = serde_json::from_str(&row.changes).map_err(fail)?;
        let mut logged = Logged::new(head, Row::default(), entries.len(), texts.len());
        let mut events = Vec::with_capacity(texts.len());
        for text in texts {
            let event: Event = serde_json::from_str(text.get()).map_err(fail)?;
            logged.mark(&event, place_in(&row.events, text.get()));
            events.push(event);
        }
        for entry in entries {
            let value = match &entry {
                Entry::Told(place) => Value::Told(*place),
                Entry::Put(_, text) => Value::Written(place_in(&row.changes, text.get())),
                Entry::Delete(..) | Entry::Renewed(..) => Value::Gone,
            };
            logged.edits.push(Edit::of(&entry.into_change(path, &events)?, value));
        }
        logged.row = row;
        Ok(logged)
    }

    fn new(head: Head, row: Row, changes: usize, events: usize) -> Logged {
        let (edits, marks) = (Vec::with_capacity(changes), Vec::with_capacity(events));
        Logged { head, row, edits, marks, keys: Vec::with_capacity(events * digest::KEYS_USUAL) }
    }

    fn mark(&mut self, event: &Event, text: Range<usize>) {
        let start = self.keys.len();
        digest::push_keys(event, &mut self.keys);
        let keys = start..self.keys.len();
        self.marks.push(Mark { cursor: event.cursor, at: event.at, token: event.token, text, keys });
    }

    /// What it weighs beside others: its changes or events, or its text if that is large.
    pub(super) fn weight(&self) -> usize {
        self.edits.len().max(self.marks.len()).max(self.row.bytes() / CHANGE_BYTES).max(1)
    }

    pub(super) fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// Its events, in order.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = EventText<'_>> {
        self.marks.iter().map(|mark| EventText {
            cursor: mark.cursor,
            at: mark.at,
            token: mark.token,
            text: self.row.events.get(mark.text.clone()).unwrap_or_default(),
            keys: self.keys.get(mark.keys.clone()).unwrap_or_default(),
        })
    }

    /// The text that a record becomes; nothing if it is gone.
    pub(super) fn text_of(&self, path: &Path, value: &Value) -> Result<Option<Cow<'_, str>>, Error> {
        Ok(match value {
            Value::Gone => None,
            Value::Written(range) => Some(Cow::Borrowed(self.row.changes.get(range.clone()).unwrap_or_default())),
            Value::Told(place) => {
                let text = self.events().nth(*place).map_or("", |event| event.text);
                match Change::told_by(&decode_event(path, text)?) {
                    Some(Change::Put(record)) => Some(Cow::Owned(encode_record(&record)?)),
                    _ => return Err(codec::tells_nothing(path, *place)),
                }
            }
        })
    }
}

impl Edit {
    /// What a change comes to; `value` is what the record becomes if it is put.
    fn of(change: &Change, value: Value) -> Edit {
        match change {
            Change::Granted(token) => Edit::Lease(*token, value),
            Change::Ended(token) => Edit::Lease(*token, Value::Gone),
            Change::Renewed(token, expires_at) => Edit::Renewed(*token, *expires_at),
            Change::Put(Record::Lease(lease)) => Edit::Lease(lease.token, value),
            Change::Put(record) => Edit::Record(record.kind(), record.id(), value),
            Change::Delete(kind, id) => match change.lease() {
                Some(token) => Edit::Lease(token, Value::Gone),
                None => Edit::Record(*kind, id.clone(), Value::Gone),
            },
        }
    }
}

/// Where a part of a text is in it.
fn place_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use tenure_core::change::in_full;
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
        Logged::encode(batch, &mut Vec::new()).expect("written").row
    }

    fn read(batch: &Batch, row: Row) -> Result<Logged, Error> {
        Logged::decode(Path::new("journal.db"), batch.head, row)
    }

    /// All that the tables are told: events by their texts, changes by what becomes of the records.
    fn told(logged: &Logged) -> Vec<String> {
        let path = Path::new("journal.db");
        let events = logged.events().map(|event| format!("{event:?}"));
        let edits = logged.edits().iter().map(|edit| match edit {
            Edit::Lease(token, value) => format!("{token} {:?}", logged.text_of(path, value).expect("readable")),
            Edit::Record(kind, id, value) => {
                format!("{kind:?} {id:?} {:?}", logged.text_of(path, value).expect("readable"))
            }
            Edit::Renewed(token, until) => format!("{token} until {until:?}"),
        });
        events.chain(edits).collect()
    }

    /// The same, from the batch itself.
    fn known(batch: &Batch) -> Vec<String> {
        let events = batch.events.iter().map(|event| {
            let mut text = Vec::new();
            event.encode(&mut text);
            let mut keys = Vec::new();
            digest::push_keys(event, &mut keys);
            let text = std::str::from_utf8(&text).expect("text");
            format!("{:?}", EventText { cursor: event.cursor, at: event.at, token: event.token, text, keys: &keys })
        });
        let changes = in_full(batch.changes.clone(), &batch.events).map(|change| match (&change, change.lease()) {
            (Change::Put(record), lease) => {
                let text = Some(encode_record(record).expect("text"));
                lease.map_or_else(
                    || format!("{:?} {:?} {text:?}", record.kind(), record.id()),
                    |token| format!("{token} {text:?}"),
                )
            }
            (Change::Delete(..), Some(token)) => format!("{token} None"),
            (Change::Delete(kind, id), None) => format!("{kind:?} {id:?} None"),
            (Change::Renewed(token, until), _) => format!("{token} until {until:?}"),
            (Change::Granted(_) | Change::Ended(_), _) => panic!("not in full"),
        });
        events.chain(changes).collect()
    }

    #[test]
    fn a_batch_reads_back_as_it_was_and_says_nothing_twice() {
        let batch = eventful();
        assert_eq!(told(&Logged::encode(&batch, &mut Vec::new()).expect("written")), known(&batch));
        let row = written(&batch);
        // All but the lease with a grace, the key and both renewals are told by events.
        assert_eq!(batch.changes.len(), 10, "{:#?}", batch.changes);
        assert_eq!(row.changes.matches("told").count(), 6, "{}", row.changes);
        assert_eq!(told(&read(&batch, row).expect("read")), known(&batch));
    }

    #[test]
    fn a_row_from_before_that_tells_nothing_by_events_reads_back() {
        let batch = eventful();
        let mut row = written(&batch);
        let mut changes = Vec::new();
        let write = |text: &mut Vec<u8>, change: &Change| codec::encode_change(text, change).map(drop);
        let all: Vec<Change> = in_full(batch.changes.clone(), &batch.events).collect();
        codec::write_array(&mut changes, &all, write).expect("written");
        row.changes = codec::text(changes).expect("text");
        assert!(!row.changes.contains("told"), "{}", row.changes);
        assert_eq!(told(&read(&batch, row).expect("read")), known(&batch));
    }

    #[test]
    fn a_grant_that_no_event_tells_is_not_written_and_an_end_is_written_in_full() {
        let untold: [fn(&mut Event); 2] =
            [|event| event.token = Some(Token::from_u64(77)), |event| event.kind = EventKind::LedgerOpened];
        for alter in untold {
            let mut batch = eventful();
            batch.events.iter_mut().take(1).for_each(alter);
            let why = Logged::encode(&batch, &mut Vec::new()).expect_err("refused").to_string();
            assert!(why.contains("no event tells of the grant"), "{why}");
            let mut batch = eventful();
            batch.events.iter_mut().rev().take(1).for_each(alter);
            let row = written(&batch);
            assert!(row.changes.contains(r#"{"delete":["lease","#), "{}", row.changes);
            assert_eq!(told(&read(&batch, row).expect("read")), known(&batch));
        }
    }

    #[test]
    fn a_change_told_by_an_event_that_tells_none_is_damage() {
        let mut batch = eventful();
        batch.changes.clear();
        batch.events.iter_mut().take(1).for_each(|event| event.kind = EventKind::LedgerOpened);
        for place in [0, 70] {
            let row = Row { changes: format!(r#"[{{"told":{place}}}]"#), ..written(&batch) };
            let why = read(&batch, row).expect_err("refused");
            assert!(matches!(&why, Error::Corrupt { detail, .. } if detail.contains("tells no change")), "{why}");
        }
    }
}
