//! Owns what is told about the ledger: every grant and every end, in one order, each with its cursor (L12).
//!
//! Renewals that keep their ttl are not events: they happen a thousand times for every grant and change nobody's
//! plans. Everything that changes who holds what is one.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::Object;
use crate::lease::{End, Lease, Mode, Resources};
use crate::{Holder, Resource, Timestamp, Token, Ttl};

/// The place of an event in the one order of all events; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub u64);

impl Cursor {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Cursor {
        Cursor(self.0 + 1)
    }
}

/// What kind of thing happened; the name on every wire is [`EventKind::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// A lease was granted.
    #[serde(rename = "lease.granted")]
    LeaseGranted,
    /// A renewal changed a lease's ttl.
    #[serde(rename = "lease.renewed")]
    LeaseRenewed,
    /// A holder gave a lease back.
    #[serde(rename = "lease.released")]
    LeaseReleased,
    /// A lease's ttl ran out.
    #[serde(rename = "lease.expired")]
    LeaseExpired,
    /// An administrator took a lease away.
    #[serde(rename = "lease.revoked")]
    LeaseRevoked,
    /// The ledger was opened: every active lease now runs at least its ttl from here (L13).
    #[serde(rename = "ledger.opened")]
    LedgerOpened,
    /// An intent was made.
    #[serde(rename = "intent.created")]
    IntentCreated,
    /// Parts of an intent's state changed.
    #[serde(rename = "intent.patched")]
    IntentPatched,
    /// An intent moved to another status.
    #[serde(rename = "intent.status_changed")]
    IntentStatusChanged,
    /// An agent was put on an intent, or is to be told again.
    #[serde(rename = "intent.assigned")]
    IntentAssigned,
    /// An agent was taken off an intent.
    #[serde(rename = "intent.unassigned")]
    IntentUnassigned,
    /// Something comes before an intent.
    #[serde(rename = "intent.dependency_added")]
    IntentDependencyAdded,
    /// Something no longer comes before an intent.
    #[serde(rename = "intent.dependency_removed")]
    IntentDependencyRemoved,
    /// Who may do what with an intent changed, or someone asked for it.
    #[serde(rename = "intent.access_changed")]
    IntentAccessChanged,
    /// An attempt at an intent failed.
    #[serde(rename = "intent.failed")]
    IntentFailed,
    /// A client noted something in the log of an intent.
    #[serde(rename = "intent.noted")]
    IntentNoted,
    /// A portfolio was made.
    #[serde(rename = "portfolio.created")]
    PortfolioCreated,
    /// A portfolio moved to another status.
    #[serde(rename = "portfolio.status_changed")]
    PortfolioStatusChanged,
    /// An intent came into a portfolio.
    #[serde(rename = "portfolio.intent_added")]
    PortfolioIntentAdded,
    /// An intent left a portfolio.
    #[serde(rename = "portfolio.intent_removed")]
    PortfolioIntentRemoved,
    /// A coordinator's term began.
    #[serde(rename = "coordinator.granted")]
    CoordinatorGranted,
    /// A coordinator was told to stand still.
    #[serde(rename = "coordinator.paused")]
    CoordinatorPaused,
    /// A coordinator goes on.
    #[serde(rename = "coordinator.resumed")]
    CoordinatorResumed,
    /// A coordinator has missed heartbeats.
    #[serde(rename = "coordinator.unresponsive")]
    CoordinatorUnresponsive,
    /// A coordinator lost its term.
    #[serde(rename = "coordinator.failed_over")]
    CoordinatorFailedOver,
    /// A coordinator passed its term on.
    #[serde(rename = "coordinator.handed_off")]
    CoordinatorHandedOff,
    /// A coordinator was replaced.
    #[serde(rename = "coordinator.replaced")]
    CoordinatorReplaced,
    /// What a coordinator may not do changed.
    #[serde(rename = "coordinator.guardrails_set")]
    CoordinatorGuardrailsSet,
    /// A coordinator's term ended as planned.
    #[serde(rename = "coordinator.ended")]
    CoordinatorEnded,
    /// An agent registered.
    #[serde(rename = "agent.registered")]
    AgentRegistered,
    /// A registered agent moved to another status.
    #[serde(rename = "agent.status_changed")]
    AgentStatusChanged,
    /// Someone wants to be told.
    #[serde(rename = "subscription.made")]
    SubscriptionMade,
    /// Someone no longer wants to be told.
    #[serde(rename = "subscription.ended")]
    SubscriptionEnded,
    /// A run of a workflow began.
    #[serde(rename = "workflow.started")]
    WorkflowStarted,
    /// A run of a workflow ended.
    #[serde(rename = "workflow.ended")]
    WorkflowEnded,
    /// A task is over.
    #[serde(rename = "task.ended")]
    TaskEnded,
    /// A worker's word about a task came too late and changed nothing (T2).
    #[serde(rename = "task.late")]
    TaskLate,
    /// A task that nobody held was answered from outside.
    #[serde(rename = "task.answered_outside")]
    TaskAnsweredOutside,
    /// A task takes too long and goes on.
    #[serde(rename = "task.overdue")]
    TaskOverdue,
    /// A run of a workflow has started, or was brought back.
    #[serde(rename = "flow.started")]
    FlowStarted,
    /// A run is over.
    #[serde(rename = "flow.ended")]
    FlowEnded,
    /// A run schedules nothing new.
    #[serde(rename = "flow.paused")]
    FlowPaused,
    /// A paused run goes on.
    #[serde(rename = "flow.resumed")]
    FlowResumed,
    /// A run takes too long and goes on.
    #[serde(rename = "flow.overdue")]
    FlowOverdue,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 44] = [
        EventKind::LeaseGranted,
        EventKind::LeaseRenewed,
        EventKind::LeaseReleased,
        EventKind::LeaseExpired,
        EventKind::LeaseRevoked,
        EventKind::LedgerOpened,
        EventKind::IntentCreated,
        EventKind::IntentPatched,
        EventKind::IntentStatusChanged,
        EventKind::IntentAssigned,
        EventKind::IntentUnassigned,
        EventKind::IntentDependencyAdded,
        EventKind::IntentDependencyRemoved,
        EventKind::IntentAccessChanged,
        EventKind::IntentFailed,
        EventKind::IntentNoted,
        EventKind::PortfolioCreated,
        EventKind::PortfolioStatusChanged,
        EventKind::PortfolioIntentAdded,
        EventKind::PortfolioIntentRemoved,
        EventKind::CoordinatorGranted,
        EventKind::CoordinatorPaused,
        EventKind::CoordinatorResumed,
        EventKind::CoordinatorUnresponsive,
        EventKind::CoordinatorFailedOver,
        EventKind::CoordinatorHandedOff,
        EventKind::CoordinatorReplaced,
        EventKind::CoordinatorGuardrailsSet,
        EventKind::CoordinatorEnded,
        EventKind::AgentRegistered,
        EventKind::AgentStatusChanged,
        EventKind::SubscriptionMade,
        EventKind::SubscriptionEnded,
        EventKind::WorkflowStarted,
        EventKind::WorkflowEnded,
        EventKind::TaskEnded,
        EventKind::TaskLate,
        EventKind::TaskAnsweredOutside,
        EventKind::TaskOverdue,
        EventKind::FlowStarted,
        EventKind::FlowEnded,
        EventKind::FlowPaused,
        EventKind::FlowResumed,
        EventKind::FlowOverdue,
    ];

    /// The name on every wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::LeaseGranted => "lease.granted",
            EventKind::LeaseRenewed => "lease.renewed",
            EventKind::LeaseReleased => "lease.released",
            EventKind::LeaseExpired => "lease.expired",
            EventKind::LeaseRevoked => "lease.revoked",
            EventKind::LedgerOpened => "ledger.opened",
            EventKind::IntentCreated => "intent.created",
            EventKind::IntentPatched => "intent.patched",
            EventKind::IntentStatusChanged => "intent.status_changed",
            EventKind::IntentAssigned => "intent.assigned",
            EventKind::IntentUnassigned => "intent.unassigned",
            EventKind::IntentDependencyAdded => "intent.dependency_added",
            EventKind::IntentDependencyRemoved => "intent.dependency_removed",
            EventKind::IntentAccessChanged => "intent.access_changed",
            EventKind::IntentFailed => "intent.failed",
            EventKind::IntentNoted => "intent.noted",
            EventKind::PortfolioCreated => "portfolio.created",
            EventKind::PortfolioStatusChanged => "portfolio.status_changed",
            EventKind::PortfolioIntentAdded => "portfolio.intent_added",
            EventKind::PortfolioIntentRemoved => "portfolio.intent_removed",
            EventKind::CoordinatorGranted => "coordinator.granted",
            EventKind::CoordinatorPaused => "coordinator.paused",
            EventKind::CoordinatorResumed => "coordinator.resumed",
            EventKind::CoordinatorUnresponsive => "coordinator.unresponsive",
            EventKind::CoordinatorFailedOver => "coordinator.failed_over",
            EventKind::CoordinatorHandedOff => "coordinator.handed_off",
            EventKind::CoordinatorReplaced => "coordinator.replaced",
            EventKind::CoordinatorGuardrailsSet => "coordinator.guardrails_set",
            EventKind::CoordinatorEnded => "coordinator.ended",
            EventKind::AgentRegistered => "agent.registered",
            EventKind::AgentStatusChanged => "agent.status_changed",
            EventKind::SubscriptionMade => "subscription.made",
            EventKind::SubscriptionEnded => "subscription.ended",
            EventKind::WorkflowStarted => "workflow.started",
            EventKind::WorkflowEnded => "workflow.ended",
            EventKind::TaskEnded => "task.ended",
            EventKind::TaskLate => "task.late",
            EventKind::TaskAnsweredOutside => "task.answered_outside",
            EventKind::TaskOverdue => "task.overdue",
            EventKind::FlowStarted => "flow.started",
            EventKind::FlowEnded => "flow.ended",
            EventKind::FlowPaused => "flow.paused",
            EventKind::FlowResumed => "flow.resumed",
            EventKind::FlowOverdue => "flow.overdue",
        }
    }

    /// How a lease ended, if this is the end of one.
    pub fn end(self) -> Option<End> {
        match self.step()? {
            Step::Ended(end) => Some(end),
            Step::Granted | Step::Renewed => None,
        }
    }

    /// The step in a lease's life, if this is about one. Every kind is named: a new one has to be put somewhere.
    pub fn step(self) -> Option<Step> {
        match self {
            EventKind::LeaseGranted => Some(Step::Granted),
            EventKind::LeaseRenewed => Some(Step::Renewed),
            EventKind::LeaseReleased => Some(Step::Ended(End::Released)),
            EventKind::LeaseExpired => Some(Step::Ended(End::Expired)),
            EventKind::LeaseRevoked => Some(Step::Ended(End::Revoked)),
            EventKind::LedgerOpened
            | EventKind::IntentCreated
            | EventKind::IntentPatched
            | EventKind::IntentStatusChanged
            | EventKind::IntentAssigned
            | EventKind::IntentUnassigned
            | EventKind::IntentDependencyAdded
            | EventKind::IntentDependencyRemoved
            | EventKind::IntentAccessChanged
            | EventKind::IntentFailed
            | EventKind::IntentNoted
            | EventKind::PortfolioCreated
            | EventKind::PortfolioStatusChanged
            | EventKind::PortfolioIntentAdded
            | EventKind::PortfolioIntentRemoved
            | EventKind::CoordinatorGranted
            | EventKind::CoordinatorPaused
            | EventKind::CoordinatorResumed
            | EventKind::CoordinatorUnresponsive
            | EventKind::CoordinatorFailedOver
            | EventKind::CoordinatorHandedOff
            | EventKind::CoordinatorReplaced
            | EventKind::CoordinatorGuardrailsSet
            | EventKind::CoordinatorEnded
            | EventKind::AgentRegistered
            | EventKind::AgentStatusChanged
            | EventKind::SubscriptionMade
            | EventKind::SubscriptionEnded
            | EventKind::WorkflowStarted
            | EventKind::WorkflowEnded
            | EventKind::TaskEnded
            | EventKind::TaskLate
            | EventKind::TaskAnsweredOutside
            | EventKind::TaskOverdue
            | EventKind::FlowStarted
            | EventKind::FlowEnded
            | EventKind::FlowPaused
            | EventKind::FlowResumed
            | EventKind::FlowOverdue => None,
        }
    }
}

/// The mode of a lease whose events name none. Part of the file format: it must not change.
const MODE_UNSAID: Mode = Mode::Exclusive;

/// A step in the life of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It begins.
    Granted,
    /// It goes on.
    Renewed,
    /// It is over.
    Ended(End),
}

impl From<End> for EventKind {
    fn from(end: End) -> EventKind {
        match end {
            End::Released => EventKind::LeaseReleased,
            End::Expired => EventKind::LeaseExpired,
            End::Revoked => EventKind::LeaseRevoked,
        }
    }
}

/// Something that happened. Fields that a kind does not have are absent.
// `remote`: the derived reading is a function of its own, behind which what was left out is filled in.
#[derive(Debug, Clone, Deserialize)]
#[serde(remote = "Self")]
pub struct Event {
    /// Its place in the order of all events.
    pub cursor: Cursor,
    /// When, on the ledger's clock.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// To which resources.
    #[serde(default)]
    pub resources: Resources,
    /// Whose lease it is or was.
    pub holder: Option<Holder>,
    /// The lease's token.
    pub token: Option<Token>,
    /// The lease's mode.
    pub mode: Option<Mode>,
    /// When the lease was granted.
    pub acquired_at: Option<Timestamp>,
    /// Until when it was granted.
    pub expires_at: Option<Timestamp>,
    /// The lease's ttl.
    #[serde(rename = "ttl_ms")]
    pub ttl: Option<Ttl>,
    /// The lease it lives within.
    pub within: Option<Token>,
    /// The lease whose end ended this one too.
    pub ended_with: Option<Token>,
    /// Who did it, where that is not the holder.
    pub by: Option<Holder>,
    /// Why, in words.
    pub reason: Option<Box<str>>,
    /// The lease's metadata, or what else belongs to the kind: a JSON object.
    pub data: Option<Box<RawValue>>,
}

impl Event {
    /// An event that says nothing yet but what and when. The turn gives it its cursor.
    pub(crate) fn new(kind: EventKind, at: Timestamp) -> Event {
        Event {
            cursor: Cursor::default(),
            at,
            kind,
            resources: Resources::new(),
            holder: None,
            token: None,
            mode: None,
            acquired_at: None,
            expires_at: None,
            ttl: None,
            within: None,
            ended_with: None,
            by: None,
            reason: None,
            data: None,
        }
    }

    /// An event about something that is not a lease.
    pub(crate) fn about(kind: EventKind, at: Timestamp, resource: Option<Resource>, said: Value) -> Event {
        let data = serde_json::value::to_raw_value(&said).ok();
        Event { resources: resource.into_iter().collect(), data, ..Event::new(kind, at) }
    }

    /// An event about a lease, with what identifies it.
    pub(crate) fn of_lease(kind: EventKind, at: Timestamp, lease: &Lease) -> Event {
        Event {
            resources: lease.resources.clone(),
            holder: Some(lease.holder.clone()),
            token: Some(lease.token),
            mode: Some(lease.mode),
            acquired_at: Some(lease.acquired_at),
            expires_at: Some(lease.expires_at),
            ttl: Some(lease.ttl),
            within: lease.within,
            data: lease.metadata.clone(),
            ..Event::new(kind, at)
        }
    }

    /// Appends it as JSON, by hand because every grant and every end is written. What follows from the rest is left out.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let step = self.kind.step();
        let mode = self.mode.filter(|mode| step.is_none() || *mode != MODE_UNSAID);
        let acquired_at = self.acquired_at.filter(|at| step != Some(Step::Granted) || *at != self.at);
        let expires_at = self.expires_at.filter(|at| step.is_none() || Some(*at) != self.acquired_at_plus_ttl());
        let mut object = Object::new(to);
        object.number("cursor", self.cursor.0);
        object.number("at", self.at.unix_ms());
        object.word("kind", self.kind.as_str());
        if !self.resources.is_empty() {
            object.texts("resources", &self.resources, Resource::write);
        }
        object.text("holder", self.holder.as_ref().map(Holder::as_str));
        object.number("token", self.token.map(Token::as_u64));
        object.word("mode", mode.map(Mode::as_str));
        object.number("acquired_at", acquired_at.map(Timestamp::unix_ms));
        object.number("expires_at", expires_at.map(Timestamp::unix_ms));
        object.number("ttl_ms", self.ttl.map(Ttl::ms));
        object.number("within", self.within.map(Token::as_u64));
        object.number("ended_with", self.ended_with.map(Token::as_u64));
        object.text("by", self.by.as_ref().map(Holder::as_str));
        object.text("reason", self.reason.as_deref());
        object.raw("data", self.data.as_deref());
        object.end();
    }

    /// Fills in what [`Event::encode`] leaves out.
    fn fill_in(&mut self) {
        let Some(step) = self.kind.step() else { return };
        self.mode.get_or_insert(MODE_UNSAID);
        if step == Step::Granted {
            self.acquired_at.get_or_insert(self.at);
        }
        self.expires_at = self.expires_at.or_else(|| self.acquired_at_plus_ttl());
    }

    fn acquired_at_plus_ttl(&self) -> Option<Timestamp> {
        Some(self.acquired_at?.plus_ms(self.ttl?.ms()))
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Event, D::Error> {
        let mut event = Event::deserialize(deserializer)?;
        event.fill_in();
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        let text =
            r#"{"token":9,"resources":["task:1"],"holder":"ann","acquired_at":1000,"expires_at":31000,"ttl_ms":30000}"#;
        serde_json::from_str(text).expect("a lease")
    }

    fn written(event: &Event) -> String {
        let mut text = Vec::new();
        event.encode(&mut text);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn an_event_reads_back_as_it_was() {
        let resource = |text| Resource::parse(text).expect("a resource");
        let plain = lease();
        let renewed = Lease { expires_at: Timestamp::from_unix_ms(31_001), ..plain.clone() };
        let shorter = Lease { ttl: Ttl::from_ms(29_999).expect("a ttl"), ..plain.clone() };
        let full = Lease {
            token: Token::from_u64(1 << 33),
            resources: [resource("path:\"x\\y\"/é"), resource("intent:X/*")].into_iter().collect(),
            holder: Holder::parse("a \"b\" 😀").expect("a holder"),
            mode: Mode::Shared,
            within: Some(Token::from_u64(7)),
            metadata: RawValue::from_string(r#"{"a": 1}"#.to_owned()).ok(),
            ..plain.clone()
        };
        let times = [1_000, 1_001, 31_000].map(Timestamp::from_unix_ms);
        let kinds = EventKind::ALL.into_iter().flat_map(|kind| times.map(|at| (kind, at)));
        for (kind, at) in kinds {
            let of_leases = [&plain, &renewed, &shorter, &full].map(|lease| Event::of_lease(kind, at, lease));
            let of = Event::of_lease(kind, at, &full);
            // Named in full, so that a new field has to be given a value here.
            let told = Event {
                cursor: Cursor(u64::MAX),
                at,
                kind,
                resources: of.resources,
                holder: of.holder,
                token: of.token,
                mode: of.mode,
                acquired_at: of.acquired_at,
                expires_at: of.expires_at,
                ttl: of.ttl,
                within: of.within,
                ended_with: Some(Token::from_u64(8)),
                by: Holder::parse("root").ok(),
                reason: Some("two\nlines".into()),
                data: of.data,
            };
            let bare = kind.step().is_none().then(|| Event::new(kind, at));
            for event in of_leases.into_iter().chain([told]).chain(bare) {
                let read = serde_json::from_str::<Event>(&written(&event)).expect("an event");
                assert_eq!(format!("{read:?}"), format!("{event:?}"));
            }
        }
    }

    #[test]
    fn what_follows_from_the_rest_is_not_written() {
        let lease = lease();
        let granted = Event::of_lease(EventKind::LeaseGranted, lease.acquired_at, &lease);
        let start = r#"{"cursor":0,"at":1000,"kind":"lease.granted","resources":["task:1"],"holder":"ann","token":9"#;
        assert_eq!(written(&granted), format!(r#"{start},"ttl_ms":30000}}"#));
        let released = Event::of_lease(EventKind::LeaseReleased, Timestamp::from_unix_ms(1_500), &lease);
        let start = r#"{"cursor":0,"at":1500,"kind":"lease.released","resources":["task:1"],"holder":"ann","token":9"#;
        assert_eq!(written(&released), format!(r#"{start},"acquired_at":1000,"ttl_ms":30000}}"#));
        let before = format!(r#"{start},"mode":"exclusive","acquired_at":1000,"expires_at":31000,"ttl_ms":30000}}"#);
        let read: Event = serde_json::from_str(&before).expect("as it was written before");
        assert_eq!(format!("{read:?}"), format!("{released:?}"));
    }
}
