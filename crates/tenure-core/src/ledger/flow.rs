//! Owns runs of workflows in memory (T5): what is registered, what runs, and what happens when a task of a run is over.
//!
//! Every task that ends is looked at once, in the order in which tasks ended: it is tried again, it ends the run, or what
//! follows it is scheduled. That is all that moves a run, so a run whose tasks are all looked at and over is complete.

mod advance;
mod again;
mod control;
mod define;
mod end;
mod join;
mod keys;
mod look;
mod looping;
mod operators;
mod rerun;
mod schedule;
mod scope;
mod start;
mod subflow;
mod wait;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::change::{Change, FlowKey, Record};
use crate::flow::{Flow, FlowDef, Plan, PlanId};
use crate::id::{FlowId, TaskId};
use crate::ledger::deadlines::Due;
use crate::ledger::flow::schedule::Round;
use crate::ledger::{Ledger, Turn};
use crate::task::{Status, Task};

/// All workflows.
#[derive(Default)]
pub(crate) struct Flows {
    all: BTreeMap<FlowId, Box<Flow>>,
    /// Registered workflows, by name and version.
    defs: BTreeMap<(Arc<str>, u32), FlowDef>,
    /// Plans of runs, and the present plan of each registered workflow.
    plans: HashMap<PlanId, Arc<Plan>>,
    present: HashMap<(Arc<str>, u32), PlanId>,
    /// Runs by the key they were started with.
    keys: keys::FlowKeys,
    /// Runs that changed since their records were last written; empty between commands.
    changed: std::collections::BTreeSet<FlowId>,
    /// Runs that are over and still in memory; empty between commands.
    over: Vec<FlowId>,
    /// Runs that were brought back since the start, and how often in all: a copy of an earlier end is not taken.
    lives: HashMap<FlowId, u32>,
    /// When to go on with what was too much for one turn.
    pub(crate) goes_on_at: Option<crate::Timestamp>,
    /// The bytes of payloads that were read and written since that was last asked.
    spent: Cell<usize>,
}

impl Flows {
    pub(crate) fn get(&self, id: FlowId) -> Option<&Flow> {
        self.all.get(&id).map(|flow| &**flow)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.all.get_mut(&id).map(|flow| &mut **flow)
    }

    /// Counts work that grows with payloads: a turn has a bound on it.
    fn spend(&self, bytes: usize) {
        self.spent.set(self.spent.get().saturating_add(bytes));
    }

    /// Definitions changed: the next run of each workflow copies them anew.
    pub(crate) fn forget_plans(&mut self) {
        self.present.clear();
    }
}

impl Ledger {
    fn touch_flow(&mut self, id: FlowId) {
        self.flows.changed.insert(id);
    }

    /// What the tasks that ended set off, the records of all of it, and polls that wait for it.
    pub(crate) fn settle_tasks(&mut self, turn: &mut Turn<'_>) {
        self.follow_up(turn);
        self.archive(turn);
        self.serve_polls(turn);
        for id in std::mem::take(&mut self.flows.changed) {
            if let Some(flow) = self.flows.get(id) {
                turn.changes.push(Change::Put(Record::Flow(Box::new(flow.clone()))));
            }
        }
        self.write_tasks(turn);
    }

    pub(crate) fn restore_plan(&mut self, plan: Arc<Plan>) {
        self.flows.plans.insert(plan.id, plan);
    }

    pub(crate) fn restore_flow_def(&mut self, def: FlowDef) {
        self.flows.defs.insert((def.plan.name.clone(), def.plan.version), def);
    }

    pub(crate) fn restore_flow_key(&mut self, kept: FlowKey) {
        self.flows.keys.restore(kept);
    }

    /// A run as the store had it. Its plan was restored before it.
    pub(crate) fn restore_flow(&mut self, mut flow: Box<Flow>) {
        if let Some(plan) = self.flows.plans.get(&flow.plan_id) {
            flow.plan = plan.clone();
        }
        if let Some(key) = &flow.key {
            self.flows.keys.restore_running(key, flow.id);
        }
        self.flows.all.insert(flow.id, flow);
    }

    /// A task as the store had it, after its run.
    pub(crate) fn restore_task_of_flow(&mut self, task: Box<Task>) {
        self.link(&task);
        let (id, is_over) = (task.id, task.status.is_over());
        let waits_for_look = is_over && !task.executed && !task.retried;
        self.restore_task(task);
        if waits_for_look {
            self.tasks.over.push_back(id);
        }
    }

    /// Notes a task in its run.
    fn link(&mut self, task: &Task) {
        let Some(flow) = self.flows.get_mut(task.flow) else { return };
        let base = flow.step(task.step).map(|step| step.reference.clone());
        let is_join = flow.step(task.step).is_some_and(|step| step.op.is_join());
        flow.last_seq = flow.last_seq.max(task.seq);
        let live = &mut flow.live;
        live.tasks.push(task.id);
        live.by_reference.extend(base.map(|base| (base, task.id)));
        live.by_reference.insert(task.reference.clone(), task.id);
        if let Some(round) = Round::of(task) {
            let around = live.loops.entry(round.parent).or_default();
            around.enter(round.iteration);
            around.tasks.push(task.id);
        }
        if !task.executed && !task.retried {
            live.open += 1;
            if let Some(parent) = task.parent() {
                live.loops.entry(parent).or_default().open += 1;
            }
            if is_join && !task.status.is_over() {
                live.joins.push((task.id, 0));
            }
        }
    }

    /// Puts timers and queues up after everything was restored.
    pub(crate) fn start_tasks(&mut self, turn: &mut Turn<'_>) {
        let open: Vec<TaskId> =
            self.tasks.all.iter().filter(|(_, task)| !task.status.is_over()).map(|(id, _)| *id).collect();
        for id in open {
            let Some(task) = self.tasks.all.get(&id) else { continue };
            if task.token.is_none() && self.is_polled(task) {
                self.show(id, turn.now());
            }
            self.watch_task(id);
        }
        let deadlines: Vec<_> = self.flows.all.values().filter_map(|flow| Some((flow.deadline()?, flow.id))).collect();
        for (at, id) in deadlines {
            self.deadlines.push_again(at, Due::Flow(id));
        }
        self.settle_tasks(turn);
    }

    /// Whether workers, or the server's evaluator, poll this task.
    pub(crate) fn is_polled(&self, task: &Task) -> bool {
        let is_asked = task.extra.as_ref().is_some_and(|extra| extra.asked.is_some());
        is_asked || (task.status == Status::Scheduled || task.token.is_some()) && self.is_work(task)
    }

    /// Whether workers do this task.
    pub(crate) fn is_work(&self, task: &Task) -> bool {
        self.step_of(task).is_some_and(|step| step.op.is_work())
    }
}
