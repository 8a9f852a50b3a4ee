//! Owns the question «can this stretch of events have what is asked for?», answered from a few bytes.
//!
//! Holders and resources come in any order, so an index on them would write one page of the index for nearly every
//! event. A digest is appended once for a block of events and never touched again: a Bloom filter over what a query can
//! name. It says «no» for certain or «perhaps», which costs reading one block in vain about once in 700.
//!
//! The hash is part of the file format: it must not change without a new schema version.

use std::borrow::Borrow;

use tenure_core::Resource;
use tenure_core::event::Event;

use crate::EventQuery;

/// Bits per key and probes per key: one false «perhaps» in about 700.
const BITS_PER_KEY: usize = 14;
const PROBES: u64 = 7;

/// The keys of a block in the making.
#[derive(Debug)]
pub(super) struct Digest {
    keys: Vec<u64>,
    /// The last key of every remainder: most kinds, holders and directories come again soon, and are then not even taken.
    recent: [u64; RECENT_KEYS],
}

/// How many keys are known again.
const RECENT_KEYS: usize = 256;

/// About how many keys an event has.
pub(super) const KEYS_USUAL: usize = 6;

/// What a query can name of an event.
pub(super) fn push_keys(event: &Event, keys: &mut Vec<u64>) {
    keys.push(key(b'k', event.kind.as_str()));
    keys.extend(event.holder.as_ref().map(|holder| key(b'h', holder.as_str())));
    for resource in &event.resources {
        push_way(resource.borrow(), keys);
    }
}

/// The place, and every place on the way to it: both hashes in one pass, because each byte waits for the one before.
fn push_way(place: &str, keys: &mut Vec<u64>) {
    let (mut exact, mut above) = (start(b'p'), start(b'a'));
    for byte in place.bytes() {
        (exact, above) = (step(exact, byte), step(above, byte));
        if byte == b'\0' {
            keys.push(mixed(above));
        }
    }
    keys.push(mixed(exact));
}

impl Default for Digest {
    fn default() -> Digest {
        // What has another remainder than its place was not there yet.
        Digest { keys: Vec::new(), recent: std::array::from_fn(|place| place as u64 + 1) }
    }
}

impl Digest {
    /// Adds the keys of an event.
    pub(super) fn add(&mut self, keys: &[u64]) {
        for key in keys {
            let place = *key as usize % RECENT_KEYS;
            let Some(recent) = self.recent.get_mut(place) else { continue };
            if std::mem::replace(recent, *key) != *key {
                self.keys.push(*key);
            }
        }
    }

    /// The filter of the block.
    pub(super) fn filter(&mut self) -> Vec<u8> {
        self.keys.sort_unstable();
        self.keys.dedup();
        let mut filter = vec![0; (self.keys.len() * BITS_PER_KEY).div_ceil(8).max(1)];
        for key in &self.keys {
            for (byte, bit) in bits(*key, filter.len()) {
                if let Some(byte) = filter.get_mut(byte) {
                    *byte |= bit;
                }
            }
        }
        filter
    }
}

/// What a query needs a block to have: one key of each group.
#[derive(Debug)]
pub(super) struct Probe(Vec<Vec<u64>>);

impl Probe {
    pub(super) fn new(query: &EventQuery) -> Probe {
        let mut groups = Vec::new();
        if !query.kinds.is_empty() {
            groups.push(query.kinds.iter().map(|kind| key(b'k', kind.as_str())).collect());
        }
        if let Some(holder) = &query.holder {
            groups.push(vec![key(b'h', holder.as_str())]);
        }
        if let Some(resource) = &query.resource {
            // What overlaps is below it, or exactly on the way to it.
            let below = key(b'a', resource.borrow());
            groups.push(way(resource).map(|place| key(b'p', place)).chain([below]).collect());
        }
        Probe(groups)
    }

    /// Whether any event matches it, as far as a digest can tell.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an event with these keys matches, but for keys that are equal by chance.
    pub(super) fn matches(&self, keys: &[u64]) -> bool {
        self.0.iter().all(|group| group.iter().any(|key| keys.contains(key)))
    }

    pub(super) fn may_match(&self, filter: &[u8]) -> bool {
        let has = |key: &u64| {
            bits(*key, filter.len()).all(|(byte, bit)| filter.get(byte).is_some_and(|byte| byte & bit != 0))
        };
        self.0.iter().all(|group| group.iter().any(has))
    }
}

/// The places from the top down to this one.
fn way(resource: &Resource) -> impl Iterator<Item = &str> {
    let place: &str = resource.borrow();
    place.match_indices('\0').filter_map(|(at, _)| place.get(..=at))
}

/// FNV-1a with a final mix, so that both halves are usable.
fn key(group: u8, text: &str) -> u64 {
    mixed(text.bytes().fold(start(group), step))
}

fn start(group: u8) -> u64 {
    step(0xcbf2_9ce4_8422_2325, group)
}

fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// Where the bits of a key are in a filter of so many bytes.
fn bits(key: u64, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let (start, step) = (key & 0xffff_ffff, (key >> 32) | 1);
    (0..PROBES).map(move |probe| {
        let bit = start.wrapping_add(probe.wrapping_mul(step)) % (bytes as u64 * 8);
        ((bit / 8) as usize, 1 << (bit % 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_part_of_the_file_format_and_stays() {
        assert_eq!(key(b'h', "ada"), 0x8a24_0ace_4189_3d64);
    }

    #[test]
    fn a_place_is_hashed_with_every_place_on_the_way_to_it() {
        for text in ["path:src/deep/a.rs", "repo:*", "task:é"] {
            let resource = Resource::parse(text).expect("a resource");
            let mut keys = Vec::new();
            push_way(resource.borrow(), &mut keys);
            let above = way(&resource).map(|place| key(b'a', place));
            assert_eq!(keys, above.chain([key(b'p', resource.borrow())]).collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn what_comes_again_does_not_make_a_filter_larger() {
        let mut digest = Digest::default();
        for number in 0..1_000 {
            digest.add(&[key(b'k', "lease.granted"), key(b'h', "ada"), key(b'p', &format!("task:{}", number % 500))]);
        }
        assert!(digest.keys.len() < 1_050, "{} keys were taken of 3,000", digest.keys.len());
        assert_eq!(digest.filter().len(), (502 * BITS_PER_KEY).div_ceil(8));
    }

    #[test]
    fn no_key_is_taken_for_one_that_was_there_before() {
        let mut digest = Digest::default();
        let keys: Vec<u64> = (0..RECENT_KEYS as u64).collect();
        digest.add(&keys);
        assert_eq!(digest.keys, keys);
    }

    #[test]
    fn a_filter_knows_its_keys_and_few_others() {
        let mut digest = Digest::default();
        (0..3_000).for_each(|number| digest.add(&[key(b'h', &format!("holder-{number}"))]));
        let filter = digest.filter();
        let perhaps = |range: std::ops::Range<u32>| {
            range.filter(|number| Probe(vec![vec![key(b'h', &format!("holder-{number}"))]]).may_match(&filter)).count()
        };
        assert_eq!(perhaps(0..3_000), 3_000);
        let wrong = perhaps(10_000..110_000);
        assert!(wrong < 400, "{wrong} of 100,000 absent keys were let through");
    }
}
