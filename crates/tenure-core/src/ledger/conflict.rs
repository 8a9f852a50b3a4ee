//! Owns what stands in the way of an acquire (L1, L9, L11): active leases, closed resources, and those who waited longer.

use smallvec::SmallVec;

use crate::command::WaiterId;
use crate::lease::{Lease, Mode, Resources};
use crate::ledger::Ledger;
use crate::ledger::overlap::OverlapIndex;
use crate::ledger::queue::Waiter;
use crate::limits::WITHIN_DEPTH_MAX;
use crate::refusal::{Blocker, Conflict, Refusal};
use crate::{Holder, Resource, Token};

/// The leases one lives within, the nearest first.
pub(crate) type Chain = SmallVec<[Token; 2]>;

/// Two indexes of one kind of thing, by mode.
#[derive(Default)]
pub(crate) struct ByMode {
    pub(crate) exclusive: OverlapIndex,
    pub(crate) shared: OverlapIndex,
}

impl ByMode {
    pub(crate) fn insert(&mut self, resources: &Resources, mode: Mode, id: u64) {
        let index = self.of(mode);
        resources.iter().for_each(|resource| index.insert(resource, id));
    }

    pub(crate) fn remove(&mut self, resources: &Resources, mode: Mode, id: u64) {
        let index = self.of(mode);
        resources.iter().for_each(|resource| index.remove(resource, id));
    }

    fn of(&mut self, mode: Mode) -> &mut OverlapIndex {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        }
    }

    /// The ids of this mode that sit on exactly this place.
    pub(crate) fn at(&self, resource: &Resource, mode: Mode) -> &[u64] {
        match mode {
            Mode::Exclusive => self.exclusive.at(resource),
            Mode::Shared => self.shared.at(resource),
        }
    }

    /// The places that overlap `resource` and whose ids are at odds with `mode`; with the mode those ids have.
    pub(crate) fn against<'a>(
        &'a self,
        resource: &'a Resource,
        mode: Mode,
    ) -> impl Iterator<Item = (&'a Resource, &'a [u64], Mode)> {
        let exclusive = self.exclusive.overlapping(resource).map(|(at, ids)| (at, ids, Mode::Exclusive));
        let shared = (mode == Mode::Exclusive).then(|| self.shared.overlapping(resource));
        exclusive.chain(shared.into_iter().flatten().map(|(at, ids)| (at, ids, Mode::Shared)))
    }

    /// How many ids overlap `resource`, whatever their mode.
    pub(crate) fn count(&self, resource: &Resource) -> usize {
        self.exclusive.count(resource) + self.shared.count(resource)
    }
}

/// What is wanted, as far as conflicts are concerned.
pub(crate) struct Wanted<'a> {
    pub(crate) resources: &'a Resources,
    pub(crate) mode: Mode,
    pub(crate) chain: &'a Chain,
    /// Its place in line; nothing for one that comes now, behind everyone.
    pub(crate) place: Option<WaiterId>,
}

impl Ledger {
    /// The leases that one within `within` lives within, nearest first.
    pub(crate) fn chain(&self, within: Option<Token>, holder: &Holder) -> Result<Chain, Refusal> {
        let mut chain = Chain::new();
        let mut next = within;
        while let Some(token) = next {
            let lease = self.leases.get(&token).ok_or(Refusal::WithinOver)?;
            if lease.holder != *holder {
                return Err(Refusal::NotHolder { holder: lease.holder.clone() });
            }
            if chain.len() == WITHIN_DEPTH_MAX {
                return Err(Refusal::LimitReached { what: "the depth of leases within leases", max: WITHIN_DEPTH_MAX });
            }
            chain.push(token);
            next = lease.within;
        }
        Ok(chain)
    }

    /// The first thing that stands in the way, if any.
    pub(crate) fn obstacle(&self, wanted: &Wanted<'_>) -> Option<Conflict> {
        wanted.resources.iter().find_map(|resource| {
            self.lease_against(resource, wanted)
                .or_else(|| self.closure_against(resource))
                .or_else(|| self.waiter_against(resource, wanted))
        })
    }

    /// Who or what has these now, one of them: a lease before everything else.
    pub fn who_has(&self, resources: &Resources) -> Option<Conflict> {
        let wanted = Wanted { resources, mode: Mode::Exclusive, chain: &Chain::new(), place: None };
        let lease = resources.iter().find_map(|resource| self.lease_against(resource, &wanted));
        lease.or_else(|| self.obstacle(&wanted))
    }

    fn lease_against(&self, resource: &Resource, wanted: &Wanted<'_>) -> Option<Conflict> {
        self.held.against(resource, wanted.mode).find_map(|(at, ids, _)| {
            let token = ids.iter().map(|id| Token::from_u64(*id)).find(|token| !wanted.chain.contains(token))?;
            let lease = self.leases.get(&token)?;
            Some(self.conflict(resource, at, lease_blocker(lease)))
        })
    }

    pub(crate) fn closure_against(&self, resource: &Resource) -> Option<Conflict> {
        self.closed.overlapping(resource).find_map(|(at, ids)| {
            let closure = self.closures.get(&Token::from_u64(*ids.first()?))?;
            let blocker =
                Blocker::Closure { token: closure.token, holder: closure.holder.clone(), until: closure.until };
            Some(self.conflict(resource, at, blocker))
        })
    }

    fn waiter_against(&self, resource: &Resource, wanted: &Wanted<'_>) -> Option<Conflict> {
        if self.queue.is_empty() {
            return None;
        }
        let is_before = |waiter: &Waiter| !self.waits_for_any_of(waiter.resources(), waiter.mode(), wanted.chain);
        self.first_in_line(resource, wanted.mode, wanted.place, is_before)
    }

    /// The oldest wait before `place` that stands against `resource`, of those that count.
    pub(crate) fn first_in_line(
        &self,
        resource: &Resource,
        mode: Mode,
        place: Option<WaiterId>,
        counts: impl Fn(&Waiter) -> bool,
    ) -> Option<Conflict> {
        let mut first = None;
        let mut before = place;
        for (at, ids, _) in self.queue.wanted.against(resource, mode) {
            let older = ids.iter().map(|id| WaiterId(*id)).take_while(|id| before.is_none_or(|before| *id < before));
            let mut older = older.filter_map(|id| Some((id, self.queue.get(id)?)));
            if let Some((id, waiter)) = older.find(|(_, waiter)| counts(waiter)) {
                before = Some(id);
                first = Some((at, waiter));
                // Who is in line itself asks whether there is one, not who.
                if place.is_some() {
                    break;
                }
            }
        }
        let (at, waiter) = first?;
        Some(self.conflict(resource, at, Blocker::Waiter { holder: waiter.holder().clone() }))
    }

    /// Whether a wait for these stands behind one of the leases of `chain`. It then does not stand in the way of what
    /// lives within that lease: it could not go first anyway.
    pub(crate) fn waits_for_any_of(&self, resources: &Resources, mode: Mode, chain: &Chain) -> bool {
        chain.iter().filter_map(|token| self.leases.get(token)).any(|parent| {
            !parent.mode.is_compatible_with(mode)
                && parent.resources.iter().any(|held| resources.iter().any(|wanted| held.overlaps(wanted)))
        })
    }

    pub(crate) fn conflict(&self, resource: &Resource, overlap: &Resource, blocker: Blocker) -> Conflict {
        let waiting = self.queue.wanted.count(resource);
        Conflict { resource: resource.clone(), overlap: overlap.clone(), blocker, waiting, is_own: false }
    }
}

pub(crate) fn lease_blocker(lease: &Lease) -> Blocker {
    Blocker::Lease {
        token: lease.token,
        holder: lease.holder.clone(),
        mode: lease.mode,
        acquired_at: lease.acquired_at,
        expires_at: lease.expires_at,
    }
}
