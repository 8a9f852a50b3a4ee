//! Owns leading: one coordinator per intent or portfolio at a time, for as long as it answers.
//!
//! The term is the server's; this keeps it by heartbeats and says when it is over. If the coordinator is gone, its term
//! ends after the ttl and another can take over.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;
use crate::intents::{Intents, segment};
use crate::request::whole_seconds;

/// A coordinator's term as the server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Term {
    /// Its id.
    pub id: String,
    /// Who leads.
    pub agent_id: String,
    /// The portfolio that is led, if it is one.
    #[serde(default)]
    pub portfolio_id: Option<String>,
    /// The intent that is led, if it is one.
    #[serde(default)]
    pub intent_id: Option<String>,
    /// `active`, `paused`, `unresponsive`, `failed_over`, `completed`.
    #[serde(default)]
    pub status: String,
    /// Until when, without a heartbeat.
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// Leads portfolios and intents in the name of the client's holder.
#[derive(Debug, Clone)]
pub struct Coordinator {
    intents: Intents,
}

impl Coordinator {
    /// In the name of this client's holder.
    pub fn new(intents: Intents) -> Coordinator {
        Coordinator { intents }
    }

    /// Leads a portfolio. A term is counted in whole seconds: what is between two is rounded up.
    ///
    /// # Errors
    /// Code `held` while another one leads it.
    pub async fn lead_portfolio(&self, id: &str, ttl: Duration) -> Result<Term, Error> {
        self.lead(json!({ "portfolio_id": id, "scope": "portfolio" }), ttl).await
    }

    /// Leads an intent. A term is counted in whole seconds: what is between two is rounded up.
    ///
    /// # Errors
    /// Code `held` while another one leads it.
    pub async fn lead_intent(&self, id: &str, ttl: Duration) -> Result<Term, Error> {
        self.lead(json!({ "intent_id": id, "scope": "intent" }), ttl).await
    }

    async fn lead(&self, mut body: Value, ttl: Duration) -> Result<Term, Error> {
        if let Some(members) = body.as_object_mut() {
            let holder = self.intents.client().holder().unwrap_or_default();
            members.insert("agent_id".to_owned(), holder.into());
            // Whoever starts a coordinator by a program answers for it.
            members.insert("supervisor_id".to_owned(), holder.into());
            members.insert("ttl_seconds".to_owned(), whole_seconds(ttl).into());
        }
        let value = self.intents.request("POST", "/coordinators", Some(body), None).await?;
        self.read(value)
    }

    /// Says that it still leads: the term lasts a ttl from now.
    ///
    /// # Errors
    /// A refusal once the term is over: somebody else may lead.
    pub async fn beat(&self, term: &Term) -> Result<(), Error> {
        let path = format!("/coordinators/{}/heartbeat", segment(&term.id));
        self.intents.request("POST", &path, None, None).await.map(drop)
    }

    /// The term as it is now.
    ///
    /// # Errors
    /// Code `not_found`.
    pub async fn term(&self, id: &str) -> Result<Term, Error> {
        let value = self.intents.request("GET", &format!("/coordinators/{}", segment(id)), None, None).await?;
        self.read(value)
    }

    /// Stops leading; another may start at once.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resign(&self, term: Term) -> Result<(), Error> {
        self.intents.request("DELETE", &format!("/coordinators/{}", segment(&term.id)), None, None).await.map(drop)
    }

    fn read(&self, value: Value) -> Result<Term, Error> {
        serde_json::from_value(value).map_err(|error| Error::BadAnswer {
            url: self.intents.client().url().to_owned(),
            what: "not a coordinator's term".to_owned(),
            source: Some(error.into()),
        })
    }
}
