//! Owns waiting (L9): who is in line for what, and who is next when something becomes free.
//!
//! All waits have one order. When something ends, only waits that overlap it are looked at, oldest first; one is granted
//! if nothing active and no older wait stands against it. Waits live in memory only: they end with their connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};

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
    /// Those that live within a lease, by place: they may pass others that wait for that very lease.
    pub(crate) nested: ByMode,
    /// And by each of the leases that they live within.
    within: BTreeSet<(Token, WaiterId)>,
    /// How often a wait was looked at.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl Queue {
    pub(crate) fn get(&self, id: WaiterId) -> Option<&Waiter> {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.waiters.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// A place in the one order of all waits.
    pub(crate) fn next_id(&mut self) -> WaiterId {
        self.last += 1;
        WaiterId(self.last)
    }

    fn insert(&mut self, waiter: Waiter) -> WaiterId {
        let id = self.next_id();
        self.wanted.insert(waiter.resources(), waiter.mode(), id.0);
        if !waiter.chain.is_empty() {
            self.nested.insert(waiter.resources(), waiter.mode(), id.0);
            self.within.extend(waiter.chain.iter().map(|token| (*token, id)));
        }
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
        if !waiter.chain.is_empty() {
            self.nested.remove(waiter.resources(), waiter.mode(), id.0);
            for token in &waiter.chain {
                self.within.remove(&(*token, id));
            }
        }
        Some(waiter)
    }

    /// Those that live within this lease.
    fn nested_in(&self, token: Token) -> Vec<WaiterId> {
        self.within.range((token, WaiterId(0))..=(token, WaiterId(u64::MAX))).map(|(_, id)| *id).collect()
    }
}

/// The first id at this place and of this mode behind another.
fn next_at(index: &ByMode, at: &Resource, mode: Mode, after: WaiterId) -> Option<WaiterId> {
    let ids = index.at(at, mode);
    let next = ids.partition_point(|id| *id <= after.0);
    ids.get(next).map(|id| WaiterId(*id))
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
            let behind = if moves_on { &self.queue.wanted } else { &self.queue.nested };
            if let Some(next) = next_at(behind, &at, mode, id) {
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

    /// Looks at one wait; says whether all those behind it at the same place are worth a look too, or only nested ones.
    fn serve(&mut self, turn: &mut Turn<'_>, id: WaiterId) -> bool {
        let Some(waiter) = self.queue.get(id) else { return true };
        if self.obstacle_of(id, waiter).is_some() {
            // At one place whoever stands behind a blocked wait is blocked by it, or by what blocks it; except that a
            // shared wait can be blocked by its other resources, and that nested ones may pass.
            return waiter.mode() == Mode::Shared && waiter.resources().len() > 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Head;
    use crate::command::{Acquired, Release};
    use crate::lease::Lease;
    use crate::{Epoch, Ttl};

    /// A line of ten thousand, and who looks how often.
    struct Line {
        ledger: Ledger,
        now: u64,
        head: Lease,
    }

    const LENGTH: usize = 10_000;

    impl Line {
        fn new() -> Line {
            let mut ledger = Ledger::open(Head::default(), Epoch(1));
            let head = granted(apply(&mut ledger, 1, acquire("task:hot", "agent-0")));
            let mut line = Line { ledger, now: 1, head };
            for n in 1..=LENGTH {
                line.wait("task:hot", &format!("agent-{n}"), None);
            }
            line
        }

        fn apply<C: Command>(&mut self, command: C) -> C::Reply {
            self.now += 1;
            self.ledger.queue.looks.set(0);
            apply(&mut self.ledger, self.now, command)
        }

        fn wait(&mut self, resource: &str, holder: &str, within: Option<Token>) {
            let request = Acquire { wait_ms: Some(3_600_000), within, ..acquire(resource, holder) };
            let answer = self.apply(request);
            assert!(matches!(answer, Acquired::Queued(_)), "{answer:?}");
        }

        /// One who lives within a lease and waits, far away from the line.
        fn nest(&mut self) {
            let parent = granted(self.apply(acquire("path:a", "nest")));
            granted(self.apply(acquire("path:b", "other")));
            self.wait("path:b", "nest", Some(parent.token));
        }

        /// The head of the line gives way to the next; how many waits were looked at.
        fn hand_over(&mut self) -> usize {
            let Lease { token, holder, .. } = self.head.clone();
            self.apply(Release { token, holder });
            let (_, newest) = self.ledger.leases.last_key_value().expect("a lease");
            assert!(newest.token > token, "the next in line was granted");
            self.head = newest.clone();
            self.ledger.queue.looks.get()
        }
    }

    fn apply<C: Command>(ledger: &mut Ledger, now: u64, command: C) -> C::Reply {
        ledger.apply(&mut Turn::new(Timestamp::from_unix_ms(now), &|_| true), command)
    }

    fn acquire(resource: &str, holder: &str) -> Acquire {
        let ttl = Ttl::from_ms(86_400_000).expect("a ttl");
        Acquire::new([Resource::parse(resource).expect("a resource")], Holder::parse(holder).expect("a holder"), ttl)
    }

    fn granted(answer: Acquired) -> Lease {
        match answer {
            Acquired::Granted(grant) => grant.lease,
            answer => panic!("{answer:?}"),
        }
    }

    #[test]
    fn l9_a_nested_wait_elsewhere_does_not_slow_a_long_line_down() {
        let mut line = Line::new();
        let plain = line.hand_over();
        line.nest();
        let beside_nested = line.hand_over();
        assert_eq!(beside_nested, plain, "waits looked at");
        assert!(plain < 10, "{plain} waits were looked at");
    }

    #[test]
    fn l9_a_nested_wait_in_a_long_line_is_looked_at_and_the_others_are_not() {
        let mut line = Line::new();
        let parent = granted(line.apply(acquire("path:a", "nest")));
        line.wait("task:hot", "nest", Some(parent.token));
        let looks = line.hand_over();
        assert!(looks < 20, "{looks} waits were looked at");
    }

    #[test]
    fn l9_whom_ten_thousand_wait_for_may_wait_though_there_is_a_nested_wait_elsewhere() {
        let mut line = Line::new();
        line.nest();
        line.wait("path:b", "agent-0", None);
        let looks = line.ledger.queue.looks.get();
        assert!(looks < 10 * LENGTH, "{looks} waits were looked at");
    }
}
