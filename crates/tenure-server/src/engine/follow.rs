//! Owns one reader of the event stream: where it stands, and where its next events come from.

use tenure_core::event::{Cursor, Event};
use tenure_store::EventQuery;
use tokio::sync::watch;

use super::feed::{Next, Unseen};
use super::{Engine, Unavailable};

/// How many events one read of the store brings to a follower that has fallen behind.
const PAGE_EVENTS: usize = 1_000;

/// Why a follower cannot go on where it stands.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Lagging {
    /// Events after its cursor are no longer kept, or it claims to have seen events that never happened.
    #[error("events after {} are not kept; the first is {}, the last {}", .asked.0, .first.0, .last.0)]
    Gone {
        /// Where it stood.
        asked: Cursor,
        /// The oldest event kept.
        first: Cursor,
        /// The last event.
        last: Cursor,
    },
    /// The store cannot be read, or the engine has stopped.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Reads all events after a cursor, in order, none skipped.
pub struct Follower {
    engine: Engine,
    cursor: Cursor,
    news: watch::Receiver<Cursor>,
}

impl Engine {
    /// The last event so far.
    pub fn last_event(&self) -> Cursor {
        self.0.feed.last()
    }

    /// Follows the events after `cursor`, if all of them are still there.
    pub async fn follow(&self, cursor: Cursor) -> Result<Follower, Lagging> {
        self.check_kept(cursor).await?;
        Ok(Follower { engine: self.clone(), cursor, news: self.0.feed.watch() })
    }

    /// Whether every event after `cursor` can still be read.
    pub async fn check_kept(&self, cursor: Cursor) -> Result<(), Lagging> {
        if cursor == self.last_event() || matches!(self.0.feed.after(cursor), Next::Unseen(_)) {
            return Ok(());
        }
        self.read_on(cursor, 1).await.map(drop)
    }

    /// The next events after `cursor`, from the store.
    async fn read_on(&self, cursor: Cursor, limit: usize) -> Result<Vec<Event>, Lagging> {
        // With the event that was seen last: a number alone says nothing about what happened there, and numbers may have a gap.
        let query = EventQuery::after(Cursor(cursor.0.saturating_sub(1)), limit + 1);
        let mut events = self.read(move |reader| reader.events(&query)).await?.events;
        let found = events.first().map(|event| event.cursor);
        if found == Some(cursor) {
            events.remove(0);
        } else if found != Some(cursor.next()) {
            // Retention was faster than this reader, or it has seen what never happened here.
            let first = self.read(|reader| reader.first_cursor()).await?;
            return Err(Lagging::Gone { asked: cursor, first, last: self.last_event() });
        }
        Ok(events)
    }
}

impl Follower {
    /// The last event that it has handed out, or where it began.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The next events; waits until there are some.
    pub async fn next(&mut self) -> Result<Unseen, Lagging> {
        loop {
            self.news.mark_unchanged();
            let unseen = match self.engine.0.feed.after(self.cursor) {
                Next::Unseen(unseen) => unseen,
                Next::Behind => Unseen::whole(self.engine.read_on(self.cursor, PAGE_EVENTS).await?),
                Next::UpToDate => {
                    self.news.changed().await.map_err(|_| Unavailable::Stopped)?;
                    continue;
                }
            };
            let Some(last) = unseen.last() else { continue };
            self.cursor = last;
            return Ok(unseen);
        }
    }
}
