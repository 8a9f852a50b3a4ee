//! Owns what templates can ask for: the run, and the latest task of each of its steps.
//!
//! The names of the fields are those that workflows are written with.

use serde_json::{Map, Value, json};

use crate::flow::Flow;
use crate::flow::template::Scope;
use crate::id::TaskId;
use crate::ledger::Ledger;
use crate::ledger::flow::schedule::Round;
use crate::task::{Json, Task, to_value};

const FLOW_FIELDS: [&str; 12] = [
    "input",
    "output",
    "status",
    "workflowId",
    "parentWorkflowId",
    "parentWorkflowTaskId",
    "workflowType",
    "version",
    "correlationId",
    "reasonForIncompletion",
    "schemaVersion",
    "variables",
];

const TASK_FIELDS: [&str; 18] = [
    "input",
    "output",
    "taskType",
    "status",
    "referenceTaskName",
    "retryCount",
    "correlationId",
    "pollCount",
    "taskDefName",
    "scheduledTime",
    "startTime",
    "endTime",
    "workflowInstanceId",
    "taskId",
    "reasonForIncompletion",
    "callbackAfterSeconds",
    "workerId",
    "iteration",
];

/// A run, seen from one of its tasks.
pub(crate) struct FlowScope<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) flow: &'a Flow,
    /// The task that is being made, if one is.
    pub(crate) task: Option<TaskId>,
    /// What stands behind the names of the tasks around it ([`Ledger::suffix_of`]).
    pub(crate) suffix: String,
}

impl FlowScope<'_> {
    /// The task of a step: of the present round of the nearest loop that has one, or else the latest.
    fn task(&self, root: &str) -> Option<&Task> {
        let mut suffix = self.suffix.as_str();
        loop {
            if let Some(id) = self.flow.task_of(&format!("{root}{suffix}")) {
                return self.ledger.tasks.all.get(&id).map(|task| &**task);
            }
            (suffix, _) = suffix.rsplit_once(BEFORE_ROUND)?;
        }
    }

    fn read(&self, payload: &Json) -> Value {
        self.ledger.flows.spend(payload.get().len());
        to_value(payload)
    }

    fn of_flow(&self, field: &str) -> Option<Value> {
        let flow = self.flow;
        Some(match field {
            "input" => self.read(&flow.input),
            "output" => self.read(&flow.output),
            "variables" => self.read(&flow.variables),
            "status" => flow.status.as_str().into(),
            "workflowId" => flow.id.to_string().into(),
            "parentWorkflowId" => flow.parent?.flow.to_string().into(),
            "parentWorkflowTaskId" => flow.parent?.task.to_string().into(),
            "workflowType" => (*flow.plan.name).into(),
            "version" => flow.plan.version.into(),
            "correlationId" => flow.correlation.as_deref()?.into(),
            "reasonForIncompletion" => flow.reason.as_deref()?.into(),
            "schemaVersion" => json!(2),
            _ => return None,
        })
    }

    fn of_task(&self, task: &Task, field: &str) -> Option<Value> {
        Some(match field {
            "input" => self.read(&task.input),
            "output" => self.read(&task.output),
            "taskType" => self.flow.step(task.step)?.op.word().unwrap_or(&task.name).into(),
            "status" => task.status.as_str().into(),
            "referenceTaskName" => (*task.reference).into(),
            "retryCount" => task.retries.into(),
            "correlationId" => self.flow.correlation.as_deref()?.into(),
            "pollCount" => task.polls.into(),
            "taskDefName" => (*task.name).into(),
            "scheduledTime" => task.scheduled_at.unix_ms().into(),
            "startTime" => task.started_at.map_or(0, |at| at.unix_ms()).into(),
            "endTime" => task.ended_at.map_or(0, |at| at.unix_ms()).into(),
            "workflowInstanceId" => task.flow.to_string().into(),
            "taskId" => task.id.to_string().into(),
            "reasonForIncompletion" => task.reason()?.into(),
            "callbackAfterSeconds" => task.callback_s.into(),
            "workerId" => task.worker.as_ref()?.as_str().into(),
            "iteration" => task.iteration.into(),
            _ => return None,
        })
    }
}

impl Scope for FlowScope<'_> {
    fn field(&self, root: &str, field: &str) -> Option<Value> {
        match root {
            "workflow" => self.of_flow(field),
            _ => self.of_task(self.task(root)?, field),
        }
    }

    fn whole(&self, root: &str) -> Option<Value> {
        let all = |fields: &[&str]| {
            let found = fields.iter().filter_map(|field| Some(((*field).to_owned(), self.field(root, field)?)));
            Value::Object(found.collect::<Map<_, _>>())
        };
        match root {
            "CPEWF_TASK_ID" => self.task.map(|task| task.to_string().into()),
            "workflow" => Some(all(&FLOW_FIELDS)),
            _ => self.task(root).map(|_| all(&TASK_FIELDS)),
        }
    }
}

/// What stands before the number of a round in the name of a task.
const BEFORE_ROUND: &str = "__";

impl Ledger {
    /// What stands behind the names of the tasks of a round: the rounds of all loops around them, the outermost first.
    pub(crate) fn suffix_of(&self, round: Option<Round>) -> String {
        let Some(round) = round else { return String::new() };
        let outer = self.tasks.all.get(&round.parent).and_then(|around| Round::of(around));
        format!("{}{BEFORE_ROUND}{}", self.suffix_of(outer), round.iteration)
    }
}
