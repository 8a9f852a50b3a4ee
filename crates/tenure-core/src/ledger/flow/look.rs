//! Owns looking at runs without touching them. Every answer is bounded.

use std::ops::Bound;

use crate::command::Command;
use crate::flow::command::{FlowView, GetFlow, GotFlow, ListFlows};
use crate::flow::{Flow, Op};
use crate::id::{FlowId, TaskId};
use crate::ledger::{Ledger, Turn};
use crate::limits::PAGE_MAX;

/// How many runs one page may look at: filters that match little must not hold everyone up.
const LOOKED_AT_MAX: usize = 10_000;
/// How many runs inside runs are looked through for a task that waits.
const DEPTH_MAX: usize = 32;

impl Command for GetFlow {
    type Reply = GotFlow;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> GotFlow {
        match ledger.flows.get(self.id) {
            Some(flow) => GotFlow::Live(Box::new(ledger.flow_view(flow, self.with_tasks))),
            None if ledger.was_granted(self.id.token()) => GotFlow::Over,
            None => GotFlow::Unknown,
        }
    }
}

impl Command for ListFlows {
    type Reply = Vec<Flow>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Vec<Flow> {
        let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        let flows = ledger.flows.all.range((from, Bound::Unbounded)).take(LOOKED_AT_MAX).map(|(_, flow)| flow);
        let wanted = flows.filter(|flow| {
            self.name.as_ref().is_none_or(|name| **name == *flow.plan.name)
                && self.version.is_none_or(|version| version == flow.plan.version)
                && self.correlation.as_ref().is_none_or(|asked| flow.correlation.as_ref() == Some(asked))
        });
        wanted.take(self.limit.clamp(1, PAGE_MAX)).map(|flow| Flow::clone(flow)).collect()
    }
}

impl Ledger {
    pub(crate) fn flow_view(&self, flow: &Flow, with_tasks: bool) -> FlowView {
        let tasks = with_tasks.then(|| self.tasks_of(flow.id).filter_map(|task| self.view(task)));
        FlowView { flow: flow.clone(), tasks: tasks.into_iter().flatten().collect() }
    }

    /// The task of a step that is not over, whichever round it is in.
    pub(crate) fn open_task_of(&self, flow: FlowId, reference: &str) -> Option<TaskId> {
        let id = self.flows.get(flow)?.task_of(reference)?;
        self.tasks.all.get(&id).filter(|task| !task.status.is_over()).map(|task| task.id)
    }

    /// The first task of a run that waits for an update, also in runs that it waits for.
    pub(crate) fn first_waiting_task(&self, flow: FlowId, depth: usize) -> Option<TaskId> {
        if depth > DEPTH_MAX {
            return None;
        }
        let open = self.tasks_of(flow).filter(|task| !task.status.is_over());
        open.into_iter().find_map(|task| match self.step_of(task)?.op {
            Op::Wait | Op::Human => Some(task.id),
            Op::SubFlow(_) => self.first_waiting_task(task.child()?, depth + 1),
            _ => None,
        })
    }
}
