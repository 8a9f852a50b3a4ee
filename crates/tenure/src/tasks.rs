//! Owns the calls about tasks and workflows, through the Conductor door (`/api`).

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::door;
use crate::error::Error;
use crate::intents::segment;
use crate::request::whole_seconds;
use crate::transport::{Call, written};
use crate::worker::{Outcome, Task, TaskContext};

const BASE: &str = "/api";
/// How long the server may hold a poll that finds nothing.
const POLL_MS: u64 = 1_000;
/// The least time an extension gets.
const EXTEND_TIMEOUT_MIN: Duration = Duration::from_millis(50);

/// The calls about tasks and workflows. Made by [`Client::tasks`].
#[derive(Debug, Clone)]
pub struct Tasks {
    client: Client,
}

impl Client {
    /// Calls about tasks and workflows, in the name of this client's holder.
    pub fn tasks(&self) -> Tasks {
        Tasks { client: self.clone() }
    }
}

impl Tasks {
    /// Claims up to `count` tasks; waits a moment if there are none.
    ///
    /// # Errors
    /// See [`Error`]. It is sent once: a claim whose answer was lost comes back by its timeout.
    pub async fn poll(&self, name: &str, domain: Option<&str>, count: usize) -> Result<Vec<Task>, Error> {
        let mut call = self.call(Method::GET, &format!("/tasks/poll/batch/{}", segment(name)), None);
        let mut query = json!({ "count": count, "timeout": POLL_MS, "workerid": self.worker() });
        if let (Some(domain), Some(members)) = (domain, query.as_object_mut()) {
            members.insert("domain".to_owned(), domain.into());
        }
        call.query = Some(query);
        call.timeout = call.timeout.saturating_add(Duration::from_millis(POLL_MS));
        match self.client.exchange(call, false).await? {
            Value::Null => Ok(Vec::new()),
            tasks => serde_json::from_value(tasks).map_err(|error| self.unreadable(error)),
        }
    }

    /// Sends what a function made of its task; the next task, if one is wanted and there is one.
    pub(crate) async fn finish(
        &self,
        context: &TaskContext,
        outcome: Outcome,
        with_next: bool,
    ) -> Result<Option<Task>, Error> {
        let task = context.task();
        let mut body = self.update(task);
        body.extend(said(task, outcome));
        let logs: Vec<Value> =
            context.take_logs().into_iter().map(|line| json!({ "log": line, "taskId": task.task_id })).collect();
        body.insert("logs".to_owned(), logs.into());
        // A repeated result is not the holder's any more: the server keeps the first.
        let path = if with_next { "/tasks/update-v2" } else { "/tasks" };
        let call = self.call(Method::POST, path, Some(body.into()));
        let (answer, lease) = self.client.exchange_unread(call, true).await?;
        if let Some(how) = lease.as_deref().and_then(lost) {
            tracing::warn!(task.id = %task.task_id, "the result of task {} came too late: {how}", task.task_id);
        }
        match door::value(&answer) {
            Value::Object(next) if next.contains_key("taskId") => {
                serde_json::from_value(next.into()).map(Some).map_err(|error| self.unreadable(error))
            }
            _ => Ok(None),
        }
    }

    /// Extends the lease of a task; how it was lost if it is over.
    ///
    /// A heartbeat that came too late is answered like one in time, because the protocol knows no other answer; the
    /// server says beside it that the task is not the worker's any more.
    pub(crate) async fn extend(&self, task: &Task, within: Duration) -> Result<Option<String>, Error> {
        let mut body = self.update(task);
        body.insert("status".to_owned(), "IN_PROGRESS".into());
        body.insert("extendLease".to_owned(), true.into());
        let call = self.call(Method::POST, "/tasks", Some(body.into()));
        let timeout = within.max(EXTEND_TIMEOUT_MIN).min(call.timeout);
        match self.client.exchange_unread(Call { timeout, ..call }, false).await {
            Ok((_, lease)) => Ok(lease.as_deref().and_then(lost)),
            Err(Error::Refused(refused)) if matches!(refused.problem.status, 403 | 404 | 409 | 410) => {
                Ok(Some(refused.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn update(&self, task: &Task) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("taskId".to_owned(), task.task_id.clone().into());
        body.insert("workflowInstanceId".to_owned(), task.workflow_instance_id.clone().into());
        body.insert("workerId".to_owned(), self.worker().into());
        body.extend(task.token.map(|token| ("token".to_owned(), token.into())));
        body
    }

    /// Starts a workflow; its id.
    ///
    /// # Errors
    /// Code `not_found` if there is no such definition.
    pub async fn start_workflow(&self, name: &str, version: Option<u32>, input: Value) -> Result<String, Error> {
        let mut body = json!({ "name": name, "input": input });
        if let (Some(version), Some(members)) = (version, body.as_object_mut()) {
            members.insert("version".to_owned(), version.into());
        }
        let answer = self.request("POST", "/workflow", Some(body)).await?;
        answer.as_str().map(str::to_owned).ok_or_else(|| self.unreadable("the id of a workflow was expected"))
    }

    /// Any other call of the door: `path` is below `/api` and may have a query.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, Error> {
        self.requested(self.call(door::method(method)?, path, body)).await.map(|answer| door::value(&answer))
    }

    /// The same with JSON that is neither written nor read here: the body is sent and the answer given back as it is.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn request_text(&self, method: &str, path: &str, body: Option<String>) -> Result<Vec<u8>, Error> {
        let call = self.client.call_below(BASE, door::method(method)?, path, body.map(Bytes::from));
        self.requested(call).await.map(Vec::from)
    }

    async fn requested(&self, call: Call) -> Result<Bytes, Error> {
        let repeated = [Method::GET, Method::PUT, Method::DELETE].contains(&call.method);
        self.client.exchange_unread(call, repeated).await.map(|(answer, _)| answer)
    }

    fn worker(&self) -> &str {
        self.client.holder().unwrap_or_default()
    }

    fn call(&self, method: Method, path: &str, body: Option<Value>) -> Call {
        self.client.call_below(BASE, method, path, body.as_ref().and_then(written))
    }

    fn unreadable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let what = "not the expected JSON".to_owned();
        Error::BadAnswer { url: self.client.url().to_owned(), what, source: Some(source.into()) }
    }
}

/// What the server is told of an outcome.
fn said(task: &Task, outcome: Outcome) -> Map<String, Value> {
    let failed = |reason: String, output: Value, for_good: bool| {
        let status = if for_good { "FAILED_WITH_TERMINAL_ERROR" } else { "FAILED" };
        json!({ "status": status, "reasonForIncompletion": reason, "outputData": output })
    };
    let said = match outcome {
        Outcome::Completed(output) => json!({ "status": "COMPLETED", "outputData": output }),
        Outcome::InProgress { callback_after, output } => {
            let after_s = whole_seconds(callback_after);
            json!({ "status": "IN_PROGRESS", "callbackAfterSeconds": after_s, "outputData": output })
        }
        Outcome::Kept => json!({ "status": "IN_PROGRESS", "extendLease": true }),
        Outcome::Failed(reason) => failed(reason, checkpoint(task), false),
        Outcome::FailedForGood(reason) => failed(reason, checkpoint(task), true),
        Outcome::FailedWith { reason, output, for_good } => failed(reason, output.into(), for_good),
    };
    match said {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// What was last reported: a failure does not take it back, because the next attempt may go on from there.
fn checkpoint(task: &Task) -> Value {
    task.more.get("outputData").cloned().unwrap_or_else(|| json!({}))
}

/// How the lease of a task was lost, if that is what the server says about it.
fn lost(said: &str) -> Option<String> {
    let mut parts = said.split(';').map(str::trim);
    if parts.next() != Some("lost") {
        return None;
    }
    let how = match parts.find_map(|part| part.strip_prefix("reason=")) {
        Some("task_ended") => "it was answered, timed out or canceled",
        Some("task_held") => "another worker, or a later poll, holds it",
        Some("task_given_back") => "it was given back",
        Some("workflow_over") => "its workflow is over",
        Some("task_unknown") => "the server does not know it",
        _ => "it is not this worker's any more",
    };
    Some(how.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Map, json};

    use super::{lost, said};
    use crate::worker::{Outcome, Task};

    #[test]
    fn a_task_never_comes_back_sooner_than_it_was_asked_to() {
        let polled = json!({ "taskId": "t", "workflowInstanceId": "w", "taskDefName": "a", "referenceTaskName": "a" });
        let task: Task = serde_json::from_value(polled).expect("a task");
        for (ms, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_500, 2)] {
            let outcome = Outcome::InProgress { callback_after: Duration::from_millis(ms), output: Map::new() };
            assert_eq!(said(&task, outcome)["callbackAfterSeconds"], json!(seconds), "{ms} ms");
        }
    }

    #[test]
    fn only_a_lost_lease_is_lost_and_an_unknown_reason_is_one_too() {
        assert_eq!(lost("lost; reason=workflow_over").unwrap(), "its workflow is over");
        assert_eq!(lost("lost; reason=tea_time; more=1").unwrap(), "it is not this worker's any more");
        assert_eq!(lost("lost").unwrap(), "it is not this worker's any more");
        assert_eq!(lost("kept; reason=task_held"), None);
        assert_eq!(lost(""), None);
    }
}
