//! Owns the start of a run.

use std::sync::Arc;

use serde_json::Value;

use crate::command::Command;
use crate::event::{Event, EventKind};
use crate::flow::command::{FlowRefusal, OnKeyUsed, StartFlow};
use crate::flow::{Flow, FlowStatus, Live, Parent, Plan};
use crate::id::FlowId;
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::{FLOW_DEPTH_MAX, FLOW_KEY_BYTES_MAX};
use crate::task::{Json, empty_object, raw, to_json, to_value};

impl Command for StartFlow {
    type Reply = Result<FlowId, FlowRefusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.start_flow(turn, self, None, 0)
    }
}

impl Ledger {
    /// Starts a run; its first tasks are there when this returns. `depth` is how many runs led to it.
    pub(crate) fn start_flow(
        &mut self,
        turn: &mut Turn<'_>,
        start: StartFlow,
        parent: Option<Parent>,
        depth: u32,
    ) -> Result<FlowId, FlowRefusal> {
        if depth > FLOW_DEPTH_MAX {
            return Err(FlowRefusal::Limit {
                what: "the depth of workflows inside workflows",
                max: FLOW_DEPTH_MAX as usize,
            });
        }
        if start.key.as_ref().is_some_and(|key| key.len() > FLOW_KEY_BYTES_MAX) {
            return Err(FlowRefusal::Limit { what: "the bytes of an idempotency key", max: FLOW_KEY_BYTES_MAX });
        }
        self.flows.keys.expire(turn.now(), &mut turn.changes);
        if let Some(id) = start.key.as_ref().and_then(|key| self.flows.keys.get(key, turn.now())) {
            let is_over = self.flows.get(id).is_none();
            match start.on_key_used {
                OnKeyUsed::Return => return Ok(id),
                OnKeyUsed::RefuseWhileRunning if is_over => {}
                OnKeyUsed::Refuse | OnKeyUsed::RefuseWhileRunning => return Err(FlowRefusal::KeyUsed(id)),
            }
        }
        let plan = self.plan_for(turn, &start.which)?;
        let id = FlowId::from(self.next_token());
        if let Some(key) = &start.key {
            self.flows.keys.begin(key, id, &mut turn.changes);
        }
        let flow = new_flow(id, plan, start, turn, parent, depth);
        self.emit(turn, flow_event(EventKind::FlowStarted, turn, &flow));
        self.begin(turn, flow);
        Ok(id)
    }

    /// Puts a run in and schedules its first step.
    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>, flow: Flow) {
        let (id, deadline) = (flow.id, flow.deadline());
        self.flows.all.insert(id, Box::new(flow));
        self.touch_flow(id);
        if let Some(at) = deadline {
            self.deadlines.push_again(at, Due::Flow(id));
        }
        self.schedule(turn, id, 0, None);
        self.finish_if_done(turn, id);
    }
}

fn new_flow(
    id: FlowId,
    plan: Arc<Plan>,
    start: StartFlow,
    turn: &Turn<'_>,
    parent: Option<Parent>,
    depth: u32,
) -> Flow {
    Flow {
        id,
        plan_id: plan.id,
        status: FlowStatus::Running,
        input: with_defaults(start.input, plan.defaults.as_ref(), Absent::InGiven),
        output: empty_object(),
        variables: plan.variables.clone().unwrap_or_else(empty_object),
        plan,
        correlation: start.correlation,
        key: start.key,
        priority: start.priority.min(99),
        domains: Arc::new(start.domains),
        parent,
        depth,
        created_by: start.created_by,
        created_at: turn.now(),
        retried_at: None,
        ended_at: None,
        reason: None,
        failed: Vec::new(),
        last_seq: 0,
        lives: 0,
        alerted: false,
        added: Vec::new(),
        live: Live::default(),
    }
}

/// When defaults fill in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// For what is missing, if anything was given at all.
    InGiven,
    /// For what is missing or null.
    OrNull,
}

/// The object with what it lacks from `defaults`.
pub(crate) fn with_defaults(given: Json, defaults: Option<&Json>, absent: Absent) -> Json {
    let Some(Value::Object(defaults)) = defaults.map(|defaults| to_value(defaults)) else { return given };
    let Value::Object(mut fields) = to_value(&given) else { return given };
    if fields.is_empty() && absent == Absent::InGiven {
        return given;
    }
    for (name, value) in defaults {
        let is_null = fields.get(&name).is_some_and(Value::is_null);
        if absent == Absent::OrNull && is_null || !fields.contains_key(&name) {
            fields.insert(name, value);
        }
    }
    to_json(&Value::Object(fields))
}

/// An event about a run, with what identifies it.
pub(crate) fn flow_event(kind: EventKind, turn: &Turn<'_>, flow: &Flow) -> Event {
    let data = serde_json::json!({
        "workflow": flow.id, "name": flow.plan.name, "version": flow.plan.version, "status": flow.status,
        "correlation": flow.correlation,
    });
    Event {
        resources: [crate::Resource::of_flow(flow.id)].into_iter().collect(),
        reason: flow.reason.clone(),
        data: Some((*raw(data.to_string())).to_owned()),
        ..Event::new(kind, turn.now())
    }
}
