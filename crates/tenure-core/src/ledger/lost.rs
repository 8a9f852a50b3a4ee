//! Owns the memory of leases on intents that were lost, by expiry or revocation: their former holder may be paused and come
//! back with a late write (D2). A mark goes when its holder holds the part again, and in any case after a day.

use std::collections::{BTreeMap, HashMap};

use crate::change::{Change, LostLease, Record, RecordKind};
use crate::lease::{End, Lease, Resources};
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::{LOST_KEEP_MS, LOST_PER_HOLDER_MAX};
use crate::{Holder, Resource, Timestamp, Token};

/// Every mark, by the lease that was lost and by who lost it.
#[derive(Default)]
pub(crate) struct Lost {
    marks: BTreeMap<Token, LostLease>,
    by_holder: HashMap<Holder, OfHolder>,
}

/// What one holder has lost.
#[derive(Default)]
struct OfHolder {
    /// Its leases, in the order in which they were lost.
    tokens: Vec<Token>,
    /// How many resources that makes.
    resources: usize,
}

impl Lost {
    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn until(&self, token: Token) -> Option<Timestamp> {
        self.marks.get(&token).map(|mark| mark.until)
    }

    pub(crate) fn insert(&mut self, mark: LostLease) {
        let of_holder = self.by_holder.entry(mark.holder.clone()).or_default();
        of_holder.tokens.push(mark.token);
        of_holder.resources += mark.resources.len();
        self.marks.insert(mark.token, mark);
    }

    fn remove(&mut self, token: Token) -> Option<LostLease> {
        let mark = self.marks.remove(&token)?;
        if let Some(of_holder) = self.by_holder.get_mut(&mark.holder) {
            of_holder.tokens.retain(|other| *other != token);
            of_holder.resources -= mark.resources.len();
            if of_holder.tokens.is_empty() {
                self.by_holder.remove(&mark.holder);
            }
        }
        Some(mark)
    }

    /// Leaves only `resources` of a mark.
    fn keep(&mut self, token: Token, resources: Resources) -> Option<&LostLease> {
        let mark = self.marks.get_mut(&token)?;
        if let Some(of_holder) = self.by_holder.get_mut(&mark.holder) {
            of_holder.resources -= mark.resources.len() - resources.len();
        }
        mark.resources = resources;
        Some(mark)
    }

    fn of(&self, holder: &Holder) -> impl Iterator<Item = &LostLease> {
        let tokens = self.by_holder.get(holder).into_iter().flat_map(|of_holder| &of_holder.tokens);
        tokens.filter_map(|token| self.marks.get(token))
    }

    /// The lease that a holder who has lost too much lost first.
    fn first_of_too_many(&self, holder: &Holder) -> Option<Token> {
        let of_holder = self.by_holder.get(holder).filter(|of_holder| of_holder.resources > LOST_PER_HOLDER_MAX)?;
        of_holder.tokens.first().copied()
    }

    /// What this holder has lost and would write into with `resource`.
    pub(crate) fn find(&self, holder: &Holder, resource: &Resource) -> Option<&Resource> {
        self.of(holder).flat_map(|mark| &mark.resources).find(|lost| lost.overlaps(resource))
    }
}

impl Ledger {
    /// Remembers what a lease held of intents, if it was lost.
    pub(crate) fn remember_lost(&mut self, turn: &mut Turn<'_>, lease: &Lease, end: End) {
        let resources: Resources =
            lease.resources.iter().filter(|resource| resource.kind() == "intent").cloned().collect();
        if resources.is_empty() || end == End::Released {
            return;
        }
        let until = turn.now().plus_ms(LOST_KEEP_MS);
        let mark = LostLease { token: lease.token, holder: lease.holder.clone(), resources, until };
        turn.changes.push(Change::Put(Record::Lost(mark.clone())));
        self.deadlines.push(until, Due::Lost(lease.token));
        self.lost.insert(mark);
        while let Some(first) = self.lost.first_of_too_many(&lease.holder) {
            self.forget_lost(turn, first);
        }
    }

    /// Forgets what the holder of this lease had lost and now holds again.
    pub(crate) fn regain(&mut self, turn: &mut Turn<'_>, lease: &Lease) {
        if self.lost.marks.is_empty() {
            return;
        }
        let is_lost = |resource: &&Resource| !lease.resources.iter().any(|held| held.covers(resource));
        let still_lost = |mark: &LostLease| -> Resources { mark.resources.iter().filter(is_lost).cloned().collect() };
        let regained = |mark: &&LostLease| !mark.resources.iter().all(|resource| is_lost(&resource));
        let marks = self.lost.of(&lease.holder).filter(regained).map(|mark| (mark.token, still_lost(mark)));
        for (token, resources) in marks.collect::<Vec<_>>() {
            if resources.is_empty() {
                self.forget_lost(turn, token);
            } else if let Some(mark) = self.lost.keep(token, resources) {
                turn.changes.push(Change::Put(Record::Lost(mark.clone())));
            }
        }
    }

    pub(crate) fn forget_lost(&mut self, turn: &mut Turn<'_>, token: Token) {
        if self.lost.remove(token).is_some() {
            turn.changes.push(Change::Delete(RecordKind::Lost, token.into()));
        }
    }
}
