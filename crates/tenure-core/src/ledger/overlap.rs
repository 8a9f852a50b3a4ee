//! Owns the one tree in which overlap is found (R2): ids sitting on places, searched from the root down to a place
//! and in one range below it. Leases, waiters and closures each have one.
//!
//! A search costs one lookup for every segment of the place and one range scan that stops at the first hit the caller
//! needs: independent of how many leases there are elsewhere.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::Resource;

/// Ids by place; the ids of one place in ascending order.
#[derive(Default)]
pub(crate) struct OverlapIndex {
    places: BTreeMap<Resource, SmallVec<[u64; 1]>>,
}

impl OverlapIndex {
    pub(crate) fn insert(&mut self, resource: &Resource, id: u64) {
        let ids = self.places.entry(resource.clone()).or_default();
        if let Err(at) = ids.binary_search(&id) {
            ids.insert(at, id);
        }
    }

    pub(crate) fn remove(&mut self, resource: &Resource, id: u64) {
        let Entry::Occupied(mut entry) = self.places.entry(resource.clone()) else { return };
        let ids = entry.get_mut();
        if let Ok(at) = ids.binary_search(&id) {
            ids.remove(at);
        }
        if ids.is_empty() {
            entry.remove();
        }
    }

    /// Every place that overlaps `resource`, with its ids: ancestors first, then the place itself and what is below it.
    pub(crate) fn overlapping<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = (&'a Resource, &'a [u64])> {
        let place = resource.place();
        // Most of the indexes are empty most of the time: there the way is not even looked at.
        let way = (!self.places.is_empty()).then(|| resource.way()).into_iter().flatten();
        let above = way.take_while(move |way| way.len() < place.len()).filter_map(|way| self.places.get_key_value(way));
        let below = self
            .places
            .range::<str, _>((Bound::Included(place), Bound::Unbounded))
            .take_while(move |(at, _)| at.place().starts_with(place));
        above.chain(below).map(|(at, ids)| (at, ids.as_slice()))
    }

    /// The ids that sit on exactly this place.
    pub(crate) fn at(&self, resource: &Resource) -> &[u64] {
        self.places.get(resource.place()).map_or(&[], |ids| ids.as_slice())
    }

    /// How many ids overlap `resource`.
    pub(crate) fn count(&self, resource: &Resource) -> usize {
        self.overlapping(resource).map(|(_, ids)| ids.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few names, so that most pairs have something to do with each other.
    fn resource() -> impl Strategy<Value = Resource> {
        let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 1..4).prop_map(|s| s.join("/"));
        prop_oneof![
            path.prop_map(|p| format!("path:{p}")),
            Just("path:**".to_owned()),
            Just("repo:*".to_owned()),
            prop::sample::select(vec!["repo:a", "repo:global", "issue:a", "task:a", "task:ab"]).prop_map(str::to_owned),
            prop::sample::select(vec!["intent:a/*", "intent:a/a", "intent:a/b", "intent:ab/a"]).prop_map(str::to_owned),
        ]
        .prop_map(|text| Resource::parse(&text).unwrap())
    }

    proptest! {
        #[test]
        fn r2_the_index_finds_exactly_what_a_comparison_with_every_resource_finds(
            held in prop::collection::vec(resource(), 0..40), gone in prop::collection::vec(any::<bool>(), 40), asked in resource(),
        ) {
            let mut index = OverlapIndex::default();
            for (id, resource) in held.iter().enumerate() {
                index.insert(resource, id as u64);
            }
            let mut expected = Vec::new();
            for (id, resource) in held.iter().enumerate() {
                if gone[id] {
                    index.remove(resource, id as u64);
                } else if resource.overlaps(&asked) {
                    expected.push(id as u64);
                }
            }
            let mut found: Vec<u64> = index.overlapping(&asked).flat_map(|(_, ids)| ids.to_vec()).collect();
            prop_assert_eq!(index.count(&asked), found.len());
            found.sort_unstable();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(index.places.is_empty(), held.iter().zip(&gone).all(|(_, gone)| *gone), "an empty place is kept");
        }
    }
}
