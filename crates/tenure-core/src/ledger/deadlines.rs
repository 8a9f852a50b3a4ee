//! Owns what lapses when: one queue for leases, waits, closures and remembered keys.
//!
//! An entry is a hint, not a promise. A renewal does not touch the queue: it only moves the deadline in the lease, and
//! the entry is looked up again when it fires. So an entry may be too early or about something long gone, never too late.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::command::WaiterId;
use crate::id::{FlowId, TaskId};
use crate::ledger::tasks::QueueId;
use crate::serial::{AgentId, CoordinatorId, IntentId};
use crate::{Timestamp, Token};

/// What may lapse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Due {
    /// A lease expires.
    Lease(Token),
    /// A wait runs out.
    Wait(WaiterId),
    /// Closed resources open again.
    Closure(Token),
    /// A key of an ended lease is forgotten.
    Key(Token),
    /// A lost lease is forgotten.
    Lost(Token),
    /// An intent is tried again.
    Retry(IntentId),
    /// An agent has been silent too long.
    Agent(AgentId),
    /// A coordinator has been silent too long.
    Coordinator(CoordinatorId),
    /// Something about a task: it becomes visible, or one of its limits is reached.
    Task(TaskId),
    /// A run takes too long.
    Flow(FlowId),
    /// A poll has waited long enough.
    Poll(WaiterId),
    /// A queue's rate limit lets one more through.
    Queue(QueueId),
    /// What was too much for one turn goes on.
    Advance,
}

/// Entries for things that are gone are tolerated up to this many, and up to as many as there are live ones.
const STALE_MIN: usize = 1_024;

/// The queue of deadlines.
#[derive(Default)]
pub(crate) struct Deadlines {
    entries: BinaryHeap<Reverse<(Timestamp, Due)>>,
}

impl Deadlines {
    pub(crate) fn push(&mut self, at: Timestamp, due: Due) {
        self.entries.push(Reverse((at, due)));
    }

    /// As [`Deadlines::push`], if there is a deadline.
    pub(crate) fn extend(&mut self, at: Option<Timestamp>, due: Due) {
        if let Some(at) = at {
            self.push(at, due);
        }
    }

    /// The earliest entry.
    pub(crate) fn peek(&self) -> Option<(Timestamp, Due)> {
        self.entries.peek().map(|Reverse(entry)| *entry)
    }

    pub(crate) fn pop(&mut self) -> Option<(Timestamp, Due)> {
        self.entries.pop().map(|Reverse(entry)| entry)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether more than half of the entries must be about things that are gone, so that it pays to drop them.
    pub(crate) fn is_mostly_stale(&self, live: usize) -> bool {
        self.entries.len() > 2 * live + STALE_MIN
    }

    /// One entry for each live thing, at its real deadline. In place: short leases make it happen every thousand grants or so.
    pub(crate) fn rebuild(&mut self, deadline_of: impl Fn(Due) -> Option<Timestamp>) {
        let mut seen = HashSet::new();
        let mut entries = std::mem::take(&mut self.entries).into_vec();
        entries.retain_mut(|Reverse((at, due))| match deadline_of(*due) {
            Some(deadline) if seen.insert(*due) => {
                *at = deadline;
                true
            }
            _ => false,
        });
        if entries.capacity() > 8 * (entries.len() + STALE_MIN) {
            entries.shrink_to(2 * (entries.len() + STALE_MIN));
        }
        self.entries = entries.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuilt_queue_has_every_live_thing_once_and_at_its_real_deadline() {
        let at = Timestamp::from_unix_ms;
        let [other, shortened, gone] = [1, 2, 3].map(|token| Due::Lease(Token::from_u64(token)));
        let mut deadlines = Deadlines::default();
        // A shorter ttl is a second entry, and the heap may have it behind the first.
        for (ms, due) in [(0, other), (60, shortened), (5, shortened), (7, gone)] {
            deadlines.push(at(ms), due);
        }
        deadlines.rebuild(|due| match due {
            Due::Lease(token) if token.as_u64() == 1 => Some(at(9)),
            Due::Lease(token) if token.as_u64() == 2 => Some(at(5)),
            _ => None,
        });
        assert_eq!([deadlines.pop(), deadlines.pop()], [Some((at(5), shortened)), Some((at(9), other))]);
        assert_eq!(deadlines.pop(), None);
    }
}
