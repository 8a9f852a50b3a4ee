//! Owns who wants to be told what, and how far they have been.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::access::{Caller, Permission};
use crate::change::{Change, Record, RecordKind};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Cursor, Event, EventKind};
use crate::ledger::{Ledger, Turn};
use crate::limits::{PAGE_MAX, SUBSCRIPTIONS_MAX};
use crate::retry::{Backoff, RetryRule};
use crate::serial::{IntentId, PortfolioId, SubscriptionId};
use crate::subscription::Subscription;
use crate::{Holder, Timestamp};

/// A delivery that failed is tried again until it is accepted, at most so far apart.
const DELIVERY: RetryRule =
    RetryRule { backoff: Backoff::Exponential, base_delay_ms: 1_000, max_delay_ms: 5 * 60_000, max_attempts: u32::MAX };

/// Every subscription.
pub(crate) type Subscriptions = BTreeMap<SubscriptionId, Arc<Subscription>>;

/// Want to be told.
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// About this intent.
    pub intent: Option<IntentId>,
    /// About the intents of this portfolio.
    pub portfolio: Option<PortfolioId>,
    /// Who.
    pub caller: Caller,
    /// Only these types.
    pub event_types: Vec<Box<str>>,
    /// Where to send it.
    pub url: Option<Box<str>>,
    /// Until when.
    pub expires_at: Option<Timestamp>,
}

impl Command for Subscribe {
    type Reply = Result<Arc<Subscription>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        if let Some(id) = self.intent {
            ledger.open_intent(turn, id, &self.caller, Permission::Read)?;
        }
        if let Some(id) = self.portfolio {
            ledger.portfolios.find(id)?;
        }
        if ledger.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(Refusal::Limit { what: "the number of subscriptions", max: SUBSCRIPTIONS_MAX });
        }
        let subscription = Subscription {
            id: SubscriptionId(ledger.serial()),
            intent: self.intent,
            portfolio: self.portfolio,
            subscriber: self.caller.holder.clone(),
            is_admin: self.caller.is_admin,
            event_types: self.event_types,
            url: self.url,
            expires_at: self.expires_at,
            created_at: turn.now(),
            delivered: ledger.head.cursor.next(),
            failed: 0,
            next_at: None,
            last_error: None,
        };
        let event = Event::about(EventKind::SubscriptionMade, turn.now(), None, json!({ "id": subscription.id }));
        ledger.emit(turn, Event { by: Some(self.caller.holder), ..event });
        Ok(ledger.put_subscription(turn, subscription))
    }
}

impl Ledger {
    fn put_subscription(&mut self, turn: &mut Turn<'_>, subscription: Subscription) -> Arc<Subscription> {
        let subscription = Arc::new(subscription);
        turn.changes.push(Change::Put(Record::Subscription(Arc::clone(&subscription))));
        self.subscriptions.insert(subscription.id, Arc::clone(&subscription));
        subscription
    }

    fn delete_subscription(&mut self, turn: &mut Turn<'_>, id: SubscriptionId, by: Option<Holder>) {
        if self.subscriptions.remove(&id).is_some() {
            turn.changes.push(Change::Delete(RecordKind::Subscription, id.into()));
            let event = Event::about(EventKind::SubscriptionEnded, turn.now(), None, json!({ "id": id }));
            self.emit(turn, Event { by, ..event });
        }
    }
}

/// No longer want to be told.
#[derive(Debug, Clone)]
pub struct Unsubscribe {
    /// Which.
    pub id: SubscriptionId,
    /// Who.
    pub caller: Caller,
}

impl Command for Unsubscribe {
    type Reply = Result<(), Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let found = ledger.subscriptions.get(&self.id).ok_or_else(|| Refusal::unknown("subscription", self.id))?;
        if found.subscriber != self.caller.holder && !self.caller.is_admin {
            return Err(Refusal::NotYours { owner: found.subscriber.clone() });
        }
        ledger.delete_subscription(turn, self.id, Some(self.caller.holder));
        Ok(())
    }
}

/// List subscriptions, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct ListSubscriptions {
    /// Only those that this one may see: its own, and those about what it may read.
    pub caller: Option<Caller>,
    /// Only those about this intent.
    pub intent: Option<IntentId>,
    /// Only those about this portfolio.
    pub portfolio: Option<PortfolioId>,
    /// Only those with something to send to.
    pub with_url: bool,
}

impl Command for ListSubscriptions {
    type Reply = Vec<Arc<Subscription>>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let over: Vec<_> =
            ledger.subscriptions.values().filter(|one| !one.is_active(turn.now())).map(|one| one.id).collect();
        for id in over {
            ledger.delete_subscription(turn, id, None);
        }
        let matches = |one: &&Arc<Subscription>| {
            self.intent.is_none_or(|id| one.intent == Some(id))
                && self.portfolio.is_none_or(|id| one.portfolio == Some(id))
                && (!self.with_url || one.url.is_some())
                && self.caller.as_ref().is_none_or(|caller| ledger.may_see(one, caller, turn.now()))
        };
        let limit = if self.with_url { usize::MAX } else { PAGE_MAX };
        ledger.subscriptions.values().filter(matches).take(limit).cloned().collect()
    }
}

impl Ledger {
    fn may_see(&self, one: &Subscription, caller: &Caller, now: Timestamp) -> bool {
        let intent = one.intent.and_then(|id| self.intents.get(id));
        one.subscriber == caller.holder || intent.is_none_or(|intent| intent.allows(caller, Permission::Read, now))
    }
}

/// How a delivery went.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Of which subscription.
    pub id: SubscriptionId,
    /// Everything up to here is done; or this could not be delivered.
    pub result: Result<Cursor, Box<str>>,
    /// Takes up to so many thousandths off the delay before the next try.
    pub jitter_permille: u32,
}

impl Command for Delivered {
    type Reply = Option<Arc<Subscription>>;

    /// The subscription as it is now; nothing if it is gone.
    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let mut changed = Subscription::clone(ledger.subscriptions.get(&self.id)?);
        match self.result {
            Ok(cursor) => {
                changed.delivered = changed.delivered.max(cursor);
                changed.failed = 0;
                changed.next_at = None;
                changed.last_error = None;
            }
            Err(why) => {
                changed.failed = changed.failed.saturating_add(1);
                let delay = DELIVERY.delay_after(changed.failed, self.jitter_permille).unwrap_or(DELIVERY.max_delay_ms);
                changed.next_at = Some(turn.now().plus_ms(delay));
                changed.last_error = Some(why);
            }
        }
        Some(ledger.put_subscription(turn, changed))
    }
}

/// The intents that a subscription is about and its subscriber may read.
#[derive(Debug, Clone, Copy)]
pub struct SubjectOf(pub SubscriptionId);

impl Command for SubjectOf {
    type Reply = Vec<IntentId>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let Some(one) = ledger.subscriptions.get(&self.0) else { return Vec::new() };
        let caller = Caller { holder: one.subscriber.clone(), is_admin: one.is_admin };
        let may_read = |id: &IntentId| ledger.open_intent(turn, *id, &caller, Permission::Read).is_ok();
        let members = one.portfolio.and_then(|id| ledger.portfolios.find(id).ok());
        let members =
            members.map_or_else(Vec::new, |portfolio| portfolio.members.iter().map(|member| member.intent).collect());
        one.intent.into_iter().chain(members).filter(may_read).collect()
    }
}
