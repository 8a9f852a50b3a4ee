//! Owns the driver of tests: everything in memory, with faults on demand.
//!
//! «Durable» is what [`Memory::restart`] finds. Several handles can share one content, which is how a test plays a
//! deposed writer, or keeps hold of what a dead one left.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::change::{Batch, Change, Head, Record, RecordId, RecordKind, in_full};
use tenure_core::event::{Cursor, Event};
use tenure_core::flow::Archived;
use tenure_core::refusal::Ended;
use tenure_core::{Epoch, Token};

use crate::query::Search;
use crate::{CommitError, Error, EventPage, EventQuery, Order, Reader, Store, StoreStats};

/// How a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of the batch is durable.
    BeforeDurable,
    /// All of it is, and the writer is not told.
    AfterDurable,
}

#[derive(Clone, Default)]
struct Content {
    records: BTreeMap<(RecordKind, RecordId), Record>,
    events: Vec<Event>,
    /// Where in `events` a lease ended.
    ends: HashMap<Token, usize>,
    head: Head,
    epoch: Epoch,
    /// Fails the commit that counts it down from 1.
    fault: Option<(u64, Fault)>,
}

/// A store without files.
#[derive(Default)]
pub struct Memory {
    content: Arc<Mutex<Content>>,
    poisoned: bool,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// A second writer on the same content.
    #[must_use]
    pub fn handle(&self) -> Memory {
        Memory { content: Arc::clone(&self.content), poisoned: false }
    }

    /// What the next process finds: a copy of everything durable, without faults.
    #[must_use]
    pub fn restart(&self) -> Memory {
        let content = Content { fault: None, ..self.lock().clone() };
        Memory { content: Arc::new(Mutex::new(content)), poisoned: false }
    }

    /// Makes the nth commit from here fail, of whichever handle; 1 is the next one.
    pub fn fail_commit(&self, nth: u64, fault: Fault) {
        self.lock().fault = Some((nth, fault));
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }
}

/// A test that panicked while it held the lock has failed already; the others go on.
fn lock(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Content {
    /// The fault of this commit, if its turn has come.
    fn take_fault(&mut self) -> Option<Fault> {
        let (countdown, fault) = self.fault.as_mut()?;
        *countdown -= 1;
        let fault = *fault;
        if *countdown > 0 {
            return None;
        }
        self.fault = None;
        Some(fault)
    }

    fn apply(&mut self, batch: &Batch) {
        for change in in_full(batch.changes.clone(), &batch.events) {
            match change {
                Change::Put(record) => drop(self.records.insert((record.kind(), record.id()), record)),
                Change::Delete(kind, id) => drop(self.records.remove(&(kind, id))),
                Change::Renewed(token, expires_at) => {
                    let record = self.records.get_mut(&(RecordKind::Lease, RecordId::from(token)));
                    if let Some(Record::Lease(lease)) = record {
                        lease.expires_at = expires_at;
                    }
                }
                Change::Granted(_) | Change::Ended(_) => unreachable!("the ledger tells of every grant"),
            }
        }
        for event in &batch.events {
            if let (Some(_), Some(token)) = (event.kind.end(), event.token) {
                self.ends.insert(token, self.events.len());
            }
            self.events.push(event.clone());
        }
        self.head = batch.head;
    }
}

impl Store for Memory {
    fn claim(&mut self, at_least: Epoch) -> Result<Epoch, Error> {
        let mut content = self.lock();
        let last = content.epoch.max(content.head.last_epoch());
        content.epoch = last.next().max(at_least);
        Ok(content.epoch)
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, Error> {
        let content = self.lock();
        for kind in RecordKind::ALL.into_iter().filter(|kind| kind.is_live()) {
            content.records.iter().filter(|((of, _), _)| *of == kind).for_each(|(_, record)| each(record.clone()));
        }
        Ok(content.head)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        if self.poisoned {
            return Err(Error::Poisoned.into());
        }
        let content = Arc::clone(&self.content);
        let mut content = lock(&content);
        if batch.head.epoch < content.epoch {
            return Err(CommitError::Fenced { ours: batch.head.epoch, now: content.epoch });
        }
        let expected = content.head.seq + 1;
        if batch.head.seq != expected {
            return Err(Error::Sequence { expected, got: batch.head.seq }.into());
        }
        let fault = content.take_fault();
        if fault != Some(Fault::BeforeDurable) {
            content.apply(batch);
        }
        if fault.is_none() {
            return Ok(());
        }
        self.poisoned = true;
        Err(Error::Database { path: "memory".into(), detail: "a fault was asked for".to_owned() }.into())
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(MemoryReader(Arc::clone(&self.content)))
    }
}

struct MemoryReader(Arc<Mutex<Content>>);

impl Reader for MemoryReader {
    fn events(&self, query: &EventQuery) -> Result<EventPage, Error> {
        let content = lock(&self.0);
        let mut search = Search::new(query, usize::MAX);
        match query.order {
            Order::OldestFirst => content.events.iter().for_each(|event| search.look(event)),
            Order::NewestFirst => content.events.iter().rev().for_each(|event| search.look(event)),
        }
        Ok(search.into_page())
    }

    fn ended(&self, token: Token) -> Result<Option<Ended>, Error> {
        let content = lock(&self.0);
        let event = content.ends.get(&token).and_then(|at| content.events.get(*at));
        Ok(event.and_then(Ended::from_event))
    }

    fn archived(&self, id: &RecordId) -> Result<Option<Archived>, Error> {
        match lock(&self.0).records.get(&(RecordKind::Archive, id.clone())) {
            Some(Record::Archive(archived)) => Ok(Some((**archived).clone())),
            _ => Ok(None),
        }
    }

    fn archive(&self, before: Option<&RecordId>, limit: usize) -> Result<Vec<Archived>, Error> {
        let content = lock(&self.0);
        let newest_first = content.records.iter().rev().filter(|((kind, _), _)| *kind == RecordKind::Archive);
        let wanted = newest_first.filter(|((_, id), _)| before.is_none_or(|before| id < before));
        let archived = wanted.filter_map(|(_, record)| match record {
            Record::Archive(archived) => Some((**archived).clone()),
            _ => None,
        });
        Ok(archived.take(limit).collect())
    }

    fn first_cursor(&self) -> Result<Cursor, Error> {
        let content = lock(&self.0);
        Ok(content.events.first().map_or_else(|| content.head.cursor.next(), |event| event.cursor))
    }

    fn stats(&self) -> StoreStats {
        let head = lock(&self.0).head;
        let first_cursor = self.first_cursor().unwrap_or_default();
        StoreStats { head, folded: head, checkpointed_seq: head.seq, first_cursor, ..StoreStats::default() }
    }

    fn backup(&self, _to: &Path) -> Result<(), Error> {
        Err(Error::Unsupported { driver: "memory", what: "be backed up" })
    }
}
