//! Owns the steps that no worker does: choices, forks, variables, ends; and asking the server's evaluator.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::command::Command;
use crate::flow::command::{Answer, Evaluated};
use crate::flow::{Branch, Choice, Flow, FlowStatus, Op, Step};
use crate::id::TaskId;
use crate::lease::End;
use crate::ledger::flow::end::FlowEnds;
use crate::ledger::flow::schedule::Round;
use crate::ledger::keep::Cause;
use crate::ledger::tasks::{Ends, queue_of};
use crate::ledger::{Ledger, Turn};
use crate::limits::{STEPS_PER_PLAN_MAX, VARIABLES_BYTES_MAX};
use crate::task::{Json, Status, Task, raw, to_json, to_value};

impl Ledger {
    /// Begins a step that no worker does.
    pub(crate) fn begin_operator(&mut self, turn: &mut Turn<'_>, id: TaskId, step: &Arc<Step>) {
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.status = Status::InProgress;
        task.started_at = Some(turn.now());
        task.updated_at = Some(turn.now());
        match &step.op {
            Op::Work | Op::Dynamic { .. } => {}
            Op::Fork { .. } | Op::Noop => self.complete(turn, id, None),
            Op::Switch { by: Choice::Param(param), .. } => self.choose_by_param(turn, id, param),
            Op::Switch { by: Choice::Script(expression), .. } => self.ask(turn, id, "script", Some(expression)),
            Op::DynamicFork => self.ask(turn, id, "fork", None),
            Op::Script => self.ask(turn, id, "inline", None),
            Op::Transform => self.ask(turn, id, "transform", None),
            Op::StartFlow => self.ask(turn, id, "start", None),
            Op::Join { .. } | Op::ExclusiveJoin { .. } => {
                self.expect(id);
                if !self.look_at_join(turn, id, &mut 0) {
                    self.watch_task(id);
                }
            }
            Op::Loop { body, until } => self.begin_loop(turn, id, *body, until),
            Op::SubFlow(sub) => self.begin_subflow(turn, id, sub),
            Op::Wait => self.begin_wait(turn, id),
            Op::Human => self.watch_task(id),
            Op::Terminate => self.terminate(turn, id),
            Op::SetVariable => self.set_variables(turn, id),
        }
    }

    pub(crate) fn complete(&mut self, turn: &mut Turn<'_>, id: TaskId, output: Option<Json>) {
        self.end_task(turn, id, Ends { status: Status::Completed, output, reason: None }.readable());
    }

    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, id: TaskId, reason: impl Into<Box<str>>) {
        self.end_task(turn, id, Ends::with(Status::FailedWithTerminalError, reason));
    }

    fn choose_by_param(&mut self, turn: &mut Turn<'_>, id: TaskId, param: &str) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let found = to_value(&task.input).get(param).cloned().unwrap_or_default();
        self.choose(turn, id, &found);
    }

    /// Notes the way a switch goes.
    fn choose(&mut self, turn: &mut Turn<'_>, id: TaskId, found: &Value) {
        let case = match found {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let output = json!({ "evaluationResult": [case], "selectedCase": case });
        self.complete(turn, id, Some(to_json(&output)));
    }

    fn set_variables(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let (flow, input) = (task.flow, task.input.clone());
        let Some(found) = self.flows.get(flow) else { return };
        let mut variables = to_value(&found.variables);
        if let (Value::Object(variables), Value::Object(new)) = (&mut variables, to_value(&input)) {
            variables.extend(new);
        }
        let variables = to_json(&variables);
        if variables.get().len() > VARIABLES_BYTES_MAX {
            let reason = format!("the variables of a workflow are limited to {VARIABLES_BYTES_MAX} bytes");
            return self.fail(turn, id, reason);
        }
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.variables = variables;
        }
        self.touch_flow(flow);
        self.complete(turn, id, Some(input));
    }

    /// Ends the run as the step's input says.
    fn terminate(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let (flow, input) = (task.flow, to_value(&task.input));
        let status = match input.get("terminationStatus").and_then(Value::as_str) {
            Some("COMPLETED") => FlowStatus::Completed,
            Some("FAILED") => FlowStatus::Failed,
            Some("TERMINATED") => FlowStatus::Terminated,
            _ => return self.fail(turn, id, "terminationStatus must be COMPLETED, FAILED or TERMINATED"),
        };
        let output = input.get("workflowOutput").filter(|output| output.is_object()).map(to_json);
        self.complete(turn, id, output.clone().or_else(|| Some(to_json(&json!({ "output": {} })))));
        let said = input.get("terminationReason").and_then(Value::as_str).map(Box::from);
        let by_itself = || format!("Workflow is {} by TERMINATE task: {id}", status.as_str()).into();
        let reason = if status == FlowStatus::Completed { said } else { said.or_else(|| Some(by_itself())) };
        let was_wanted = status == FlowStatus::Completed;
        self.end_flow(turn, flow, FlowEnds { status, reason, output, failed: Some(id), was_wanted });
    }

    /// Leaves a question for the server's evaluator, who polls for it like any worker.
    pub(crate) fn ask(&mut self, turn: &mut Turn<'_>, id: TaskId, what: &str, expression: Option<&str>) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let input = task.input.clone();
        self.ask_about(turn, id, what, expression, &input);
    }

    pub(crate) fn ask_about(
        &mut self,
        turn: &mut Turn<'_>,
        id: TaskId,
        what: &str,
        expression: Option<&str>,
        input: &RawValue,
    ) {
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        let (what, expression) = (Value::from(what), Value::from(expression));
        let question = format!(r#"{{"what":{what},"expression":{expression},"input":{input}}}"#);
        task.extra_mut().asked = Some(raw(question));
        self.put_back(turn, id, turn.now());
    }

    /// Takes the evaluator's answer.
    fn answered(&mut self, turn: &mut Turn<'_>, id: TaskId, answer: Result<Answer, Box<str>>) {
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.extra_mut().asked = None;
        let Some(step) = self.tasks.all.get(&id).and_then(|task| self.step_of(task)).cloned() else { return };
        match (&step.op, answer) {
            (Op::Switch { .. }, Ok(Answer::Value(found))) => self.choose(turn, id, &found),
            (Op::Switch { .. }, Err(why)) => self.end_task(turn, id, Ends::with(Status::Failed, why)),
            (Op::Loop { body, .. }, Ok(Answer::Value(found))) => self.decide_round(turn, id, *body, is_true(&found)),
            (_, Ok(Answer::Output(output))) => self.complete(turn, id, Some(output)),
            (Op::DynamicFork, Ok(Answer::Ways(ways))) => self.fork(turn, id, ways),
            (Op::StartFlow, Ok(Answer::Start(start))) => self.start_aside(turn, id, *start),
            (_, Err(why)) => self.fail(turn, id, why),
            (_, Ok(_)) => self.fail(turn, id, "the evaluator gave an answer to another question"),
        }
    }

    /// Adds the steps of a fork that were worked out while running, and goes all of its ways.
    fn fork(&mut self, turn: &mut Turn<'_>, id: TaskId, ways: Vec<Vec<Step>>) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let (flow, round) = (task.flow, Round::of(task));
        let Some(found) = self.flows.get(flow) else { return };
        let count: usize = ways.iter().map(Vec::len).sum();
        if found.added.len() + count > STEPS_PER_PLAN_MAX {
            let reason = format!("the steps that a run can add while running are limited to {STEPS_PER_PLAN_MAX}");
            return self.fail(turn, id, reason);
        }
        let mut at = (found.plan.steps.len() + found.added.len()) as u32;
        let (mut added, mut firsts, mut lasts) = (Vec::new(), Vec::new(), Vec::new());
        for way in ways {
            let Some(last) = way.last().map(|last| last.reference.clone()) else { continue };
            firsts.push(at);
            lasts.push(last);
            let end = at + way.len() as u32;
            for step in way {
                at += 1;
                let next = (at < end).then_some(at);
                added.push(Arc::new(Step { next, ..self.fix_step(&step) }));
            }
        }
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.added.extend(added);
        }
        self.touch_flow(flow);
        let forked: Vec<Value> = lasts.iter().map(|last| Value::from(&**last)).collect();
        if let Some(task) = self.tasks.all.get_mut(&id) {
            task.extra_mut().joined = Some(lasts.into());
        }
        for first in firsts {
            self.schedule(turn, flow, first, round);
        }
        self.complete(turn, id, Some(to_json(&json!({ "forkedTasks": forked }))));
    }

    /// Tells a join behind a fork that was worked out while running what it waits for.
    fn expect(&mut self, id: TaskId) {
        let Some(join) = self.tasks.all.get(&id) else { return };
        let is_fork = |task: &&Task| {
            let step = self.step_of(task);
            step.is_some_and(|step| step.next == Some(join.step)) && Round::of(task) == Round::of(join)
        };
        // It has only just begun, so it is near the end of what may be very many.
        let fork = self.tasks_of(join.flow).rev().find(is_fork);
        let joined = fork.and_then(|fork| fork.extra.as_ref()?.joined.clone());
        if let (Some(joined), Some(join)) = (joined, self.tasks.all.get_mut(&id)) {
            join.extra_mut().joined = Some(joined);
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        Value::String(text) => text == "true",
        _ => false,
    }
}

impl Command for Evaluated {
    type Reply = bool;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> bool {
        let asked = ledger.tasks.all.get(&self.task);
        let held = asked.filter(|task| task.token == Some(self.token) && !task.status.is_over());
        let Some(task) = held else { return false };
        let queue = queue_of(task);
        ledger.tasks.forget_token(self.token);
        ledger.end(turn, self.token, End::Released, Cause::default());
        ledger.tasks.queues.stopped(&queue);
        if let Some(task) = ledger.tasks.all.get_mut(&self.task) {
            task.token = None;
        }
        ledger.answered(turn, self.task, self.answer);
        ledger.touch(self.task);
        true
    }
}

impl Flow {
    /// The first step of the way that a switch took; nothing if that way is empty.
    pub(crate) fn chosen_way(&self, step: &Step, task: &Task) -> Option<u32> {
        let Op::Switch { cases, default, .. } = &step.op else { return None };
        let output = to_value(&task.output);
        let case = output.get("selectedCase").and_then(Value::as_str).unwrap_or_default();
        let found = cases.iter().find(|branch: &&Branch| *branch.case == *case);
        found.map_or(*default, |branch| branch.first)
    }
}

/// Fields of an object, or none.
pub(crate) fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
