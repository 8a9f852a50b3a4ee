//! Owns the calls about intents: versioned documents with scopes, their state, who is assigned, who leads.
//!
//! They go through the OpenIntent door (`/api/v1`) of the same server. An intent's scopes are leased like anything else,
//! as `intent:<id>/<scope>`, with [`Client::acquire`] and its guard.

use std::collections::BTreeMap;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{HeaderName, IF_MATCH};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tenure_core::LeaseId;

use crate::client::Client;
use crate::door;
use crate::error::Error;
use crate::signals::Signals;
use crate::transport::{Call, header, written};

const BASE: &str = "/api/v1";
const AGENT_ID: HeaderName = HeaderName::from_static("x-agent-id");

/// An intent as the server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intent {
    /// Its id.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// More about it.
    #[serde(default)]
    pub description: Option<String>,
    /// How often it was changed.
    #[serde(default = "first_version")]
    pub version: u64,
    /// `draft`, `active`, `blocked`, `completed`, `abandoned`, …
    #[serde(default)]
    pub status: String,
    /// The shared state.
    #[serde(default)]
    pub state: Map<String, Value>,
    /// Everything else.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

fn first_version() -> u64 {
    1
}

/// Which version a write expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there.
    Any,
    /// This one: a newer one is refused with [`crate::Refusal::Other`] and the code `stale_version`.
    Version(u64),
}

impl Expected {
    fn header(self) -> String {
        match self {
            Expected::Any => "*".to_owned(),
            Expected::Version(version) => version.to_string(),
        }
    }
}

/// The calls about intents. Made by [`Client::intents`].
#[derive(Debug, Clone)]
pub struct Intents {
    client: Client,
}

impl Client {
    /// Calls about intents, in the name of this client's holder.
    pub fn intents(&self) -> Intents {
        Intents { client: self.clone() }
    }
}

impl Intents {
    /// The client below.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// One intent.
    ///
    /// # Errors
    /// Code `not_found`.
    pub async fn get(&self, id: &str) -> Result<Intent, Error> {
        self.client.exchange_typed(self.call(Method::GET, &format!("/intents/{}", segment(id)), None), true).await
    }

    /// Makes an intent. It is sent once: a lost answer says nothing about what was done.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create(&self, title: &str, description: &str, state: Map<String, Value>) -> Result<Intent, Error> {
        let mut body = json!({ "title": title, "description": description, "state": state, "constraints": {} });
        if let (Some(holder), Some(members)) = (self.client.holder(), body.as_object_mut()) {
            members.insert("created_by".to_owned(), holder.into());
        }
        self.client.exchange_typed(self.call(Method::POST, "/intents", Some(body)), false).await
    }

    /// Sets these members of the state. A write that names the lease it relies on is refused when that lease is over.
    ///
    /// # Errors
    /// Code `stale_version` if a newer version is there; `held` if somebody else holds that part of the state.
    pub async fn patch_state(
        &self,
        id: &str,
        patch: &Map<String, Value>,
        expected: Expected,
        relies_on: Option<LeaseId>,
    ) -> Result<Intent, Error> {
        let patches: Vec<Value> =
            patch.iter().map(|(path, value)| json!({ "op": "set", "path": path, "value": value })).collect();
        let mut body = json!({ "patches": patches });
        if let (Some(lease), Some(members)) = (relies_on, body.as_object_mut()) {
            members.insert("lease_id".to_owned(), lease.to_string().into());
        }
        let mut call = self.call(Method::POST, &format!("/intents/{}/state", segment(id)), Some(body));
        call.headers.push((IF_MATCH, header("the expected version", &expected.header())?));
        self.client.exchange_typed(call, false).await
    }

    /// Assigns an agent: it is told, also if it connects later.
    ///
    /// # Errors
    /// Code `not_found`.
    pub async fn assign(&self, id: &str, agent: &str) -> Result<(), Error> {
        let path = format!("/intents/{}/agents", segment(id));
        self.client.exchange(self.call(Method::POST, &path, Some(json!({ "agent_id": agent }))), false).await.map(drop)
    }

    /// Says that this agent failed on an intent; the server's retry policy decides what follows.
    ///
    /// # Errors
    /// Code `not_found`.
    pub async fn report_failure(&self, id: &str, attempt: u32, message: &str) -> Result<(), Error> {
        let body = json!({ "agent_id": self.client.holder(), "attempt_number": attempt, "error_code": "handler_failed",
            "error_message": message });
        let path = format!("/intents/{}/failures", segment(id));
        self.client.exchange(self.call(Method::POST, &path, Some(body)), false).await.map(drop)
    }

    /// What this client's holder is told as an agent: assignments, scopes that became free, changes.
    ///
    /// # Errors
    /// [`Error::Setup`] if the client has no holder.
    pub fn signals(&self) -> Result<Signals, Error> {
        let Some(holder) = self.client.holder() else {
            let what = "an agent needs a name: give the client a holder".to_owned();
            return Err(Error::Setup { what, source: None });
        };
        let call = self.call(Method::GET, &format!("/agents/{}/subscribe", segment(holder)), None);
        Ok(Signals::new(self.client.transport(), call))
    }

    /// Any other call of the door: `path` is below `/api/v1` and may have a query; `if_match` is the expected version.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
        if_match: Option<String>,
    ) -> Result<Value, Error> {
        let call = self.call(door::method(method)?, path, body);
        self.requested(call, if_match).await.map(|answer| door::value(&answer))
    }

    /// The same with JSON that is neither written nor read here: the body is sent and the answer given back as it is.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn request_text(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
        if_match: Option<String>,
    ) -> Result<Vec<u8>, Error> {
        let call = self.call_text(door::method(method)?, path, body.map(Bytes::from));
        self.requested(call, if_match).await.map(Vec::from)
    }

    async fn requested(&self, mut call: Call, if_match: Option<String>) -> Result<Bytes, Error> {
        let repeated = call.method == Method::GET || call.method == Method::DELETE;
        if let Some(version) = &if_match {
            call.headers.push((IF_MATCH, header("the expected version", version)?));
        }
        self.client.exchange_unread(call, repeated).await.map(|(answer, _)| answer)
    }

    fn call(&self, method: Method, path: &str, body: Option<Value>) -> Call {
        self.call_text(method, path, body.as_ref().and_then(written))
    }

    fn call_text(&self, method: Method, path: &str, body: Option<Bytes>) -> Call {
        let mut call = self.client.call_below(BASE, method, path, body);
        // A holder that cannot be sent was refused when the client was built.
        let agent = self.client.holder().and_then(|holder| header("the agent's name", holder).ok());
        call.headers.extend(agent.map(|agent| (AGENT_ID, agent)));
        call
    }
}

/// A name as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    use std::fmt::Write as _;
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_stays_one_segment() {
        assert_eq!(super::segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}
