//! Owns registered workflows, and the plan that a run gets: the workflow with the definitions of its tasks copied in.

use std::sync::Arc;

use crate::change::{Change, Record, RecordKind};
use crate::command::Command;
use crate::flow::command::{DefineFlows, FlowRefusal, GetFlowDefs, GetPlan, UndefineFlow, Which};
use crate::flow::{FlowDef, Op, Plan, PlanId, Step};
use crate::ledger::{Ledger, Turn};
use crate::limits::DEFINITIONS_MAX;
use crate::task::TaskRules;

impl Command for DefineFlows {
    type Reply = Vec<Result<(), FlowRefusal>>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let overwrite = self.overwrite;
        self.plans.into_iter().map(|plan| ledger.define_flow(turn, plan, overwrite)).collect()
    }
}

impl Command for UndefineFlow {
    type Reply = bool;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> bool {
        let key = (Arc::from(self.name), self.version);
        ledger.flows.present.remove(&key);
        let found = ledger.flows.defs.remove(&key).is_some();
        if found {
            turn.changes.push(Change::Delete(RecordKind::FlowDef, FlowDef::record_id(&key.0, key.1)));
        }
        found
    }
}

impl Command for GetFlowDefs {
    type Reply = Vec<FlowDef>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Vec<FlowDef> {
        let defs = &ledger.flows.defs;
        let named = defs.iter().filter(|((name, _), _)| self.name.as_ref().is_none_or(|asked| **asked == **name));
        let is_latest =
            |key: &(Arc<str>, u32)| defs.range((key.0.clone(), key.1 + 1)..=(key.0.clone(), u32::MAX)).next().is_none();
        let wanted = named.filter(|(key, _)| match self.version {
            None => true,
            Some(None) => is_latest(key),
            Some(Some(version)) => key.1 == version,
        });
        wanted.map(|(_, def)| def.clone()).collect()
    }
}

impl Command for GetPlan {
    type Reply = Option<Arc<Plan>>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Option<Arc<Plan>> {
        ledger.flows.plans.get(&self.0).cloned()
    }
}

impl Ledger {
    fn define_flow(&mut self, turn: &mut Turn<'_>, plan: Plan, overwrite: bool) -> Result<(), FlowRefusal> {
        let key = (plan.name.clone(), plan.version);
        let known = self.flows.defs.get(&key);
        if known.is_some() && !overwrite {
            return Err(FlowRefusal::Exists { name: (&*plan.name).into(), version: plan.version });
        }
        if known.is_none() && self.flows.defs.len() >= DEFINITIONS_MAX {
            return Err(FlowRefusal::Limit { what: "the number of workflow definitions", max: DEFINITIONS_MAX });
        }
        let def = FlowDef {
            created_at: known.map_or(turn.now(), |known| known.created_at),
            updated_at: known.map(|_| turn.now()),
            plan: Arc::new(plan),
        };
        turn.changes.push(Change::Put(Record::FlowDef(Box::new(def.clone()))));
        self.flows.present.remove(&key);
        self.flows.defs.insert(key, def);
        Ok(())
    }

    /// The plan that a run started now has.
    pub(crate) fn plan_for(&mut self, turn: &mut Turn<'_>, which: &Which) -> Result<Arc<Plan>, FlowRefusal> {
        match which {
            Which::Inline(plan) => Ok(self.fix_plan(turn, &Plan { is_inline: true, ..Plan::clone(plan) })),
            Which::Named(name, version) => {
                let (key, def) = self.find_def(name, *version)?;
                if let Some(plan) = self.flows.present.get(&key).and_then(|id| self.flows.plans.get(id)) {
                    return Ok(plan.clone());
                }
                let plan = self.fix_plan(turn, &def.plan.clone());
                self.flows.present.insert(key, plan.id);
                Ok(plan)
            }
        }
    }

    fn find_def(&self, name: &str, version: Option<u32>) -> Result<((Arc<str>, u32), &FlowDef), FlowRefusal> {
        let name: Arc<str> = name.into();
        let defs = &self.flows.defs;
        let found = match version {
            Some(version) => defs.get_key_value(&(name.clone(), version)),
            None => defs.range((name.clone(), 0)..=(name.clone(), u32::MAX)).next_back(),
        };
        let (key, def) = found.ok_or_else(|| FlowRefusal::NotDefined { name: (&*name).into(), version })?;
        Ok((key.clone(), def))
    }

    /// Copies the definitions of tasks in, and writes the plan down.
    fn fix_plan(&mut self, turn: &mut Turn<'_>, plan: &Plan) -> Arc<Plan> {
        let id = PlanId(self.next_token());
        let steps = plan.steps.iter().map(|step| Arc::new(self.fix_step(step))).collect();
        let plan = Arc::new(Plan { id, steps, ..plan.clone() });
        turn.changes.push(Change::Put(Record::Plan(plan.clone())));
        self.flows.plans.insert(id, plan.clone());
        plan
    }

    /// The step with its rules: its own, its definition's, or those of its kind.
    pub(crate) fn fix_step(&self, step: &Step) -> Step {
        let registered = || self.tasks.defs.get(&step.name).map(|def| def.rules.clone());
        let by_kind = || match step.op {
            Op::Work => Some(Arc::new(TaskRules::undefined())),
            // Its rules are those of the name that it turns out to have.
            Op::Dynamic { .. } => None,
            _ => Some(Arc::new(TaskRules::of_operator())),
        };
        let rules = step.rules.clone().or_else(registered).or_else(by_kind);
        Step { rules: rules.map(|rules| with_retries(rules, step.retries)), ..step.clone() }
    }
}

/// The rules with another number of retries.
pub(crate) fn with_retries(rules: Arc<TaskRules>, retries: Option<u32>) -> Arc<TaskRules> {
    let Some(retries) = retries else { return rules };
    let mut rules = TaskRules::clone(&rules);
    rules.retry.max_attempts = retries.saturating_add(1);
    Arc::new(rules)
}
