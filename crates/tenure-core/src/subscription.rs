//! Owns what a subscription is: someone wants to be told what happens to an intent or a portfolio, by a request to a URL.
//!
//! What is still to be delivered is every matching event after `delivered`; the events themselves are in the store, so a
//! delivery survives everything the events survive. Delivery is in order and at least once.

use serde::{Deserialize, Serialize};

use crate::event::Cursor;
use crate::serial::{IntentId, PortfolioId, SubscriptionId};
use crate::{Holder, Timestamp};

/// Someone wants to be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its id.
    pub id: SubscriptionId,
    /// About this intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<IntentId>,
    /// About the intents of this portfolio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portfolio: Option<PortfolioId>,
    /// Who.
    pub subscriber: Holder,
    /// Whether an administrator made it, who hears about every intent.
    #[serde(default)]
    pub is_admin: bool,
    /// Only these types, in the door's words; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<Box<str>>,
    /// Where to send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Box<str>>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Everything up to here has been accepted or was not asked for.
    pub delivered: Cursor,
    /// How often the next delivery has failed.
    #[serde(default)]
    pub failed: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<str>>,
}

impl Subscription {
    /// Whether it is still wanted.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|until| now < until)
    }
}
