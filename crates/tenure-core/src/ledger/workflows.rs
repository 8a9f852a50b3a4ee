//! Owns the runs of workflows (T5): a step's intent is assigned when everything before it is completed; a step that is given up
//! blocks what comes after it; a run ends when nothing is left to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::access::{Caller, Permission};
use crate::change::{Change, Record};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Event, EventKind};
use crate::intent::{Intent, RetryPolicy, Status};
use crate::lease::Lease;
use crate::ledger::intents::CreateIntent;
use crate::ledger::portfolios::{ChangePortfolio, CreatePortfolio, PortfolioChange};
use crate::ledger::{Ledger, Turn};
use crate::limits::{INTENTS_MAX, PAGE_MAX};
use crate::patch::check_size;
use crate::portfolio::{PortfolioStatus, Role};
use crate::serial::WorkflowId;
use crate::workflow::{Graph, RunStatus, RunStep, Workflow};
use crate::{Holder, Resource};

/// Every run, and those to be looked at before the command is done.
#[derive(Default)]
pub(crate) struct Workflows {
    by_id: BTreeMap<WorkflowId, Arc<Workflow>>,
    moved: Vec<WorkflowId>,
}

impl Workflows {
    pub(crate) fn put(&mut self, workflow: Arc<Workflow>) {
        self.by_id.insert(workflow.id, workflow);
    }
}

/// Run a graph.
#[derive(Debug, Clone)]
pub struct RunWorkflow {
    /// Its name.
    pub name: Box<str>,
    /// What to do.
    pub graph: Graph,
    /// Who starts it.
    pub created_by: Holder,
}

impl Command for RunWorkflow {
    type Reply = Result<WorkflowView, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.check_room(&self.graph)?;
        let portfolio = CreatePortfolio {
            name: self.name.clone(),
            description: None,
            created_by: self.created_by.clone(),
            governance: Map::new(),
            metadata: Map::new(),
        };
        let portfolio = portfolio.decide(ledger, turn)?.id;
        let id = WorkflowId(ledger.serial());
        let event = Event::about(EventKind::WorkflowStarted, turn.now(), resource(id), json!({ "name": self.name }));
        ledger.emit(turn, Event { by: Some(self.created_by.clone()), ..event });
        let steps = ledger.create_steps(turn, id, &self)?;
        let caller = Caller { holder: self.created_by.clone(), is_admin: false };
        for step in &steps {
            let change = PortfolioChange::Add(step.intent, Role::Member, 0);
            ChangePortfolio { id: portfolio, caller: caller.clone(), change }.decide(ledger, turn)?;
        }
        let workflow = Workflow {
            id,
            name: self.name,
            portfolio,
            created_by: self.created_by,
            created_at: turn.now(),
            ended_at: None,
            status: RunStatus::Running,
            steps,
        };
        ledger.put_workflow(turn, workflow);
        ledger.advance_soon(id);
        ledger.settle(turn);
        ledger.view_workflow(id)
    }
}

impl Ledger {
    /// Makes the intents of all steps, those that come first before those that come after.
    fn create_steps(
        &mut self,
        turn: &mut Turn<'_>,
        id: WorkflowId,
        run: &RunWorkflow,
    ) -> Result<Vec<RunStep>, Refusal> {
        let graph = &run.graph;
        let mut made: Vec<Option<RunStep>> = vec![None; graph.steps().len()];
        while let Some(at) = next_to_make(graph, &made) {
            let Some(step) = graph.steps().get(at) else { break };
            let before = graph.before(at).iter().filter_map(|first| made.get(*first)?.as_ref());
            let new = CreateIntent {
                title: step.title.clone(),
                description: step.description.clone(),
                state: step.state.clone(),
                constraints: step.constraints.clone(),
                parent: None,
                depends_on: before.map(|first| first.intent).collect(),
                governance: None,
                created_by: run.created_by.clone(),
            };
            let retry = RetryPolicy {
                rule: step.retry,
                fallback: step.fallback.clone(),
                failure_threshold: step.retry.max_attempts,
                created_at: turn.now(),
                updated_at: turn.now(),
            };
            let intent = self.create_intent(turn, new, Some(retry), Some(id))?.id;
            let made_step = RunStep { name: step.name.clone(), assign: step.assign.clone(), intent };
            made.iter_mut().skip(at).take(1).for_each(|place| *place = Some(made_step.clone()));
        }
        Ok(made.into_iter().flatten().collect())
    }

    /// Refuses a run before anything of it is made: there is no half a workflow.
    fn check_room(&self, graph: &Graph) -> Result<(), Refusal> {
        if self.intents.len() + graph.steps().len() > INTENTS_MAX {
            return Err(Refusal::Limit { what: "the number of intents", max: INTENTS_MAX });
        }
        for step in graph.steps() {
            check_size(step.state.clone())?;
            check_size(step.constraints.clone())?;
        }
        Ok(())
    }

    fn put_workflow(&mut self, turn: &mut Turn<'_>, workflow: Workflow) {
        let workflow = Arc::new(workflow);
        turn.changes.push(Change::Put(Record::Workflow(Arc::clone(&workflow))));
        self.workflows.put(workflow);
    }

    /// Has a run looked at when the command that moved one of its steps is done.
    pub(crate) fn advance_soon(&mut self, id: WorkflowId) {
        if !self.workflows.moved.contains(&id) {
            self.workflows.moved.push(id);
        }
    }

    pub(crate) fn next_moved(&mut self) -> Option<WorkflowId> {
        self.workflows.moved.pop()
    }

    /// Starts what is ready, blocks what cannot be done any more, and ends the run if nothing is left.
    pub(crate) fn advance(&mut self, turn: &mut Turn<'_>, id: WorkflowId) {
        let Some(workflow) = self.workflows.by_id.get(&id).cloned() else { return };
        if workflow.status != RunStatus::Running {
            return;
        }
        for step in &workflow.steps {
            let Some(intent) = self.intents.get(step.intent).cloned() else { continue };
            if intent.status != Status::Draft {
                continue;
            }
            if self.is_cut_off(&intent) {
                let reason = "a step that comes first was given up";
                self.set_status(turn, &intent, Status::Blocked, &workflow.created_by, Some(reason.into()));
            } else if self.intents.is_ready(&intent) {
                self.start_step(turn, &workflow, step, &intent);
            }
        }
        self.end_run(turn, &workflow);
    }

    fn start_step(&mut self, turn: &mut Turn<'_>, workflow: &Workflow, step: &RunStep, intent: &Intent) {
        let intent = self.set_status(turn, intent, Status::Active, &workflow.created_by, None);
        if let Some(agent) = &step.assign {
            let assignment = self.assignment(turn, agent.clone(), "worker".into(), None);
            self.assign(turn, &intent, assignment, &workflow.created_by);
        }
    }

    /// Whether something that comes first will never be completed.
    fn is_cut_off(&self, intent: &Intent) -> bool {
        let first = intent.depends_on.iter().filter_map(|id| self.intents.get(*id));
        first.into_iter().any(|first| first.status == Status::Abandoned || self.is_stuck(first))
    }

    /// Whether a blocked step is blocked because of what comes first.
    fn is_stuck(&self, intent: &Intent) -> bool {
        intent.status == Status::Blocked && !self.intents.is_ready(intent)
    }

    fn end_run(&mut self, turn: &mut Turn<'_>, workflow: &Workflow) {
        let intents: Vec<_> = workflow.steps.iter().filter_map(|step| self.intents.get(step.intent)).collect();
        let is_over = intents.iter().all(|intent| intent.status.is_finished() || self.is_stuck(intent));
        if !is_over {
            return;
        }
        let is_done = intents.iter().all(|intent| intent.status == Status::Completed);
        let (status, portfolio) = match is_done {
            true => (RunStatus::Completed, PortfolioStatus::Completed),
            false => (RunStatus::Failed, PortfolioStatus::Abandoned),
        };
        self.put_workflow(turn, Workflow { status, ended_at: Some(turn.now()), ..workflow.clone() });
        let said = json!({ "name": workflow.name, "status": status });
        let event = Event::about(EventKind::WorkflowEnded, turn.now(), resource(workflow.id), said);
        self.emit(turn, event);
        self.set_portfolio_status(turn, workflow.portfolio, portfolio, &workflow.created_by);
    }
}

fn next_to_make(graph: &Graph, made: &[Option<RunStep>]) -> Option<usize> {
    let is_made = |at: &usize| made.get(*at).is_some_and(Option::is_some);
    (0..made.len()).find(|at| !is_made(at) && graph.before(*at).iter().all(is_made))
}

fn resource(id: WorkflowId) -> Option<Resource> {
    Resource::parse(&format!("workflow:{id}")).ok()
}

/// A step of a run, as things are.
#[derive(Debug, Clone)]
pub struct StepView {
    /// The step.
    pub step: RunStep,
    /// Its intent.
    pub intent: Arc<Intent>,
    /// The lease of the attempt that runs.
    pub lease: Option<Lease>,
}

/// A run, as things are.
#[derive(Debug, Clone)]
pub struct WorkflowView {
    /// The run.
    pub workflow: Arc<Workflow>,
    /// Its steps.
    pub steps: Vec<StepView>,
}

impl Ledger {
    fn view_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Refusal> {
        let workflow = self.workflows.by_id.get(&id).ok_or_else(|| Refusal::unknown("workflow", id))?;
        let steps = workflow.steps.iter().filter_map(|step| {
            let intent = self.intents.get(step.intent)?.clone();
            let mut agents = intent.assigned.iter();
            let lease = agents.find_map(|assignment| self.leases_on(intent.id, &assignment.agent).next()).cloned();
            Some(StepView { step: step.clone(), intent, lease })
        });
        Ok(WorkflowView { workflow: Arc::clone(workflow), steps: steps.collect() })
    }
}

/// Look a run up.
#[derive(Debug, Clone)]
pub struct GetWorkflow {
    /// Which.
    pub id: WorkflowId,
    /// Who asks: steps it may not read are left out.
    pub caller: Caller,
}

impl Command for GetWorkflow {
    type Reply = Result<WorkflowView, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let mut view = ledger.view_workflow(self.id)?;
        view.steps.retain(|step| step.intent.allows(&self.caller, Permission::Read, turn.now()));
        Ok(view)
    }
}

/// List runs, the latest first.
#[derive(Debug, Clone, Copy)]
pub struct ListWorkflows {
    /// At most so many.
    pub limit: usize,
}

impl Command for ListWorkflows {
    type Reply = Vec<Arc<Workflow>>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Self::Reply {
        ledger.workflows.by_id.values().rev().take(self.limit.min(PAGE_MAX)).cloned().collect()
    }
}
