//! Owns the memory of keyed starts: the same key gets the same run, while it goes on and for
//! [`IDEMPOTENCY_KEEP_MS`] after its end, also over a restart.
//!
//! A key is the latest run's that was started, or brought back, with it. Keys of runs that go on are in their runs' records; those
//! of runs that are over have records of their own. Nothing here looks at all keys.

use std::collections::{BTreeSet, HashMap};

use crate::Timestamp;
use crate::change::{Change, FlowKey, Record, RecordKind};
use crate::id::FlowId;
use crate::limits::{ENDED_FLOW_KEYS_MAX, IDEMPOTENCY_KEEP_MS};

/// How many keys one start forgets at most: more than the one it may add, so that the rest melts away.
const FORGOTTEN_AT_ONCE: usize = 16;

/// Runs by the key they were started with.
#[derive(Default)]
pub(crate) struct FlowKeys {
    by_key: HashMap<Box<str>, FlowId>,
    /// Keys of runs that are over. Each is also in `by_key`.
    ended: HashMap<FlowId, FlowKey>,
    /// The same by the time until which they are remembered.
    order: BTreeSet<(Timestamp, FlowId)>,
}

impl FlowKeys {
    /// The run of a key.
    pub(crate) fn get(&self, key: &str, now: Timestamp) -> Option<FlowId> {
        let id = self.by_key.get(key)?;
        self.ended.get(id).is_none_or(|kept| now < kept.until).then_some(*id)
    }

    /// A run with a key goes on, or goes on again.
    pub(crate) fn begin(&mut self, key: &str, id: FlowId, changes: &mut Vec<Change>) {
        if let Some(before) = self.by_key.insert(key.into(), id) {
            self.drop_ended(before, changes);
        }
    }

    /// The run of this key is over; the key is remembered for a while if no later run has it.
    pub(crate) fn end(&mut self, key: &str, id: FlowId, now: Timestamp, changes: &mut Vec<Change>) {
        if self.by_key.get(key) == Some(&id) {
            let kept = FlowKey { flow: id, key: key.into(), until: now.plus_ms(IDEMPOTENCY_KEEP_MS) };
            changes.push(Change::Put(Record::FlowKey(kept.clone())));
            self.restore(kept);
        }
        while self.order.len() > ENDED_FLOW_KEYS_MAX {
            let Some((_, oldest)) = self.order.first().copied() else { return };
            self.forget(oldest, changes);
        }
    }

    /// The key of a run that goes on, as the store had it; after those of runs that are over.
    pub(crate) fn restore_running(&mut self, key: &str, id: FlowId) {
        self.by_key.insert(key.into(), id);
    }

    /// The key of a run that is over, as the store had it.
    pub(crate) fn restore(&mut self, kept: FlowKey) {
        self.by_key.insert(kept.key.clone(), kept.flow);
        self.order.insert((kept.until, kept.flow));
        self.ended.insert(kept.flow, kept);
    }

    /// Forgets the key of a run that went on and is not kept.
    pub(crate) fn remove(&mut self, key: &str, id: FlowId) {
        if self.by_key.get(key) == Some(&id) {
            self.by_key.remove(key);
        }
    }

    /// Forgets the key of a run that is over.
    pub(crate) fn forget(&mut self, id: FlowId, changes: &mut Vec<Change>) {
        if let Some(kept) = self.drop_ended(id, changes) {
            self.remove(&kept.key, id);
        }
    }

    /// Forgets some of what has been remembered long enough.
    pub(crate) fn expire(&mut self, now: Timestamp, changes: &mut Vec<Change>) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some((_, id)) = self.order.first().copied().filter(|(until, _)| *until <= now) else { return };
            self.forget(id, changes);
        }
    }

    fn drop_ended(&mut self, id: FlowId, changes: &mut Vec<Change>) -> Option<FlowKey> {
        let kept = self.ended.remove(&id)?;
        self.order.remove(&(kept.until, id));
        changes.push(Change::Delete(RecordKind::FlowKey, id.into()));
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn no_more_keys_of_runs_that_are_over_are_remembered_than_the_bound_says_and_the_latest_are() {
        let (mut keys, mut changes) = (FlowKeys::default(), Vec::new());
        let now = Timestamp::from_unix_ms(1_000);
        let run = |number: usize| FlowId::from(Token::from_u64(number as u64));
        for number in 0..ENDED_FLOW_KEYS_MAX + 10 {
            changes.clear();
            keys.begin(&number.to_string(), run(number), &mut changes);
            keys.end(&number.to_string(), run(number), now, &mut changes);
        }
        assert_eq!((keys.ended.len(), keys.order.len()), (ENDED_FLOW_KEYS_MAX, ENDED_FLOW_KEYS_MAX));
        assert_eq!((keys.get("9", now), keys.get("10", now)), (None, Some(run(10))));
        assert!(matches!(changes.last(), Some(Change::Delete(RecordKind::FlowKey, _))), "and its record goes");
        let later = now.plus_ms(IDEMPOTENCY_KEEP_MS);
        assert_eq!(keys.get("10", later), None, "whether it is forgotten yet or not");
        for _ in 0..=ENDED_FLOW_KEYS_MAX / FORGOTTEN_AT_ONCE {
            keys.expire(later, &mut changes);
        }
        assert_eq!((keys.by_key.len(), keys.ended.len(), keys.order.len()), (0, 0, 0));
    }
}
