//! Owns what an agent is told: the stream of signals of one agent, which continues where it broke.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::Response;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::sse::Parser;
use crate::transport::{Call, Transport};

/// A stream this quiet is dead: the server sends a comment every few seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Before the first reconnect; doubling up to [`RECONNECT_MAX`], jittered.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
/// The longest pause before a reconnect.
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// One thing an agent is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Signal {
    /// Which intent it is about.
    pub intent_id: String,
    /// What happened.
    pub kind: SignalKind,
}

/// What an agent is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SignalKind {
    /// The intent is this agent's now.
    Assigned,
    /// It is to be tried again: which attempt, and why the last one failed.
    Retried {
        /// Counted from 1.
        attempt: u32,
        /// What the server knows about the failure.
        last_error: Value,
    },
    /// This scope of the intent is free.
    LeaseAvailable {
        /// Which.
        scope: String,
    },
    /// The state changed.
    StateChanged {
        /// Before.
        old: Map<String, Value>,
        /// Now.
        new: Map<String, Value>,
    },
    /// The intent is complete.
    Completed,
}

impl Signal {
    /// Nothing for a name or a shape this version does not know.
    fn read(name: &str, data: &Value) -> Option<Signal> {
        let text = |member: &str| data.get(member).and_then(Value::as_str).map(str::to_owned);
        let object = |member: &str| data.get(member).and_then(Value::as_object).cloned().unwrap_or_default();
        let attempt = data.get("retry_attempt").and_then(Value::as_u64).unwrap_or_default();
        let kind = match name {
            "AGENT_ASSIGNED" if attempt > 0 => SignalKind::Retried {
                attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                last_error: data.get("last_error").cloned().unwrap_or_default(),
            },
            "AGENT_ASSIGNED" => SignalKind::Assigned,
            "LEASE_RELEASED" => SignalKind::LeaseAvailable { scope: text("scope")? },
            "STATE_CHANGED" => SignalKind::StateChanged { old: object("old_state"), new: object("new_state") },
            "INTENT_COMPLETED" => SignalKind::Completed,
            "STATUS_CHANGED" if text("new_status").as_deref() == Some("completed") => SignalKind::Completed,
            _ => return None,
        };
        Some(Signal { intent_id: text("intent_id")?, kind })
    }
}

/// The signals of one agent as they come.
#[derive(Debug)]
pub struct Signals {
    transport: Transport,
    call: Call,
    last: Option<u64>,
    open: Option<(Response, Parser)>,
    ready: VecDeque<Signal>,
    failures: u32,
}

impl Signals {
    pub(crate) fn new(transport: Transport, call: Call) -> Signals {
        Signals { transport, call, last: None, open: None, ready: VecDeque::new(), failures: 0 }
    }

    /// The next signal; waits for it, and makes a broken connection again, for as long as it takes.
    ///
    /// # Errors
    /// A refusal (a wrong key) and an answer that is not Tenure's.
    pub async fn next(&mut self) -> Result<Signal, Error> {
        loop {
            if let Some(signal) = self.ready.pop_front() {
                return Ok(signal);
            }
            match self.read().await {
                Ok(()) => self.failures = 0,
                Err(error) if error.is_transient() => {
                    self.open = None;
                    let pause = RECONNECT_FIRST * 2_u32.saturating_pow(self.failures.min(6));
                    tokio::time::sleep(pause.min(RECONNECT_MAX).mul_f64(0.5 + rand::random::<f64>())).await;
                    self.failures += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the stream if it is not open, and reads one piece of it.
    async fn read(&mut self) -> Result<(), Error> {
        let (response, parser) = match &mut self.open {
            Some(open) => open,
            None => {
                let response = self.transport.stream(&self.call, self.last).await?;
                self.open.insert((response, Parser::default()))
            }
        };
        let piece = tokio::time::timeout(SILENCE_MAX, response.chunk()).await;
        let piece = piece.map_err(|late| self.transport.unreachable(late))?;
        let Some(bytes) = piece.map_err(|error| self.transport.unreachable(error))? else {
            return Err(self.transport.unreachable("the stream ended"));
        };
        let messages = parser.feed(&bytes).map_err(|long| self.transport.unreachable(long))?;
        for message in messages {
            self.last = message.id.or(self.last);
            let data = message.data.and_then(|data| serde_json::from_slice::<Value>(&data).ok());
            let name = message.event.unwrap_or_default();
            self.ready.extend(data.and_then(|data| Signal::read(&name, &data)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(name: &str, data: Value) -> Option<SignalKind> {
        Signal::read(name, &data).map(|signal| signal.kind)
    }

    #[test]
    fn signals_are_read_by_name_and_what_is_unknown_is_passed_over() {
        assert_eq!(kind("AGENT_ASSIGNED", json!({"intent_id": "i"})), Some(SignalKind::Assigned));
        let again = SignalKind::Retried { attempt: 2, last_error: json!("boom") };
        let retried = json!({"intent_id": "i", "retry_attempt": 2, "last_error": "boom"});
        assert_eq!(kind("AGENT_ASSIGNED", retried), Some(again));
        let free = SignalKind::LeaseAvailable { scope: "research".to_owned() };
        assert_eq!(kind("LEASE_RELEASED", json!({"intent_id": "i", "scope": "research"})), Some(free));
        assert_eq!(kind("LEASE_RELEASED", json!({"intent_id": "i"})), None);
        assert_eq!(kind("STATUS_CHANGED", json!({"intent_id": "i", "new_status": "active"})), None);
        assert_eq!(kind("TEA_TIME", json!({"intent_id": "i"})), None);
    }
}
