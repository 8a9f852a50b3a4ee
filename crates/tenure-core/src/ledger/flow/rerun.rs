//! Owns what a run takes back when it is run again from one of its tasks. What ran beside that task stays.
//!
//! Taken back is what its way leads to, every later round of the loops around it, and what follows those. A join that waited for
//! any of it and a loop around it stay and are opened again: nothing would schedule them a second time.

use std::collections::HashSet;

use crate::flow::{Archived, Flow, Op};
use crate::id::TaskId;
use crate::ledger::flow::schedule::Round;
use crate::task::{Status, Task};

/// Takes back what came of a task; the rounds that the loops around it go on in.
pub(super) fn take_back(archived: &mut Archived, from: usize) -> Vec<Round> {
    let Some(task) = archived.tasks.get(from) else { return Vec::new() };
    let mut undo = Undo::of(archived);
    undo.gone.insert(task.id);
    undo.redo(task);
    while undo.spread() {}
    let Undo { gone, opened, rounds, .. } = undo;
    archived.tasks.retain(|task| !gone.contains(&task.id));
    for task in archived.tasks.iter_mut().filter(|task| opened.contains(&task.id)) {
        reopen(task);
    }
    rounds
}

/// Takes the end of a task back.
pub(super) fn reopen(task: &mut Task) {
    task.status = Status::InProgress;
    (task.ended_at, task.executed) = (None, false);
    if let Some(extra) = &mut task.extra {
        extra.reason = None;
    }
}

struct Undo<'a> {
    flow: &'a Flow,
    tasks: &'a [Task],
    gone: HashSet<TaskId>,
    opened: HashSet<TaskId>,
    rounds: Vec<Round>,
    /// The steps that are gone or opened, in their rounds.
    touched: HashSet<(Option<Round>, &'a str)>,
}

impl<'a> Undo<'a> {
    fn of(archived: &'a Archived) -> Undo<'a> {
        Undo {
            flow: &archived.flow,
            tasks: &archived.tasks,
            gone: HashSet::new(),
            opened: HashSet::new(),
            rounds: Vec::new(),
            touched: HashSet::new(),
        }
    }

    /// A task will be over once more: what its way leads to is gone, and the loops around it go on in its round.
    fn redo(&mut self, task: &'a Task) {
        let round = Round::of(task);
        self.touch(task);
        let leads_to = self.leads_to(task.step);
        let later = self.tasks.iter().filter(|other| other.seq > task.seq && Round::of(other) == round);
        let after = later.filter(|other| other.step == task.step || leads_to.contains(&other.step));
        self.gone.extend(after.map(|other| other.id));
        let Some(round) = round else { return };
        let is_later = |other: &&Task| {
            Round::of(other).is_some_and(|of| of.parent == round.parent && of.iteration > round.iteration)
        };
        self.gone.extend(self.tasks.iter().filter(is_later).map(|other| other.id));
        let around = self.tasks.iter().find(|other| other.id == round.parent);
        if let Some(around) = around.filter(|around| self.opened.insert(around.id)) {
            self.rounds.push(round);
            self.redo(around);
        }
    }

    /// Finds more that is gone or opened because of what is; says whether there was any.
    fn spread(&mut self) -> bool {
        let before = (self.gone.len(), self.opened.len());
        let ways = self.gone_ways();
        for task in self.tasks {
            // What is inside a loop comes after it.
            if task.parent().is_some_and(|parent| self.gone.contains(&parent)) || self.is_in_one_of(&ways, task) {
                self.gone.insert(task.id);
            }
            if self.gone.contains(&task.id) {
                self.touch(task);
            }
        }
        for task in self.tasks {
            let stays = task.status.is_success() && !self.gone.contains(&task.id);
            if stays && self.waits_for_touched(task) && self.opened.insert(task.id) {
                self.redo(task);
            }
        }
        before != (self.gone.len(), self.opened.len())
    }

    fn touch(&mut self, task: &'a Task) {
        if let Some(step) = self.flow.step(task.step) {
            self.touched.insert((Round::of(task), &step.reference));
        }
    }

    fn waits_for_touched(&self, task: &Task) -> bool {
        let on = match self.flow.step(task.step).map(|step| &step.op) {
            Some(Op::Join { on } | Op::ExclusiveJoin { on, .. }) => on,
            _ => return false,
        };
        let dynamic = task.extra.as_ref().and_then(|extra| extra.joined.as_deref());
        let round = Round::of(task);
        dynamic.unwrap_or(on).iter().any(|reference| self.touched.contains(&(round, &**reference)))
    }

    /// The ends of the ways of forks that were worked out while running and will be worked out anew.
    fn gone_ways(&self) -> HashSet<(Option<Round>, &'a str)> {
        let forks = self.tasks.iter().filter(|fork| {
            let op = self.flow.step(fork.step).map(|step| &step.op);
            matches!(op, Some(Op::DynamicFork)) && self.gone.contains(&fork.id)
        });
        let ends = |fork: &'a Task| {
            let joined = fork.extra.as_ref().and_then(|extra| extra.joined.as_deref()).unwrap_or_default();
            joined.iter().map(move |last| (Round::of(fork), &**last))
        };
        forks.flat_map(ends).collect()
    }

    fn is_in_one_of(&self, ways: &HashSet<(Option<Round>, &str)>, task: &Task) -> bool {
        let was_added = task.step as usize >= self.flow.plan.steps.len();
        let steps = || self.leads_to(task.step).into_iter().chain([task.step]);
        let is_end = |step| self.flow.step(step).is_some_and(|step| ways.contains(&(Round::of(task), &step.reference)));
        was_added && !ways.is_empty() && steps().any(is_end)
    }

    /// All steps that a step leads to, its own way and those that begin there.
    fn leads_to(&self, from: u32) -> HashSet<u32> {
        let (mut found, mut open) = (HashSet::new(), vec![from]);
        while let Some(step) = open.pop().and_then(|step| self.flow.step(step)) {
            let ways: Vec<u32> = match &step.op {
                Op::Fork { ways } => ways.clone(),
                Op::Switch { cases, default, .. } => {
                    cases.iter().filter_map(|case| case.first).chain(*default).collect()
                }
                _ => Vec::new(),
            };
            open.extend(ways.into_iter().chain(step.next).filter(|next| found.insert(*next)));
        }
        found
    }
}
