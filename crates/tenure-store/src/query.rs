//! Owns the questions a reader may ask about events. What matches is decided here once, for every driver.

use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::{Holder, Resource, Token};

/// Which way a page runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As it happened.
    #[default]
    OldestFirst,
    /// The latest first: history for people.
    NewestFirst,
}

/// Which events to read. An empty filter lets everything through; all filters given must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// Only later ones.
    pub after: Cursor,
    /// Only earlier ones.
    pub before: Option<Cursor>,
    /// Which way.
    pub order: Order,
    /// At most so many; a page can be shorter while more follow.
    pub limit: usize,
    /// Only of these kinds.
    pub kinds: Vec<EventKind>,
    /// Only about a resource that overlaps this one.
    pub resource: Option<Resource>,
    /// Only about leases of this holder.
    pub holder: Option<Holder>,
    /// Only about this lease.
    pub token: Option<Token>,
}

impl EventQuery {
    /// The next `limit` events after `after`.
    pub fn after(after: Cursor, limit: usize) -> EventQuery {
        EventQuery { after, limit, ..EventQuery::default() }
    }

    /// The latest `limit` ends of leases: a history, newest first. Narrow it with the filters.
    pub fn ends(limit: usize) -> EventQuery {
        let kinds = EventKind::ALL.into_iter().filter(|kind| kind.end().is_some()).collect();
        EventQuery { order: Order::NewestFirst, limit, kinds, ..EventQuery::default() }
    }

    /// Whether a cursor is in the range asked for.
    pub fn spans(&self, cursor: Cursor) -> bool {
        cursor > self.after && self.before.is_none_or(|before| cursor < before)
    }

    /// Whether an event is asked for.
    pub fn matches(&self, event: &Event) -> bool {
        self.spans(event.cursor)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.token.is_none_or(|token| event.token == Some(token))
            && self.holder.as_ref().is_none_or(|holder| event.holder.as_ref() == Some(holder))
            && self.resource.as_ref().is_none_or(|asked| event.resources.iter().any(|held| held.overlaps(asked)))
    }
}

/// A page of events.
#[derive(Debug, Clone, Default)]
pub struct EventPage {
    /// In the order asked for.
    pub events: Vec<Event>,
    /// How far the page looked: the next one is asked for `after` it, or `before` it for the newest first.
    pub next: Cursor,
    /// Whether the range asked for goes on there; a page looks at a bounded number of events, so also an empty
    /// page can have more behind it.
    pub more: bool,
}

/// A page in the making: takes the events in the order asked for, and knows when it has seen enough.
pub(crate) struct Search<'a> {
    pub(crate) query: &'a EventQuery,
    found: Vec<Event>,
    /// The last cursor that was looked at, or where the search starts.
    pub(crate) looked: Cursor,
    /// How many events it may still look at.
    budget: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn new(query: &'a EventQuery, budget: usize) -> Search<'a> {
        let looked = match query.order {
            Order::OldestFirst => query.after,
            Order::NewestFirst => query.before.unwrap_or(Cursor(u64::MAX)),
        };
        Search { query, found: Vec::new(), looked, budget }
    }

    /// Whether it is not done yet. One event more than asked for tells whether a next page has any.
    pub(crate) fn is_open(&self) -> bool {
        self.budget > 0 && self.found.len() <= self.query.limit && !self.has_all()
    }

    /// Whether there can be no other: a lease ends once.
    fn has_all(&self) -> bool {
        let asks_for_an_end = self.query.token.is_some() && self.query.kinds.iter().all(|kind| kind.end().is_some());
        asks_for_an_end && !self.query.kinds.is_empty() && !self.found.is_empty()
    }

    /// Whether this place comes after everything that was looked at.
    pub(crate) fn is_ahead(&self, cursor: Cursor) -> bool {
        match self.query.order {
            Order::OldestFirst => cursor > self.looked,
            Order::NewestFirst => cursor < self.looked,
        }
    }

    /// Takes the next event; does nothing once it is done.
    pub(crate) fn look(&mut self, event: &Event) {
        if !self.is_open() {
            return;
        }
        if self.query.matches(event) {
            self.found.push(event.clone());
        }
        self.skip_to(event.cursor, 1);
    }

    /// Goes on at `cursor`, having looked at so many events on the way.
    pub(crate) fn skip_to(&mut self, cursor: Cursor, looked_at: usize) {
        self.budget = self.budget.saturating_sub(looked_at);
        self.looked = match self.query.order {
            Order::OldestFirst => self.looked.max(cursor),
            Order::NewestFirst => self.looked.min(cursor),
        };
    }

    /// The page.
    pub(crate) fn into_page(mut self) -> EventPage {
        if self.found.len() <= self.query.limit {
            let more = !self.is_open() && !self.has_all();
            return EventPage { events: self.found, next: self.looked, more };
        }
        self.found.truncate(self.query.limit);
        let start = Search::new(self.query, 1).looked;
        let next = self.found.last().map_or(start, |event| event.cursor);
        EventPage { events: self.found, next, more: true }
    }
}
