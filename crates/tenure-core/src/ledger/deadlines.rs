//! Owns what lapses when: one queue for leases, waits, closures and remembered keys.
//!
//! An entry is a hint, not a promise. A renewal does not touch the queue: it only moves the deadline in the lease, and
//! the entry is looked up again when it fires. So an entry may be too early or about something long gone, never too late.
//! What came to nothing is cleared out a little with every command, never all at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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

/// Entries that came to nothing are tolerated up to this many, and up to as many as there are live things.
const STALE_MIN: usize = 4_096;

/// How many entries are looked at for each one that comes. More than one, so that it ends.
const LOOKS_PER_ENTRY: usize = 4;

type Entries = BinaryHeap<Reverse<(Timestamp, Due)>>;

/// The queue of deadlines.
#[derive(Default)]
pub(crate) struct Deadlines {
    entries: Entries,
    /// Entries that wait to be looked through: those that count go back to the others.
    aside: Entries,
    /// Which entry counts, for things that may have more than one.
    counting: BTreeMap<Due, Timestamp>,
    /// How many entries came since the last look.
    fresh: usize,
}

impl Deadlines {
    /// Has something that has no entry yet looked at when it is `at`.
    pub(crate) fn push(&mut self, at: Timestamp, due: Due) {
        self.fresh += 1;
        self.entries.push(Reverse((at, due)));
    }

    /// Has something that may have an entry already looked at when it is `at`, or sooner.
    pub(crate) fn push_again(&mut self, at: Timestamp, due: Due) {
        if self.counting.get(&due).is_none_or(|counts| at < *counts) {
            self.counting.insert(due, at);
            self.push(at, due);
        }
    }

    /// As [`Deadlines::push`], if there is a deadline.
    pub(crate) fn extend(&mut self, at: Option<Timestamp>, due: Due) {
        if let Some(at) = at {
            self.push(at, due);
        }
    }

    /// The earliest entry.
    pub(crate) fn peek(&self) -> Option<(Timestamp, Due)> {
        let firsts = self.entries.peek().into_iter().chain(self.aside.peek());
        firsts.map(|Reverse(entry)| *entry).min()
    }

    pub(crate) fn pop(&mut self) -> Option<(Timestamp, Due)> {
        let first = self.peek()?;
        let is_aside = self.aside.peek() == Some(&Reverse(first));
        if is_aside {
            self.aside.pop()
        } else {
            self.entries.pop()
        };
        self.drop_counting(first);
        Some(first)
    }

    /// Moves the earliest entry on, or drops it, if what it is about lapses at another time or never. Whether it was right.
    pub(crate) fn correct_first(&mut self, deadline: Option<Timestamp>) -> bool {
        let Some((at, due)) = self.peek() else { return false };
        let counts = self.counts((at, due));
        if counts && deadline.is_some_and(|deadline| deadline <= at) {
            return true;
        }
        let has_others = self.counting.contains_key(&due);
        self.pop();
        if let Some(later) = deadline.filter(|_| counts) {
            self.entries.push(Reverse((later, due)));
            if has_others {
                self.counting.insert(due, later);
            }
        }
        false
    }

    /// Looks through the entries if most of them must have come to nothing: a few for each that came since, so that nobody waits
    /// until a million are gone.
    pub(crate) fn clear_out(&mut self, live: usize, deadline_of: impl Fn(Due) -> Option<Timestamp>) {
        let looks = LOOKS_PER_ENTRY * std::mem::take(&mut self.fresh);
        if self.aside.is_empty() && self.entries.len() > 2 * live + STALE_MIN {
            let room = Entries::with_capacity(self.entries.len());
            self.aside = std::mem::replace(&mut self.entries, room);
        }
        for _ in 0..looks {
            let Some(Reverse(entry)) = self.aside.pop() else { return };
            if self.counts(entry) && deadline_of(entry.1).is_some() {
                self.entries.push(Reverse(entry));
            } else {
                self.drop_counting(entry);
            }
            if self.aside.is_empty() {
                self.aside = Entries::new();
            }
        }
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.aside.len()
    }

    fn counts(&self, (at, due): (Timestamp, Due)) -> bool {
        self.counting.get(&due).is_none_or(|counts| *counts == at)
    }

    fn drop_counting(&mut self, (at, due): (Timestamp, Due)) {
        if self.counting.get(&due) == Some(&at) {
            self.counting.remove(&due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    fn lease(token: u64) -> Due {
        Due::Lease(Token::from_u64(token))
    }

    #[test]
    fn no_operation_looks_at_more_than_a_few_entries_however_many_came_to_nothing() {
        const LIVE: u64 = 20_000;
        let mut deadlines = Deadlines::default();
        let looked_at = Cell::new(0);
        let (mut most, mut longest) = (0, 0);
        for token in 0..10 * LIVE {
            // The first ones live on; each of the others is gone before the next comes, and some would have been due sooner.
            deadlines.push(at(1_000_000 + token * 7_919 % 1_000_003), lease(token));
            looked_at.set(0);
            deadlines.clear_out(LIVE as usize, |due| {
                looked_at.set(looked_at.get() + 1);
                (due < lease(LIVE)).then_some(at(2_000_000))
            });
            most = most.max(looked_at.get());
            longest = longest.max(deadlines.len());
        }
        assert_eq!(most, LOOKS_PER_ENTRY, "entries looked at by one operation");
        assert!(longest < 3 * LIVE as usize + 2 * STALE_MIN, "{longest} entries");
        let mut left: Vec<Due> = std::iter::from_fn(|| deadlines.pop()).map(|(_, due)| due).collect();
        left.retain(|due| *due < lease(LIVE));
        assert_eq!(left.len(), LIVE as usize, "what lives keeps its entry");
    }

    #[test]
    fn entries_come_in_order_also_while_they_are_looked_through() {
        let mut deadlines = Deadlines::default();
        let count = 2 * STALE_MIN as u64;
        for token in 0..count {
            deadlines.push(at(token * 7_919 % count), lease(token));
        }
        deadlines.fresh = 10;
        deadlines.clear_out(0, |_| Some(at(count)));
        assert!(!deadlines.aside.is_empty() && !deadlines.entries.is_empty());
        let found: Vec<u64> = std::iter::from_fn(|| deadlines.pop()).map(|(at, _)| at.unix_ms()).collect();
        assert_eq!(found, (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn one_entry_counts_however_often_a_deadline_came_sooner() {
        let mut deadlines = Deadlines::default();
        deadlines.push(at(60), lease(1));
        for ms in [50, 40, 55, 45] {
            deadlines.push_again(at(ms), lease(1));
        }
        assert_eq!((deadlines.len(), deadlines.peek()), (3, Some((at(40), lease(1)))));
        assert!(!deadlines.correct_first(Some(at(70))), "it was too early");
        for _ in 0..2 {
            assert!(!deadlines.correct_first(Some(at(70))), "{:?} counts no more", deadlines.peek());
        }
        assert_eq!((deadlines.len(), deadlines.peek()), (1, Some((at(70), lease(1)))));
        assert!(deadlines.correct_first(Some(at(70))));
        assert!(!deadlines.correct_first(None), "it is gone");
        assert_eq!((deadlines.pop(), deadlines.counting.len()), (None, 0));
    }
}
