//! Owns the search for waits that would never end (L9).
//!
//! Holders wait for holders: one waits for whoever holds what it wants, and for whoever stands before it in line. The new
//! wait closes a cycle if someone it would wait for already waits, directly or through others, for its own holder. So the
//! search starts at that holder and goes backwards, to those who wait for it: mostly nobody.

use std::collections::HashMap;

use crate::command::{Acquire, WaiterId};
use crate::lease::{Mode, Resources};
use crate::ledger::Ledger;
use crate::ledger::conflict::Chain;
use crate::ledger::queue::Waiter;
use crate::limits::DEADLOCK_EDGES_MAX;
use crate::refusal::Refusal;
use crate::{Holder, Token};

/// Those who wait for the asker, each with the one it waits for.
struct Followers {
    waits_for: HashMap<Holder, Holder>,
    edges: usize,
}

impl Ledger {
    /// Refuses a wait that would close a cycle, and one whose surroundings are too large to be sure.
    pub(crate) fn refuse_cycle(&self, request: &Acquire, chain: &Chain) -> Result<(), Refusal> {
        let asker = &request.holder;
        let Some(holdings) = self.holders.get(asker) else { return Ok(()) };
        if holdings.leases.is_empty() && holdings.waits.is_empty() {
            return Ok(());
        }
        let followers = self.followers(asker)?;
        for holder in self.would_wait_for(request, chain) {
            if holder == *asker || followers.contains_key(&holder) {
                return Err(Refusal::WouldDeadlock { cycle: cycle(asker, holder, &followers) });
            }
        }
        Ok(())
    }

    /// Everyone who waits for `asker`, directly or not.
    fn followers(&self, asker: &Holder) -> Result<HashMap<Holder, Holder>, Refusal> {
        let mut found = Followers { waits_for: HashMap::new(), edges: 0 };
        let mut open = vec![asker.clone()];
        while let Some(holder) = open.pop() {
            for follower in self.direct_followers(&holder, &mut found.edges) {
                if follower != *asker && !found.waits_for.contains_key(&follower) {
                    found.waits_for.insert(follower.clone(), holder.clone());
                    open.push(follower);
                }
            }
            if found.edges > DEADLOCK_EDGES_MAX {
                let what = "the number of waits looked at for a deadlock";
                return Err(Refusal::LimitReached { what, max: DEADLOCK_EDGES_MAX });
            }
        }
        Ok(found.waits_for)
    }

    fn direct_followers(&self, holder: &Holder, edges: &mut usize) -> Vec<Holder> {
        let mut followers = Vec::new();
        let Some(holdings) = self.holders.get(holder).filter(|_| !self.queue.is_empty()) else { return followers };
        for lease in holdings.leases.iter().filter_map(|token| self.leases.get(token)) {
            let behind = |waiter: &Waiter| !waiter.chain.contains(&lease.token);
            *edges += self.waiting_behind(&lease.resources, lease.mode, 0, behind, &mut followers);
        }
        for id in &holdings.waits {
            if let Some(first) = self.queue.get(*id) {
                let behind = |waiter: &Waiter| !self.may_pass(waiter, first);
                *edges += self.waiting_behind(first.resources(), first.mode(), id.0 + 1, behind, &mut followers);
            }
        }
        followers
    }

    /// Whether one that lives within a lease may pass another that waits for that very lease.
    fn may_pass(&self, waiter: &Waiter, other: &Waiter) -> bool {
        self.waits_for_any_of(other.resources(), other.mode(), &waiter.chain)
    }

    /// The holders of waits from `first` on that are at odds with these resources, as far as they are `behind` them. Of those
    /// that wait for another one of them at the same place there need be none: they are found through it. Says how many it has
    /// looked at.
    fn waiting_behind(
        &self,
        resources: &Resources,
        mode: Mode,
        first: u64,
        behind: impl Fn(&Waiter) -> bool,
        into: &mut Vec<Holder>,
    ) -> usize {
        let mut looks = 0;
        for resource in resources {
            for (at, ids, waiting_mode) in self.queue.wanted.against(resource, mode) {
                let mut waiters = self.waiters_from(ids, first).inspect(|_| looks += 1).filter(|(_, w)| behind(w));
                if waiting_mode == Mode::Shared {
                    into.extend(waiters.map(|(_, waiter)| waiter.holder().clone()));
                    continue;
                }
                let Some((id, next)) = waiters.next() else { continue };
                into.push(next.holder().clone());
                let nested = self.waiters_from(self.queue.nested.at(at, waiting_mode), id + 1).inspect(|_| looks += 1);
                let passing = nested.filter(|(_, waiter)| behind(waiter) && self.may_pass(waiter, next));
                into.extend(passing.map(|(_, waiter)| waiter.holder().clone()));
            }
        }
        looks
    }

    /// The waits of a place from `first` on.
    fn waiters_from<'a>(&'a self, ids: &'a [u64], first: u64) -> impl Iterator<Item = (u64, &'a Waiter)> {
        let from = ids.partition_point(|id| *id < first);
        ids.iter().skip(from).filter_map(|id| Some((*id, self.queue.get(WaiterId(*id))?)))
    }

    /// Whom a new wait would wait for.
    fn would_wait_for(&self, request: &Acquire, chain: &Chain) -> Vec<Holder> {
        let mut holders = Vec::new();
        for resource in &request.resources {
            for (_, ids, _) in self.held.against(resource, request.mode) {
                let tokens = ids.iter().map(|id| Token::from_u64(*id)).filter(|token| !chain.contains(token));
                holders.extend(tokens.filter_map(|token| self.leases.get(&token)).map(|lease| lease.holder.clone()));
            }
            for (_, ids, _) in self.queue.wanted.against(resource, request.mode) {
                let waiters = ids.iter().filter_map(|id| self.queue.get(WaiterId(*id)));
                let before = waiters.filter(|w| !self.waits_for_any_of(w.resources(), w.mode(), chain));
                holders.extend(before.map(|waiter| waiter.holder().clone()));
            }
        }
        holders
    }
}

/// The asker, whom it would wait for, whom that one waits for, and so on back to the asker.
fn cycle(asker: &Holder, first: Holder, waits_for: &HashMap<Holder, Holder>) -> Vec<Holder> {
    let mut cycle = vec![asker.clone()];
    let mut next = first;
    while next != *asker {
        cycle.push(next.clone());
        match waits_for.get(&next) {
            Some(holder) => next = holder.clone(),
            None => break,
        }
    }
    cycle
}
