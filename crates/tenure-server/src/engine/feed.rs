//! Owns how events reach those who follow them: the recent ones from a ring in memory, older ones from the store.
//!
//! A follower pulls. It is woken when there is more than it has seen, however much that is, so a slow one costs no memory
//! and skips nothing: once it has fallen behind the ring it reads from the store until it has caught up. Whoever writes
//! only appends to the ring and wakes one thread; that thread wakes the followers, so that thousands of them delay no answer.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::thread::{self, Thread};

use bytes::Bytes;
use tenure_core::change::Batch;
use tenure_core::event::{Cursor, Event};
use tokio::sync::watch;

/// How many recent events followers read from memory. A follower further behind than this reads from the store.
pub const RING_EVENTS_MAX: usize = 16_384;

/// The events of one commit, or one page read from the store; in order and without a gap.
pub(super) struct Chunk {
    batch: Arc<Batch>,
    /// The form in which a door sends each event: written once, not once for every follower.
    rendered: Box<[OnceLock<Bytes>]>,
}

impl Chunk {
    pub(super) fn new(batch: Arc<Batch>) -> Chunk {
        let rendered = batch.events.iter().map(|_| OnceLock::new()).collect();
        Chunk { batch, rendered }
    }

    fn first(&self) -> Option<Cursor> {
        self.batch.events.first().map(|event| event.cursor)
    }
}

/// The part of a chunk that a follower has not seen.
pub struct Unseen {
    chunk: Arc<Chunk>,
    from: usize,
}

/// One event on its way to followers.
#[derive(Clone, Copy)]
pub struct Published<'a> {
    event: &'a Event,
    rendered: &'a OnceLock<Bytes>,
}

impl<'a> Published<'a> {
    /// What happened.
    pub fn event(self) -> &'a Event {
        self.event
    }

    /// Its form on the wire, written by whoever asks first.
    pub fn rendered(self, render: impl FnOnce(&Event) -> Bytes) -> &'a Bytes {
        self.rendered.get_or_init(|| render(self.event))
    }
}

impl Unseen {
    /// What comes after `cursor` in `chunk`.
    pub(super) fn after(cursor: Cursor, chunk: Arc<Chunk>) -> Unseen {
        let from = chunk.batch.events.partition_point(|event| event.cursor <= cursor);
        Unseen { chunk, from }
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Published<'_>> {
        let events = self.chunk.batch.events.iter().zip(&self.chunk.rendered).skip(self.from);
        events.map(|(event, rendered)| Published { event, rendered })
    }

    /// The last of them.
    pub(super) fn last(&self) -> Option<Cursor> {
        self.chunk.batch.events.get(self.from..)?.last().map(|event| event.cursor)
    }
}

/// What the ring has for a follower.
pub(super) enum Next {
    /// More.
    Unseen(Unseen),
    /// Nothing new.
    UpToDate,
    /// More, but in the store.
    Behind,
}

pub(super) struct Feed {
    ring: RwLock<Ring>,
    last: watch::Sender<Cursor>,
    waker: OnceLock<Thread>,
}

struct Ring {
    chunks: VecDeque<Arc<Chunk>>,
    events: usize,
    last: Cursor,
}

impl Feed {
    /// A feed whose last event so far is `last`, with the thread that wakes its followers. The thread ends with the feed.
    pub(super) fn start(last: Cursor) -> std::io::Result<Arc<Feed>> {
        let feed = Arc::new(Feed {
            ring: RwLock::new(Ring { chunks: VecDeque::new(), events: 0, last }),
            last: watch::Sender::new(last),
            waker: OnceLock::new(),
        });
        let weak = Arc::downgrade(&feed);
        let waker = thread::Builder::new().name("tenure-feed".to_owned()).spawn(move || wake_followers(&weak))?;
        feed.waker.set(waker.thread().clone()).ok();
        Ok(feed)
    }

    /// Appends what a commit has made durable.
    pub(super) fn publish(&self, batch: Arc<Batch>) {
        let Some(last) = batch.events.last().map(|event| event.cursor) else { return };
        let chunk = Arc::new(Chunk::new(batch));
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        ring.last = last;
        ring.events += chunk.rendered.len();
        ring.chunks.push_back(chunk);
        // The newest chunk stays whatever its size: a page of the store would be no smaller.
        while ring.events > RING_EVENTS_MAX && ring.chunks.len() > 1 {
            ring.events -= ring.chunks.pop_front().map_or(0, |chunk| chunk.rendered.len());
        }
        drop(ring);
        if self.followers() > 0 {
            self.unpark();
        }
    }

    /// What follows `cursor`.
    pub(super) fn after(&self, cursor: Cursor) -> Next {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        if cursor >= ring.last {
            return Next::UpToDate;
        }
        // The last chunk that starts at or before the wanted event holds it.
        let wanted = cursor.next();
        let at = ring.chunks.partition_point(|chunk| chunk.first().is_some_and(|first| first <= wanted));
        match at.checked_sub(1).and_then(|at| ring.chunks.get(at)) {
            Some(chunk) => Next::Unseen(Unseen::after(cursor, Arc::clone(chunk))),
            None => Next::Behind,
        }
    }

    /// The last event.
    pub(super) fn last(&self) -> Cursor {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).last
    }

    /// How many are told when there is more.
    pub(super) fn followers(&self) -> usize {
        self.last.receiver_count()
    }

    /// Tells a follower that there is more.
    pub(super) fn watch(&self) -> watch::Receiver<Cursor> {
        self.last.subscribe()
    }

    fn unpark(&self) {
        if let Some(waker) = self.waker.get() {
            waker.unpark();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.unpark();
    }
}

fn wake_followers(feed: &Weak<Feed>) {
    while let Some(feed) = feed.upgrade() {
        feed.last.send_if_modified(|seen| {
            let last = feed.last();
            std::mem::replace(seen, last) != last
        });
        drop(feed);
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(cursors: std::ops::RangeInclusive<u64>) -> Arc<Batch> {
        let event = |cursor| serde_json::json!({ "cursor": cursor, "at": 0, "kind": "ledger.opened" });
        let events = cursors.map(|cursor| serde_json::from_value(event(cursor)).expect("an event")).collect();
        Arc::new(Batch { events, ..Batch::default() })
    }

    fn unseen(feed: &Feed, after: u64) -> Option<Vec<u64>> {
        match feed.after(Cursor(after)) {
            Next::Unseen(unseen) => Some(unseen.iter().map(|published| published.event().cursor.0).collect()),
            Next::UpToDate => Some(Vec::new()),
            Next::Behind => None,
        }
    }

    #[test]
    fn a_follower_reads_on_from_any_place_in_the_ring_and_from_the_store_before_it() {
        let feed = Feed::start(Cursor(10)).expect("a thread");
        feed.publish(events(11..=12));
        feed.publish(events(13..=13));
        assert_eq!(unseen(&feed, 9), None);
        assert_eq!(unseen(&feed, 10), Some(vec![11, 12]));
        assert_eq!(unseen(&feed, 11), Some(vec![12]));
        assert_eq!(unseen(&feed, 12), Some(vec![13]));
        assert_eq!(unseen(&feed, 13), Some(vec![]));
    }

    #[test]
    fn the_ring_keeps_a_bounded_number_of_events() {
        let feed = Feed::start(Cursor(0)).expect("a thread");
        let half = RING_EVENTS_MAX as u64 / 2;
        for start in [1, half + 1, 2 * half + 1] {
            feed.publish(events(start..=start + half - 1));
        }
        assert_eq!(unseen(&feed, 0), None, "the oldest are in the store only");
        assert_eq!(unseen(&feed, half).map(|seen| seen.len()), Some(half as usize));
    }
}
