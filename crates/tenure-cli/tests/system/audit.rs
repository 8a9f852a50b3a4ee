//! Reads the whole history of a server over the wire and asks the auditor about it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_core::event::Event;
use tenure_store::audit::Auditor;

use crate::http::Http;

/// What the history says.
#[derive(Default)]
pub struct History {
    /// The tokens that were granted.
    pub granted: BTreeSet<u64>,
    /// The tokens that ended, and the kind of event.
    pub ended: BTreeMap<u64, String>,
    last: u64,
    auditor: Auditor,
}

impl History {
    /// Reads on from where it stopped. Panics at the first thing that must never happen.
    pub fn read(&mut self, http: &mut Http) {
        loop {
            let answer = http.get(&format!("/v1/events?after={}&limit=1000", self.last)).expect("events");
            assert_eq!(answer.status, 200, "{}", answer.body);
            let events = answer.body["events"].as_array().expect("a list").clone();
            for event in &events {
                self.push(event);
            }
            if events.is_empty() {
                return;
            }
        }
    }

    fn push(&mut self, event: &Value) {
        let cursor = event["cursor"].as_u64().expect("a cursor");
        assert_eq!(cursor, self.last + 1, "an event is missing before {event}");
        self.last = cursor;
        let kind = event["kind"].as_str().expect("a kind").to_owned();
        if let Some(token) = event["token"].as_u64() {
            match kind.as_str() {
                "lease.granted" => assert!(self.granted.insert(token), "token {token} was granted twice"),
                "lease.released" | "lease.expired" | "lease.revoked" => {
                    assert_eq!(self.ended.insert(token, kind), None, "token {token} ended twice");
                }
                _ => {}
            }
        }
        let event: Event = serde_json::from_value(stored_form(event)).expect("an event as it is stored");
        if let Err(violation) = self.auditor.push(&event) {
            panic!("the history is not sound: {violation}");
        }
    }
}

/// The wire says times for people and ids for links; the stored form has numbers.
fn stored_form(event: &Value) -> Value {
    let mut event = event.clone();
    let fields = event.as_object_mut().expect("an object");
    for name in ["at", "acquired_at", "expires_at"] {
        if let Some(Value::String(text)) = fields.get(name) {
            let at: jiff::Timestamp = text.parse().expect("a time");
            fields.insert(name.to_owned(), at.as_millisecond().into());
        }
    }
    for name in ["within", "ended_with"] {
        if let Some(Value::String(text)) = fields.get(name) {
            let id: tenure_core::LeaseId = text.parse().expect("a lease id");
            fields.insert(name.to_owned(), id.token().as_u64().into());
        }
    }
    event
}
