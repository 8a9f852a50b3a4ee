//! Owns waiting (L9): who is in line for what, and who is next when something becomes free.
//!
//! All waits have one order. When something ends, only waits that overlap it are looked at, oldest first; one is granted
//! if nothing active and no older wait stands against it. Waits live in memory only: they end with their connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};

use crate::command::{Acquire, Leave, WaiterId};
use crate::lease::{Mode, Resources};
use crate::ledger::conflict::{ByMode, Chain, Wanted};
use crate::ledger::deadlines::Due;
use crate::ledger::{Command, Ledger, Turn};
use crate::limits::{WAITERS_PER_HOLDER_MAX, WAITERS_PER_RESOURCE_MAX};
use crate::refusal::{Conflict, Refusal};
use crate::{Holder, Resource, Timestamp, Token};

/// One wait.
pub(crate) struct Waiter {
    pub(crate) request: Acquire,
    pub(crate) chain: Chain,
    pub(crate) deadline: Timestamp,
}

impl Waiter {
    pub(crate) fn resources(&self) -> &Resources {
        &self.request.resources
    }

    pub(crate) fn mode(&self) -> Mode {
        self.request.mode
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.request.holder
    }
}

/// Waits to look at, the oldest first, each with the place where it was found.
type Line = BinaryHeap<Reverse<(WaiterId, Resource, Mode)>>;

/// Everyone in line.
#[derive(Default)]
pub(crate) struct Queue {
    waiters: BTreeMap<WaiterId, Waiter>,
    pub(crate) wanted: ByMode,
    last: u64,
    /// How many of them live within a lease: they may pass others that wait for that very lease.
    nested: usize,
}

impl Queue {
    pub(crate) fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether nobody in line lives within a lease, so that whoever waits at a place waits for those before it there.
    pub(crate) fn is_strict(&self) -> bool {
        self.nested == 0
    }

    /// A place in the one order of all waits.
    pub(crate) fn next_id(&mut self) -> WaiterId {
        self.last += 1;
        WaiterId(self.last)
    }

    fn insert(&mut self, waiter: Waiter) -> WaiterId {
        let id = self.next_id();
        self.wanted.insert(waiter.resources(), waiter.mode(), id.0);
        self.nested += usize::from(!waiter.chain.is_empty());
        self.waiters.insert(id, waiter);
        id
    }

    /// Moves the deadline of a wait, never nearer: whoever asked first may still be there. Its entry in the queue of deadlines
    /// is too early then, and is moved on when it fires.
    pub(crate) fn wait_until(&mut self, id: WaiterId, deadline: Timestamp) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.deadline = waiter.deadline.max(deadline);
        }
    }

    fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.wanted.remove(waiter.resources(), waiter.mode(), id.0);
        self.nested -= usize::from(!waiter.chain.is_empty());
        Some(waiter)
    }

    /// Those that live within this lease.
    fn nested_in(&self, token: Token) -> Vec<WaiterId> {
        if self.nested == 0 {
            return Vec::new();
        }
        self.waiters.iter().filter(|(_, waiter)| waiter.chain.contains(&token)).map(|(id, _)| *id).collect()
    }
}

impl Ledger {
    /// Puts a request that met `conflict` in line, unless the line is full or would never move.
    pub(crate) fn enqueue(
        &mut self,
        turn: &Turn<'_>,
        request: Acquire,
        chain: Chain,
        wait_ms: u64,
    ) -> Result<WaiterId, Refusal> {
        let waits = self.holders.get(&request.holder).map_or(0, |holdings| holdings.waits.len());
        if waits >= WAITERS_PER_HOLDER_MAX {
            return Err(Refusal::LimitReached { what: "waits per holder", max: WAITERS_PER_HOLDER_MAX });
        }
        if request.resources.iter().any(|resource| self.queue.wanted.count(resource) >= WAITERS_PER_RESOURCE_MAX) {
            return Err(Refusal::LimitReached { what: "waits per resource", max: WAITERS_PER_RESOURCE_MAX });
        }
        self.refuse_cycle(&request, &chain)?;
        let deadline = turn.now().plus_ms(wait_ms);
        let holder = request.holder.clone();
        let id = self.queue.insert(Waiter { request, chain, deadline });
        if let Some(waiter) = self.queue.get(id) {
            self.keys.wait(&waiter.request, id);
        }
        self.holders.add_wait(&holder, id);
        self.deadlines.push(deadline, Due::Wait(id));
        Ok(id)
    }

    /// Takes a wait out of line, to be granted.
    fn dequeue(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.queue.remove(id)?;
        self.holders.remove_wait(waiter.holder(), id);
        self.keys.leave(&waiter.request);
        Some(waiter)
    }

    /// Takes a wait out of line for good. Whoever stood behind it may be next.
    fn give_up(&mut self, id: WaiterId) {
        if let Some(waiter) = self.dequeue(id) {
            self.freed.extend(waiter.request.resources);
        }
    }

    /// Answers a wait whose time is over.
    pub(crate) fn time_out(&mut self, turn: &mut Turn<'_>, id: WaiterId) {
        let Some(waiter) = self.queue.get(id) else { return };
        match self.obstacle_of(id, waiter) {
            Some(mut conflict) => {
                self.give_up(id);
                // Who gave up waits no more.
                conflict.waiting = self.queue.wanted.count(&conflict.resource);
                turn.settled.push((id, Err(Refusal::WaitTimedOut(Box::new(conflict)))));
            }
            // Free at the last moment: the queue is served before a deadline is looked at, so this is not expected.
            None => {
                self.serve(turn, id);
            }
        }
    }

    /// Answers the waits that live within a lease that is over.
    pub(crate) fn refuse_nested(&mut self, turn: &mut Turn<'_>, token: Token) {
        for id in self.queue.nested_in(token) {
            self.give_up(id);
            turn.settled.push((id, Err(Refusal::WithinOver)));
        }
    }

    /// Grants what can be granted after something became free, the oldest wait first.
    pub(crate) fn serve_queue(&mut self, turn: &mut Turn<'_>) {
        if self.queue.is_empty() {
            self.freed.clear();
            return;
        }
        let mut line = Line::default();
        let mut seen = HashSet::new();
        self.line_up(&mut line);
        while let Some(Reverse((id, at, mode))) = line.pop() {
            let moves_on = !seen.insert(id) || self.serve(turn, id);
            if moves_on && let Some(next) = self.next_at(&at, mode, id) {
                line.push(Reverse((next, at, mode)));
            }
            // A wait that was given up has made room for those behind it.
            self.line_up(&mut line);
        }
    }

    /// Adds the first in line at every place that overlaps what became free.
    fn line_up(&mut self, line: &mut Line) {
        for resource in std::mem::take(&mut self.freed) {
            for (at, ids, mode) in self.queue.wanted.against(&resource, Mode::Exclusive) {
                line.extend(ids.first().map(|id| Reverse((WaiterId(*id), at.clone(), mode))));
            }
        }
    }

    /// Looks at one wait; says whether those behind it at the same place are worth a look too.
    fn serve(&mut self, turn: &mut Turn<'_>, id: WaiterId) -> bool {
        let Some(waiter) = self.queue.get(id) else { return true };
        if self.obstacle_of(id, waiter).is_some() {
            // At one place whoever stands behind a blocked wait is blocked by it, or by what blocks it; except that a
            // shared wait can be blocked by its other resources, and that nested ones may pass.
            let blocks_all = waiter.mode() == Mode::Exclusive || waiter.resources().len() == 1;
            return !(blocks_all && self.queue.is_strict());
        }
        match self.admit(&waiter.request) {
            _ if !turn.is_waiting(id) => self.give_up(id),
            Err(refusal) => {
                self.give_up(id);
                turn.settled.push((id, Err(refusal)));
            }
            Ok(()) => {
                let granted = self.dequeue(id).map(|waiter| self.grant(turn, waiter.request));
                turn.settled.extend(granted.map(|grant| (id, Ok(grant))));
            }
        }
        true
    }

    fn next_at(&self, at: &Resource, mode: Mode, after: WaiterId) -> Option<WaiterId> {
        let ids = self.queue.wanted.at(at, mode);
        let next = ids.partition_point(|id| *id <= after.0);
        ids.get(next).map(|id| WaiterId(*id))
    }

    fn obstacle_of(&self, id: WaiterId, waiter: &Waiter) -> Option<Conflict> {
        self.obstacle(&Wanted {
            resources: waiter.resources(),
            mode: waiter.mode(),
            chain: &waiter.chain,
            place: Some(id),
        })
    }
}

impl Command for Leave {
    type Reply = ();

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) {
        ledger.give_up(self.0);
        ledger.tasks.queues.leave(self.0);
    }
}
