//! Owns what can be asked about tasks: polls, updates and looks.

use std::sync::Arc;

use super::{Json, Log, Status, Task, TaskDef, TaskRules};
use crate::command::WaiterId;
use crate::flow::Step;
use crate::id::{FlowId, TaskId};
use crate::{Holder, Timestamp, Token};

/// Where tasks wait for workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    /// The name of the tasks.
    pub name: Arc<str>,
    /// The domain, if not in the open.
    pub domain: Option<Arc<str>>,
}

/// Who claims a task, and with how much patience.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// The worker; not every one says its name.
    pub worker: Option<Holder>,
    /// How much longer than its response timeout the lease runs: what heartbeats may be late by.
    pub grace_ms: u64,
}

/// Hand out tasks (T1).
#[derive(Debug, Clone)]
pub struct Poll {
    /// From where.
    pub queue: QueueName,
    /// To whom.
    pub by: Claimant,
    /// At most so many.
    pub count: usize,
    /// How long to wait for the first; 0 answers at once.
    pub wait_ms: u64,
}

/// The answer to [`Poll`].
#[derive(Debug)]
pub enum Polled {
    /// Here they are; none if there are none.
    Tasks(Vec<TaskView>),
    /// In line; the answer comes later, in [`Turn::polled`](crate::Turn::polled).
    Queued(WaiterId),
}

/// A task with what it has from its step and its run.
#[derive(Debug, Clone)]
pub struct TaskView {
    /// The task.
    pub task: Task,
    /// The step it is an attempt at.
    pub step: Arc<Step>,
    /// Its rules.
    pub rules: Arc<TaskRules>,
    /// The name of the workflow.
    pub flow_name: Arc<str>,
    /// The caller's name for the run.
    pub correlation: Option<Box<str>>,
    /// Until when its worker holds it, if one does.
    pub expires_at: Option<Timestamp>,
    /// The last sign of life, heartbeats included.
    pub seen_at: Option<Timestamp>,
}

/// The answer to a poll could not be delivered: what it took goes back, and the poll does not count.
#[derive(Debug, Clone)]
pub struct Unclaim(pub Vec<(TaskId, Token)>);

/// A worker's word about a task (T2, T3).
#[derive(Debug, Clone)]
pub struct Update {
    /// Which.
    pub task: TaskId,
    /// Who says so, if it says its name.
    pub by: Option<Holder>,
    /// Whether who says no name can be the holder: not where a key says which names may be used.
    pub nameless_may_hold: bool,
    /// The lease it relies on, if it can say so: then there is no doubt which attempt it is about.
    pub token: Option<Token>,
    /// What.
    pub act: Act,
    /// Lines to keep with the task.
    pub logs: Vec<Log>,
    /// Claim the next task from the same queue, if this was the end of the task.
    pub next: Option<Claimant>,
}

/// What an update does.
#[derive(Debug, Clone)]
pub enum Act {
    /// Still mine, still at it: the lease is renewed and nothing else.
    Beat,
    /// Take it back, and hand it out again after so many seconds.
    Yield {
        /// How many.
        after_s: u64,
        /// What there is so far.
        output: Json,
    },
    /// It is over.
    End {
        /// How.
        status: Status,
        /// What came of it.
        output: Json,
        /// Why it is not complete.
        reason: Option<Box<str>>,
    },
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It counts.
    Taken,
    /// It came too late, or from someone else than the holder: nothing changed, and an event says so.
    Late,
    /// There never was such a task.
    Unknown,
}

/// What was late about an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// The task is over: answered, timed out or canceled.
    Ended,
    /// Another attempt holds it.
    Held,
    /// It was given back, and nobody holds it.
    GivenBack,
    /// The whole run is over.
    RunOver,
}

/// The answer to [`Update`].
#[derive(Debug)]
pub struct Updated {
    /// What became of it.
    pub outcome: Outcome,
    /// What was late about it, if it was late.
    pub late: Option<Late>,
    /// The next task.
    pub next: Option<Box<TaskView>>,
}

/// An update from outside, by the step's name: for what no worker holds.
#[derive(Debug, Clone)]
pub struct UpdateStep {
    /// The run.
    pub flow: FlowId,
    /// The step; `None` is the first that waits, also in runs that this one waits for.
    pub reference: Option<Box<str>>,
    /// Who says so.
    pub by: Option<Holder>,
    /// What.
    pub act: Act,
}

/// Look a task up.
#[derive(Debug, Clone, Copy)]
pub struct GetTask(pub TaskId);

/// The answer to [`GetTask`].
#[derive(Debug)]
pub enum GotTask {
    /// Its run is in memory.
    Live(Box<TaskView>),
    /// It was there; its run is in the store, if it is still kept.
    Over,
    /// There never was such a task.
    Unknown,
}

/// Add a line to a task whose run goes on; answered with whether it was added.
#[derive(Debug, Clone)]
pub struct AddLog {
    /// Which task.
    pub task: TaskId,
    /// The line.
    pub log: Log,
}

/// How many tasks stand in queues, and who polls them.
#[derive(Debug, Clone, Default)]
pub struct ListQueues {
    /// Only those of this name.
    pub name: Option<Arc<str>>,
}

/// One queue.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// Which.
    pub queue: QueueName,
    /// Tasks that nobody holds, visible or not.
    pub waiting: usize,
    /// The last poll: when, and by whom.
    pub last_poll: Option<(Timestamp, Option<Holder>)>,
}

/// Tasks that are not over, by id.
#[derive(Debug, Clone, Default)]
pub struct ListTasks {
    /// Only those of this name.
    pub name: Option<Arc<str>>,
    /// Only those in this state.
    pub status: Option<Status>,
    /// Only those after this one.
    pub after: Option<TaskId>,
    /// At most so many.
    pub limit: usize,
}

/// Register definitions of tasks.
#[derive(Debug, Clone)]
pub struct DefineTasks {
    /// The definitions.
    pub defs: Vec<TaskDef>,
    /// Refuse names that are not registered yet.
    pub must_exist: bool,
}

/// Forget the definition of a task; answered with whether there was one.
#[derive(Debug, Clone)]
pub struct UndefineTask(pub Arc<str>);

/// Look definitions of tasks up: one, or all.
#[derive(Debug, Clone)]
pub struct GetTaskDefs(pub Option<Arc<str>>);
