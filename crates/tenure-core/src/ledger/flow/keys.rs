//! Owns the memory of keyed starts: the same key gets the same run, while it goes on and for a while after its end.
//!
//! Keys of runs that are over live in memory only and are forgotten by a restart. Nothing here looks at all keys.

use std::collections::{HashMap, VecDeque};

use crate::Timestamp;
use crate::id::FlowId;
use crate::limits::{ENDED_FLOW_KEYS_MAX, IDEMPOTENCY_KEEP_MS};

/// Runs by the key they were started with.
#[derive(Default)]
pub(crate) struct FlowKeys {
    by_key: HashMap<Box<str>, FlowId>,
    /// Keys of runs that are over, and until when they are remembered.
    ended: HashMap<FlowId, (Timestamp, Box<str>)>,
    /// The same in the order of their ends. An entry that is no longer true is passed over.
    order: VecDeque<(Timestamp, FlowId)>,
}

impl FlowKeys {
    /// The run of a key.
    pub(crate) fn get(&self, key: &str) -> Option<FlowId> {
        self.by_key.get(key).copied()
    }

    /// A run with a key goes on, or goes on again.
    pub(crate) fn insert(&mut self, key: Box<str>, id: FlowId) {
        self.ended.remove(&id);
        self.by_key.insert(key, id);
    }

    /// The run of this key is over; the key is remembered for a while.
    pub(crate) fn end(&mut self, key: Box<str>, id: FlowId, now: Timestamp) {
        let until = now.plus_ms(IDEMPOTENCY_KEEP_MS);
        self.order.push_back((until, id));
        self.by_key.insert(key.clone(), id);
        self.ended.insert(id, (until, key));
    }

    /// Forgets the key of a run that is taken out of memory.
    pub(crate) fn remove(&mut self, key: &str, id: FlowId) {
        if self.get(key) == Some(id) {
            self.by_key.remove(key);
        }
    }

    /// Forgets the key of a run that is over.
    pub(crate) fn forget(&mut self, id: FlowId) {
        if let Some((_, key)) = self.ended.remove(&id) {
            self.remove(&key, id);
        }
    }

    /// Forgets what has been remembered long enough.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) || self.order.len() > ENDED_FLOW_KEYS_MAX {
            let Some((until, id)) = self.order.pop_front() else { return };
            if self.ended.get(&id).is_some_and(|(latest, _)| *latest == until) {
                self.forget(id);
            }
        }
    }
}
