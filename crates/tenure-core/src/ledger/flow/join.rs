//! Owns waiting for other steps: all of them, or the first of them.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::flow::Op;
use crate::id::{FlowId, TaskId};
use crate::ledger::flow::schedule::Round;
use crate::ledger::tasks::Ends;
use crate::ledger::{Ledger, Turn};
use crate::task::{Json, Status, Task, to_json, to_value};

impl Ledger {
    /// Looks at every join of a run: something it waits for may be over.
    pub(crate) fn look_at_joins(&mut self, turn: &mut Turn<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if flow.live.joins.is_empty() {
            return;
        }
        let mut joins = std::mem::take(&mut flow.live.joins);
        joins.retain_mut(|(join, done)| !self.look_at_join(turn, *join, done));
        if let Some(flow) = self.flows.get_mut(id) {
            // Joins that were scheduled meanwhile stand behind those that were there.
            joins.append(&mut flow.live.joins);
            flow.live.joins = joins;
        }
    }

    /// Looks at one join; says whether it is over. `done` is how many of its steps need not be looked at again.
    pub(crate) fn look_at_join(&mut self, turn: &mut Turn<'_>, id: TaskId, done: &mut usize) -> bool {
        let Some(task) = self.tasks.all.get(&id).filter(|task| !task.status.is_over()) else { return true };
        let Some(step) = self.step_of(task).cloned() else { return true };
        let round = (task.flow, &*self.suffix_of(Round::of(task)));
        let ends = match &step.op {
            Op::ExclusiveJoin { on, default } => self.first_of(round, on, default),
            Op::Join { on } => {
                let dynamic = task.extra.as_ref().and_then(|extra| extra.joined.clone());
                self.all_of(round, dynamic.as_deref().unwrap_or(on), done)
            }
            _ => return true,
        };
        match ends {
            Some(ends) => self.end_task(turn, id, ends.readable()),
            None => return false,
        }
        true
    }

    /// The end of a join whose steps have all been looked at.
    fn all_of(&self, round: (FlowId, &str), on: &[Arc<str>], done: &mut usize) -> Option<Ends> {
        while let Some(reference) = on.get(*done) {
            self.awaited(round, reference).filter(|task| task.executed)?;
            *done += 1;
        }
        let mut output = Map::new();
        let mut status = Status::Completed;
        let mut reasons = Vec::new();
        for reference in on {
            let Some(task) = self.awaited(round, reference) else { continue };
            output.insert(reference.to_string(), to_value(&task.output));
            if !task.status.is_success() {
                status = Status::Failed;
                reasons.push(format!("{reference}: {}", task.reason().unwrap_or(task.status.as_str())));
            } else if task.status == Status::CompletedWithErrors && status == Status::Completed {
                status = Status::CompletedWithErrors;
            }
        }
        let reason = (!reasons.is_empty()).then(|| reasons.join("; ").into());
        Some(Ends { status, output: Some(to_json(&Value::Object(output))), reason })
    }

    /// The end of a join that waits for the first of its steps; the defaults count if none of them was ever scheduled.
    fn first_of(&self, round: (FlowId, &str), on: &[Arc<str>], default: &[Arc<str>]) -> Option<Ends> {
        let is_open = |reference: &Arc<str>| self.awaited(round, reference).is_some_and(|task| !task.executed);
        if on.iter().any(is_open) {
            return None;
        }
        let ran = |reference: &Arc<str>| self.awaited(round, reference).filter(|task| task.executed);
        let found = on.iter().rev().find_map(ran).or_else(|| default.iter().find_map(ran))?;
        let output: Json = found.output.clone();
        let status = if found.status.is_success() { Status::Completed } else { Status::Failed };
        Some(Ends { status, output: Some(output), reason: found.reason().map(Into::into) })
    }

    /// The latest task of a step that a join waits for, in the same round.
    fn awaited(&self, (flow, suffix): (FlowId, &str), reference: &str) -> Option<&Task> {
        let flow = self.flows.get(flow)?;
        let id =
            if suffix.is_empty() { flow.task_of(reference) } else { flow.task_of(&format!("{reference}{suffix}")) }?;
        self.tasks.all.get(&id).map(|task| &**task)
    }
}
