//! Owns what these commands know of a task: read as the server's door writes it, printed in the words of this program.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::exit::Exit;
use crate::failure::Failure;

/// A task.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) task_id: String,
    pub(crate) task_def_name: String,
    pub(crate) task_type: String,
    pub(crate) reference_task_name: String,
    pub(crate) status: String,
    pub(crate) worker_id: Option<String>,
    pub(crate) token: Option<u64>,
    pub(crate) retry_count: u32,
    pub(crate) retried_task_id: Option<String>,
    pub(crate) poll_count: u32,
    pub(crate) scheduled_time: u64,
    pub(crate) start_time: u64,
    pub(crate) update_time: u64,
    pub(crate) end_time: u64,
    pub(crate) iteration: u32,
    pub(crate) workflow_instance_id: String,
    pub(crate) workflow_type: String,
    pub(crate) reason_for_incompletion: Option<String>,
    pub(crate) sub_workflow_id: Option<String>,
    #[serde(default)]
    pub(crate) output_data: serde_json::Value,
}

impl Task {
    /// Whether a worker has it.
    pub(crate) fn is_held(&self) -> bool {
        self.token.is_some()
    }

    /// Since when it is as it is: handed out, or waiting.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        at(self.start_time).or_else(|| at(self.scheduled_time))
    }

    /// The last sign of life.
    pub(crate) fn seen(&self) -> Option<SystemTime> {
        at(self.update_time)
    }

    /// How long it ran, or has been running.
    pub(crate) fn took(&self, now: SystemTime) -> Option<Duration> {
        at(self.end_time).unwrap_or(now).duration_since(at(self.start_time)?).ok()
    }
}

impl Serialize for Task {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.task_id)?;
        map.serialize_entry("name", &self.task_def_name)?;
        map.serialize_entry("type", &self.task_type)?;
        map.serialize_entry("step", &self.reference_task_name)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("worker", &self.worker_id)?;
        map.serialize_entry("token", &self.token)?;
        map.serialize_entry("attempt", &(self.retry_count + 1))?;
        map.serialize_entry("retry_of", &self.retried_task_id)?;
        map.serialize_entry("polls", &self.poll_count)?;
        map.serialize_entry("scheduled_at", &rfc3339(self.scheduled_time))?;
        map.serialize_entry("started_at", &rfc3339(self.start_time))?;
        map.serialize_entry("last_seen_at", &rfc3339(self.update_time))?;
        map.serialize_entry("ended_at", &rfc3339(self.end_time))?;
        map.serialize_entry("reason", &self.reason_for_incompletion)?;
        map.serialize_entry("workflow_id", &self.workflow_instance_id)?;
        map.serialize_entry("workflow_name", &self.workflow_type)?;
        map.end()
    }
}

/// `2`, or `2, poll 3` when it was handed out more than once.
pub(crate) fn attempt(task: &Task) -> String {
    match task.poll_count {
        0 | 1 => (task.retry_count + 1).to_string(),
        polls => format!("{}, poll {polls}", task.retry_count + 1),
    }
}

/// A moment in milliseconds; 0 is how the door says «never».
pub(crate) fn at(ms: u64) -> Option<SystemTime> {
    (ms > 0).then(|| UNIX_EPOCH + Duration::from_millis(ms))
}

pub(crate) fn rfc3339(ms: u64) -> Option<String> {
    let stamp = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok().filter(|ms| *ms > 0)?).ok()?;
    Some(format!("{stamp:.3}"))
}

pub(crate) fn unreadable(error: serde_json::Error) -> Failure {
    Failure::new(Exit::FAILURE, "bad_answer", format!("the server's answer cannot be read: {error}"))
        .hint("is this a Tenure server? check --url or TENURE_URL")
}
