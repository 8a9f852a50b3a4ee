//! Owns what a task definition says: how long an attempt may take, how often it is tried, how many run at once.

use serde::{Deserialize, Serialize};

use super::{Json, is_default};
use crate::retry::{Backoff, RetryRule};

/// What happens when a task is not done in time (T4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The attempt is over; the retry rule decides what follows.
    Retry,
    /// The workflow is over.
    #[default]
    FailWorkflow,
    /// It is told, once; the task goes on.
    AlertOnly,
}

/// So many may start in so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateLimit {
    /// How many.
    pub count: u32,
    /// In how many seconds.
    pub seconds: u32,
}

/// The rules of a task. Seconds are what definitions are written in; 0 is «no limit».
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRules {
    /// How long a worker may be silent; the lease's ttl.
    pub response_s: u64,
    /// How long one attempt may take from its first poll, however often it yields.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt_s: u64,
    /// How long all attempts together may take.
    #[serde(default, skip_serializing_if = "is_default")]
    pub total_s: u64,
    /// How long it may wait for a worker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub poll_s: u64,
    /// What happens when one of the last three runs out.
    pub policy: Policy,
    /// How often and when it is tried again.
    pub retry: RetryRule,
    /// Up to so much is added to a retry's delay, by chance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter_ms: u64,
    /// So many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_max: Option<u32>,
    /// So many may start in a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
    /// What fills in for absent input, a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,
}

/// A document that can be compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Defaults(pub Json);

impl PartialEq for Defaults {
    fn eq(&self, other: &Defaults) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Defaults {}

impl TaskRules {
    /// The rules of a task that nobody has defined.
    pub fn undefined() -> TaskRules {
        TaskRules {
            response_s: 3_600,
            attempt_s: 0,
            total_s: 0,
            poll_s: 0,
            policy: Policy::FailWorkflow,
            retry: RetryRule { backoff: Backoff::Fixed, base_delay_ms: 60_000, max_attempts: 4, ..RetryRule::NEVER },
            jitter_ms: 0,
            concurrent_max: None,
            rate: None,
            defaults: None,
        }
    }

    /// The rules of a step that no worker polls: nothing is silent, nothing is tried again.
    pub fn of_operator() -> TaskRules {
        TaskRules { response_s: 0, retry: RetryRule::NEVER, ..TaskRules::undefined() }
    }
}

/// A definition as it was registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskDef {
    /// What workers poll for.
    pub name: std::sync::Arc<str>,
    /// What it says.
    pub rules: std::sync::Arc<TaskRules>,
    /// What was registered, word by word.
    pub document: Json,
}
