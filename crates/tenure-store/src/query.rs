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

    /// The newest cursor in the range asked for, of a store that has events up to `head`.
    pub(crate) fn newest(&self, head: Cursor) -> Cursor {
        self.before.map_or(head, |before| head.min(Cursor(before.0.saturating_sub(1))))
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

impl EventPage {
    /// The page of a scan that went on until one event more than asked for was found, or the end.
    pub(crate) fn of_complete_scan(query: &EventQuery, mut found: Vec<Event>, head: Cursor) -> EventPage {
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        let last = found.last().map(|event| event.cursor);
        let next = match (more, query.order) {
            // A page of no events at all stays where it was asked.
            (true, Order::OldestFirst) => last.unwrap_or(query.after),
            (true, Order::NewestFirst) => last.or(query.before).unwrap_or_else(|| head.next()),
            (false, Order::OldestFirst) => query.newest(head).max(query.after),
            (false, Order::NewestFirst) => query.after.next(),
        };
        EventPage { events: found, next, more }
    }
}
