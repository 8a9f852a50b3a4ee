//! Owns who hears what over SSE: one task follows the ledger's events and hands each to the streams it concerns, so that
//! a thousand idle streams cost a map entry and a timer each, and the ledger is asked once for a whole batch of events.
//!
//! A stream that does not keep up is cut, never skipped: its reader comes back with the last id it saw and is given the
//! rest from the store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tenure_core::Holder;
use tenure_core::access::Caller;
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::lease::End;
use tenure_core::ledger::assign::{Audience, Hearers};
use tenure_core::serial::{IntentId, PortfolioId};
use tokio::sync::mpsc;

use super::events::{data, tell};
use super::model;
use crate::engine::{Lagging, Unavailable};
use crate::http::App;

/// How many frames may wait for one stream before it is cut.
const FRAMES_MAX: usize = 256;

/// Whose stream it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Listener {
    Agent(Holder),
    Intent(IntentId),
    Portfolio(PortfolioId),
}

/// Something to send.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    /// The intent whose assignment this tells of, and its event.
    pub(crate) assigns: Option<(IntentId, Cursor)>,
}

/// Where a stream hangs on.
pub(crate) struct Seat {
    pub(crate) frames: mpsc::Receiver<Frame>,
    /// Everything after this comes over `frames`.
    pub(crate) from: Cursor,
}

/// The other end of a seat, and who sits there.
struct Sitter {
    to: mpsc::Sender<Frame>,
    who: Caller,
}

struct Seats {
    by_listener: HashMap<Listener, Vec<Sitter>>,
    /// The last event that was handed out.
    cursor: Cursor,
}

pub(crate) struct Hub {
    app: App,
    seats: Mutex<Seats>,
    is_running: AtomicBool,
}

impl Hub {
    pub(crate) fn new(app: App) -> Arc<Hub> {
        let cursor = app.engine().last_event();
        let seats = Mutex::new(Seats { by_listener: HashMap::new(), cursor });
        Arc::new(Hub { app, seats, is_running: AtomicBool::new(false) })
    }

    /// Takes a seat; the task begins with the first one.
    pub(crate) fn join(self: &Arc<Self>, listener: Listener, who: Caller) -> Seat {
        let (to, frames) = mpsc::channel(FRAMES_MAX);
        let mut seats = self.seats();
        if !self.is_running.swap(true, Ordering::SeqCst) {
            // Nobody listened before, so nothing was owed.
            seats.cursor = self.app.engine().last_event();
            tokio::spawn(Arc::clone(self).run(seats.cursor));
        }
        seats.by_listener.entry(listener).or_default().push(Sitter { to, who });
        Seat { frames, from: seats.cursor }
    }

    fn seats(&self) -> std::sync::MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, cursor: Cursor) {
        let followed = tokio::select! {
            followed = self.follow(cursor) => followed,
            () = self.app.closing() => Err(Unavailable::Stopped.into()),
        };
        if let Err(error) = followed {
            tracing::debug!(%error, "event streams end");
            // Streams that are left find their channel closed and are cut; the next one starts afresh.
            let mut seats = self.seats();
            seats.by_listener.clear();
            self.is_running.store(false, Ordering::SeqCst);
        }
    }

    /// Hands out until nobody listens any more: without a stream, a commit wakes nobody.
    async fn follow(&self, cursor: Cursor) -> Result<(), Lagging> {
        let mut follower = self.app.engine().follow(cursor).await?;
        loop {
            let unseen = follower.next().await?;
            let events: Vec<&Event> = unseen.iter().map(|published| published.event()).collect();
            let heard = Heard::of(&self.app, &events).await?;
            if !self.hand_out(&events, &heard) {
                return Ok(());
            }
        }
    }

    /// Whether anybody is left. If not, the next to join starts the task again: both are said under the lock.
    fn hand_out(&self, events: &[&Event], heard: &Heard) -> bool {
        let mut seats = self.seats();
        for event in events {
            for (listener, frame) in heard.frames(event) {
                let Some(streams) = seats.by_listener.get_mut(&listener) else { continue };
                streams
                    .retain(|one| !heard.is_for(event, &listener, &one.who) || one.to.try_send(frame.clone()).is_ok());
                if streams.is_empty() {
                    seats.by_listener.remove(&listener);
                }
            }
            seats.cursor = event.cursor;
        }
        // Those that went away.
        if let Some(last) = events.last()
            && last.cursor.0 % 64 == 0
        {
            seats.by_listener.retain(|_, streams| {
                streams.retain(|one| !one.to.is_closed());
                !streams.is_empty()
            });
        }
        let is_anybody_left = !seats.by_listener.is_empty();
        self.is_running.store(is_anybody_left, Ordering::SeqCst);
        is_anybody_left
    }
}

/// Who is to hear about the intents of some events.
pub(crate) struct Heard(HashMap<IntentId, Hearers>);

impl Heard {
    pub(crate) async fn of(app: &App, events: &[&Event]) -> Result<Heard, Unavailable> {
        let mut ids: Vec<IntentId> = events.iter().filter_map(|event| intent_of(event)).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Heard(HashMap::new()));
        }
        let hearers = app.engine().apply(Audience(ids)).await?;
        Ok(Heard(hearers.into_iter().map(|hearers| (hearers.intent, hearers)).collect()))
    }

    /// What an event is to whom.
    fn frames(&self, event: &Event) -> Vec<(Listener, Frame)> {
        let mut frames = Vec::new();
        if let Some(id) = portfolio_of(event) {
            frames.extend(general(event, None).map(|frame| (Listener::Portfolio(id), frame)));
        }
        let Some(id) = intent_of(event) else { return frames };
        if let Some(agent) = event.holder.clone().filter(|_| event.kind == EventKind::IntentAssigned) {
            frames.extend(for_agent(event, id, &agent).map(|frame| (Listener::Agent(agent), frame)));
        }
        let Some(hearers) = self.0.get(&id) else { return frames };
        for agent in hearers.agents.iter().filter(|_| event.kind != EventKind::IntentAssigned) {
            frames.extend(for_agent(event, id, agent).map(|frame| (Listener::Agent(agent.clone()), frame)));
        }
        if let Some(frame) = general(event, Some(id)) {
            let portfolios = hearers.portfolios.iter().map(|id| (Listener::Portfolio(*id), frame.clone()));
            frames.extend(portfolios);
            frames.push((Listener::Intent(id), frame));
        }
        frames
    }

    /// What an event is to one who listens.
    pub(crate) fn frame_for(&self, event: &Event, listener: &Listener, who: &Caller) -> Option<Frame> {
        let mut frames = self.frames(event).into_iter();
        frames.find(|(one, _)| one == listener && self.is_for(event, listener, who)).map(|(_, frame)| frame)
    }

    /// Whether who follows an intent or a portfolio may hear it. What goes to an agent goes to those that work on the intent.
    fn is_for(&self, event: &Event, listener: &Listener, who: &Caller) -> bool {
        let hearers = intent_of(event).and_then(|id| self.0.get(&id));
        matches!(listener, Listener::Agent(_)) || hearers.is_none_or(|hearers| hearers.include(who))
    }
}

fn intent_of(event: &Event) -> Option<IntentId> {
    model::intent_in(&event.resources).map(|(_, id)| id)
}

fn portfolio_of(event: &Event) -> Option<PortfolioId> {
    let text = event.resources.first().filter(|resource| resource.kind() == "portfolio")?.to_string();
    text.split_once(':')?.1.parse().ok()
}

/// The five events that an agent's handlers hear; anything else only fills its log with errors.
fn for_agent(event: &Event, id: IntentId, agent: &Holder) -> Option<Frame> {
    let is_own = event.by.as_ref().or(event.holder.as_ref()) == Some(agent);
    let mut said = data(event);
    let (name, said) = match event.kind {
        EventKind::IntentAssigned => {
            let frame = assigned(id, Some(event.cursor), said);
            return Some(Frame { assigns: Some((id, event.cursor)), ..frame });
        }
        // Its own patch is no news to it, and its handler may patch again.
        EventKind::IntentPatched if is_own => return None,
        EventKind::IntentPatched => {
            let (old, new) = (said.remove("old"), said.remove("new"));
            ("STATE_CHANGED", json!({ "old_state": old, "new_state": new, "version": said.get("version") }))
        }
        EventKind::IntentStatusChanged => {
            let told = tell(event)?.payload;
            let (new, old) = (told.get("status"), told.get("old_status"));
            ("STATUS_CHANGED", json!({ "new_status": new, "old_status": old }))
        }
        kind => {
            let end = kind.end()?;
            // A handler that takes and releases the scope it is called for would call itself for ever.
            if end == End::Released && event.holder.as_ref() == Some(agent) {
                return None;
            }
            ("LEASE_RELEASED", lease_said(event, end)?)
        }
    };
    Some(frame(name, Some(event.cursor), with_intent(Some(id), said)))
}

fn lease_said(event: &Event, end: End) -> Option<Value> {
    let (resource, _) = model::intent_in(&event.resources)?;
    Some(json!({ "scope": model::scope(resource), "agent_id": event.holder, "status": end.as_str() }))
}

/// An assignment, as the agent is told of it.
pub(crate) fn assigned(id: IntentId, cursor: Option<Cursor>, said: Map<String, Value>) -> Frame {
    frame("AGENT_ASSIGNED", cursor, with_intent(Some(id), Value::Object(said)))
}

/// What followers of an intent or a portfolio hear: everything, under the client package's names where it has one.
fn general(event: &Event, id: Option<IntentId>) -> Option<Frame> {
    let told = tell(event)?;
    let (name, said) = match event.kind {
        EventKind::IntentPatched => {
            let mut said = data(event);
            let states = json!({ "old_state": said.remove("old"), "new_state": said.remove("new") });
            ("STATE_CHANGED".to_owned(), states)
        }
        EventKind::IntentStatusChanged => {
            let new = told.payload.get("status").cloned();
            ("STATUS_CHANGED".to_owned(), json!({ "new_status": new, "old_status": told.payload.get("old_status") }))
        }
        _ => (told.kind.replace('.', "_").to_uppercase(), Value::Object(told.payload.clone())),
    };
    let mut body = with_intent(id, said);
    if let Some(body) = body.as_object_mut() {
        body.insert("event_type".to_owned(), json!(told.kind));
        body.insert("actor".to_owned(), json!(told.actor));
        body.insert("created_at".to_owned(), model::at(event.at));
    }
    Some(frame(&name, Some(event.cursor), body))
}

fn with_intent(id: Option<IntentId>, said: Value) -> Value {
    let mut body = Map::new();
    body.extend(id.map(|id| ("intent_id".to_owned(), json!(id))));
    if let Value::Object(said) = said {
        body.extend(said);
    }
    Value::Object(body)
}

fn frame(name: &str, cursor: Option<Cursor>, body: Value) -> Frame {
    let id = cursor.map(|cursor| format!("id: {}\n", cursor.0)).unwrap_or_default();
    Frame { bytes: format!("{id}event: {name}\ndata: {body}\n\n").into(), assigns: None }
}
