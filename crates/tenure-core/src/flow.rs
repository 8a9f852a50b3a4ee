//! Owns what a workflow of tasks is (T5): the plan, a graph of steps that is fixed when a run starts, and the run.
//!
//! A plan is a flat list of steps. Each knows the step that follows it; a choice, a fork and a loop know the first step of
//! each of their ways. So «a step becomes ready when what it depends on is done» is: when a step is over, the one that
//! follows it is made a task; at the end of a way whoever waits for it looks whether it is complete. The rules are in
//! [`crate::ledger`].

pub mod command;
mod plan;
pub mod template;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::plan::{Branch, Choice, FlowDef, Looping, Op, Plan, PlanId, Step, SubFlow};
use crate::Timestamp;
use crate::id::{FlowId, TaskId};
use crate::task::{Json, Task, is_default};

/// Where a run stands. The words are those that workflows are written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowStatus {
    /// It goes on.
    #[default]
    Running,
    /// Nothing new is scheduled until it is resumed.
    Paused,
    /// It did what it should.
    Completed,
    /// A step failed for good.
    Failed,
    /// It, or a step of it, took too long.
    TimedOut,
    /// Somebody ended it.
    Terminated,
}

impl FlowStatus {
    /// All of them.
    pub const ALL: [FlowStatus; 6] = [
        FlowStatus::Running,
        FlowStatus::Paused,
        FlowStatus::Completed,
        FlowStatus::Failed,
        FlowStatus::TimedOut,
        FlowStatus::Terminated,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            FlowStatus::Running => "RUNNING",
            FlowStatus::Paused => "PAUSED",
            FlowStatus::Completed => "COMPLETED",
            FlowStatus::Failed => "FAILED",
            FlowStatus::TimedOut => "TIMED_OUT",
            FlowStatus::Terminated => "TERMINATED",
        }
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        !matches!(self, FlowStatus::Running | FlowStatus::Paused)
    }
}

/// The task of another run that waits for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run.
    pub flow: FlowId,
    /// Its task.
    pub task: TaskId,
}

/// One run of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// Its id.
    pub id: FlowId,
    /// Where the plan is kept.
    pub plan_id: PlanId,
    /// The plan.
    #[serde(skip)]
    pub plan: Arc<Plan>,
    /// Where it stands.
    pub status: FlowStatus,
    /// What it was started with.
    pub input: Json,
    /// What came of it.
    pub output: Json,
    /// What its steps have set.
    pub variables: Json,
    /// The caller's own name for it; several runs can share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Box<str>>,
    /// Tells a retried start from a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// Larger is handed out first; 0 to 99.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u8,
    /// In which domain tasks of a name are polled; `*` for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: Arc<BTreeMap<String, String>>,
    /// Who waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// How many runs it is inside of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    /// Who started it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<Box<str>>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When somebody started it again; its timeout counts from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_at: Option<Timestamp>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
    /// The steps that failed for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Arc<str>>,
    /// The number of its last task.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_seq: u32,
    /// How often it has been brought back after its end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lives: u32,
    /// It was told that it takes too long, and goes on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alerted: bool,
    /// Steps that were decided while running; they count on from those of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<Arc<Step>>,
    /// What can be worked out from the tasks.
    #[serde(skip)]
    pub(crate) live: Live,
}

/// What a run knows about its tasks while it is in memory.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// All tasks, in their order.
    pub(crate) tasks: Vec<TaskId>,
    /// The latest task of each step, by its name with and without its rounds.
    pub(crate) by_reference: HashMap<Arc<str>, TaskId>,
    /// How many tasks still have something coming: they are not over, or what follows them was not looked at yet.
    pub(crate) open: usize,
    /// Its loops, by their tasks.
    pub(crate) loops: HashMap<TaskId, LiveLoop>,
    /// Those that wait for others, each with how many of them it need not look at again.
    pub(crate) joins: Vec<(TaskId, usize)>,
}

impl Clone for Live {
    /// Nothing of it: copies of a run are made for its record and for answers, and those have the tasks themselves. A run may
    /// have 50,000 tasks, so copying their names each time would hold everyone up.
    fn clone(&self) -> Live {
        Live::default()
    }
}

/// A loop while its run is in memory: what could be worked out anew from its task and the tasks of its rounds.
#[derive(Debug, Default)]
pub(crate) struct LiveLoop {
    /// How many tasks of the present round still have something coming.
    pub(crate) open: usize,
    /// The present round.
    pub(crate) iteration: u32,
    /// The tasks of that round.
    pub(crate) tasks: Vec<TaskId>,
    /// Its list, item by item.
    pub(crate) items: Option<Arc<[Json]>>,
    /// Where the rounds begin in the output of its task, once that was written.
    pub(crate) rounds_at: Option<usize>,
}

impl LiveLoop {
    /// Makes a round the present one.
    pub(crate) fn enter(&mut self, iteration: u32) {
        if iteration != self.iteration {
            self.iteration = iteration;
            self.tasks.clear();
        }
    }
}

impl Flow {
    /// A step of the plan, or one that was added.
    pub fn step(&self, index: u32) -> Option<&Arc<Step>> {
        let index = index as usize;
        self.plan.steps.get(index).or_else(|| self.added.get(index.checked_sub(self.plan.steps.len())?))
    }

    /// The latest task of a step.
    pub(crate) fn task_of(&self, reference: &str) -> Option<TaskId> {
        self.live.by_reference.get(reference).copied()
    }

    /// When it takes too long, if that is bounded.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let limited = self.plan.timeout_s > 0 && !self.alerted && !self.status.is_over();
        limited.then(|| self.retried_at.unwrap_or(self.created_at).plus_ms(self.plan.timeout_s.saturating_mul(1_000)))
    }
}

/// A run that is over, with all of its tasks: what the store keeps of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Archived {
    /// The run.
    pub flow: Flow,
    /// Its tasks, in their order.
    pub tasks: Vec<Task>,
    /// Its plan, if no other run has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Arc<Plan>>,
}
