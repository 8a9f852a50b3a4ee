//! Owns loops: rounds of one way, each with its own tasks, until a script or a list says that it is enough.
//!
//! The output of the loop has one field for each round, `iteration`, and the present item of its list. The list is read once,
//! when the loop begins: what its own steps do to it changes nothing. A loop can be inside a loop.
//!
//! A round costs what it adds, not what the rounds before it left: their part of the output is copied, never read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::flow::template::fill;
use crate::flow::{LiveLoop, Looping, Op, Step};
use crate::id::{FlowId, TaskId};
use crate::json;
use crate::ledger::flow::schedule::Round;
use crate::ledger::flow::scope::FlowScope;
use crate::ledger::tasks::Ends;
use crate::ledger::{Ledger, Turn};
use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use crate::task::{Json, Status, Task, raw, to_json};

impl Ledger {
    pub(crate) fn begin_loop(&mut self, turn: &mut Turn<'_>, id: TaskId, body: u32, until: &Looping) {
        if let Looping::Items(_) = until {
            let Some(items) = self.items_of(id) else {
                return self.fail(turn, id, "the items of the loop are not a list");
            };
            if items.is_empty() {
                return self.complete(turn, id, Some(to_json(&serde_json::json!({ "iteration": 0 }))));
            }
            let list = written(&items);
            if list.get().len() > PAYLOAD_BYTES_MAX || json::depth(list.get()) >= PAYLOAD_DEPTH_MAX {
                let bounds = format!("{PAYLOAD_BYTES_MAX} bytes, or nested deeper than {PAYLOAD_DEPTH_MAX}");
                return self.fail(turn, id, format!("the items of the loop are larger than {bounds}"));
            }
            if let Some(task) = self.tasks.all.get_mut(&id) {
                task.extra_mut().items = Some(list);
            }
        }
        self.begin_round(turn, id, body, 1, None);
    }

    fn begin_round(&mut self, turn: &mut Turn<'_>, id: TaskId, body: u32, iteration: u32, ended: Option<&str>) {
        self.enter_round(id, iteration, ended);
        let Some(flow) = self.tasks.all.get(&id).map(|task| task.flow) else { return };
        self.watch_task(id);
        self.schedule(turn, flow, body, Some(Round { parent: id, iteration }));
    }

    /// Makes a round the present one, with what came of the one before it if that has just ended. What came of this one and
    /// of those after it is forgotten.
    pub(crate) fn enter_round(&mut self, id: TaskId, iteration: u32, ended: Option<&str>) {
        self.write_rounds(id, iteration, ended.map(|round| (iteration - 1, round)));
        self.live_loop(id, |live| live.enter(iteration));
    }

    /// Writes the output of a loop: where it stands, what came of its earlier rounds, and of the one that has just ended.
    fn write_rounds(&mut self, id: TaskId, iteration: u32, ended: Option<(u32, &str)>) {
        let items = self.items_of(id);
        let Some(task) = self.tasks.all.get(&id) else { return };
        let rounds_at = self.flows.get(task.flow).and_then(|flow| flow.live.loops.get(&id)?.rounds_at);
        let mut text = format!(r#"{{"iteration":{iteration}"#);
        if let Some(items) = &items {
            let item = items.get(iteration as usize - 1).map_or("null", |item| item.get());
            write!(text, r#","loopIndex":{},"loopItem":{item}"#, iteration - 1).ok();
        }
        let begin = text.len();
        text.push_str(&earlier_rounds(task, rounds_at, iteration));
        if let Some((number, round)) = ended {
            write!(text, r#","{number}":{round}"#).ok();
        }
        text.push('}');
        self.flows.spend(text.len());
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.output = raw(text);
        task.iteration = iteration;
        self.live_loop(id, |live| (live.rounds_at, live.items) = (Some(begin), items));
        self.touch(id);
    }

    /// The list that a loop goes through: the one it began with, or what it would begin with now.
    fn items_of(&self, id: TaskId) -> Option<Arc<[Json]>> {
        let task = self.tasks.all.get(&id)?;
        let flow = self.flows.get(task.flow)?;
        let Op::Loop { until: Looping::Items(items), .. } = &flow.step(task.step)?.op else { return None };
        if let Some(known) = flow.live.loops.get(&id).and_then(|live| live.items.clone()) {
            return Some(known);
        }
        if let Some(kept) = task.extra.as_ref().and_then(|extra| extra.items.as_deref()) {
            self.flows.spend(kept.get().len());
            let items: Vec<Box<RawValue>> = serde_json::from_str(kept.get()).ok()?;
            return Some(items.into_iter().map(Json::from).collect());
        }
        let suffix = self.suffix_of(Round::of(task));
        match fill(items.value(), &FlowScope { ledger: self, flow, task: Some(id), suffix }).ok()? {
            Value::Array(items) => Some(items.iter().map(to_json).collect()),
            _ => None,
        }
    }

    /// Ends a round of which nothing is left to do.
    pub(crate) fn end_round_if_done(&mut self, turn: &mut Turn<'_>, flow: FlowId, id: TaskId) {
        let Some(found) = self.flows.get(flow).filter(|flow| !flow.status.is_over()) else { return };
        if found.live.loops.get(&id).is_some_and(|live| live.open > 0) {
            return;
        }
        let Some(task) = self.tasks.all.get(&id).filter(|task| !task.status.is_over()) else { return };
        let Some(step) = found.step(task.step).cloned() else { return };
        let Op::Loop { body, until } = &step.op else { return };
        let iteration = task.iteration;
        let round = self.outputs_of_round(Round { parent: id, iteration }, found.live.loops.get(&id));
        let text = serde_json::to_string(&round).unwrap_or_default();
        if let Some(reason) = unfit(&task.output, &text) {
            return self.end_task(turn, id, Ends::with(Status::FailedWithTerminalError, reason));
        }
        match until {
            Looping::Items(_) if self.items_of(id).is_some_and(|items| items.len() > iteration as usize) => {
                self.begin_round(turn, id, *body, iteration + 1, Some(&text));
            }
            Looping::Items(_) => {
                self.write_rounds(id, iteration, Some((iteration, &text)));
                self.end_loop(turn, id);
            }
            Looping::While(condition) => {
                self.write_rounds(id, iteration, Some((iteration, &text)));
                let question = self.question_of(id, &step, &round);
                self.ask_about(turn, id, "script", Some(condition), &question);
            }
        }
    }

    /// What a condition is asked about: the input of the loop, the outputs of the round, and the loop's own by its name.
    fn question_of(&self, id: TaskId, step: &Step, round: &BTreeMap<Arc<str>, Json>) -> Json {
        let Some(task) = self.tasks.all.get(&id) else { return raw("{}".to_owned()) };
        let mut fields: BTreeMap<Arc<str>, Json> = serde_json::from_str(task.input.get()).unwrap_or_default();
        fields.extend(round.iter().map(|(name, output)| (name.clone(), output.clone())));
        fields.insert(step.reference.clone(), task.output.clone());
        written(&fields)
    }

    /// Goes round once more, or ends the loop.
    pub(crate) fn decide_round(&mut self, turn: &mut Turn<'_>, id: TaskId, body: u32, more: bool) {
        let Some(iteration) = self.tasks.all.get(&id).map(|task| task.iteration) else { return };
        if more {
            self.begin_round(turn, id, body, iteration + 1, None);
        } else {
            self.end_loop(turn, id);
        }
    }

    fn end_loop(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        // A loop inside a loop ends often, and each had a list.
        self.live_loop(id, |live| *live = LiveLoop::default());
        self.complete(turn, id, None);
    }

    fn outputs_of_round(&self, round: Round, live: Option<&LiveLoop>) -> BTreeMap<Arc<str>, Json> {
        let tasks = live.filter(|live| live.iteration == round.iteration).map_or(&[][..], |live| &live.tasks);
        let tasks = tasks.iter().filter_map(|id| self.tasks.all.get(id)).filter(|task| !task.retried);
        tasks.filter_map(|task| Some((self.step_of(task)?.reference.clone(), task.output.clone()))).collect()
    }

    fn live_loop(&mut self, id: TaskId, change: impl FnOnce(&mut LiveLoop)) {
        let Some(flow) = self.tasks.all.get(&id).map(|task| task.flow) else { return };
        if let Some(flow) = self.flows.get_mut(flow) {
            change(flow.live.loops.entry(id).or_default());
        }
    }
}

/// What came of the rounds before `iteration`, as it stands in the output: each with a comma before it.
fn earlier_rounds(task: &Task, rounds_at: Option<usize>, iteration: u32) -> String {
    let output = task.output.get();
    if let Some(begin) = rounds_at {
        return output.get(begin..output.len() - 1).unwrap_or_default().to_owned();
    }
    // The first time after a start, or when the run came back: then there may be later ones.
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(output).unwrap_or_default();
    let rounds = fields.iter().filter_map(|(field, round)| Some((field.parse::<u32>().ok()?, round)));
    let rounds: BTreeMap<u32, _> = rounds.filter(|(number, _)| *number < iteration).collect();
    rounds.iter().map(|(number, round)| format!(r#","{number}":{round}"#)).collect()
}

/// Why one more round is too much for the output of a loop.
fn unfit(output: &RawValue, round: &str) -> Option<String> {
    if output.get().len() + round.len() > PAYLOAD_BYTES_MAX {
        return Some(format!("the outputs of the loop are larger than {PAYLOAD_BYTES_MAX} bytes"));
    }
    let is_deep = json::depth(round) >= PAYLOAD_DEPTH_MAX;
    is_deep.then(|| format!("the outputs of the loop are nested deeper than {PAYLOAD_DEPTH_MAX}"))
}

fn written(value: &impl serde::Serialize) -> Json {
    raw(serde_json::to_string(value).unwrap_or_default())
}
