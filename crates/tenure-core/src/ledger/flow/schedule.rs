//! Owns how a step becomes a task: its input is made, its domain found, and what it does is begun.

use std::sync::Arc;

use crate::flow::template::{Template, Unfit};
use crate::flow::{Flow, FlowStatus, Op, Step};
use crate::id::{FlowId, TaskId};
use crate::ledger::flow::define::with_retries;
use crate::ledger::flow::end::FlowEnds;
use crate::ledger::flow::scope::FlowScope;
use crate::ledger::flow::start::{Absent, with_defaults};
use crate::ledger::tasks::Ends;
use crate::ledger::{Ledger, Turn};
use crate::limits::{DOMAIN_ACTIVE_MS, TASKS_PER_FLOW_MAX};
use crate::task::command::QueueName;
use crate::task::{Extra, Json, Status, Task, TaskRules, bad_name, empty_object, to_value};
use crate::{Timestamp, Token};

/// A round of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    /// The loop's task.
    pub(crate) parent: TaskId,
    /// Which round.
    pub(crate) iteration: u32,
}

impl Round {
    /// The round a task is in.
    pub(crate) fn of(task: &Task) -> Option<Round> {
        let extra = task.extra.as_ref()?;
        let iteration = if extra.outer_round > 0 { extra.outer_round } else { task.iteration };
        Some(Round { parent: extra.parent?, iteration })
    }
}

impl Ledger {
    /// Makes a step a task; steps that an operator said to pass over are.
    pub(crate) fn schedule(&mut self, turn: &mut Turn<'_>, flow: FlowId, index: u32, round: Option<Round>) {
        self.schedule_with(turn, flow, index, round, None);
    }

    /// The same, with an input that is not made from the workflow.
    pub(crate) fn schedule_with(
        &mut self,
        turn: &mut Turn<'_>,
        flow: FlowId,
        index: u32,
        round: Option<Round>,
        given: Option<Json>,
    ) {
        let suffix = self.suffix_of(round);
        let Some(found) = self.flows.get(flow).filter(|flow| !flow.status.is_over()) else { return };
        let Some((index, step, reference)) = self.next_step(found, index, &suffix) else { return };
        if found.last_seq >= TASKS_PER_FLOW_MAX {
            let reason = format!("the workflow has {TASKS_PER_FLOW_MAX} tasks, more than one run may have");
            self.end_flow(turn, flow, FlowEnds::with(FlowStatus::Failed, reason));
            return;
        }
        let id = TaskId::from(self.next_token());
        let filled = given.map_or_else(|| self.input_for(flow, &step.input, id, suffix), Ok);
        let input = filled.as_ref().map_or_else(|_| empty_object(), Clone::clone);
        let task = self.new_task(turn, id, flow, (index, &step, reference), round, input);
        self.add_task(task);
        match filled {
            Ok(_) => self.begin_task(turn, id, &step),
            Err(unfit) => {
                self.end_task(turn, id, Ends::with(Status::FailedWithTerminalError, unfit.to_string()));
            }
        }
    }

    /// The first step from here on that is not passed over, with the name of its task.
    fn next_step(&self, flow: &Flow, from: u32, suffix: &str) -> Option<(u32, Arc<Step>, Arc<str>)> {
        let mut index = from;
        loop {
            let step = flow.step(index)?;
            let name = &step.reference;
            let reference = if suffix.is_empty() { name.clone() } else { format!("{name}{suffix}").into() };
            let skipped = flow.task_of(&reference).and_then(|id| self.tasks.all.get(&id));
            if skipped.is_none_or(|task| task.status != Status::Skipped) {
                return Some((index, step.clone(), reference));
            }
            index = step.next?;
        }
    }

    pub(crate) fn input_for(
        &self,
        flow: FlowId,
        template: &Template,
        task: TaskId,
        suffix: String,
    ) -> Result<Json, Unfit> {
        let Some(flow) = self.flows.get(flow) else { return Ok(empty_object()) };
        template.fill(&FlowScope { ledger: self, flow, task: Some(task), suffix })
    }

    pub(crate) fn new_task(
        &mut self,
        turn: &Turn<'_>,
        id: TaskId,
        flow: FlowId,
        (index, step, reference): (u32, &Step, Arc<str>),
        round: Option<Round>,
        input: Json,
    ) -> Box<Task> {
        let defaults = step.rules.as_ref().and_then(|rules| rules.defaults.as_ref()).map(|defaults| &defaults.0);
        let in_round = round.map_or(0, |round| round.iteration);
        let (iteration, outer_round) = if matches!(step.op, Op::Loop { .. }) { (0, in_round) } else { (in_round, 0) };
        let extra = round.map(|round| Extra { parent: Some(round.parent), outer_round, ..Extra::default() });
        let found = self.flows.get_mut(flow);
        let (seq, priority) = found.map_or((0, 0), |flow| {
            flow.last_seq += 1;
            (flow.last_seq, flow.priority)
        });
        Box::new(Task {
            id,
            flow,
            step: index,
            seq,
            reference,
            name: step.name.clone(),
            domain: None,
            status: Status::Scheduled,
            priority,
            input: with_defaults(input, defaults, Absent::OrNull),
            output: empty_object(),
            retries: 0,
            polls: 0,
            iteration,
            scheduled_at: turn.now(),
            visible_at: turn.now(),
            first_scheduled_at: turn.now(),
            started_at: None,
            updated_at: None,
            ended_at: None,
            callback_s: 0,
            worker: None,
            token: None,
            executed: false,
            retried: false,
            extra: extra.map(Box::new),
            is_queued: false,
            is_stored: false,
        })
    }

    /// Takes a task into its run.
    pub(crate) fn add_task(&mut self, task: Box<Task>) {
        self.link(&task);
        // The run's record has the number of its last task; that can be worked out from the tasks, so it is not written.
        self.insert_task(task);
    }

    /// Begins what a step does.
    fn begin_task(&mut self, turn: &mut Turn<'_>, id: TaskId, step: &Arc<Step>) {
        if !step.op.is_work() {
            return self.begin_operator(turn, id, step);
        }
        if let Op::Dynamic { param } = &step.op
            && !self.name_dynamic(turn, id, param, step.retries)
        {
            return;
        }
        self.find_domain(turn, id);
        let delay_ms = step.delay_s.saturating_mul(1_000);
        if let Some(task) = self.tasks.all.get_mut(&id) {
            task.callback_s = step.delay_s;
        }
        self.put_back(turn, id, turn.now().plus_ms(delay_ms));
    }

    /// Gives a task the name that its input says; ends it if there is none.
    fn name_dynamic(&mut self, turn: &mut Turn<'_>, id: TaskId, param: &str, retries: Option<u32>) -> bool {
        let Some(task) = self.tasks.all.get_mut(&id) else { return false };
        let input = to_value(&task.input);
        let name = input.get(param).and_then(|name| name.as_str()).unwrap_or_default();
        if let Some(why) = bad_name(name) {
            let reason = format!("the name of the task is not in its input: {param} {why}");
            self.end_task(turn, id, Ends::with(Status::FailedWithTerminalError, reason));
            return false;
        }
        let name: Arc<str> = name.into();
        let registered = self.tasks.defs.get(&name).map(|def| def.rules.clone());
        let rules = registered.unwrap_or_else(|| Arc::new(TaskRules::undefined()));
        task.name = name;
        task.extra_mut().rules = Some(with_retries(rules, retries));
        true
    }

    /// Finds where a task is polled: the first domain of its list that somebody polls, or the last one.
    fn find_domain(&mut self, turn: &Turn<'_>, id: TaskId) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let Some(flow) = self.flows.get(task.flow) else { return };
        let Some(listed) = flow.domains.get(&*task.name).or_else(|| flow.domains.get("*")) else { return };
        let names = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
        let is_polled = |domain: &str| {
            let domain = (domain != NO_DOMAIN).then(|| Arc::from(domain));
            let polled_at = self.tasks.queues.polled_at(&QueueName { name: task.name.clone(), domain });
            polled_at.is_some_and(|at| turn.now().ms_since(at) <= DOMAIN_ACTIVE_MS)
        };
        let chosen = names.clone().find(|domain| is_polled(domain)).or_else(|| names.clone().next_back());
        let domain = chosen.filter(|domain| *domain != NO_DOMAIN).map(Arc::from);
        if let Some(task) = self.tasks.all.get_mut(&id) {
            task.domain = domain;
        }
    }

    /// Makes the next attempt of a task that is over (T4).
    pub(crate) fn schedule_again(&mut self, turn: &mut Turn<'_>, old: TaskId, delay_ms: u64) -> Option<TaskId> {
        let id = TaskId::from(self.next_token());
        let before = self.tasks.all.get(&old)?;
        let step = self.step_of(before)?.clone();
        let (flow, round) = (before.flow, Round::of(before));
        let filled = self.input_for(flow, &step.input, id, self.suffix_of(round));
        let before = self.tasks.all.get_mut(&old)?;
        before.retried = true;
        let mut extra = before.extra.clone().unwrap_or_default();
        extra.retry_of = Some(old);
        (extra.child, extra.items, extra.logs) = (None, None, Vec::new());
        (extra.alerted.attempt, extra.alerted.poll) = (false, false);
        let seq = self.flows.get_mut(flow).map_or(0, |flow| {
            flow.last_seq += 1;
            flow.last_seq
        });
        let before = self.tasks.all.get(&old)?;
        let task = Box::new(Task {
            id,
            seq,
            input: filled.unwrap_or_else(|_| before.input.clone()),
            output: empty_object(),
            status: Status::Scheduled,
            retries: before.retries + 1,
            polls: 0,
            scheduled_at: turn.now(),
            visible_at: turn.now(),
            started_at: None,
            updated_at: None,
            ended_at: None,
            callback_s: delay_ms / 1_000,
            worker: None,
            token: None,
            executed: false,
            retried: false,
            extra: Some(extra),
            is_queued: false,
            is_stored: false,
            ..Task::clone(before)
        });
        self.touch(old);
        self.add_task(task);
        if step.op.is_work() {
            self.put_back(turn, id, turn.now().plus_ms(delay_ms));
        } else {
            self.begin_operator(turn, id, &step);
        }
        Some(id)
    }
}

const NO_DOMAIN: &str = "NO_DOMAIN";

/// A little chance that needs none: what differs between tasks, spread over a range.
pub(crate) fn jitter(seed: Token, at: Timestamp, max_ms: u64) -> u64 {
    let mixed = (seed.as_u64() ^ at.unix_ms().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if max_ms == 0 { 0 } else { (mixed >> 16) % (max_ms + 1) }
}

impl Flow {
    /// What follows a step, all of it.
    pub(crate) fn followers(&self, task: &Task) -> Vec<u32> {
        let Some(step) = self.step(task.step) else { return Vec::new() };
        match &step.op {
            Op::Fork { ways } => ways.iter().copied().chain(step.next).collect(),
            Op::Switch { .. } => self.chosen_way(step, task).or(step.next).into_iter().collect(),
            _ => step.next.into_iter().collect(),
        }
    }
}
