//! Owns loops: rounds of one way, each with its own tasks, until a script or a list says that it is enough.
//!
//! The output of the loop has one field for each round, `iteration`, and the present item of its list. The list is read once,
//! when the loop begins: what its own steps do to it changes nothing. A loop can be inside a loop.

use serde_json::{Map, Value};

use crate::flow::template::fill;
use crate::flow::{Looping, Op};
use crate::id::{FlowId, TaskId};
use crate::ledger::flow::operators::fields;
use crate::ledger::flow::schedule::Round;
use crate::ledger::flow::scope::FlowScope;
use crate::ledger::tasks::Ends;
use crate::ledger::{Ledger, Turn};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::task::{Status, to_json, to_value};

impl Ledger {
    pub(crate) fn begin_loop(&mut self, turn: &mut Turn<'_>, id: TaskId, body: u32, until: &Looping) {
        if let Looping::Items(_) = until {
            let Some(items) = self.items_of(id) else {
                return self.fail(turn, id, "the items of the loop are not a list");
            };
            if items.is_empty() {
                return self.complete(turn, id, Some(to_json(&serde_json::json!({ "iteration": 0 }))));
            }
            if let Some(task) = self.tasks.all.get_mut(&id) {
                task.extra_mut().items = Some(to_json(&Value::Array(items)));
            }
        }
        self.begin_round(turn, id, body, 1);
    }

    fn begin_round(&mut self, turn: &mut Turn<'_>, id: TaskId, body: u32, iteration: u32) {
        self.enter_round(id, iteration);
        let Some(flow) = self.tasks.all.get(&id).map(|task| task.flow) else { return };
        self.watch_task(id);
        self.schedule(turn, flow, body, Some(Round { parent: id, iteration }));
    }

    /// Makes a round the present one, and forgets what came of it and of those after it.
    pub(crate) fn enter_round(&mut self, id: TaskId, iteration: u32) {
        let items = self.items_of(id);
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        let mut output = fields(to_value(&task.output));
        output.retain(|field, _| field.parse::<u32>().map_or(true, |round| round < iteration));
        output.insert("iteration".into(), iteration.into());
        if let Some(items) = items {
            let item = items.into_iter().nth(iteration as usize - 1).unwrap_or_default();
            output.insert("loopIndex".into(), (iteration - 1).into());
            output.insert("loopItem".into(), item);
        }
        task.output = to_json(&Value::Object(output));
        task.iteration = iteration;
        self.touch(id);
    }

    /// The list that a loop goes through: the one it began with, or what it would begin with now.
    fn items_of(&self, id: TaskId) -> Option<Vec<Value>> {
        let task = self.tasks.all.get(&id)?;
        let flow = self.flows.get(task.flow)?;
        let step = flow.step(task.step)?;
        let Op::Loop { until: Looping::Items(items), .. } = &step.op else { return None };
        let kept = task.extra.as_ref().and_then(|extra| extra.items.as_deref());
        let items = match kept {
            Some(kept) => to_value(kept),
            None => {
                let suffix = self.suffix_of(Round::of(task));
                fill(items.value(), &FlowScope { ledger: self, flow, task: Some(id), suffix }).ok()?
            }
        };
        if let Value::Array(items) = items { Some(items) } else { None }
    }

    /// Ends a round of which nothing is left to do.
    pub(crate) fn end_round_if_done(&mut self, turn: &mut Turn<'_>, flow: FlowId, id: TaskId) {
        let Some(found) = self.flows.get(flow).filter(|flow| !flow.status.is_over()) else { return };
        if found.live.open_in.get(&id).is_some_and(|open| *open > 0) {
            return;
        }
        let Some(task) = self.tasks.all.get(&id).filter(|task| !task.status.is_over()) else { return };
        let Some(step) = found.step(task.step).cloned() else { return };
        let Op::Loop { body, until } = &step.op else { return };
        let iteration = task.iteration;
        let round = self.outputs_of_round(flow, Round { parent: id, iteration });
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        let mut output = fields(to_value(&task.output));
        output.insert(iteration.to_string(), Value::Object(round.clone()));
        task.output = to_json(&Value::Object(output.clone()));
        if task.output.get().len() > PAYLOAD_BYTES_MAX {
            let reason = format!("the outputs of the loop are larger than {PAYLOAD_BYTES_MAX} bytes");
            return self.end_task(turn, id, Ends::with(Status::FailedWithTerminalError, reason));
        }
        self.touch(id);
        match until {
            Looping::Items(_) => {
                let more = self.items_of(id).is_some_and(|items| items.len() > iteration as usize);
                self.decide_round(turn, id, *body, more);
            }
            Looping::While(condition) => {
                let mut input = self.tasks.all.get(&id).map(|task| fields(to_value(&task.input))).unwrap_or_default();
                input.extend(round);
                input.insert(step.reference.to_string(), Value::Object(output));
                self.ask_about(turn, id, "script", Some(condition), Value::Object(input));
            }
        }
    }

    /// Goes round once more, or ends the loop.
    pub(crate) fn decide_round(&mut self, turn: &mut Turn<'_>, id: TaskId, body: u32, more: bool) {
        let Some(iteration) = self.tasks.all.get(&id).map(|task| task.iteration) else { return };
        if more {
            self.begin_round(turn, id, body, iteration + 1);
        } else {
            self.complete(turn, id, None);
        }
    }

    fn outputs_of_round(&self, flow: FlowId, round: Round) -> Map<String, Value> {
        let tasks = self.tasks_of(flow).filter(|task| Round::of(task) == Some(round) && !task.retried);
        let outputs = tasks.filter_map(|task| {
            let step = self.step_of(task)?;
            Some((step.reference.to_string(), to_value(&task.output)))
        });
        outputs.collect()
    }
}
