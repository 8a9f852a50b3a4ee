//! Owns the end of a run: what came of it, what it leaves behind, who is told; and its way into the store.

use serde_json::{Value, json};

use crate::change::{Change, Record, RecordKind};
use crate::event::EventKind;
use crate::flow::command::{StartFlow, Which};
use crate::flow::template::Scope;
use crate::flow::{Archived, Flow, FlowStatus};
use crate::id::{FlowId, TaskId};
use crate::json::depth;
use crate::ledger::flow::operators::fields;
use crate::ledger::flow::scope::FlowScope;
use crate::ledger::flow::start::flow_event;
use crate::ledger::tasks::{Ends, cut};
use crate::ledger::{Ledger, Turn};
use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use crate::task::{Json, Status, empty_object, to_json, to_value};

/// How a run ends.
pub(crate) struct FlowEnds {
    pub(crate) status: FlowStatus,
    pub(crate) reason: Option<Box<str>>,
    /// What came of it, if not what the workflow says.
    pub(crate) output: Option<Json>,
    /// The task that it failed by.
    pub(crate) failed: Option<TaskId>,
    /// Whether somebody wanted it to end: that is no failure.
    pub(crate) was_wanted: bool,
}

impl FlowEnds {
    pub(crate) fn with(status: FlowStatus, reason: impl Into<Box<str>>) -> FlowEnds {
        FlowEnds { status, reason: Some(reason.into()), output: None, failed: None, was_wanted: false }
    }

    /// Nobody wants it any more.
    pub(crate) fn stopped(reason: impl Into<Box<str>>) -> FlowEnds {
        FlowEnds { was_wanted: true, ..FlowEnds::with(FlowStatus::Terminated, reason) }
    }

    pub(crate) fn completed(output: Option<Json>) -> FlowEnds {
        FlowEnds { status: FlowStatus::Completed, reason: None, output, failed: None, was_wanted: true }
    }
}

impl Ledger {
    /// Ends a run. Whatever of it is not over is not wanted any more.
    pub(crate) fn end_flow(&mut self, turn: &mut Turn<'_>, id: FlowId, ends: FlowEnds) {
        let Some(flow) = self.flows.get(id).filter(|flow| !flow.status.is_over()) else { return };
        let output = ends.output.unwrap_or_else(|| self.output_of(flow));
        let failed = self.tasks_of(id).filter(|task| is_failure(task.status) && !task.retried);
        let failed: Vec<_> = failed.map(|task| task.reference.clone()).collect();
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.status = ends.status;
        flow.reason = ends.reason.map(|reason| cut(&reason));
        flow.output = output;
        flow.failed = failed;
        flow.ended_at = Some(turn.now());
        self.cancel_tasks(turn, id);
        let Some(flow) = self.flows.get(id) else { return };
        let event = flow_event(EventKind::FlowEnded, turn, flow);
        self.emit(turn, event);
        self.flows.over.push(id);
        if !ends.was_wanted {
            self.start_failure_flow(turn, id, ends.failed);
        }
        self.tell_parent(turn, id);
    }

    fn cancel_tasks(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let open: Vec<TaskId> = self.tasks_of(id).filter(|task| !task.status.is_over()).map(|task| task.id).collect();
        for task in open {
            self.end_task(turn, task, Ends::with(Status::Canceled, "the workflow is over"));
            self.end_child(turn, task);
        }
    }

    /// What comes of a run: what the workflow says, or the output of its last task.
    fn output_of(&self, flow: &Flow) -> Json {
        let Some(template) = &flow.plan.output else {
            let last = self.tasks_of(flow.id).rfind(|task| task.status.is_over());
            return last.map_or_else(empty_object, |task| task.output.clone());
        };
        let scope = FlowScope { ledger: self, flow, task: None, suffix: String::new() };
        template.fill(&scope).unwrap_or_else(|unfit| to_json(&json!({ "error": unfit.to_string() })))
    }

    /// Starts what the workflow wants started when it fails.
    fn start_failure_flow(&mut self, turn: &mut Turn<'_>, id: FlowId, failed: Option<TaskId>) {
        let Some(flow) = self.flows.get(id) else { return };
        let Some((name, version)) = flow.plan.on_failure.clone() else { return };
        let input = self.input_of_failure(flow, failed);
        let depth = flow.depth + 1;
        let start = StartFlow {
            correlation: flow.correlation.clone(),
            domains: (*flow.domains).clone(),
            priority: flow.priority,
            ..StartFlow::new(Which::Named(name, version), input)
        };
        let (field, value) = match self.start_flow(turn, start, None, depth) {
            Ok(started) => ("conductor.failure_workflow", started.to_string()),
            Err(refusal) => ("conductor.failure_workflow.refused", refusal.to_string()),
        };
        if let Some(flow) = self.flows.get_mut(id)
            && let Value::Object(mut fields) = to_value(&flow.output)
        {
            fields.insert(field.into(), value.into());
            flow.output = to_json(&Value::Object(fields));
        }
    }

    /// What the run had, and what became of it. A run before it that failed is left out, or it would grow from run to run.
    fn input_of_failure(&self, flow: &Flow, failed: Option<TaskId>) -> Json {
        let mut input = fields(to_value(&flow.input));
        input.remove("failedWorkflow");
        let scope = FlowScope { ledger: self, flow, task: None, suffix: String::new() };
        let mut whole = fields(scope.whole("workflow").unwrap_or_default());
        whole.insert("input".into(), Value::Object(input.clone()));
        input.insert("workflowId".into(), flow.id.to_string().into());
        input.insert("reason".into(), flow.reason.as_deref().into());
        input.insert("failureStatus".into(), flow.status.as_str().into());
        input.insert("failureTaskId".into(), failed.map(|task| task.to_string()).into());
        let plain = input.clone();
        input.insert("failedWorkflow".into(), Value::Object(whole));
        let full = to_json(&Value::Object(input));
        let is_fit = full.get().len() <= PAYLOAD_BYTES_MAX && depth(full.get()) <= PAYLOAD_DEPTH_MAX;
        if is_fit { full } else { to_json(&Value::Object(plain)) }
    }

    /// Moves runs that are over out of memory; the store keeps them.
    pub(crate) fn archive(&mut self, turn: &mut Turn<'_>) {
        for id in std::mem::take(&mut self.flows.over) {
            let Some(archived) = self.take_out(turn, id) else { continue };
            if let Some(key) = &archived.flow.key {
                self.flows.keys.end(key, id, turn.now(), &mut turn.changes);
            }
            turn.changes.push(Change::Put(Record::Archive(Box::new(archived))));
        }
    }

    /// Takes a run out of memory with everything that belongs to it.
    pub(crate) fn take_out(&mut self, turn: &mut Turn<'_>, id: FlowId) -> Option<Archived> {
        let flow = self.flows.all.remove(&id)?;
        self.flows.changed.remove(&id);
        if let Some(lives) = self.flows.lives.get_mut(&id) {
            *lives = flow.lives;
        }
        turn.changes.push(Change::Delete(RecordKind::Flow, id.into()));
        let tasks = flow.live.tasks.iter().filter_map(|task| self.remove_task(turn, *task));
        let tasks = tasks.map(|task| *task).collect();
        let plan = flow.plan.is_inline.then(|| flow.plan.clone());
        if let Some(plan) = &plan {
            self.flows.plans.remove(&plan.id);
            turn.changes.push(Change::Delete(RecordKind::Plan, plan.id.into()));
        }
        Some(Archived { flow: Flow::clone(&flow), tasks, plan })
    }

    /// A run has taken longer than its workflow allows.
    pub(crate) fn flow_due(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let seconds = flow.plan.timeout_s;
        let reason = format!("Workflow timed out after {seconds} seconds.");
        if flow.plan.timeout_ends {
            return self.end_flow(turn, id, FlowEnds::with(FlowStatus::TimedOut, reason));
        }
        flow.alerted = true;
        let event = flow_event(EventKind::FlowOverdue, turn, flow);
        self.emit(turn, crate::event::Event { reason: Some(reason.into()), ..event });
        self.touch_flow(id);
    }
}

fn is_failure(status: Status) -> bool {
    status.is_over() && !status.is_success() && status != Status::Canceled
}
