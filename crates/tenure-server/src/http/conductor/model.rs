//! Owns how tasks and workflows look in this API. Payloads are passed through as they came.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tenure_core::flow::command::FlowView;
use tenure_core::flow::{Archived, Flow, Op, Plan};
use tenure_core::task::command::TaskView;
use tenure_core::task::{Log, Task, TaskRules, to_value};
use tenure_core::{Timestamp, Token};

/// A task on the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireTask<'a> {
    task_type: &'a str,
    status: &'static str,
    input_data: &'a RawValue,
    reference_task_name: &'a str,
    retry_count: u32,
    seq: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    poll_count: u32,
    task_def_name: &'a str,
    scheduled_time: u64,
    start_time: u64,
    end_time: u64,
    update_time: u64,
    start_delay_in_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retried_task_id: Option<String>,
    retried: bool,
    executed: bool,
    callback_from_worker: bool,
    response_timeout_seconds: u64,
    workflow_instance_id: String,
    workflow_type: &'a str,
    task_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_for_incompletion: Option<&'a str>,
    callback_after_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<&'a str>,
    /// The fencing number of the lease on it; clients that do not know it pass over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    output_data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<&'a str>,
    rate_limit_per_frequency: u32,
    rate_limit_frequency_in_seconds: u32,
    workflow_priority: u8,
    iteration: u32,
    subworkflow_changed: bool,
    queue_wait_time: u64,
    loop_over_task: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_workflow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_task: Option<&'a RawValue>,
}

/// What a task has from elsewhere.
pub(super) struct Around<'a> {
    pub(super) op: Option<&'a Op>,
    pub(super) document: Option<&'a RawValue>,
    pub(super) rules: Option<&'a TaskRules>,
    pub(super) flow_name: &'a str,
    pub(super) correlation: Option<&'a str>,
    pub(super) seen_at: Option<Timestamp>,
}

impl<'a> WireTask<'a> {
    /// A task that was handed out: without its definition, that no worker reads.
    pub(super) fn polled(view: &'a TaskView) -> WireTask<'a> {
        WireTask::of(&view.task, &Around { document: None, ..around(view) })
    }

    /// A task that somebody looks at.
    pub(super) fn full(view: &'a TaskView) -> WireTask<'a> {
        WireTask::of(&view.task, &around(view))
    }

    pub(super) fn of(task: &'a Task, around: &Around<'a>) -> WireTask<'a> {
        let rate = around.rules.and_then(|rules| rules.rate);
        let (scheduled, started) = (task.scheduled_at.unix_ms(), at(task.started_at));
        WireTask {
            task_type: around.op.and_then(Op::word).unwrap_or(&task.name),
            status: task.status.as_str(),
            input_data: &task.input,
            reference_task_name: &task.reference,
            retry_count: task.retries,
            seq: task.seq,
            correlation_id: around.correlation,
            poll_count: task.polls,
            task_def_name: &task.name,
            scheduled_time: scheduled,
            start_time: started,
            end_time: at(task.ended_at),
            update_time: at(around.seen_at.or(task.updated_at)),
            start_delay_in_seconds: if task.retries > 0 {
                task.visible_at.ms_since(task.scheduled_at) / 1_000
            } else {
                0
            },
            retried_task_id: task.retry_of().map(|id| id.to_string()),
            retried: task.retried,
            executed: task.executed,
            callback_from_worker: true,
            response_timeout_seconds: around.rules.map_or(0, |rules| rules.response_s),
            workflow_instance_id: task.flow.to_string(),
            workflow_type: around.flow_name,
            task_id: task.id.to_string(),
            reason_for_incompletion: task.reason(),
            callback_after_seconds: task.callback_s,
            worker_id: task.worker.as_ref().map(|worker| worker.as_str()),
            token: task.token,
            output_data: &task.output,
            domain: task.domain.as_deref(),
            rate_limit_per_frequency: rate.map_or(0, |rate| rate.count),
            rate_limit_frequency_in_seconds: rate.map_or(1, |rate| rate.seconds),
            workflow_priority: task.priority,
            iteration: task.iteration,
            subworkflow_changed: false,
            queue_wait_time: started.saturating_sub(scheduled),
            loop_over_task: task.iteration > 0,
            sub_workflow_id: task.child().map(|id| id.to_string()),
            parent_task_id: task.parent().map(|id| id.to_string()),
            workflow_task: around.document,
        }
    }
}

fn around(view: &TaskView) -> Around<'_> {
    Around {
        op: Some(&view.step.op),
        document: view.step.document.as_deref(),
        rules: Some(&view.rules),
        flow_name: &view.flow_name,
        correlation: view.correlation.as_deref(),
        seen_at: view.seen_at,
    }
}

fn at(moment: Option<Timestamp>) -> u64 {
    moment.map_or(0, |moment| moment.unix_ms())
}

/// The lines of a task on the wire.
pub(super) fn logs(id: &str, logs: &[Log]) -> Value {
    logs.iter().map(|log| json!({ "log": log.line, "taskId": id, "createdTime": log.at })).collect()
}

/// A run that goes on, on the wire.
pub(super) fn live(view: &FlowView) -> Value {
    let tasks = view.tasks.iter().map(|task| serde_json::to_value(WireTask::full(task)).unwrap_or_default());
    workflow(&view.flow, &view.flow.plan, tasks.collect())
}

/// A run that is over, on the wire.
pub(super) fn archived(archived: &Archived, plan: &Plan) -> Value {
    let flow = &archived.flow;
    let tasks = archived.tasks.iter().map(|task| serde_json::to_value(over(task, flow, plan)).unwrap_or_default());
    workflow(flow, plan, tasks.collect())
}

/// A task of a run that is over.
pub(super) fn over<'a>(task: &'a Task, flow: &'a Flow, plan: &'a Plan) -> WireTask<'a> {
    let index = task.step as usize;
    let added = || flow.added.get(index.checked_sub(plan.steps.len())?);
    let step = plan.steps.get(index).or_else(added);
    let own = task.extra.as_ref().and_then(|extra| extra.rules.as_deref());
    let around = Around {
        op: step.map(|step| &step.op),
        document: step.and_then(|step| step.document.as_deref()),
        rules: own.or_else(|| step?.rules.as_deref()),
        flow_name: &plan.name,
        correlation: flow.correlation.as_deref(),
        seen_at: None,
    };
    WireTask::of(task, &around)
}

fn workflow(flow: &Flow, plan: &Plan, tasks: Vec<Value>) -> Value {
    let mut wire = summary(flow, plan);
    if let Value::Object(fields) = &mut wire {
        fields.extend(
            [
                ("tasks", Value::Array(tasks)),
                ("input", to_value(&flow.input)),
                ("output", to_value(&flow.output)),
                ("variables", to_value(&flow.variables)),
                ("taskToDomain", json!(*flow.domains)),
                ("workflowDefinition", plan.document.as_deref().map(to_value).unwrap_or_default()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    wire
}

/// What is known of a run without its tasks and payloads.
pub(super) fn summary(flow: &Flow, plan: &Plan) -> Value {
    let created = flow.created_at.unix_ms();
    let mut wire = json!({
        "workflowId": flow.id, "workflowName": plan.name, "workflowVersion": plan.version, "workflowType": plan.name,
        "version": plan.version, "status": flow.status.as_str(), "startTime": created, "createTime": created,
        "updateTime": at(flow.ended_at.or(flow.retried_at)).max(created), "endTime": at(flow.ended_at),
        "lastRetriedTime": at(flow.retried_at), "priority": flow.priority, "rateLimited": false, "history": [],
        "failedReferenceTaskNames": flow.failed, "failedTaskNames": flow.failed, "ownerApp": "",
        "correlationId": flow.correlation, "reasonForIncompletion": flow.reason, "createdBy": flow.created_by,
        "parentWorkflowId": flow.parent.map(|parent| parent.flow), "idempotencyKey": flow.key,
        "parentWorkflowTaskId": flow.parent.map(|parent| parent.task),
    });
    if let Value::Object(fields) = &mut wire {
        fields.retain(|_, value| !value.is_null());
    }
    wire
}
