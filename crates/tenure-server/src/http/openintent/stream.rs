//! Owns the three SSE paths of this door.
//!
//! A reader that comes back with `Last-Event-ID` is first given what it missed, from the store. An agent is then given every
//! assignment it has not been sent. A stream never ends cleanly: the client package would come back at once, for ever; it
//! is broken off inside a chunk, after which that package waits.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use tenure_core::Holder;
use tenure_core::access::Caller;
use tenure_core::event::Cursor;
use tenure_core::ledger::assign::{Told, Untold, announcement};
use tenure_core::ledger::intents::GetIntent;
use tenure_core::ledger::portfolios::GetPortfolio;
use tenure_core::serial::{IntentId, PortfolioId};
use tenure_store::EventQuery;

use super::Door;
use super::body::{AgentName, Ids};
use super::caller::{Actor, Looker};
use super::error::{Answer, No};
use super::events::parse_cursor;
use super::hub::{Frame, Heard, Listener, Seat, assigned};
use crate::http::auth::header_text;
use crate::http::reply;

/// A stream without news says so this often; the client package notices a stop only when a line arrives.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How many events one look at the store brings to a reader that comes back.
const MISSED_PAGE: usize = 1_000;

pub(crate) async fn of_intent(
    State(door): State<Door>,
    Ids((id,)): Ids<(IntentId,)>,
    Looker(caller): Looker,
    headers: HeaderMap,
) -> Answer {
    door.app.engine().apply(GetIntent { id, caller: caller.clone() }).await??;
    open(door, Listener::Intent(id), caller, &headers)
}

pub(crate) async fn of_portfolio(
    State(door): State<Door>,
    Ids((id,)): Ids<(PortfolioId,)>,
    Looker(caller): Looker,
    headers: HeaderMap,
) -> Answer {
    door.app.engine().apply(GetPortfolio { id, caller: caller.clone() }).await??;
    open(door, Listener::Portfolio(id), caller, &headers)
}

/// An agent's own stream: nobody else is told what it is assigned to, or its assignments would count as sent.
pub(crate) async fn of_agent(
    State(door): State<Door>,
    Ids((AgentName(name),)): Ids<(AgentName,)>,
    actor: Actor,
    headers: HeaderMap,
) -> Answer {
    if actor.caller.holder != name && !actor.caller.is_admin {
        return Err(No::new(StatusCode::FORBIDDEN, "this is another agent's stream"));
    }
    open(door, Listener::Agent(name), actor.caller, &headers)
}

fn open(door: Door, listener: Listener, who: Caller, headers: &HeaderMap) -> Answer {
    let last_seen = header_text(headers, "last-event-id")?.and_then(parse_cursor);
    let seat = door.hub.join(listener.clone(), who.clone());
    let missed = last_seen.filter(|seen| *seen < seat.from);
    let ready = VecDeque::from([Bytes::from_static(b": connected\n\n")]);
    let greeted = !matches!(listener, Listener::Agent(_));
    let stream = Stream { door, listener, who, seat, missed, greeted, ready, sent: HashSet::new(), told: Vec::new() };
    let body = futures_util::stream::unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        match stream.piece().await {
            Some(piece) => Some((Ok(piece), Some(stream))),
            None => Some((Err(io::Error::other("the stream is broken off")), None)),
        }
    });
    let mut response = reply::typed(StatusCode::OK, "text/event-stream", Body::from_stream(body));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Stream {
    door: Door,
    listener: Listener,
    /// Who reads it.
    who: Caller,
    seat: Seat,
    /// What the reader saw last, until it has caught up.
    missed: Option<Cursor>,
    /// Whether an agent has been given what was kept for it.
    greeted: bool,
    ready: VecDeque<Bytes>,
    /// Assignments that were among what the agent missed.
    sent: HashSet<IntentId>,
    /// Assignments that are on their way and not yet noted as sent.
    told: Vec<(IntentId, Cursor)>,
}

impl Stream {
    /// What to send next; nothing when the stream is to be broken off.
    async fn piece(&mut self) -> Option<Bytes> {
        self.note_told().await;
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            if let Some(after) = self.missed {
                self.catch_up(after).await?;
                continue;
            }
            if !std::mem::replace(&mut self.greeted, true) {
                self.greet().await?;
                continue;
            }
            let frame = tokio::select! {
                frame = self.seat.frames.recv() => frame?,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b": still here\n\n")),
                () = self.door.app.closing() => return None,
            };
            self.queue(frame);
        }
    }

    fn queue(&mut self, frame: Frame) {
        self.told.extend(frame.assigns);
        self.ready.push_back(frame.bytes);
    }

    /// One page of what was missed.
    async fn catch_up(&mut self, after: Cursor) -> Option<()> {
        let query = EventQuery { before: Some(self.seat.from.next()), ..EventQuery::after(after, MISSED_PAGE) };
        let page = self.door.app.engine().read(move |reader| reader.events(&query)).await.ok()?;
        let events: Vec<_> = page.events.iter().collect();
        let heard = Heard::of(&self.door.app, &events).await.ok()?;
        for event in events {
            if let Some(frame) = heard.frame_for(event, &self.listener, &self.who) {
                self.sent.extend(frame.assigns.map(|(id, _)| id));
                self.queue(frame);
            }
        }
        self.missed = page.more.then_some(page.next);
        Some(())
    }

    /// Gives an agent the assignments it has not been sent. They carry no id: they are not in the order of events.
    async fn greet(&mut self) -> Option<()> {
        let Listener::Agent(agent) = self.listener.clone() else { return Some(()) };
        let untold = self.door.app.engine().apply(Untold { agent: agent.clone() }).await.ok()?;
        for intent in untold.intents {
            let Some(assignment) = intent.assignment(&agent) else { continue };
            // What was assigned after this stream took its seat comes over the seat.
            if self.sent.contains(&intent.id) || assignment.cursor > self.seat.from {
                continue;
            }
            let said = announcement(&intent, assignment);
            let frame = assigned(intent.id, None, said.as_object().cloned().unwrap_or_default());
            self.queue(Frame { assigns: Some((intent.id, assignment.cursor)), ..frame });
        }
        Some(())
    }

    /// Asked for the next piece, the connection has taken the last one.
    async fn note_told(&mut self) {
        let (Listener::Agent(agent), false) = (&self.listener, self.told.is_empty() || !self.ready.is_empty()) else {
            return;
        };
        let agent: Holder = agent.clone();
        let told = std::mem::take(&mut self.told);
        let Some(cursor) = told.iter().map(|(_, cursor)| *cursor).max() else { return };
        let intents = told.into_iter().map(|(id, _)| id).collect();
        // Not noted is sent again: an agent hears twice rather than never.
        self.door.app.engine().apply(Told { agent, intents, cursor }).await.ok();
    }
}
