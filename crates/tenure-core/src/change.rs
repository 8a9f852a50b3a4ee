//! Owns the durable form of the ledger: records under keys, and what a batch does to them.
//!
//! The store knows no more than this module: it keeps the latest value of each record, the events in order and the
//! [`Head`]. A [`Ledger`](crate::Ledger) opened from what it kept goes on where the last committed batch ended.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::agent::Agent;
use crate::coordinator::Coordinator;
use crate::event::{Cursor, Event, EventKind, Step};
use crate::flow::{Archived, Flow, FlowDef, Plan};
use crate::id::FlowId;
use crate::intent::Intent;
use crate::lease::{End, Lease, Resources};
use crate::portfolio::Portfolio;
use crate::subscription::Subscription;
use crate::task::{Task, TaskDef};
use crate::workflow::Workflow;
use crate::{Epoch, Holder, Resource, Timestamp, Token};

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// An active lease.
    Lease,
    /// Resources that stay closed for a while after their lease was lost.
    Closure,
    /// The answer to a keyed acquire.
    Key,
    /// An intent.
    Intent,
    /// A portfolio.
    Portfolio,
    /// A registered agent.
    Agent,
    /// A coordinator's term.
    Coordinator,
    /// A subscription.
    Subscription,
    /// A run of a workflow.
    Workflow,
    /// A lease on an intent that was lost.
    Lost,
    /// The definition of a task.
    TaskDef,
    /// A registered workflow.
    FlowDef,
    /// The workflow of a run, with the definitions it was started with.
    Plan,
    /// The key of a run that is over.
    FlowKey,
    /// A run that goes on.
    Flow,
    /// A task of a run that goes on.
    Task,
    /// A run that is over, with its tasks. Not loaded at the start: it costs no memory.
    Archive,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [RecordKind; 17] = [
        RecordKind::Lease,
        RecordKind::Closure,
        RecordKind::Key,
        RecordKind::Intent,
        RecordKind::Portfolio,
        RecordKind::Agent,
        RecordKind::Coordinator,
        RecordKind::Subscription,
        RecordKind::Workflow,
        RecordKind::Lost,
        RecordKind::TaskDef,
        RecordKind::FlowDef,
        RecordKind::Plan,
        RecordKind::FlowKey,
        RecordKind::Flow,
        RecordKind::Task,
        RecordKind::Archive,
    ];

    /// Whether a ledger that is opened needs it; the others are read when somebody asks.
    pub fn is_live(self) -> bool {
        self != RecordKind::Archive
    }

    /// Its name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            RecordKind::Lease => "lease",
            RecordKind::Closure => "closure",
            RecordKind::Key => "key",
            RecordKind::Intent => "intent",
            RecordKind::Portfolio => "portfolio",
            RecordKind::Agent => "agent",
            RecordKind::Coordinator => "coordinator",
            RecordKind::Subscription => "subscription",
            RecordKind::Workflow => "workflow",
            RecordKind::Lost => "lost",
            RecordKind::TaskDef => "task_def",
            RecordKind::FlowDef => "flow_def",
            RecordKind::Plan => "plan",
            RecordKind::FlowKey => "flow_key",
            RecordKind::Flow => "flow",
            RecordKind::Task => "task",
            RecordKind::Archive => "archive",
        }
    }
}

/// The id of a record among those of its kind. Grows with time, so that the store appends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordId(pub String);

/// Hexadecimal digits of a token, which has 53 bits.
const TOKEN_DIGITS: usize = 14;

impl From<Token> for RecordId {
    /// Fixed width, so that the order of texts is the order of tokens. By hand, because every release writes one.
    fn from(token: Token) -> RecordId {
        let digit = |place: usize| char::from_digit((token.as_u64() >> (4 * place) & 0xf) as u32, 16);
        let mut text = String::with_capacity(TOKEN_DIGITS);
        text.extend((0..TOKEN_DIGITS).rev().filter_map(digit));
        RecordId(text)
    }
}

/// Resources that stay closed after their lease expired or was revoked (L11).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Closure {
    /// The lease that ended.
    pub token: Token,
    /// Who held it.
    pub holder: Holder,
    /// What is closed.
    pub resources: Resources,
    /// Until when.
    pub until: Timestamp,
}

/// A keyed acquire and its answer (L7).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Keyed {
    /// The lease it was answered with.
    pub token: Token,
    /// Whose key it is.
    pub holder: Holder,
    /// The caller's key.
    pub key: Box<str>,
    /// Tells the same request from another one under the same key.
    pub fingerprint: u64,
    /// The grant as it was, once the lease is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<KeyedEnd>>,
}

/// What a keyed acquire is answered after its lease has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyedEnd {
    /// The lease.
    pub lease: Lease,
    /// How it ended.
    pub end: End,
    /// Until when the key is remembered.
    pub until: Timestamp,
}

/// The key that a run was started with, kept for a while after its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowKey {
    /// The run.
    pub flow: FlowId,
    /// The caller's key.
    pub key: Box<str>,
    /// Until when the key is remembered.
    pub until: Timestamp,
}

/// A lease on an intent that expired or was revoked: its holder may come back with a late write (D2).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostLease {
    /// The lease.
    pub token: Token,
    /// Who held it.
    pub holder: Holder,
    /// What it held of intents.
    #[serde(alias = "resource", deserialize_with = "one_or_many")]
    pub resources: Resources,
    /// Until when this is remembered.
    pub until: Timestamp,
}

/// Marks of before had one resource.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Resources, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        One(Resource),
        Many(Resources),
    }
    Ok(match Read::deserialize(deserializer)? {
        Read::One(resource) => [resource].into(),
        Read::Many(resources) => resources,
    })
}

/// One durable record.
#[derive(Debug, Clone)]
pub enum Record {
    /// An active lease.
    Lease(Lease),
    /// Closed resources.
    Closure(Closure),
    /// A keyed acquire.
    Key(Keyed),
    /// An intent.
    Intent(Arc<Intent>),
    /// A portfolio.
    Portfolio(Arc<Portfolio>),
    /// A registered agent.
    Agent(Arc<Agent>),
    /// A coordinator's term.
    Coordinator(Arc<Coordinator>),
    /// A subscription.
    Subscription(Arc<Subscription>),
    /// A run of a workflow.
    Workflow(Arc<Workflow>),
    /// A lease on an intent that was lost.
    Lost(LostLease),
    /// The definition of a task.
    TaskDef(Box<TaskDef>),
    /// A registered workflow.
    FlowDef(Box<FlowDef>),
    /// The workflow of a run.
    Plan(Arc<Plan>),
    /// The key of a run that is over.
    FlowKey(FlowKey),
    /// A run that goes on.
    Flow(Box<Flow>),
    /// A task of a run that goes on.
    Task(Box<Task>),
    /// A run that is over.
    Archive(Box<Archived>),
}

impl Record {
    /// Its kind.
    pub fn kind(&self) -> RecordKind {
        match self {
            Record::Lease(_) => RecordKind::Lease,
            Record::Closure(_) => RecordKind::Closure,
            Record::Key(_) => RecordKind::Key,
            Record::Intent(_) => RecordKind::Intent,
            Record::Portfolio(_) => RecordKind::Portfolio,
            Record::Agent(_) => RecordKind::Agent,
            Record::Coordinator(_) => RecordKind::Coordinator,
            Record::Subscription(_) => RecordKind::Subscription,
            Record::Workflow(_) => RecordKind::Workflow,
            Record::Lost(_) => RecordKind::Lost,
            Record::TaskDef(_) => RecordKind::TaskDef,
            Record::FlowDef(_) => RecordKind::FlowDef,
            Record::Plan(_) => RecordKind::Plan,
            Record::FlowKey(_) => RecordKind::FlowKey,
            Record::Flow(_) => RecordKind::Flow,
            Record::Task(_) => RecordKind::Task,
            Record::Archive(_) => RecordKind::Archive,
        }
    }

    /// Its id among those of its kind.
    pub fn id(&self) -> RecordId {
        match self {
            Record::Lease(lease) => lease.token.into(),
            Record::Closure(closure) => closure.token.into(),
            Record::Key(keyed) => keyed.token.into(),
            Record::Intent(value) => value.id.into(),
            Record::Portfolio(value) => value.id.into(),
            Record::Agent(value) => value.id.into(),
            Record::Coordinator(value) => value.id.into(),
            Record::Subscription(value) => value.id.into(),
            Record::Workflow(value) => value.id.into(),
            Record::Lost(value) => value.token.into(),
            Record::TaskDef(def) => RecordId(def.name.to_string()),
            Record::FlowDef(def) => FlowDef::record_id(&def.plan.name, def.plan.version),
            Record::Plan(plan) => plan.id.into(),
            Record::FlowKey(kept) => kept.flow.into(),
            Record::Flow(flow) => flow.id.into(),
            Record::Task(task) => task.id.into(),
            Record::Archive(archived) => archived.flow.id.into(),
        }
    }

    /// Appends its value as JSON.
    pub fn encode(&self, to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        match self {
            Record::Lease(lease) => {
                lease.encode(to);
                Ok(())
            }
            Record::Closure(closure) => serde_json::to_writer(to, closure),
            Record::Key(keyed) => serde_json::to_writer(to, keyed),
            Record::Intent(value) => serde_json::to_writer(to, value),
            Record::Portfolio(value) => serde_json::to_writer(to, value),
            Record::Agent(value) => serde_json::to_writer(to, value),
            Record::Coordinator(value) => serde_json::to_writer(to, value),
            Record::Subscription(value) => serde_json::to_writer(to, value),
            Record::Workflow(value) => serde_json::to_writer(to, value),
            Record::Lost(value) => serde_json::to_writer(to, value),
            Record::TaskDef(def) => serde_json::to_writer(to, def),
            Record::FlowDef(def) => serde_json::to_writer(to, def),
            Record::Plan(plan) => serde_json::to_writer(to, plan),
            Record::FlowKey(kept) => serde_json::to_writer(to, kept),
            Record::Flow(flow) => serde_json::to_writer(to, flow),
            Record::Task(task) => serde_json::to_writer(to, task),
            Record::Archive(archived) => serde_json::to_writer(to, archived),
        }
    }

    /// Its value as JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut json = Vec::new();
        self.encode(&mut json)?;
        String::from_utf8(json).map_err(serde::ser::Error::custom)
    }

    /// Reads the value of a record of this kind.
    pub fn decode(kind: RecordKind, value: &str) -> Result<Record, serde_json::Error> {
        Ok(match kind {
            RecordKind::Lease => Record::Lease(serde_json::from_str(value)?),
            RecordKind::Closure => Record::Closure(serde_json::from_str(value)?),
            RecordKind::Key => Record::Key(serde_json::from_str(value)?),
            RecordKind::Intent => Record::Intent(serde_json::from_str(value)?),
            RecordKind::Portfolio => Record::Portfolio(serde_json::from_str(value)?),
            RecordKind::Agent => Record::Agent(serde_json::from_str(value)?),
            RecordKind::Coordinator => Record::Coordinator(serde_json::from_str(value)?),
            RecordKind::Subscription => Record::Subscription(serde_json::from_str(value)?),
            RecordKind::Workflow => Record::Workflow(serde_json::from_str(value)?),
            RecordKind::Lost => Record::Lost(serde_json::from_str(value)?),
            RecordKind::TaskDef => Record::TaskDef(serde_json::from_str(value)?),
            RecordKind::FlowDef => Record::FlowDef(serde_json::from_str(value)?),
            RecordKind::Plan => Record::Plan(serde_json::from_str(value)?),
            RecordKind::FlowKey => Record::FlowKey(serde_json::from_str(value)?),
            RecordKind::Flow => Record::Flow(serde_json::from_str(value)?),
            RecordKind::Task => Record::Task(serde_json::from_str(value)?),
            RecordKind::Archive => Record::Archive(serde_json::from_str(value)?),
        })
    }
}

/// What a batch does to one record.
#[derive(Debug, Clone)]
pub enum Change {
    /// The record now has this value.
    Put(Record),
    /// The record is gone.
    Delete(RecordKind, RecordId),
    /// A lease begins: its record is what the event of its grant, in the same batch, tells.
    Granted(Token),
    /// A lease is over: its record is gone.
    Ended(Token),
    /// An active lease now runs until then, its ttl unchanged. May be written late (L13).
    Renewed(Token, Timestamp),
}

impl Change {
    /// The lease whose record it writes or deletes.
    pub fn lease(&self) -> Option<Token> {
        match self {
            Change::Put(Record::Lease(lease)) => Some(lease.token),
            Change::Granted(token) | Change::Ended(token) => Some(*token),
            Change::Delete(RecordKind::Lease, id) => u64::from_str_radix(&id.0, 16).ok().map(Token::from_u64),
            Change::Put(_) | Change::Delete(..) | Change::Renewed(..) => None,
        }
    }

    /// The grant of a lease. What its event does not say ([`Change::told_by`]) is written in full.
    pub fn of_grant(lease: &Lease) -> Change {
        if lease.grace_ms == 0 { Change::Granted(lease.token) } else { Change::Put(Record::Lease(lease.clone())) }
    }

    /// What an event did to the record of its lease, if it tells all of it.
    pub fn told_by(event: &Event) -> Option<Change> {
        let token = event.token?;
        match event.kind.step()? {
            Step::Ended(_) => Some(Change::Ended(token)),
            Step::Granted | Step::Renewed => Some(Change::Put(Record::Lease(Lease {
                token,
                resources: event.resources.clone(),
                holder: event.holder.clone()?,
                mode: event.mode?,
                acquired_at: event.acquired_at?,
                expires_at: event.expires_at?,
                ttl: event.ttl?,
                // One that is added here and not told must be asked about in `of_grant`, or it is lost with the next crash.
                grace_ms: 0,
                within: event.within,
                metadata: event.data.clone(),
            }))),
        }
    }

    /// Whether it is what the event says of the record of its lease.
    pub fn is_told_by(&self, event: &Event) -> bool {
        match (self, event.kind.step()) {
            (Change::Granted(token), Some(Step::Granted)) | (Change::Ended(token), Some(Step::Ended(_))) => {
                event.token == Some(*token)
            }
            _ => false,
        }
    }
}

/// Changes with every record in full, for whoever keeps records and not their history: grants are filled in from the events of the
/// same batch. One that no event tells stays as it is.
pub fn in_full(changes: Vec<Change>, events: &[Event]) -> impl Iterator<Item = Change> {
    let mut grants = events.iter().filter(|event| event.kind == EventKind::LeaseGranted);
    changes.into_iter().map(move |change| match change {
        Change::Granted(_) => grants.find(|event| change.is_told_by(event)).and_then(Change::told_by).unwrap_or(change),
        Change::Ended(token) => Change::Delete(RecordKind::Lease, token.into()),
        other => other,
    })
}

/// Where a ledger stands: what the next batch continues from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last batch; the first is 1.
    pub seq: u64,
    /// The epoch it was written in.
    pub epoch: Epoch,
    /// The ledger's time of it.
    pub at: Timestamp,
    /// The last token granted: no lease of this batch or an earlier one has a larger one.
    pub token: Option<Token>,
    /// The last event.
    pub cursor: Cursor,
}

impl Head {
    /// The last epoch in use. A counter that was used up has run on into a later one than the batch was written in.
    pub fn last_epoch(&self) -> Epoch {
        self.token.map_or(self.epoch, |token| token.epoch().max(self.epoch))
    }
}

/// Everything one commit makes durable, all or nothing.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Where the ledger stands after it.
    pub head: Head,
    /// What it does to records, in order.
    pub changes: Vec<Change>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_token_has_its_digits_in_a_fixed_width() {
        for number in [0, 1, 0xf, 0x10, 0x0012_3456_789a_bcde, (1 << 53) - 1] {
            assert_eq!(RecordId::from(Token::from_u64(number)).0, format!("{number:014x}"));
        }
    }

    #[test]
    fn what_a_grant_leaves_out_is_told_by_its_event() {
        let all = r#"{"token":9,"resources":["path:a","intent:X/*"],"holder":"ann","mode":"shared","acquired_at":1,"expires_at":30001,
            "ttl_ms":30000,"within":7,"metadata":{"a": 1}}"#;
        let lease: Lease = serde_json::from_str(all).expect("a lease");
        let event = Event::of_lease(EventKind::LeaseGranted, lease.acquired_at, &lease);
        let change = Change::of_grant(&lease);
        assert!(matches!(change, Change::Granted(_)) && change.is_told_by(&event));
        let full: Vec<Change> = in_full(vec![change], &[event]).collect();
        let [Change::Put(record)] = full.as_slice() else { panic!("{full:?}") };
        assert_eq!(record.to_json().expect("JSON"), serde_json::to_string(&lease).expect("JSON"));
        let graceful = Lease { grace_ms: 5, ..lease };
        assert!(matches!(Change::of_grant(&graceful), Change::Put(_)), "its event does not say the grace");
    }
}
