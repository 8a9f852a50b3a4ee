//! Owns how a workflow, as this API writes it, becomes a plan: a flat list of steps, each with what follows it.
//!
//! The end of a way of a switch leads to what follows the switch; the end of a way of a fork, and of a loop's body, leads
//! nowhere: the join, and the loop, look by themselves. What is not there is refused here, by its name.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tenure_core::flow::template::Template;
use tenure_core::flow::{Branch, Choice, Looping, Op, Plan, Step, SubFlow};
use tenure_core::limits::{ATTEMPTS_MAX, STEPS_PER_PLAN_MAX};
use tenure_core::task::{bad_name, to_json};

use super::body::payload;
use super::defs::task_def;
use super::fault::Fault;

/// How deep ways may be inside ways.
const NESTING_MAX: usize = 32;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct FlowDoc {
    name: Option<String>,
    version: Option<u32>,
    schema_version: Option<u32>,
    tasks: Vec<Value>,
    output_parameters: Option<Value>,
    input_template: Option<Value>,
    variables: Option<Value>,
    timeout_seconds: Option<i64>,
    timeout_policy: Option<String>,
    failure_workflow: Option<String>,
    failure_workflow_version: Option<u32>,
    restartable: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StepDoc {
    name: Option<String>,
    task_reference_name: Option<String>,
    r#type: Option<String>,
    input_parameters: Option<Value>,
    optional: Option<bool>,
    permissive: Option<bool>,
    start_delay: Option<i64>,
    retry_count: Option<u32>,
    task_definition: Option<Value>,
    dynamic_task_name_param: Option<String>,
    evaluator_type: Option<String>,
    expression: Option<String>,
    decision_cases: Option<BTreeMap<String, Vec<Value>>>,
    default_case: Option<Vec<Value>>,
    fork_tasks: Option<Vec<Vec<Value>>>,
    join_on: Option<Vec<String>>,
    default_exclusive_join_task: Option<Vec<String>>,
    loop_over: Option<Vec<Value>>,
    loop_condition: Option<String>,
    items: Option<Value>,
    sub_workflow_param: Option<SubDoc>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SubDoc {
    name: Option<String>,
    version: Option<u32>,
    task_to_domain: Option<BTreeMap<String, String>>,
    workflow_definition: Option<Value>,
}

/// Makes a plan of a document.
pub(super) fn plan(document: &Value) -> Result<Plan, Fault> {
    plan_at(document, 0)
}

fn plan_at(document: &Value, depth: usize) -> Result<Plan, Fault> {
    let doc: FlowDoc = read(document, "")?;
    let name = doc.name.unwrap_or_default();
    if let Some(why) = bad_name(&name) {
        return Err(wrong("name", why));
    }
    if doc.schema_version.is_some_and(|version| version != 2) {
        return Err(wrong("schemaVersion", "only 2 is known"));
    }
    if doc.tasks.is_empty() {
        return Err(wrong("tasks", "a workflow has at least one task"));
    }
    let mut compiler = Compiler { steps: Vec::new(), names: HashSet::new(), depth };
    compiler.way(&doc.tasks, None, "tasks")?;
    let timeout_s = doc.timeout_seconds.unwrap_or(0);
    let timeout_s = u64::try_from(timeout_s).map_err(|_| wrong("timeoutSeconds", "is not negative"))?;
    let timeout_ends = match doc.timeout_policy.as_deref() {
        None | Some("ALERT_ONLY") => false,
        Some("TIME_OUT_WF") => true,
        Some(other) => return Err(wrong("timeoutPolicy", format!("is TIME_OUT_WF or ALERT_ONLY, not {other}"))),
    };
    let fields =
        |value: Option<Value>| value.filter(|value| value.as_object().is_some_and(|fields| !fields.is_empty()));
    Ok(Plan {
        name: name.into(),
        version: doc.version.unwrap_or(1),
        steps: compiler.steps.into_iter().flatten().map(Arc::new).collect(),
        output: fields(doc.output_parameters).map(Template::from),
        defaults: fields(doc.input_template).as_ref().map(to_json),
        variables: fields(doc.variables).as_ref().map(to_json),
        timeout_s,
        timeout_ends,
        on_failure: doc
            .failure_workflow
            .filter(|name| !name.is_empty())
            .map(|name| (name.into(), doc.failure_workflow_version)),
        is_final: doc.restartable == Some(false),
        document: Some(payload("the definition", document)?),
        ..Plan::default()
    })
}

/// The steps of a fork's way that is worked out while running: one step, that no other step is inside of.
pub(super) fn lone_step(document: &Value, input: Option<&Value>) -> Result<Step, Fault> {
    let mut compiler = Compiler { steps: Vec::new(), names: HashSet::new(), depth: 0 };
    compiler.way(std::slice::from_ref(document), None, "forkTasks")?;
    let mut steps = compiler.steps.into_iter().flatten();
    let (Some(mut step), None) = (steps.next(), steps.next()) else {
        return Err(wrong("forkTasks", "a task of a dynamic fork has no tasks inside it; use a SUB_WORKFLOW"));
    };
    if let Some(Value::Object(given)) = input {
        let mut fields = step.input.value().as_object().cloned().unwrap_or_default();
        fields.extend(given.clone());
        step.input = Value::Object(fields).into();
    }
    Ok(step)
}

struct Compiler {
    /// Places are given out before what stands there is known.
    steps: Vec<Option<Step>>,
    names: HashSet<String>,
    depth: usize,
}

impl Compiler {
    /// Compiles tasks that follow each other; `after` is what follows the last. Returns the first.
    fn way(&mut self, tasks: &[Value], after: Option<u32>, place: &str) -> Result<Option<u32>, Fault> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(wrong(place, format!("tasks inside tasks are limited to a depth of {NESTING_MAX}")));
        }
        let first = self.steps.len();
        if first + tasks.len() > STEPS_PER_PLAN_MAX {
            return Err(wrong(place, format!("a workflow has at most {STEPS_PER_PLAN_MAX} tasks")));
        }
        self.steps.resize_with(first + tasks.len(), || None);
        for (at, task) in tasks.iter().enumerate() {
            let next = if at + 1 < tasks.len() { Some((first + at + 1) as u32) } else { after };
            let path = format!("{place}[{at}]");
            let follower = tasks.get(at + 1);
            let step = self.step(task, next, follower, &path)?;
            if let Some(slot) = self.steps.get_mut(first + at) {
                *slot = Some(step);
            }
        }
        self.depth -= 1;
        Ok((!tasks.is_empty()).then_some(first as u32))
    }

    fn step(&mut self, task: &Value, next: Option<u32>, follower: Option<&Value>, place: &str) -> Result<Step, Fault> {
        let doc: StepDoc = read(task, place)?;
        let path = |field: &str| format!("{place}.{field}");
        let reference = doc.task_reference_name.clone().unwrap_or_default();
        if let Some(why) = bad_name(&reference) {
            return Err(wrong(&path("taskReferenceName"), why));
        }
        if !self.names.insert(reference.clone()) {
            return Err(wrong(&path("taskReferenceName"), format!("{reference} is used twice; it names one task")));
        }
        let kind = doc.r#type.clone().unwrap_or_else(|| "SIMPLE".to_owned());
        let name = doc.name.clone().unwrap_or_default();
        if let Some(why) = bad_name(&name) {
            return Err(wrong(&path("name"), why));
        }
        let op = self.op(&kind, &doc, (next, follower), place)?;
        let input = doc.input_parameters.unwrap_or_else(|| Value::Object(Default::default()));
        if !input.is_object() {
            return Err(wrong(&path("inputParameters"), "is an object"));
        }
        let delay_s =
            u64::try_from(doc.start_delay.unwrap_or(0)).map_err(|_| wrong(&path("startDelay"), "is not negative"))?;
        if doc.retry_count.is_some_and(|count| count >= ATTEMPTS_MAX) {
            return Err(wrong(&path("retryCount"), format!("is 0 to {}", ATTEMPTS_MAX - 1)));
        }
        let own = doc.task_definition.filter(|own| own.get("name").is_some_and(Value::is_string) && op.is_work());
        Ok(Step {
            reference: reference.into(),
            name: name.into(),
            op,
            input: input.into(),
            next,
            optional: doc.optional.unwrap_or(false),
            permissive: doc.permissive.unwrap_or(false),
            delay_s,
            retries: doc.retry_count,
            rules: own.map(|own| task_def(&own).map(|def| def.rules)).transpose()?,
            document: Some(to_json(task)),
        })
    }

    fn op(
        &mut self,
        kind: &str,
        doc: &StepDoc,
        (next, follower): (Option<u32>, Option<&Value>),
        place: &str,
    ) -> Result<Op, Fault> {
        let path = |field: &str| format!("{place}.{field}");
        let names = |list: &Option<Vec<String>>| list.iter().flatten().map(|name| Arc::from(name.as_str())).collect();
        Ok(match kind {
            "SIMPLE" | "USER_DEFINED" => Op::Work,
            "DYNAMIC" => {
                let param = doc.dynamic_task_name_param.clone().unwrap_or_else(|| "taskToExecute".to_owned());
                Op::Dynamic { param: param.into() }
            }
            "SWITCH" => self.switch(doc, next, place)?,
            "FORK_JOIN" | "FORK" => {
                require_join(follower, place)?;
                let mut ways = Vec::new();
                for (at, way) in doc.fork_tasks.iter().flatten().enumerate() {
                    let inner = path(&format!("forkTasks[{at}]"));
                    ways.extend(self.way(way, None, &inner)?);
                }
                Op::Fork { ways }
            }
            "FORK_JOIN_DYNAMIC" => {
                require_join(follower, place)?;
                Op::DynamicFork
            }
            "JOIN" => Op::Join { on: names(&doc.join_on) },
            "EXCLUSIVE_JOIN" => {
                Op::ExclusiveJoin { on: names(&doc.join_on), default: names(&doc.default_exclusive_join_task) }
            }
            "DO_WHILE" => {
                let inner = path("loopOver");
                let body = doc.loop_over.as_deref().unwrap_or_default();
                let first = self.way(body, None, &inner)?;
                let body = first.ok_or_else(|| wrong(&inner, "a loop has at least one task"))?;
                let until = match (&doc.items, doc.loop_condition.as_deref().filter(|text| !text.is_empty())) {
                    (Some(items), _) if !items.is_null() => Looping::Items(items.clone().into()),
                    (_, Some(condition)) => Looping::While(condition.into()),
                    _ => return Err(wrong(&path("loopCondition"), "is missing")),
                };
                Op::Loop { body, until }
            }
            "SUB_WORKFLOW" => self.subflow(doc, place)?,
            "START_WORKFLOW" => Op::StartFlow,
            "WAIT" => Op::Wait,
            "HUMAN" => Op::Human,
            "TERMINATE" => Op::Terminate,
            "SET_VARIABLE" => Op::SetVariable,
            "NOOP" => Op::Noop,
            "INLINE" | "LAMBDA" => Op::Script,
            "JSON_JQ_TRANSFORM" => {
                let query = doc.input_parameters.as_ref().and_then(|input| input.get("queryExpression"));
                if !query.is_some_and(Value::is_string) {
                    return Err(wrong(&path("inputParameters.queryExpression"), "is missing: the query is a text"));
                }
                Op::Transform
            }
            other => return Err(wrong(&path("type"), format!("tasks of type {other} are not there in Tenure"))),
        })
    }

    fn switch(&mut self, doc: &StepDoc, next: Option<u32>, place: &str) -> Result<Op, Fault> {
        let path = |field: &str| format!("{place}.{field}");
        let expression = doc.expression.clone().filter(|text| !text.is_empty());
        let expression = expression.ok_or_else(|| wrong(&path("expression"), "is missing"))?;
        let by = match doc.evaluator_type.as_deref().unwrap_or("value-param") {
            "value-param" => Choice::Param(expression.into()),
            "javascript" | "graaljs" => Choice::Script(expression.into()),
            other => return Err(wrong(&path("evaluatorType"), format!("{other} is not there in Tenure"))),
        };
        let mut cases = Vec::new();
        for (case, way) in doc.decision_cases.iter().flatten() {
            let inner = path(&format!("decisionCases.{case}"));
            // An empty way leads on like a full one.
            let first = self.way(way, next, &inner)?;
            cases.push(Branch { case: case.as_str().into(), first });
        }
        let default = doc.default_case.as_deref().unwrap_or_default();
        let default = self.way(default, next, &path("defaultCase"))?;
        Ok(Op::Switch { by, cases, default })
    }

    fn subflow(&mut self, doc: &StepDoc, place: &str) -> Result<Op, Fault> {
        let path = format!("{place}.subWorkflowParam");
        let sub = doc.sub_workflow_param.as_ref().ok_or_else(|| wrong(&path, "is missing"))?;
        let plan = match &sub.workflow_definition {
            Some(inline @ Value::Object(_)) => Some(Arc::new(plan_at(inline, self.depth)?)),
            Some(Value::String(_)) => return Err(wrong(&path, "a workflowDefinition from an expression is not there")),
            _ => None,
        };
        let named = plan.as_ref().map(|plan| plan.name.to_string());
        let name = sub.name.clone().filter(|name| !name.is_empty()).or(named);
        let name = name.ok_or_else(|| wrong(&path, "names no workflow"))?;
        let domains = sub.task_to_domain.clone().unwrap_or_default();
        // Version 0 is how some clients say «the latest».
        Ok(Op::SubFlow(Box::new(SubFlow { name: name.into(), version: sub.version.filter(|v| *v > 0), plan, domains })))
    }
}

fn require_join(follower: Option<&Value>, place: &str) -> Result<(), Fault> {
    let kind = follower.and_then(|task| task.get("type")).and_then(Value::as_str);
    match kind {
        Some("JOIN" | "EXCLUSIVE_JOIN") => Ok(()),
        _ => Err(wrong(place, "a fork is followed by a JOIN")),
    }
}

fn read<T: for<'a> Deserialize<'a>>(value: &Value, path: &str) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let path = if path.is_empty() { inner } else { format!("{path}.{inner}") };
        wrong(&path, error.into_inner().to_string())
    })
}

fn wrong(path: &str, why: impl Into<String>) -> Fault {
    Fault::invalid(vec![(path.to_owned(), why.into())])
}
