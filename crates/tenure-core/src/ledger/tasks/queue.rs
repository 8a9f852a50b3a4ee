//! Owns the queues that workers poll: which task is next, who waits for one, and how many of a name may run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::command::WaiterId;
use crate::id::TaskId;
use crate::limits::QUEUES_MAX;
use crate::task::command::{Claimant, QueueName};
use crate::task::{RateLimit, Task};
use crate::{Holder, Timestamp};

/// Names a queue while the ledger is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(u32);

/// The larger priority first, then what was visible first.
type Place = (Reverse<u8>, Timestamp, TaskId);

/// A poll that waits for a task.
pub(crate) struct Waiting {
    pub(crate) by: Claimant,
    pub(crate) count: usize,
    pub(crate) deadline: Timestamp,
}

/// One queue.
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    ready: BTreeSet<Place>,
    pub(crate) waiting: BTreeMap<WaiterId, Waiting>,
    pub(crate) last_poll: Option<(Timestamp, Option<Holder>)>,
    /// When its rate limit lets the next one through.
    pub(crate) wakes_at: Option<Timestamp>,
}

/// What runs under one name, in all domains.
#[derive(Default)]
struct Running {
    count: usize,
    starts: VecDeque<Timestamp>,
    queues: Vec<QueueId>,
}

/// All queues.
#[derive(Default)]
pub(crate) struct Queues {
    all: Vec<Queue>,
    by_name: HashMap<QueueName, QueueId>,
    running: HashMap<Arc<str>, Running>,
    /// Which queue a waiting poll is in.
    polls: HashMap<WaiterId, QueueId>,
    /// Queues in which something may be had since polls were last served.
    offered: BTreeSet<QueueId>,
    /// Where the search for a queue that nobody needs goes on.
    hand: usize,
}

impl Queues {
    /// The queue of this name; a new one if there is none and there may be more.
    pub(crate) fn open(&mut self, name: &QueueName, is_needed: bool) -> Option<QueueId> {
        if let Some(id) = self.by_name.get(name) {
            return Some(*id);
        }
        let is_full = self.all.len() >= QUEUES_MAX;
        if is_full && !is_needed {
            return None;
        }
        let freed = if is_full { self.free_one() } else { None };
        let id = match freed {
            Some(id) => id,
            None => QueueId(u32::try_from(self.all.len()).ok()?),
        };
        let queue = Queue {
            name: name.clone(),
            ready: BTreeSet::new(),
            waiting: BTreeMap::new(),
            last_poll: None,
            wakes_at: None,
        };
        match self.all.get_mut(id.0 as usize) {
            Some(place) => *place = queue,
            None => self.all.push(queue),
        }
        self.by_name.insert(name.clone(), id);
        self.running.entry(name.name.clone()).or_default().queues.push(id);
        Some(id)
    }

    /// Takes the place of a queue in which nothing waits and of whose name nothing runs. Names made up while running would
    /// otherwise stay for ever. If all are needed there is none.
    fn free_one(&mut self) -> Option<QueueId> {
        for _ in 0..self.all.len() {
            self.hand = (self.hand + 1) % self.all.len();
            let Some(queue) = self.all.get(self.hand) else { continue };
            let running = self.running.get(&queue.name.name);
            let is_idle = running.is_none_or(|running| running.count == 0 && running.starts.is_empty());
            if is_idle && queue.ready.is_empty() && queue.waiting.is_empty() {
                let (id, name) = (QueueId(self.hand as u32), queue.name.clone());
                self.by_name.remove(&name);
                if let Some(running) = self.running.get_mut(&name.name) {
                    running.queues.retain(|queue| *queue != id);
                    if running.queues.is_empty() {
                        self.running.remove(&name.name);
                    }
                }
                return Some(id);
            }
        }
        None
    }

    pub(crate) fn get(&self, id: QueueId) -> Option<&Queue> {
        self.all.get(id.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.all.get_mut(id.0 as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.all.iter()
    }

    pub(crate) fn find(&self, name: &QueueName) -> Option<&Queue> {
        self.get(*self.by_name.get(name)?)
    }

    pub(crate) fn add(&mut self, name: &QueueName, task: &Task) {
        let Some(id) = self.open(name, true) else { return };
        if let Some(queue) = self.get_mut(id) {
            queue.ready.insert(place(task));
            self.offered.insert(id);
        }
    }

    pub(crate) fn remove(&mut self, name: &QueueName, task: &Task) {
        let Some(id) = self.by_name.get(name).copied() else { return };
        if let Some(queue) = self.get_mut(id) {
            queue.ready.remove(&place(task));
        }
    }

    /// A worker has started on a task of this queue.
    pub(crate) fn started(&mut self, name: &QueueName, limited_at: Option<Timestamp>) {
        let running = self.running.entry(name.name.clone()).or_default();
        running.count += 1;
        running.starts.extend(limited_at);
    }

    /// A start did not count after all.
    pub(crate) fn not_started(&mut self, name: &QueueName) {
        if let Some(running) = self.running.get_mut(&name.name) {
            running.starts.pop_back();
        }
        self.stopped(name);
    }

    /// A worker is no longer at a task of this queue: another one of the name may be.
    pub(crate) fn stopped(&mut self, name: &QueueName) {
        if let Some(running) = self.running.get_mut(&name.name) {
            running.count = running.count.saturating_sub(1);
            self.offered.extend(running.queues.iter().copied());
        }
    }

    pub(crate) fn running(&self, name: &str) -> usize {
        self.running.get(name).map_or(0, |running| running.count)
    }

    /// When the rate limit lets one more through; nothing if it does now.
    pub(crate) fn open_at(&mut self, name: &str, rate: RateLimit, now: Timestamp) -> Option<Timestamp> {
        let running = self.running.get_mut(name)?;
        let window_ms = u64::from(rate.seconds) * 1_000;
        while running.starts.front().is_some_and(|start| start.plus_ms(window_ms) <= now) {
            running.starts.pop_front();
        }
        let over = running.starts.len().checked_sub(rate.count as usize)?;
        running.starts.get(over).map(|start| start.plus_ms(window_ms))
    }

    pub(crate) fn wait(&mut self, queue: QueueId, id: WaiterId, waiting: Waiting) {
        if let Some(found) = self.get_mut(queue) {
            found.waiting.insert(id, waiting);
            self.polls.insert(id, queue);
        }
    }

    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<Waiting> {
        let queue = self.polls.remove(&id)?;
        self.get_mut(queue)?.waiting.remove(&id)
    }

    pub(crate) fn deadline_of(&self, id: WaiterId) -> Option<Timestamp> {
        Some(self.get(*self.polls.get(&id)?)?.waiting.get(&id)?.deadline)
    }

    pub(crate) fn polls(&self) -> usize {
        self.polls.len()
    }

    /// Something may be had in this queue.
    pub(crate) fn offer(&mut self, id: QueueId) {
        self.offered.insert(id);
    }

    pub(crate) fn next_offered(&mut self) -> Option<QueueId> {
        self.offered.pop_first()
    }

    /// When somebody last polled this queue.
    pub(crate) fn polled_at(&self, name: &QueueName) -> Option<Timestamp> {
        self.find(name)?.last_poll.as_ref().map(|(at, _)| *at)
    }
}

impl Queue {
    /// Its tasks, the next one first.
    pub(crate) fn ready(&self) -> impl Iterator<Item = TaskId> {
        self.ready.iter().map(|(_, _, id)| *id)
    }

    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }
}

fn place(task: &Task) -> Place {
    (Reverse(task.priority), task.visible_at, task.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(at: usize) -> QueueName {
        QueueName { name: format!("n{at}").into(), domain: None }
    }

    #[test]
    fn names_that_nobody_needs_any_more_make_room_for_new_ones() {
        let mut queues = Queues::default();
        queues.started(&name(1), None);
        for at in 0..QUEUES_MAX {
            queues.open(&name(at), true).expect("there is room");
        }
        assert!(queues.open(&name(QUEUES_MAX), false).is_none(), "a poll is not remembered");
        for at in QUEUES_MAX..QUEUES_MAX + 10 {
            queues.open(&name(at), true).expect("a task needs it");
        }
        assert_eq!((queues.all.len(), queues.by_name.len()), (QUEUES_MAX, QUEUES_MAX));
        assert!(queues.running.len() <= QUEUES_MAX);
        assert!(queues.find(&name(1)).is_some(), "something of this name runs");
        let found = queues.find(&name(QUEUES_MAX + 9)).expect("it is there");
        assert_eq!(found.name, name(QUEUES_MAX + 9));
    }
}
