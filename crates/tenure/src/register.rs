//! Owns an agent's entry in the server's list of agents: who is there, what it can do, and that it still answers.
//!
//! The entry informs; it holds nothing. What an agent holds is its leases, and those end by their own ttl.

use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;

use crate::error::Error;
use crate::intents::{Intents, segment};

/// How often a registered agent says that it is there if nothing else is said.
pub const AGENT_BEAT: Duration = Duration::from_secs(30);
/// After so many beats that did not come an agent counts as unhealthy.
const UNHEALTHY_AFTER_BEATS: u64 = 3;
/// After so many as dead.
const DEAD_AFTER_BEATS: u64 = 10;

const _: () = assert!(UNHEALTHY_AFTER_BEATS < DEAD_AFTER_BEATS);

impl Intents {
    /// Makes this client's holder known as an agent that can do this and beats so often, in whole seconds. Doing it again
    /// replaces the entry.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn register(&self, capabilities: &[String], beat: Duration) -> Result<(), Error> {
        let seconds = beat.as_secs().max(1);
        let pulse = json!({
            "interval_seconds": seconds,
            "unhealthy_after_seconds": seconds * UNHEALTHY_AFTER_BEATS,
            "dead_after_seconds": seconds * DEAD_AFTER_BEATS,
        });
        let body = json!({ "agent_id": self.name(), "capabilities": capabilities, "heartbeat_config": pulse });
        self.request("POST", "/agents/register", Some(body), None).await.map(drop)
    }

    /// Says that this agent is still there.
    ///
    /// # Errors
    /// Code `not_found` if it was never registered.
    pub async fn agent_heartbeat(&self) -> Result<(), Error> {
        let path = format!("/agents/{}/heartbeat", segment(self.name()));
        self.request("POST", &path, Some(json!({})), None).await.map(drop)
    }

    /// Says that this agent is gone.
    ///
    /// # Errors
    /// Code `not_found` if it was never registered.
    pub async fn deregister(&self) -> Result<(), Error> {
        self.request("DELETE", &format!("/agents/{}", segment(self.name())), None, None).await.map(drop)
    }

    fn name(&self) -> &str {
        self.client().holder().unwrap_or_default()
    }

    /// Registers and beats, for ever. A server that forgot the agent, or cannot be reached, is told again at the next beat.
    pub(crate) async fn stay_known(&self, capabilities: &[String], beat: Duration) -> Infallible {
        let mut known = false;
        loop {
            let told = async {
                if !known {
                    self.register(capabilities, beat).await?;
                }
                self.agent_heartbeat().await
            };
            let told = told.await;
            if let Err(error) = &told {
                tracing::warn!(agent = self.name(), "agent {} could not say that it is there: {error}", self.name());
            }
            known = told.is_ok();
            tokio::time::sleep(beat).await;
        }
    }
}
