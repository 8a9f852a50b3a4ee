//! Owns what a task is (T1–T4): one attempt at a step of a workflow, that a worker polls, holds by a lease and answers.
//!
//! ```text
//!               poll: a lease on task:<id>         heartbeat: the lease is renewed
//!   scheduled ────────────────────────────► running ──┐◄──────────┘
//!       ▲  visible after its delay            │       │ result ──► completed, failed …  ─┐ for ever; a retry
//!       └──────────────── yield ──────────────┘       │ lease over ──► timed out        ─┘ is a new task
//!                                                     └─────────────────────────────────
//! ```
//!
//! Every poll is a lease of its own with its own token; the task keeps its id through polls and yields. The rules are in
//! [`crate::ledger`]; how a foreign protocol spells any of it is its door's business.

pub mod command;
mod rules;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::rules::{Defaults, Policy, RateLimit, TaskDef, TaskRules};
use crate::id::{FlowId, TaskId};
use crate::limits::NAME_BYTES_MAX;
use crate::{Holder, Timestamp, Token};

/// A JSON document that is passed on as it came; shared, because a task, its record and its answer all carry it.
pub type Json = Arc<RawValue>;

/// The empty object.
pub fn empty_object() -> Json {
    raw("{}".to_owned())
}

/// The document of this text; `null` if the text is none, which a serialiser does not produce.
pub fn raw(text: String) -> Json {
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned()).into()
}

/// The document of this value.
pub fn to_json(value: &serde_json::Value) -> Json {
    raw(value.to_string())
}

/// The value of this document.
pub fn to_value(json: &RawValue) -> serde_json::Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}

/// Why a text cannot name a task, a workflow or a step.
pub fn bad_name(name: &str) -> Option<String> {
    if name.trim().is_empty() {
        return Some("is missing, empty or not a text".to_owned());
    }
    let is_bad = name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) || name.trim() != name;
    is_bad.then(|| format!("has at most {NAME_BYTES_MAX} bytes, no control characters and no blanks around it"))
}

/// Where a task stands. The words are those that workflows are written with: a template can ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Nobody's; can be polled once it is visible.
    Scheduled,
    /// Held by a worker, or waiting for something else than a worker.
    InProgress,
    /// Done.
    Completed,
    /// Failed for good, and the workflow goes on all the same.
    CompletedWithErrors,
    /// Failed; tried again if the retry rule says so.
    Failed,
    /// Failed, and trying again is no use.
    FailedWithTerminalError,
    /// Not answered in time.
    TimedOut,
    /// Not wanted any more.
    Canceled,
    /// Passed over by an operator.
    Skipped,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 9] = [
        Status::Scheduled,
        Status::InProgress,
        Status::Completed,
        Status::CompletedWithErrors,
        Status::Failed,
        Status::FailedWithTerminalError,
        Status::TimedOut,
        Status::Canceled,
        Status::Skipped,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Scheduled => "SCHEDULED",
            Status::InProgress => "IN_PROGRESS",
            Status::Completed => "COMPLETED",
            Status::CompletedWithErrors => "COMPLETED_WITH_ERRORS",
            Status::Failed => "FAILED",
            Status::FailedWithTerminalError => "FAILED_WITH_TERMINAL_ERROR",
            Status::TimedOut => "TIMED_OUT",
            Status::Canceled => "CANCELED",
            Status::Skipped => "SKIPPED",
        }
    }

    /// The status of this word.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        !matches!(self, Status::Scheduled | Status::InProgress)
    }

    /// Whether what depends on it can go on.
    pub fn is_success(self) -> bool {
        matches!(self, Status::Completed | Status::CompletedWithErrors | Status::Skipped)
    }

    /// Whether the retry rule is asked (T4).
    pub fn is_retriable(self) -> bool {
        matches!(self, Status::Failed | Status::TimedOut)
    }
}

/// A line that a worker left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Log {
    /// What it says.
    pub line: Box<str>,
    /// When, by the worker's word.
    pub at: u64,
}

/// One attempt at a step. Fields that most tasks do not need are boxed together in [`Extra`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Its id; a retry has another.
    pub id: TaskId,
    /// The run it belongs to.
    pub flow: FlowId,
    /// The step of the plan that it is an attempt at.
    pub step: u32,
    /// Its place among the tasks of the run; the first is 1.
    pub seq: u32,
    /// The step's name in this run; in loops with the round of each behind it, the outermost first.
    pub reference: Arc<str>,
    /// What workers poll for.
    pub name: Arc<str>,
    /// Where workers poll for it, if not in the open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Arc<str>>,
    /// Where it stands.
    pub status: Status,
    /// Larger is handed out first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u8,
    /// What the worker is given.
    pub input: Json,
    /// What the worker gave.
    pub output: Json,
    /// How many attempts were made before this one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// How often it was handed out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub polls: u32,
    /// Which round of its loop it belongs to, or how many rounds it has begun if it is a loop itself; 0 for all others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub iteration: u32,
    /// When it was made.
    pub scheduled_at: Timestamp,
    /// From when on it can be polled.
    pub visible_at: Timestamp,
    /// When the first attempt at this step was made.
    pub first_scheduled_at: Timestamp,
    /// When it was first handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The last sign of life that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The delay with which it was last made visible, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub callback_s: u64,
    /// Who has it, or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Holder>,
    /// The lease of whoever holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// What comes after it has been looked at.
    #[serde(default, skip_serializing_if = "is_default")]
    pub executed: bool,
    /// Another attempt has taken its place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retried: bool,
    /// The rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Box<Extra>>,
    /// It stands in its queue.
    #[serde(skip)]
    pub(crate) is_queued: bool,
    /// The store has a record of it.
    #[serde(skip)]
    pub(crate) is_stored: bool,
}

/// What few tasks have.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Extra {
    /// Why it is not complete, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
    /// The attempt that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// What workers said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<Log>,
    /// The run that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<FlowId>,
    /// The loop's task, inside a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// The round it belongs to, if it is a loop inside a loop: its `iteration` counts its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outer_round: u32,
    /// The list that a loop goes through, as it was when the loop began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Json>,
    /// Its rules, where they are not those of the plan's step: its name was decided while running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Arc<TaskRules>>,
    /// The steps of a fork that were decided while running: where each starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Arc<[Arc<str>]>>,
    /// When it completes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The timeouts that were told about and no longer count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alerted: Alerted,
    /// What the server's own evaluator is to work out for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Json>,
}

/// Timeouts of the policy that only tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alerted {
    /// The one over all attempts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub total: bool,
    /// The one of the attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: bool,
    /// The one of waiting for a worker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub poll: bool,
}

impl Task {
    /// Why it is not complete.
    pub fn reason(&self) -> Option<&str> {
        self.extra.as_ref()?.reason.as_deref()
    }

    /// What workers said.
    pub fn logs(&self) -> &[Log] {
        self.extra.as_ref().map_or(&[], |extra| &extra.logs)
    }

    /// The attempt that this one repeats.
    pub fn retry_of(&self) -> Option<TaskId> {
        self.extra.as_ref()?.retry_of
    }

    /// The run that it started.
    pub fn child(&self) -> Option<FlowId> {
        self.extra.as_ref()?.child
    }

    /// The task of the loop it runs in.
    pub fn parent(&self) -> Option<TaskId> {
        self.extra.as_ref()?.parent
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn alerted(&self) -> Alerted {
        self.extra.as_ref().map_or(Alerted::default(), |extra| extra.alerted)
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
