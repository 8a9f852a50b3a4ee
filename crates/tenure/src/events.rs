//! Owns the stream of events: it continues where it broke, and skips nothing.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::Stream;
use reqwest::{Method, Response};

use crate::error::Error;
use crate::model::Event;
use crate::request::EventQuery;
use crate::sse::Parser;
use crate::transport::{Call, Transport};

/// A stream this quiet is dead: the server sends a comment every few seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Before the first reconnect; doubling up to [`RECONNECT_MAX`], jittered.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
/// The longest pause before a reconnect.
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Events as they happen. Made by [`crate::Client::watch`].
#[derive(Debug)]
pub struct Events {
    transport: Transport,
    query: EventQuery,
    timeout: Duration,
    last: Option<u64>,
    open: Option<Open>,
    ready: VecDeque<Step>,
    failures: u32,
}

/// What came, in the order in which it came.
#[derive(Debug)]
enum Step {
    Event(Box<Event>),
    /// An id without an event: the stream goes on from there. It comes when a stream starts, so that a connection which
    /// breaks before the first event does not go on from a later present, and again while nothing happens that is asked for.
    Place(u64),
}

#[derive(Debug)]
struct Open {
    response: Response,
    parser: Parser,
}

impl Events {
    pub(crate) fn new(transport: Transport, query: EventQuery, timeout: Duration) -> Events {
        let last = query.after;
        Events { transport, query, timeout, last, open: None, ready: VecDeque::new(), failures: 0 }
    }

    /// The next event; waits for it, and makes a broken connection again, for as long as it takes. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// A refusal (wrong filter, wrong key) and an answer that is not Tenure's; the stream may be asked again.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            while let Some(step) = self.ready.pop_front() {
                match step {
                    Step::Place(cursor) => self.last = Some(cursor),
                    Step::Event(event) => {
                        self.last = Some(event.cursor);
                        return Ok(*event);
                    }
                }
            }
            match self.read().await {
                Ok(()) => self.failures = 0,
                Err(error) if error.is_transient() => {
                    self.open = None;
                    let pause = self.pause();
                    tracing::debug!("the event stream broke, again in {pause:?}: {error}");
                    tokio::time::sleep(pause).await;
                    self.failures += 1;
                }
                Err(error) => {
                    self.open = None;
                    return Err(error);
                }
            }
        }
    }

    /// Where another stream would go on: the cursor of the last event that was given out, or a later one if the server has
    /// said since that nothing else happened up to there.
    pub fn cursor(&self) -> Option<u64> {
        self.last
    }

    /// The same as a [`Stream`]. It ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, Error>> {
        futures_util::stream::unfold(Some(self), |events| async {
            let mut events = events?;
            let event = events.next().await;
            let rest = event.is_ok().then_some(events);
            Some((event, rest))
        })
    }

    fn pause(&self) -> Duration {
        let base = RECONNECT_FIRST * 2_u32.saturating_pow(self.failures.min(6));
        base.min(RECONNECT_MAX).mul_f64(0.5 + rand::random::<f64>())
    }

    /// Opens the stream if it is not open, and reads one piece of it.
    async fn read(&mut self) -> Result<(), Error> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let call = Call::new(Method::GET, "/v1/events", self.timeout).query(&self.query);
                let response = self.transport.stream(&call, self.last).await?;
                self.open.insert(Open { response, parser: Parser::default() })
            }
        };
        let piece = tokio::time::timeout(SILENCE_MAX, open.response.chunk()).await;
        let piece = piece.map_err(|late| self.transport.unreachable(late))?;
        let Some(bytes) = piece.map_err(|error| self.transport.unreachable(error))? else {
            return Err(self.transport.unreachable("the stream ended"));
        };
        let messages = open.parser.feed(&bytes).map_err(|error| bad_event("too long", error))?;
        for message in messages {
            let step = match (message.data, message.id) {
                (Some(data), _) => {
                    serde_json::from_slice(&data).map(Step::Event).map_err(|error| bad_event("not an event", error))?
                }
                (None, Some(id)) => Step::Place(id),
                (None, None) => continue,
            };
            self.ready.push_back(step);
        }
        Ok(())
    }
}

fn bad_event(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::BadAnswer { url: "/v1/events".to_owned(), what: what.to_owned(), source: Some(source.into()) }
}
