//! Owns the plan: the steps of a workflow as a graph, and what each of them does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::template::Template;
use crate::Token;
use crate::change::RecordId;
use crate::task::{Json, TaskRules, is_default};

/// Names a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanId(pub Token);

impl Default for PlanId {
    fn default() -> PlanId {
        PlanId(Token::from_u64(0))
    }
}

impl From<PlanId> for RecordId {
    fn from(id: PlanId) -> RecordId {
        id.0.into()
    }
}

/// A workflow, as a run of it sees it: nothing in it changes any more.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Where it is kept.
    pub id: PlanId,
    /// Its name.
    pub name: Arc<str>,
    /// Which version of that name.
    pub version: u32,
    /// All steps; the first one starts.
    pub steps: Vec<Arc<Step>>,
    /// What comes of a run; the last output if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Template>,
    /// What fills in for absent input, a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Json>,
    /// What variables start with, a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<Json>,
    /// How long a run may take; 0 is «no limit».
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout_s: u64,
    /// Whether a run that takes longer is over, or only told about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout_ends: bool,
    /// What to start when a run fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<(Box<str>, Option<u32>)>,
    /// Whether a run can be started again from its beginning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_final: bool,
    /// It belongs to one run and was never registered.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_inline: bool,
    /// What was registered, word by word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Json>,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// Its name in the workflow; no other step has it.
    pub reference: Arc<str>,
    /// What workers poll for.
    pub name: Arc<str>,
    /// What it does.
    pub op: Op,
    /// What it is given.
    #[serde(default)]
    pub input: Template,
    /// What follows it; nothing at the end of a way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// The workflow goes on if it fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
    /// What runs beside it goes on if it fails; the workflow fails at the end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub permissive: bool,
    /// So many seconds until it can first be polled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_s: u64,
    /// How often it is tried again, where that is not what its definition says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Its rules: given with it, or copied from the definition when a run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Arc<TaskRules>>,
    /// What was registered, word by word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Json>,
}

/// What a step does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Op {
    /// A worker polls it.
    Work,
    /// A worker polls it; for what is in this field of its input.
    Dynamic {
        /// The field.
        param: Box<str>,
    },
    /// Goes one of several ways.
    Switch {
        /// How the way is found.
        by: Choice,
        /// The ways.
        cases: Vec<Branch>,
        /// The way if no other fits: its first step, nothing if it is empty.
        default: Option<u32>,
    },
    /// Goes several ways at once.
    Fork {
        /// The first step of each.
        ways: Vec<u32>,
    },
    /// Goes several ways at once that are worked out while running.
    DynamicFork,
    /// Waits for these steps.
    Join {
        /// Their names.
        on: Vec<Arc<str>>,
    },
    /// Waits for the first of these steps that is over.
    ExclusiveJoin {
        /// Their names.
        on: Vec<Arc<str>>,
        /// Whose output counts if none of them ran, the first that has one.
        default: Vec<Arc<str>>,
    },
    /// Does a way again and again.
    Loop {
        /// Its first step.
        body: u32,
        /// For how long.
        until: Looping,
    },
    /// Runs another workflow and waits for it.
    SubFlow(Box<SubFlow>),
    /// Starts another workflow and goes on.
    StartFlow,
    /// Waits for a time or for an update.
    Wait,
    /// Waits for an update.
    Human,
    /// Ends the workflow.
    Terminate,
    /// Sets variables.
    SetVariable,
    /// Runs a script.
    Script,
    /// Transforms its input.
    Transform,
    /// Nothing.
    Noop,
}

impl Op {
    /// Whether workers poll it.
    pub fn is_work(&self) -> bool {
        matches!(self, Op::Work | Op::Dynamic { .. })
    }

    /// The word that workflows are written with; nothing for what workers do.
    pub fn word(&self) -> Option<&'static str> {
        Some(match self {
            Op::Work | Op::Dynamic { .. } => return None,
            Op::Switch { .. } => "SWITCH",
            Op::Fork { .. } => "FORK",
            Op::DynamicFork => "FORK_JOIN_DYNAMIC",
            Op::Join { .. } => "JOIN",
            Op::ExclusiveJoin { .. } => "EXCLUSIVE_JOIN",
            Op::Loop { .. } => "DO_WHILE",
            Op::SubFlow(_) => "SUB_WORKFLOW",
            Op::StartFlow => "START_WORKFLOW",
            Op::Wait => "WAIT",
            Op::Human => "HUMAN",
            Op::Terminate => "TERMINATE",
            Op::SetVariable => "SET_VARIABLE",
            Op::Script => "INLINE",
            Op::Transform => "JSON_JQ_TRANSFORM",
            Op::Noop => "NOOP",
        })
    }

    /// Whether it waits for other steps.
    pub fn is_join(&self) -> bool {
        matches!(self, Op::Join { .. } | Op::ExclusiveJoin { .. })
    }
}

/// How a switch finds its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// By what is in this field of its input.
    Param(Box<str>),
    /// By what this script says.
    Script(Box<str>),
}

/// One way of a switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Branch {
    /// What it is taken for.
    pub case: Box<str>,
    /// Its first step; nothing if it is empty.
    pub first: Option<u32>,
}

/// How long a loop goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Looping {
    /// While this script says so.
    While(Box<str>),
    /// Once for each item of this list.
    Items(Template),
}

/// Another workflow to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubFlow {
    /// Its name; may be a template.
    pub name: Box<str>,
    /// Its version; the latest if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The workflow itself, if it was written down in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Arc<Plan>>,
    /// The domains of its tasks; the outer run's if not said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, String>,
}

/// A workflow as it was registered; its steps have no rules of their own yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowDef {
    /// When it was registered.
    pub created_at: crate::Timestamp,
    /// When it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<crate::Timestamp>,
    /// The steps.
    pub plan: Arc<Plan>,
}

impl FlowDef {
    /// Its id among definitions.
    pub(crate) fn record_id(name: &str, version: u32) -> RecordId {
        RecordId(format!("{name}#{version}"))
    }
}
