//! The judgement, from the store's history and the clients' memory alone.

use std::collections::HashSet;

use tenure_core::Token;
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_store::Reader;
use tenure_store::audit::Auditor;

use super::clients::Clients;
use super::world::history;

/// What the store has of grants and ends.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) grants: HashSet<Token>,
    pub(super) ends: HashSet<Token>,
    seen: Cursor,
}

impl Kept {
    /// Takes in what is new, and gives it back.
    pub(super) fn catch_up(&mut self, reader: &dyn Reader) -> Vec<Event> {
        let events = history(reader, self.seen);
        for event in &events {
            self.seen = event.cursor;
            let of = if event.kind.end().is_some() { &mut self.ends } else { &mut self.grants };
            of.extend(event.token);
        }
        events
    }
}

/// L13, in the time that really passed, whatever clocks said: nobody has expired before a moment it was promised.
pub(super) fn check_promises(events: &[Event], clients: &Clients, elapsed_ms: u64) {
    let own_expiries =
        events.iter().filter(|event| event.kind == EventKind::LeaseExpired && event.ended_with.is_none());
    for token in own_expiries.filter_map(|event| event.token) {
        if let Some(promised_ms) = clients.promised(token) {
            assert!(
                elapsed_ms >= promised_ms,
                "{token} expired after {elapsed_ms} ms, promised until {promised_ms} ms"
            );
        }
    }
}

/// Nothing held twice, tokens and times in order.
pub(super) fn audit(events: &[Event]) {
    let mut auditor = Auditor::new();
    for event in events {
        if let Err(violation) = auditor.push(event) {
            panic!("at event {}: {violation}", event.cursor.0);
        }
    }
    auditor.finish().expect("nothing is left half done");
}
