//! Owns looking without touching: what is active, and who would stop me. Every answer is bounded.

use crate::command::{Check, Checked, Command, Count, Counts, Get, Got, List, Page, Tick};
use crate::lease::Lease;
use crate::ledger::conflict::lease_blocker;
use crate::ledger::queue::Waiter;
use crate::ledger::{Ledger, Turn};
use crate::limits::{BLOCKERS_LISTED_MAX, PAGE_MAX};
use crate::refusal::Conflict;
use crate::{Resource, Token};

/// How many leases one page may look at: filters that match little must not hold everyone up.
const LOOKED_AT_MAX: usize = 10_000;

impl Command for Tick {
    type Reply = ();

    fn decide(self, _ledger: &mut Ledger, _turn: &mut Turn<'_>) {}
}

impl Command for Get {
    type Reply = Got;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Got {
        match ledger.leases.get(&self.0) {
            Some(lease) => Got::Active(lease.clone()),
            None if ledger.was_granted(self.0) => Got::Over,
            None => Got::Unknown,
        }
    }
}

impl Command for Count {
    type Reply = Counts;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Counts {
        Counts {
            leases: ledger.leases.len(),
            waiters: ledger.queue.len(),
            holders: ledger.holders.len(),
            deadlines: ledger.deadlines.len(),
            cursor: ledger.head.cursor,
        }
    }
}

impl Command for Check {
    type Reply = Checked;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Checked {
        let conflicts = self.resources.iter().flat_map(|resource| ledger.conflicts(resource, &self));
        Checked { conflicts: conflicts.take(BLOCKERS_LISTED_MAX).collect(), now: turn.now() }
    }
}

impl Ledger {
    fn conflicts(&self, resource: &Resource, check: &Check) -> Vec<Conflict> {
        let mut found = Vec::new();
        for (at, ids, _) in self.held.against(resource, check.mode) {
            let leases = ids.iter().filter_map(|id| self.leases.get(&Token::from_u64(*id)));
            let others = leases.filter(|lease| check.holder.as_ref() != Some(&lease.holder));
            // Thousands may share one place: nobody is shown them all, so they are not all looked at.
            let room = BLOCKERS_LISTED_MAX - found.len();
            found.extend(others.take(room).map(|lease| self.conflict(resource, at, lease_blocker(lease))));
            if found.len() == BLOCKERS_LISTED_MAX {
                return found;
            }
        }
        found.extend(self.closure_against(resource));
        if found.is_empty() {
            let is_other = |waiter: &Waiter| check.holder.as_ref() != Some(waiter.holder());
            found.extend(self.first_in_line(resource, check.mode, None, is_other));
        }
        found
    }

    fn list(&self, query: &List) -> (Vec<Lease>, Option<Token>) {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let after = query.after.map_or(0, |token| token.as_u64());
        let mut candidates = self.candidates(query, after);
        let mut leases = Vec::new();
        for looked_at in 0.. {
            let Some(token) = candidates.next() else { return (leases, None) };
            let lease = self.leases.get(&token).filter(|lease| matches(lease, query));
            leases.extend(lease.cloned());
            if leases.len() == limit || looked_at == LOOKED_AT_MAX {
                let has_more = candidates.next().is_some();
                return (leases, has_more.then_some(token));
            }
        }
        (leases, None)
    }

    /// The tokens that may match, after `after`, in order: from the smallest index that has them all.
    fn candidates<'a>(&'a self, query: &'a List, after: u64) -> Box<dyn Iterator<Item = Token> + 'a> {
        if let Some(holder) = &query.holder {
            let tokens = self.holders.get(holder).map_or(&[][..], |holdings| &holdings.leases);
            return Box::new(tokens.iter().copied().filter(move |token| token.as_u64() > after));
        }
        if let Some(resource) = &query.resource {
            let exclusive = self.held.exclusive.overlapping(resource);
            let overlapping = exclusive.chain(self.held.shared.overlapping(resource)).flat_map(|(_, ids)| ids);
            let mut tokens: Vec<u64> = overlapping.copied().take(LOOKED_AT_MAX + 1).collect();
            if tokens.len() <= LOOKED_AT_MAX {
                tokens.sort_unstable();
                tokens.dedup();
                return Box::new(tokens.into_iter().filter(move |id| *id > after).map(Token::from_u64));
            }
        }
        Box::new(self.leases.range(Token::from_u64(after + 1)..).map(|(token, _)| *token))
    }
}

fn matches(lease: &Lease, query: &List) -> bool {
    query.holder.as_ref().is_none_or(|holder| lease.holder == *holder)
        && query.resource.as_ref().is_none_or(|asked| lease.resources.iter().any(|held| held.overlaps(asked)))
        && query.kind.as_ref().is_none_or(|kind| lease.resources.iter().any(|held| held.kind() == kind))
}

impl Command for List {
    type Reply = Page;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Page {
        let (leases, next) = ledger.list(&self);
        Page { leases, next, now: turn.now() }
    }
}
