//! Owns the memory of leases on intents that were lost, by expiry or revocation: their former holder may be paused and come
//! back with a late write (D2). A mark goes when its holder holds the part again, and in any case after a day.

use std::collections::{BTreeMap, HashMap};

use crate::change::{Change, LostLease, Record, RecordKind};
use crate::lease::{End, Lease};
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::{LOST_KEEP_MS, LOST_PER_HOLDER_MAX};
use crate::{Holder, Resource, Timestamp, Token};

/// Every mark, by the lease that was lost and by who lost it.
#[derive(Default)]
pub(crate) struct Lost {
    marks: BTreeMap<Token, LostLease>,
    by_holder: HashMap<Holder, Vec<Token>>,
}

impl Lost {
    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn until(&self, token: Token) -> Option<Timestamp> {
        self.marks.get(&token).map(|mark| mark.until)
    }

    pub(crate) fn insert(&mut self, mark: LostLease) {
        self.by_holder.entry(mark.holder.clone()).or_default().push(mark.token);
        self.marks.insert(mark.token, mark);
    }

    fn remove(&mut self, token: Token) -> Option<LostLease> {
        let mark = self.marks.remove(&token)?;
        if let Some(tokens) = self.by_holder.get_mut(&mark.holder) {
            tokens.retain(|other| *other != token);
            if tokens.is_empty() {
                self.by_holder.remove(&mark.holder);
            }
        }
        Some(mark)
    }

    fn of(&self, holder: &Holder) -> impl Iterator<Item = &LostLease> {
        self.by_holder.get(holder).into_iter().flatten().filter_map(|token| self.marks.get(token))
    }

    /// What this holder has lost and would write into with `resource`.
    pub(crate) fn find(&self, holder: &Holder, resource: &Resource) -> Option<&Resource> {
        self.of(holder).map(|mark| &mark.resource).find(|lost| lost.overlaps(resource))
    }
}

impl Ledger {
    /// Remembers what a lease held of intents, if it was lost.
    pub(crate) fn remember_lost(&mut self, turn: &mut Turn<'_>, lease: &Lease, end: End) {
        let of_intent = lease.resources.iter().find(|resource| resource.kind() == "intent");
        let (Some(resource), true) = (of_intent, end != End::Released) else { return };
        let until = turn.now().plus_ms(LOST_KEEP_MS);
        let mark = LostLease { token: lease.token, holder: lease.holder.clone(), resource: resource.clone(), until };
        turn.changes.push(Change::Put(Record::Lost(mark.clone())));
        self.deadlines.push(until, Due::Lost(lease.token));
        self.lost.insert(mark);
        let tokens = self.lost.by_holder.get(&lease.holder).map_or(&[][..], Vec::as_slice);
        if let (true, Some(oldest)) = (tokens.len() > LOST_PER_HOLDER_MAX, tokens.first().copied()) {
            self.forget_lost(turn, oldest);
        }
    }

    /// Forgets what the holder of this lease had lost and now holds again.
    pub(crate) fn regain(&mut self, turn: &mut Turn<'_>, lease: &Lease) {
        if self.lost.marks.is_empty() {
            return;
        }
        let held_again = |mark: &&LostLease| lease.resources.iter().any(|held| held.covers(&mark.resource));
        let tokens: Vec<Token> = self.lost.of(&lease.holder).filter(held_again).map(|mark| mark.token).collect();
        for token in tokens {
            self.forget_lost(turn, token);
        }
    }

    pub(crate) fn forget_lost(&mut self, turn: &mut Turn<'_>, token: Token) {
        if self.lost.remove(token).is_some() {
            turn.changes.push(Change::Delete(RecordKind::Lost, token.into()));
        }
    }
}
