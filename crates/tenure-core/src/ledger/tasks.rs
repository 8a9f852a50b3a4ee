//! Owns tasks in memory: where each waits, who holds it, and when something about it is due (T1–T3).
//!
//! A task is in one queue exactly while it can be polled; a task that a worker holds has a lease on `task:<id>` like any
//! other lease, so heartbeats are renewals and a silent worker is an expiry. Timers of tasks stand in the same queue of
//! deadlines as those of leases.

mod claim;
mod define;
mod look;
mod queue;
mod timers;
mod update;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

pub(crate) use self::queue::{QueueId, Queues};
use crate::change::{Change, Record, RecordKind};
use crate::event::{Event, EventKind};
use crate::flow::Step;
use crate::id::TaskId;
use crate::lease::{End, Lease};
use crate::ledger::keep::Cause;
use crate::ledger::{Ledger, Turn};
use crate::limits::{PAYLOAD_DEPTH_MAX, TASK_REASON_CHARS_MAX};
use crate::task::command::{QueueName, TaskView};
use crate::task::{Json, Status, Task, TaskDef, TaskRules, raw};
use crate::{Resource, Timestamp, Token, json};

/// The queue of what the server itself evaluates. No task can have this name: it begins with a blank.
pub const EVALUATOR_QUEUE: &str = " evaluator";

/// All tasks whose runs go on.
#[derive(Default)]
pub(crate) struct Tasks {
    /// By id, boxed: new ids are the largest, so the map grows at its end and nothing large is moved.
    pub(crate) all: BTreeMap<TaskId, Box<Task>>,
    pub(crate) queues: Queues,
    pub(crate) defs: HashMap<Arc<str>, TaskDef>,
    /// The task of each lease that was given by a poll.
    by_token: HashMap<Token, TaskId>,
    /// Tasks that changed since their records were last written; empty between commands.
    changed: BTreeSet<TaskId>,
    /// Tasks that are over and whose successors have not been looked at yet.
    pub(crate) over: VecDeque<TaskId>,
}

impl Tasks {
    /// The end of this lease decides nothing about a task any more.
    pub(crate) fn forget_token(&mut self, token: Token) {
        self.by_token.remove(&token);
    }
}

/// How a task ends.
pub(crate) struct Ends {
    pub(crate) status: Status,
    pub(crate) output: Option<Json>,
    pub(crate) reason: Option<Box<str>>,
}

impl Ends {
    pub(crate) fn with(status: Status, reason: impl Into<Box<str>>) -> Ends {
        Ends { status, output: None, reason: Some(reason.into()) }
    }

    /// For outputs that were put together here: they can become too deep to be read, and that is a failure, not a silent `null`.
    /// Those of workers were looked at before they came here.
    pub(crate) fn readable(self) -> Ends {
        match &self.output {
            Some(output) if json::depth(output.get()) > PAYLOAD_DEPTH_MAX => {
                let reason = format!("its output is nested deeper than {PAYLOAD_DEPTH_MAX}");
                Ends::with(Status::FailedWithTerminalError, reason)
            }
            _ => self,
        }
    }
}

impl Ledger {
    /// Writes the task down at the end of the command.
    pub(crate) fn touch(&mut self, id: TaskId) {
        self.tasks.changed.insert(id);
    }

    /// Writes down what changed.
    pub(crate) fn write_tasks(&mut self, turn: &mut Turn<'_>) {
        for id in std::mem::take(&mut self.tasks.changed) {
            if let Some(task) = self.tasks.all.get_mut(&id) {
                task.is_stored = true;
                turn.changes.push(Change::Put(Record::Task(task.clone())));
            }
        }
    }

    /// Forgets a task whose run is over.
    pub(crate) fn remove_task(&mut self, turn: &mut Turn<'_>, id: TaskId) -> Option<Box<Task>> {
        self.tasks.changed.remove(&id);
        let task = self.tasks.all.remove(&id)?;
        if task.is_stored {
            turn.changes.push(Change::Delete(RecordKind::Task, id.into()));
        }
        Some(task)
    }

    /// Takes a new task in; it is not in its queue yet.
    pub(crate) fn insert_task(&mut self, task: Box<Task>) {
        let id = task.id;
        if let Some(token) = task.token {
            self.tasks.by_token.insert(token, id);
            self.tasks.queues.started(&queue_of(&task), None);
        }
        self.tasks.all.insert(id, task);
        self.touch(id);
    }

    /// A task as the store had it. Its lease was restored before it.
    pub(crate) fn restore_task(&mut self, mut task: Box<Task>) {
        task.is_stored = true;
        let id = task.id;
        self.insert_task(task);
        self.tasks.changed.remove(&id);
    }

    /// The rules of a task.
    pub(crate) fn rules_of(&self, task: &Task) -> Arc<TaskRules> {
        let own = task.extra.as_ref().and_then(|extra| extra.rules.clone());
        let planned = || self.step_of(task)?.rules.clone();
        own.or_else(planned).unwrap_or_else(|| Arc::new(TaskRules::of_operator()))
    }

    /// The step of a task.
    pub(crate) fn step_of(&self, task: &Task) -> Option<&Arc<Step>> {
        self.flows.get(task.flow)?.step(task.step)
    }

    pub(crate) fn view(&self, task: &Task) -> Option<TaskView> {
        let flow = self.flows.get(task.flow)?;
        let lease = task.token.and_then(|token| self.leases.get(&token));
        Some(TaskView {
            step: flow.step(task.step)?.clone(),
            rules: self.rules_of(task),
            flow_name: flow.plan.name.clone(),
            correlation: flow.correlation.clone(),
            expires_at: lease.map(|lease| lease.expires_at),
            seen_at: lease.map(seen_at).or(task.updated_at),
            task: Task::clone(task),
        })
    }

    /// Ends a task: its lease, its place in the queue, its timers. What follows is looked at afterwards.
    pub(crate) fn end_task(&mut self, turn: &mut Turn<'_>, id: TaskId, ends: Ends) {
        let Some(task) = self.tasks.all.get(&id).filter(|task| !task.status.is_over()) else { return };
        let (was_queued, token, queue) = (task.is_queued, task.token, queue_of(task));
        if was_queued {
            self.tasks.queues.remove(&queue, task);
        }
        let reason = ends.reason.map(|reason| cut(&reason));
        if let Some(token) = token {
            self.end_lease_of_task(turn, token, ends.status, reason.clone());
            self.tasks.queues.stopped(&queue);
        }
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.is_queued = false;
        task.token = None;
        task.status = ends.status;
        task.ended_at = Some(turn.now());
        task.updated_at = Some(turn.now());
        if let Some(output) = ends.output {
            task.output = output;
        }
        if let Some(reason) = reason {
            task.extra_mut().reason = Some(reason);
        }
        if let Some(extra) = &mut task.extra {
            extra.asked = None;
            extra.until = None;
        }
        let event = task_event(EventKind::TaskEnded, turn.now(), task);
        self.emit(turn, Event { token, ..event });
        self.tasks.over.push_back(id);
        self.touch(id);
    }

    fn end_lease_of_task(&mut self, turn: &mut Turn<'_>, token: Token, status: Status, reason: Option<Box<str>>) {
        // Not the holder's loss any more: the end of this lease decides nothing about the task.
        self.tasks.by_token.remove(&token);
        let by_worker = matches!(status, Status::Completed | Status::Failed | Status::FailedWithTerminalError);
        let (end, reason) = if by_worker { (End::Released, None) } else { (End::Revoked, reason) };
        self.end(turn, token, end, Cause { reason, ..Cause::default() });
    }

    /// A lease has ended; if it was a worker's on a task, the attempt is lost (T4).
    pub(crate) fn lease_of_task_ended(&mut self, turn: &mut Turn<'_>, lease: &Lease, end: End, why: Option<&str>) {
        let Some(id) = self.tasks.by_token.remove(&lease.token) else { return };
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.token = None;
        let queue = queue_of(task);
        self.tasks.queues.stopped(&queue);
        match end {
            // Given back through another door: somebody else may have it.
            End::Released => self.put_back(turn, id, turn.now()),
            End::Expired => {
                let reason = self.silence_of(id);
                self.end_task(turn, id, Ends::with(Status::TimedOut, reason));
            }
            End::Revoked => {
                let reason = format!("the lease was revoked: {}", why.unwrap_or("no reason was given"));
                self.end_task(turn, id, Ends::with(Status::Failed, reason));
            }
        }
    }

    fn silence_of(&self, id: TaskId) -> String {
        let Some(task) = self.tasks.all.get(&id) else { return String::new() };
        let seconds = self.rules_of(task).response_s;
        format!("responseTimeout: {seconds} exceeded for the taskId: {id} with Task Definition: {}", task.name)
    }

    /// Puts a task that nobody holds into its queue: now, or when its time has come.
    pub(crate) fn put_back(&mut self, turn: &mut Turn<'_>, id: TaskId, visible_at: Timestamp) {
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        if task.extra.as_ref().is_none_or(|extra| extra.asked.is_none()) {
            task.status = Status::Scheduled;
        }
        task.token = None;
        task.visible_at = visible_at;
        self.touch(id);
        self.show(id, turn.now());
        self.watch_task(id);
    }

    /// Makes a task visible to polls if its time has come.
    pub(crate) fn show(&mut self, id: TaskId, now: Timestamp) {
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        if !task.is_queued && task.visible_at <= now {
            task.is_queued = true;
            let queue = queue_of(task);
            self.tasks.queues.add(&queue, task);
        }
    }
}

/// The last sign of life of a lease's holder.
fn seen_at(lease: &Lease) -> Timestamp {
    let before = lease.expires_at.unix_ms().saturating_sub(lease.ttl.ms());
    Timestamp::from_unix_ms(before).max(lease.acquired_at)
}

/// Where a task is polled.
pub(crate) fn queue_of(task: &Task) -> QueueName {
    if task.extra.as_ref().is_some_and(|extra| extra.asked.is_some()) {
        return QueueName { name: EVALUATOR_QUEUE.into(), domain: None };
    }
    QueueName { name: task.name.clone(), domain: task.domain.clone() }
}

/// An event about a task, with what identifies it.
pub(crate) fn task_event(kind: EventKind, at: Timestamp, task: &Task) -> Event {
    let data = format!(
        r#"{{"workflow":"{}","step":{},"name":{},"status":"{}","retries":{},"polls":{}}}"#,
        task.flow,
        serde_json::Value::from(&*task.reference),
        serde_json::Value::from(&*task.name),
        task.status.as_str(),
        task.retries,
        task.polls
    );
    Event {
        resources: [Resource::of_task(task.id)].into_iter().collect(),
        holder: task.worker.clone(),
        token: task.token,
        reason: task.reason().map(Into::into),
        data: Some((*raw(data)).to_owned()),
        ..Event::new(kind, at)
    }
}

/// As much of a reason as is kept.
pub(crate) fn cut(reason: &str) -> Box<str> {
    match reason.char_indices().nth(TASK_REASON_CHARS_MAX) {
        Some((at, _)) => reason.get(..at).unwrap_or_default().into(),
        None => reason.into(),
    }
}
