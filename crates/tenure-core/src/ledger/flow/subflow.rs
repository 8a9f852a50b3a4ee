//! Owns workflows inside workflows: a step that runs another one and waits, or starts another one and goes on.

use serde_json::{Value, json};

use crate::flow::command::{StartFlow, Which};
use crate::flow::template::fill;
use crate::flow::{FlowStatus, Parent, SubFlow};
use crate::id::{FlowId, TaskId};
use crate::ledger::flow::end::FlowEnds;
use crate::ledger::flow::operators::fields;
use crate::ledger::flow::schedule::Round;
use crate::ledger::flow::scope::FlowScope;
use crate::ledger::tasks::Ends;
use crate::ledger::{Ledger, Turn};
use crate::task::{Status, to_json, to_value};

impl Ledger {
    pub(crate) fn begin_subflow(&mut self, turn: &mut Turn<'_>, id: TaskId, sub: &SubFlow) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let Some(flow) = self.flows.get(task.flow) else { return };
        let scope = FlowScope { ledger: self, flow, task: Some(id), suffix: self.suffix_of(Round::of(task)) };
        let name = match fill(&Value::from(&*sub.name), &scope) {
            Ok(Value::String(name)) => name,
            _ => return self.fail(turn, id, "the name of the workflow to run is not a text"),
        };
        let which = match &sub.plan {
            Some(plan) => Which::Inline(plan.clone()),
            None => Which::Named(name.into(), sub.version),
        };
        let domains = if sub.domains.is_empty() { (*flow.domains).clone() } else { sub.domains.clone() };
        let start = StartFlow {
            correlation: flow.correlation.clone(),
            priority: flow.priority,
            domains,
            ..StartFlow::new(which, task.input.clone())
        };
        let (parent, depth) = (Parent { flow: task.flow, task: id }, flow.depth + 1);
        // Started before its id is known here, so a child that is over at once finds its parent waiting.
        match self.start_flow(turn, start, Some(parent), depth) {
            Err(refusal) => self.fail(turn, id, refusal.to_string()),
            Ok(child) => {
                if let Some(task) = self.tasks.all.get_mut(&id) {
                    task.extra_mut().child = Some(child);
                }
                self.touch(id);
                self.watch_task(id);
            }
        }
    }

    /// Starts another workflow and goes on.
    pub(crate) fn start_aside(&mut self, turn: &mut Turn<'_>, id: TaskId, start: StartFlow) {
        match self.start_flow(turn, start, None, 0) {
            Ok(started) => self.complete(turn, id, Some(to_json(&json!({ "workflowId": started })))),
            Err(refusal) => self.fail(turn, id, refusal.to_string()),
        }
    }

    /// Answers the step that waits for a run which is over.
    pub(crate) fn tell_parent(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let Some(flow) = self.flows.get(id) else { return };
        let Some(parent) = flow.parent else { return };
        let mut output = fields(to_value(&flow.output));
        output.insert("subWorkflowId".into(), id.to_string().into());
        let status = match flow.status {
            FlowStatus::Completed => Status::Completed,
            FlowStatus::Terminated => Status::Canceled,
            FlowStatus::TimedOut => Status::TimedOut,
            _ => Status::Failed,
        };
        let reason = flow.reason.clone();
        if let Some(task) = self.tasks.all.get_mut(&parent.task) {
            task.extra_mut().child = Some(id);
        }
        let ends = Ends { status, output: Some(to_json(&Value::Object(output))), reason };
        self.end_task(turn, parent.task, ends.readable());
    }

    /// Ends the run that a step waits for, because nobody waits any more.
    pub(crate) fn end_child(&mut self, turn: &mut Turn<'_>, task: TaskId) {
        let Some(child) = self.tasks.all.get(&task).and_then(|task| task.child()) else { return };
        self.end_flow(turn, child, FlowEnds::stopped("the outer workflow is over"));
    }
}
