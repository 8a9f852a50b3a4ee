//! Owns what can be asked about workflows: definitions, starts, control and looks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Archived, Flow, FlowStatus, Plan, Step};
use crate::Token;
use crate::id::{FlowId, TaskId};
use crate::task::Json;
use crate::task::command::TaskView;

/// Register workflows.
#[derive(Debug, Clone)]
pub struct DefineFlows {
    /// The workflows; ids and rules are filled in when a run starts.
    pub plans: Vec<Plan>,
    /// Replace versions that are registered already.
    pub overwrite: bool,
}

/// Forget a version of a workflow; answered with whether there was one. Runs go on.
#[derive(Debug, Clone)]
pub struct UndefineFlow {
    /// The name.
    pub name: Box<str>,
    /// The version.
    pub version: u32,
}

/// Look registered workflows up.
#[derive(Debug, Clone, Default)]
pub struct GetFlowDefs {
    /// Only those of this name.
    pub name: Option<Box<str>>,
    /// Only this version; `Some(None)` is the latest of each name.
    pub version: Option<Option<u32>>,
}

/// Why something about workflows is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlowRefusal {
    /// The version is registered.
    #[error("workflow {name} version {version} already exists; overwrite it, or register another version")]
    Exists {
        /// The name.
        name: Box<str>,
        /// The version.
        version: u32,
    },
    /// Nothing of that name and version is registered.
    #[error("no workflow {name}{} is registered", version.map(|version| format!(" version {version}")).unwrap_or_default())]
    NotDefined {
        /// The name.
        name: Box<str>,
        /// The version, if one was asked for.
        version: Option<u32>,
    },
    /// Nothing of that name is registered.
    #[error("no task named {0} is registered")]
    TaskNotDefined(Box<str>),
    /// No such run.
    #[error("no workflow run {0} is known")]
    Unknown(FlowId),
    /// The run is over.
    #[error("the workflow run {id} is over: {}", status.as_str())]
    Over {
        /// Which.
        id: FlowId,
        /// How it ended.
        status: FlowStatus,
    },
    /// The run is over and in the store: read it and ask again.
    #[error("the workflow run {0} is over")]
    Archived(FlowId),
    /// The run is not over.
    #[error("the workflow run {id} is {}: this is for runs that are over", status.as_str())]
    NotOver {
        /// Which.
        id: FlowId,
        /// Where it stands.
        status: FlowStatus,
    },
    /// The run is not paused.
    #[error("the workflow run {id} is {}, not PAUSED", status.as_str())]
    NotPaused {
        /// Which.
        id: FlowId,
        /// Where it stands.
        status: FlowStatus,
    },
    /// The key was used before.
    #[error("the idempotency key was used by the workflow run {0}")]
    KeyUsed(FlowId),
    /// One of the bounds of [`crate::limits`].
    #[error("{what} is limited to {max}")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// Nothing in the run can be tried again.
    #[error("the workflow run {0} has no failed task to start again from")]
    NothingFailed(FlowId),
    /// The task is not one of the run's.
    #[error("the workflow run {flow} has no task {task}")]
    NoTask {
        /// The run.
        flow: FlowId,
        /// What was asked for.
        task: Box<str>,
    },
    /// The definition says that runs are not started again.
    #[error("the workflow {0} is defined as not restartable")]
    Final(Arc<str>),
}

/// Which workflow to run.
#[derive(Debug, Clone)]
pub enum Which {
    /// A registered one; the latest version if none is said.
    Named(Box<str>, Option<u32>),
    /// This one.
    Inline(Arc<Plan>),
}

/// What to do when a key was used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnKeyUsed {
    /// Answer with the run it was used for.
    #[default]
    Return,
    /// Refuse.
    Refuse,
    /// Refuse while that run goes on; start anew after it.
    RefuseWhileRunning,
}

/// Start a run.
#[derive(Debug, Clone)]
pub struct StartFlow {
    /// Of what.
    pub which: Which,
    /// With what, a JSON object.
    pub input: Json,
    /// The caller's own name for it.
    pub correlation: Option<Box<str>>,
    /// 0 to 99.
    pub priority: u8,
    /// In which domain tasks are polled.
    pub domains: BTreeMap<String, String>,
    /// Tells a retried start from a second one.
    pub key: Option<Box<str>>,
    /// What to do with a key that was used before.
    pub on_key_used: OnKeyUsed,
    /// Who starts it.
    pub created_by: Option<Box<str>>,
}

impl StartFlow {
    /// A start without extras.
    pub fn new(which: Which, input: Json) -> StartFlow {
        StartFlow {
            which,
            input,
            correlation: None,
            priority: 0,
            domains: BTreeMap::new(),
            key: None,
            on_key_used: OnKeyUsed::default(),
            created_by: None,
        }
    }
}

/// The answer of the server's evaluator to what a step asked.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// Which task asked.
    pub task: TaskId,
    /// The lease the evaluator held it by.
    pub token: Token,
    /// What it found, or why it found nothing.
    pub answer: Result<Answer, Box<str>>,
}

/// What an evaluation can find.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A value.
    Value(serde_json::Value),
    /// The output of the step.
    Output(Json),
    /// The ways of a fork: a list of steps for each, first to last, and each step's input.
    Ways(Vec<Vec<Step>>),
    /// A workflow to start.
    Start(Box<StartFlow>),
}

/// Look a run up.
#[derive(Debug, Clone, Copy)]
pub struct GetFlow {
    /// Which.
    pub id: FlowId,
    /// With its tasks.
    pub with_tasks: bool,
}

/// A run with its tasks.
#[derive(Debug, Clone)]
pub struct FlowView {
    /// The run.
    pub flow: Flow,
    /// Its tasks, in their order.
    pub tasks: Vec<TaskView>,
}

/// The answer to [`GetFlow`].
#[derive(Debug)]
pub enum GotFlow {
    /// It is in memory.
    Live(Box<FlowView>),
    /// It is in the store, if it is still kept.
    Over,
    /// There never was such a run.
    Unknown,
}

/// Runs that are not over, by id.
#[derive(Debug, Clone, Default)]
pub struct ListFlows {
    /// Only those of this name.
    pub name: Option<Box<str>>,
    /// Only this version.
    pub version: Option<u32>,
    /// Only those with this correlation.
    pub correlation: Option<Box<str>>,
    /// Only those after this one.
    pub after: Option<FlowId>,
    /// At most so many.
    pub limit: usize,
}

/// Look a plan up.
#[derive(Debug, Clone, Copy)]
pub struct GetPlan(pub super::PlanId);

/// Change the course of a run.
#[derive(Debug, Clone)]
pub struct Control {
    /// Which run.
    pub id: FlowId,
    /// What to do.
    pub what: Steer,
}

/// What to do with a run that goes on.
#[derive(Debug, Clone)]
pub enum Steer {
    /// End it.
    Terminate {
        /// Why.
        reason: Option<Box<str>>,
        /// Whether that is a failure, for which its workflow may want another one started.
        as_failure: bool,
    },
    /// Schedule nothing new.
    Pause,
    /// Go on.
    Resume,
    /// Pass a step over that was not reached yet.
    Skip {
        /// The step.
        reference: Box<str>,
        /// What counts as its input.
        input: Option<Json>,
        /// What counts as its output.
        output: Option<Json>,
    },
    /// Make tasks that wait for their callback visible now.
    ResetCallbacks,
    /// Forget the run, whatever it does.
    Remove,
}

/// Bring a run back after its end.
#[derive(Debug, Clone)]
pub struct Revive {
    /// The run, as the store has it.
    pub archived: Box<Archived>,
    /// From where.
    pub how: Again,
}

/// From where a run starts again.
#[derive(Debug, Clone)]
pub enum Again {
    /// From its failed tasks.
    Retry,
    /// From its beginning, with the present definition or the one it had.
    Restart {
        /// The present one.
        latest: bool,
    },
    /// From one of its tasks; from its beginning if none is named.
    Rerun {
        /// The task.
        task: Option<TaskId>,
        /// Its new input.
        task_input: Option<Json>,
        /// The run's new input.
        input: Option<Json>,
        /// The run's new correlation.
        correlation: Option<Box<str>>,
    },
}

/// Forget a run that is over.
#[derive(Debug, Clone, Copy)]
pub struct RemoveArchived(pub FlowId);
