//! Owns a worker's life: it polls tasks, runs a function for each, keeps the task's lease while the function runs, and
//! sends the result.
//!
//! They go through the Conductor door (`/api`). The lease of a task lasts its response timeout and is extended at
//! [`EXTEND_AT_PERCENT`] of it. Trust is counted from the moment an accepted request was *sent*; when it ends, the
//! function is dropped and nothing is sent: whatever it would have said is no longer its to say.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::beat::clock::Moment;
use crate::beat::roster::NAP_MAX;
use crate::client::Client;
use crate::panics::caught;
use crate::tasks::Tasks;

/// A task's lease is extended when this much of its response timeout has passed.
pub const EXTEND_AT_PERCENT: u32 = 80;
/// An unanswered extension is sent again after this part of the response timeout.
const RETRY_PERCENT: u32 = 2;
/// An extension that is not answered within this part of the response timeout is given up: its connection may be dead.
const TRY_PERCENT: u32 = 4;
/// The least time for that.
const TRY_MIN: Duration = Duration::from_millis(200);
/// The function is told this much of the response timeout before its lease can end.
const MARGIN_PERCENT: u32 = 5;
/// The longest pause between two polls while the server cannot be reached.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long running functions may finish after the worker was told to stop.
const DEFAULT_DRAIN: Duration = Duration::from_secs(30);

const _: () = assert!(
    EXTEND_AT_PERCENT + 2 * (TRY_PERCENT + RETRY_PERCENT) + MARGIN_PERCENT < 100,
    "two more fit after an extension that hangs"
);

/// A task as it was polled.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// Its id.
    pub task_id: String,
    /// The workflow it belongs to.
    pub workflow_instance_id: String,
    /// What kind of task.
    #[serde(default)]
    pub task_def_name: String,
    /// What the function is given.
    #[serde(default)]
    pub input_data: Map<String, Value>,
    /// How often it was handed out, this time included.
    #[serde(default)]
    pub poll_count: u32,
    /// How many attempts were made before this one.
    #[serde(default)]
    pub retry_count: u32,
    /// How long it is held without a sign of life; zero is no limit.
    #[serde(default)]
    pub response_timeout_seconds: u64,
    /// The fencing number of this claim.
    #[serde(default)]
    pub token: Option<u64>,
    /// Everything else.
    #[serde(flatten)]
    pub more: HashMap<String, Value>,
}

/// What a function makes of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done.
    Completed(Map<String, Value>),
    /// Not done: hand it out again after this while.
    InProgress {
        /// How long.
        callback_after: Duration,
        /// What there is so far.
        output: Map<String, Value>,
    },
    /// Not done, and not given back: its lease is extended once more, and somebody else has to answer it before that ends.
    Kept,
    /// It failed, and may be tried again.
    Failed(String),
    /// It failed, and trying again is of no use.
    FailedForGood(String),
    /// It failed, with an output in the place of what was reported so far.
    FailedWith {
        /// Why.
        reason: String,
        /// What there is.
        output: Map<String, Value>,
        /// Whether trying again is of no use.
        for_good: bool,
    },
}

/// What a function knows of its task, and says about it.
#[derive(Debug, Clone)]
pub struct TaskContext {
    task: Arc<Task>,
    logs: Arc<Mutex<Vec<String>>>,
    loss: watch::Receiver<Option<String>>,
}

impl TaskContext {
    /// The task.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// How often it was handed out before: 0 on the first poll.
    pub fn poll_count(&self) -> u32 {
        self.task.poll_count.saturating_sub(1)
    }

    /// How many attempts were made before this one.
    pub fn retry_count(&self) -> u32 {
        self.task.retry_count
    }

    /// Keeps a line with the task; it is sent with the result.
    pub fn add_log(&self, line: impl Into<String>) {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    /// How the lease was lost, if it was.
    pub fn loss(&self) -> Option<String> {
        self.loss.borrow().clone()
    }

    /// Resolves when the lease is lost, with how; never if it is not.
    pub fn lost(&self) -> impl Future<Output = String> + Send + 'static {
        let mut loss = self.loss.clone();
        async move {
            loop {
                if let Some(how) = loss.borrow_and_update().clone() {
                    return how;
                }
                if loss.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    pub(crate) fn take_logs(&self) -> Vec<String> {
        std::mem::take(&mut self.logs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Function = Arc<dyn Fn(TaskContext) -> Running + Send + Sync>;

/// One kind of task that a worker takes.
#[derive(Clone)]
pub struct TaskType {
    name: String,
    domain: Option<String>,
    concurrency: usize,
    extends: bool,
    poll_interval: Duration,
    function: Function,
}

impl TaskType {
    /// Tasks of this name, given to this function.
    pub fn new<F, R>(name: impl Into<String>, function: F) -> TaskType
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        TaskType {
            name: name.into(),
            domain: None,
            concurrency: 1,
            extends: true,
            poll_interval: Duration::from_millis(100),
            function: Arc::new(move |context| Box::pin(function(context))),
        }
    }

    /// Only tasks of this domain.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> TaskType {
        self.domain = Some(domain.into());
        self
    }

    /// How many run at the same time (1).
    #[must_use]
    pub fn concurrency(mut self, tasks: usize) -> TaskType {
        self.concurrency = tasks.max(1);
        self
    }

    /// Whether the lease is extended while the function runs (yes).
    #[must_use]
    pub fn extend_lease(mut self, extends: bool) -> TaskType {
        self.extends = extends;
        self
    }

    /// The pause after a poll that found nothing (100 ms).
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> TaskType {
        self.poll_interval = interval;
        self
    }
}

impl std::fmt::Debug for TaskType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskType").field("name", &self.name).field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// A worker for polled tasks, in the name of the client's holder.
#[derive(Debug, Clone)]
pub struct Worker {
    tasks: Tasks,
    client: Client,
    types: Vec<TaskType>,
    drain: Duration,
}

impl Worker {
    /// A worker without tasks.
    pub fn new(client: Client) -> Worker {
        Worker { tasks: client.tasks(), client, types: Vec::new(), drain: DEFAULT_DRAIN }
    }

    /// Takes these tasks too.
    #[must_use]
    pub fn task(mut self, task: TaskType) -> Worker {
        self.types.push(task);
        self
    }

    /// How long running functions may finish after the worker was told to stop (30 s).
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Worker {
        self.drain = drain;
        self
    }

    /// Polls and runs until `stop` resolves, then lets the running functions finish for a while; what does not finish is
    /// recovered by the server's timeout.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let (halt, halted) = watch::channel(false);
        let mut pollers = JoinSet::new();
        for task in &self.types {
            pollers.spawn(self.clone().poll(task.clone(), halted.clone()));
        }
        stop.await;
        let _ = halt.send(true);
        let finished = async { while pollers.join_next().await.is_some() {} };
        // Dropping the rest ends their functions.
        let _ = tokio::time::timeout(self.drain, finished).await;
    }

    async fn poll(self, kind: TaskType, mut halted: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(kind.concurrency));
        let mut running = JoinSet::new();
        let mut backoff = kind.poll_interval;
        loop {
            let claim = tokio::select! {
                claim = self.claim(&kind, &slots) => claim,
                _ = halted.wait_for(|halted| *halted) => break,
            };
            let pause = match claim {
                Ok((tasks, sent_at, permits)) => {
                    backoff = kind.poll_interval;
                    let found = !tasks.is_empty();
                    for (task, permit) in tasks.into_iter().zip(permits) {
                        running.spawn(self.clone().work(kind.clone(), task, sent_at, permit, halted.clone()));
                    }
                    if found { Duration::ZERO } else { kind.poll_interval }
                }
                Err(error) => {
                    tracing::warn!(task = %kind.name, "polling {} failed, again in {backoff:?}: {error}", kind.name);
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                    backoff
                }
            };
            while running.try_join_next().is_some() {}
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = halted.wait_for(|halted| *halted) => break,
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// As many tasks as there are free slots.
    async fn claim(
        &self,
        kind: &TaskType,
        slots: &Arc<Semaphore>,
    ) -> Result<(Vec<Task>, Moment, Vec<OwnedSemaphorePermit>), crate::Error> {
        let mut permits: Vec<OwnedSemaphorePermit> = Vec::new();
        permits.extend(Arc::clone(slots).acquire_owned().await);
        while let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
            permits.push(permit);
        }
        let sent_at = self.client.now();
        let tasks = self.tasks.poll(&kind.name, kind.domain.as_deref(), permits.len()).await?;
        Ok((tasks, sent_at, permits))
    }

    /// Runs a task, and every next one that the answer to its result brings. A worker that was told to stop asks for none.
    async fn work(
        self,
        kind: TaskType,
        first: Task,
        mut sent_at: Moment,
        _slot: OwnedSemaphorePermit,
        halted: watch::Receiver<bool>,
    ) {
        let mut next = Some(first);
        while let Some(task) = next.take() {
            let (tell, loss) = watch::channel(None);
            let context = TaskContext { task: Arc::new(task), logs: Arc::default(), loss };
            let lost = async {
                let how = self.keep(&kind, &context.task, sent_at).await;
                let id = &context.task.task_id;
                tracing::warn!(task.id = %id, "the lease on task {id} is lost: {how}");
                // Before the function is dropped: whoever is stopped by that can ask why.
                tell.send_replace(Some(how));
            };
            let outcome = tokio::select! {
                outcome = caught(async { (kind.function)(context.clone()).await }) => outcome.unwrap_or_else(Outcome::Failed),
                () = lost => return,
            };
            sent_at = self.client.now();
            let goes_on = !*halted.borrow();
            match self.tasks.finish(&context, outcome, goes_on).await {
                Ok(task) => next = task,
                Err(error) => {
                    let id = &context.task.task_id;
                    tracing::error!(task.id = %id, "the result of task {id} could not be sent: {error}");
                }
            }
        }
    }

    /// Keeps the lease; resolves with how it was lost.
    async fn keep(&self, kind: &TaskType, task: &Task, mut sent_at: Moment) -> String {
        if task.response_timeout_seconds == 0 {
            return std::future::pending().await;
        }
        let timeout = Duration::from_secs(task.response_timeout_seconds);
        let part = |percent: u32| timeout * percent / 100;
        let mut due = sent_at.plus(part(EXTEND_AT_PERCENT));
        let mut is_retry = false;
        // A poll that was held long began long before the claim.
        if self.client.now().since(sent_at) > part(100 - EXTEND_AT_PERCENT) {
            due = self.client.now();
        }
        loop {
            let trusted_until = sent_at.plus(part(100 - MARGIN_PERCENT));
            let wake = if kind.extends { due.min(trusted_until) } else { trusted_until };
            let now = self.client.now();
            if now >= trusted_until {
                return "no extension was accepted in time".to_owned();
            }
            if now < wake {
                tokio::time::sleep(wake.since(now).min(NAP_MAX)).await;
                continue;
            }
            // The first is given up soon, the last gets all that is left: a connection may be dead, or only slow.
            let (left, one) = (trusted_until.since(now), part(TRY_PERCENT).max(TRY_MIN));
            let within = if is_retry && left < one * 3 { left } else { one.min(left) };
            match self.tasks.extend(task, within).await {
                Ok(None) => {
                    (sent_at, is_retry) = (now, false);
                    due = sent_at.plus(part(EXTEND_AT_PERCENT));
                }
                Ok(Some(how)) => return how,
                Err(error) => {
                    tracing::debug!(task.id = %task.task_id, "extending failed: {error}");
                    (due, is_retry) = (self.client.now().plus(part(RETRY_PERCENT)), true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;
    use crate::beat::clock::Clock;

    /// Stands still unless it is moved.
    #[derive(Clone, Default)]
    struct Moved(Arc<AtomicU64>);

    impl Clock for Moved {
        fn now(&self) -> Moment {
            Moment::from_millis(self.0.load(Ordering::Acquire))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_longer_than_the_lease_does_not_go_on_with_the_task() {
        let clock = Moved::default();
        let worker = Worker::new(Client::with_clock(clock.clone()));
        let polled = json!({ "taskId": "t", "workflowInstanceId": "w", "responseTimeoutSeconds": 3_600 });
        let task: Task = serde_json::from_value(polled).expect("a task");
        let kind = TaskType::new("long", |_| std::future::pending());
        let mut kept = std::pin::pin!(worker.keep(&kind, &task, clock.now()));
        assert!(tokio::time::timeout(Duration::from_millis(500), &mut kept).await.is_err(), "it is held");
        // Asleep for an hour: the timers do not count that.
        clock.0.store(3_600_000, Ordering::Release);
        let lost = tokio::time::timeout(NAP_MAX, &mut kept).await;
        assert_eq!(lost.as_deref(), Ok("no extension was accepted in time"));
    }
}
