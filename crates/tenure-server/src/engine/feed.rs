//! Owns how events reach those who follow them: the recent ones from a ring in memory, older ones from the store.
//!
//! A follower pulls. It is woken when there is more than it has seen, however much that is, so a slow one costs no memory
//! and skips nothing: once it has fallen behind the ring it reads from the store until it has caught up. Whoever writes
//! only appends to the ring and wakes one thread; that thread wakes the followers, so that thousands of them delay no answer.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::thread::{self, Thread};

use bytes::Bytes;
use tenure_core::change::Batch;
use tenure_core::event::{Cursor, Event};
use tokio::sync::watch;

/// How many recent events followers read from memory. A follower further behind than this reads from the store.
pub const RING_EVENTS_MAX: usize = 16_384;
/// … or this much of them, if they are large.
pub const RING_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// How much a follower is handed at once: thousands of them may read one large commit at the same time.
const UNSEEN_BYTES: usize = 64 * 1_024;

/// The events of one commit, or one page read from the store; in order and without a gap. The changes of the commit are not kept
/// for anyone.
pub(super) struct Chunk {
    events: Vec<Event>,
    /// The form in which a door sends each event: written once, not once for every follower.
    rendered: Box<[OnceLock<Bytes>]>,
    /// About how much memory the events take; counted once, because the ring asks with its lock in hand.
    bytes: usize,
}

impl Chunk {
    pub(super) fn new(events: Vec<Event>) -> Chunk {
        let rendered = events.iter().map(|_| OnceLock::new()).collect();
        let bytes = events.iter().map(bytes_of).sum();
        Chunk { events, rendered, bytes }
    }

    fn first(&self) -> Option<Cursor> {
        self.events.first().map(|event| event.cursor)
    }
}

/// About how much memory an event takes.
fn bytes_of(event: &Event) -> usize {
    let names: usize = event.resources.iter().map(|resource| Borrow::<str>::borrow(resource).len()).sum();
    size_of::<Event>() + names + event.data.as_ref().map_or(0, |data| data.get().len())
}

/// The part of a chunk that a follower has not seen.
pub struct Unseen {
    chunk: Arc<Chunk>,
    part: Range<usize>,
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
    /// What comes after `cursor` in `chunk`: not more than is handed out at once, but at least one.
    fn after(cursor: Cursor, chunk: Arc<Chunk>) -> Unseen {
        let from = chunk.events.partition_point(|event| event.cursor <= cursor);
        let mut bytes = 0;
        let fits = |event: &&Event| {
            let fits = bytes < UNSEEN_BYTES;
            bytes += bytes_of(event);
            fits
        };
        let count = chunk.events.iter().skip(from).take_while(fits).count();
        Unseen { chunk, part: from..from + count }
    }

    /// All of a page from the store, which is bounded already and would be read again for its rest.
    pub(super) fn whole(events: Vec<Event>) -> Unseen {
        let part = 0..events.len();
        Unseen { chunk: Arc::new(Chunk::new(events)), part }
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Published<'_>> {
        let events = self.chunk.events.iter().zip(&self.chunk.rendered);
        let part = events.skip(self.part.start).take(self.part.len());
        part.map(|(event, rendered)| Published { event, rendered })
    }

    /// The last of them.
    pub(super) fn last(&self) -> Option<Cursor> {
        self.chunk.events.get(self.part.clone())?.last().map(|event| event.cursor)
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

#[derive(Default)]
struct Ring {
    chunks: VecDeque<Arc<Chunk>>,
    events: usize,
    bytes: usize,
    last: Cursor,
}

impl Ring {
    fn push(&mut self, chunk: Arc<Chunk>) {
        self.events += chunk.events.len();
        self.bytes += chunk.bytes;
        self.chunks.push_back(chunk);
        // The newest chunk stays whatever its size: who follows has not seen it yet.
        while (self.events > RING_EVENTS_MAX || self.bytes > RING_BYTES_MAX) && self.chunks.len() > 1 {
            let Some(oldest) = self.chunks.pop_front() else { return };
            self.events -= oldest.events.len();
            self.bytes -= oldest.bytes;
        }
    }
}

impl Feed {
    /// A feed whose last event so far is `last`, with the thread that wakes its followers. The thread ends with the feed.
    pub(super) fn start(last: Cursor) -> std::io::Result<Arc<Feed>> {
        let feed = Arc::new(Feed {
            ring: RwLock::new(Ring { last, ..Ring::default() }),
            last: watch::Sender::new(last),
            waker: OnceLock::new(),
        });
        let weak = Arc::downgrade(&feed);
        let waker = thread::Builder::new().name("tenure-feed".to_owned()).spawn(move || wake_followers(&weak))?;
        feed.waker.set(waker.thread().clone()).ok();
        Ok(feed)
    }

    /// Appends what a commit has made durable. While nobody follows, nothing is kept: who begins to reads from the store.
    pub(super) fn publish(&self, batch: &Batch) {
        let Some(last) = batch.events.last().map(|event| event.cursor) else { return };
        let chunk = (self.followers() > 0).then(|| Arc::new(Chunk::new(batch.events.clone())));
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        match chunk {
            Some(chunk) => ring.push(chunk),
            None => *ring = Ring::default(),
        }
        ring.last = last;
        drop(ring);
        // Asked again: who has begun to follow meanwhile may have found nothing new, and waits.
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

    fn events(cursors: std::ops::RangeInclusive<u64>) -> Batch {
        heavy_events(cursors, 0)
    }

    fn heavy_events(cursors: std::ops::RangeInclusive<u64>, bytes: usize) -> Batch {
        let data = serde_json::json!({ "x": "x".repeat(bytes) });
        let event = |cursor| serde_json::json!({ "cursor": cursor, "at": 0, "kind": "ledger.opened", "data": data });
        let events = cursors.map(|cursor| serde_json::from_value(event(cursor)).expect("an event")).collect();
        Batch { events, ..Batch::default() }
    }

    fn unseen(feed: &Feed, after: u64) -> Option<Vec<u64>> {
        match feed.after(Cursor(after)) {
            Next::Unseen(unseen) => Some(unseen.iter().map(|published| published.event().cursor.0).collect()),
            Next::UpToDate => Some(Vec::new()),
            Next::Behind => None,
        }
    }

    /// What a follower is handed, one piece after the other, until it is up to date.
    fn pieces(feed: &Feed, after: u64) -> Vec<Vec<u64>> {
        let next = |after: &u64| unseen(feed, *after).filter(|piece| !piece.is_empty());
        std::iter::successors(next(&after), |piece| next(piece.last()?)).collect()
    }

    #[test]
    fn a_follower_reads_on_from_any_place_in_the_ring_and_from_the_store_before_it() {
        let feed = Feed::start(Cursor(10)).expect("a thread");
        let _follower = feed.watch();
        feed.publish(&events(11..=12));
        feed.publish(&events(13..=13));
        assert_eq!(unseen(&feed, 9), None);
        assert_eq!(unseen(&feed, 10), Some(vec![11, 12]));
        assert_eq!(unseen(&feed, 11), Some(vec![12]));
        assert_eq!(unseen(&feed, 12), Some(vec![13]));
        assert_eq!(unseen(&feed, 13), Some(vec![]));
    }

    #[test]
    fn the_ring_keeps_a_bounded_number_of_events() {
        let feed = Feed::start(Cursor(0)).expect("a thread");
        let _follower = feed.watch();
        let half = RING_EVENTS_MAX as u64 / 2;
        for start in [1, half + 1, 2 * half + 1] {
            feed.publish(&events(start..=start + half - 1));
        }
        assert_eq!(unseen(&feed, 0), None, "the oldest are in the store only");
        assert_eq!(pieces(&feed, half).concat(), (half + 1..=3 * half).collect::<Vec<u64>>());
    }

    #[test]
    fn the_ring_keeps_a_bounded_number_of_bytes() {
        let feed = Feed::start(Cursor(0)).expect("a thread");
        let _follower = feed.watch();
        for cursor in 1..=4 {
            feed.publish(&heavy_events(cursor..=cursor, RING_BYTES_MAX / 3));
        }
        assert_eq!((unseen(&feed, 1), unseen(&feed, 2)), (None, Some(vec![3])));
        feed.publish(&heavy_events(5..=5, 2 * RING_BYTES_MAX));
        assert_eq!((unseen(&feed, 3), unseen(&feed, 4)), (None, Some(vec![5])), "the newest stays");
    }

    #[test]
    fn nothing_is_kept_for_nobody_and_who_begins_to_follow_reads_the_store_first() {
        let feed = Feed::start(Cursor(10)).expect("a thread");
        let follower = feed.watch();
        feed.publish(&events(11..=12));
        drop(follower);
        feed.publish(&events(13..=14));
        let _follower = feed.watch();
        assert_eq!([11, 12, 13].map(|seen| unseen(&feed, seen)), [None, None, None], "a gap would be skipped");
        assert_eq!(unseen(&feed, 14), Some(vec![]));
        feed.publish(&events(15..=15));
        assert_eq!((unseen(&feed, 13), unseen(&feed, 14)), (None, Some(vec![15])));
    }

    #[test]
    fn a_large_commit_is_handed_out_in_pieces_without_a_gap() {
        let feed = Feed::start(Cursor(0)).expect("a thread");
        let _follower = feed.watch();
        feed.publish(&heavy_events(1..=100, UNSEEN_BYTES / 10));
        feed.publish(&heavy_events(101..=101, 2 * UNSEEN_BYTES));
        let pieces = pieces(&feed, 0);
        assert_eq!(pieces.concat(), (1..=101).collect::<Vec<u64>>());
        assert!(pieces.len() >= 11 && pieces.iter().all(|piece| piece.len() <= 10), "{pieces:?}");
    }
}
