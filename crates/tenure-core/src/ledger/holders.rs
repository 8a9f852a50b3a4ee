//! Owns who has what: the leases and waits of each holder, and one shared copy of each holder's name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use smallvec::SmallVec;

use crate::command::WaiterId;
use crate::{Holder, Token};

/// What one holder has, in ascending order.
#[derive(Default)]
pub(crate) struct Holdings {
    pub(crate) leases: SmallVec<[Token; 1]>,
    pub(crate) waits: SmallVec<[WaiterId; 1]>,
}

/// Every holder that has a lease or a wait.
#[derive(Default)]
pub(crate) struct Holders {
    by_name: HashMap<Holder, Holdings>,
}

impl Holders {
    pub(crate) fn get(&self, holder: &Holder) -> Option<&Holdings> {
        self.by_name.get(holder)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Notes a lease and gives back the one copy of the name that all of the holder's leases share.
    pub(crate) fn add_lease(&mut self, holder: Holder, token: Token) -> Holder {
        let entry = self.by_name.entry(holder);
        let shared = entry.key().clone();
        insert(&mut entry.or_default().leases, token);
        shared
    }

    pub(crate) fn remove_lease(&mut self, holder: &Holder, token: Token) {
        self.change(holder, |holdings| remove(&mut holdings.leases, token));
    }

    pub(crate) fn add_wait(&mut self, holder: &Holder, waiter: WaiterId) {
        insert(&mut self.by_name.entry(holder.clone()).or_default().waits, waiter);
    }

    pub(crate) fn remove_wait(&mut self, holder: &Holder, waiter: WaiterId) {
        self.change(holder, |holdings| remove(&mut holdings.waits, waiter));
    }

    fn change(&mut self, holder: &Holder, change: impl FnOnce(&mut Holdings)) {
        let Entry::Occupied(mut entry) = self.by_name.entry(holder.clone()) else { return };
        let holdings = entry.get_mut();
        change(holdings);
        if holdings.leases.is_empty() && holdings.waits.is_empty() {
            entry.remove();
        }
    }
}

fn insert<T: Ord + Copy>(sorted: &mut SmallVec<[T; 1]>, item: T) {
    if let Err(at) = sorted.binary_search(&item) {
        sorted.insert(at, item);
    }
}

fn remove<T: Ord + Copy>(sorted: &mut SmallVec<[T; 1]>, item: T) {
    if let Ok(at) = sorted.binary_search(&item) {
        sorted.remove(at);
    }
}
