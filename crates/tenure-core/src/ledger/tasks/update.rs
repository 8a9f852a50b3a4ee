//! Owns what a worker says about a task (T2, T3): a heartbeat renews, a yield gives back, a result ends.
//!
//! A task that is held takes a word only from the attempt that holds it. Workers of protocols that carry no token are told
//! apart by their name where they say one; a word that comes too late changes nothing and leaves an event.

use crate::command::{Command, Renew};
use crate::event::{Event, EventKind};
use crate::flow::Op;
use crate::id::TaskId;
use crate::lease::End;
use crate::ledger::keep::Cause;
use crate::ledger::tasks::{Ends, queue_of, task_event};
use crate::ledger::{Ledger, Turn};
use crate::limits::{LOG_BYTES_MAX, LOGS_PER_TASK_MAX, LOGS_PER_UPDATE_MAX};
use crate::task::command::{Act, AddLog, Claimant, Late, Outcome, QueueName, TaskView, Update, UpdateStep, Updated};
use crate::task::{Log, Status, Task};
use crate::{Holder, Resource, Token};

/// Whose word an update is.
enum Voice {
    /// The holder's.
    Holder(Token),
    /// Somebody's, about a task that nobody holds.
    Outside,
    /// A former holder's.
    Late,
}

impl Command for Update {
    type Reply = Updated;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Updated {
        let Some(task) = ledger.tasks.all.get(&self.task) else {
            let outcome = ledger.late_for_unknown(turn, &self);
            return Updated { outcome, late: (outcome == Outcome::Late).then_some(Late::RunOver), next: None };
        };
        let late = lateness(task);
        let queue = queue_of(task);
        let is_end = matches!(self.act, Act::End { .. });
        let outcome = match voice_of(task, &self) {
            Voice::Late => ledger.late(turn, self.task, self.by.as_ref(), &self.act),
            voice => ledger.hear(turn, self.task, voice, self.by, self.act, self.logs),
        };
        let next = self.next.filter(|_| is_end).and_then(|by| ledger.next_for(turn, &queue, &by));
        Updated { outcome, late: (outcome == Outcome::Late).then_some(late), next }
    }
}

/// What a word about this task is late by, if it is not its holder's.
fn lateness(task: &Task) -> Late {
    match task.token {
        _ if task.status.is_over() => Late::Ended,
        Some(_) => Late::Held,
        None => Late::GivenBack,
    }
}

/// Whose word it is: the holder's, if it says the holder's name or none, and the holder's token or none.
fn voice_of(task: &Task, update: &Update) -> Voice {
    if task.status.is_over() {
        return Voice::Late;
    }
    let is_named_so = match (&task.worker, &update.by) {
        (Some(worker), Some(by)) => worker == by,
        (Some(_), None) => update.nameless_may_hold,
        (None, _) => true,
    };
    match (task.token, update.token) {
        (Some(held), said) if is_named_so && said.is_none_or(|said| said == held) => Voice::Holder(held),
        (Some(_), _) | (_, Some(_)) => Voice::Late,
        // Nobody has it: it was given back, or never handed out. A former holder has nothing to say any more.
        (None, None) if task.polls > 0 || matches!(update.act, Act::Beat) => Voice::Late,
        (None, None) => Voice::Outside,
    }
}

impl Ledger {
    /// Does what was said.
    fn hear(
        &mut self,
        turn: &mut Turn<'_>,
        id: TaskId,
        voice: Voice,
        by: Option<Holder>,
        act: Act,
        logs: Vec<Log>,
    ) -> Outcome {
        self.keep_logs(id, logs);
        match (voice, act) {
            (Voice::Holder(token), Act::Beat) => self.beat(turn, token),
            (_, Act::Beat) => {}
            (Voice::Holder(token), Act::Yield { after_s, output }) => {
                self.give_back(turn, id, token);
                self.delay(turn, id, after_s, output);
            }
            (_, Act::Yield { after_s, output }) => self.delay(turn, id, after_s, output),
            (voice, Act::End { status, output, reason }) => {
                if matches!(voice, Voice::Outside) {
                    self.tell_outside(turn, id, by);
                }
                self.end_task(turn, id, Ends { status, output: Some(output), reason });
            }
        }
        Outcome::Taken
    }

    /// Renews the lease; the task itself is not written (L13).
    fn beat(&mut self, turn: &mut Turn<'_>, token: Token) {
        let Some(holder) = self.leases.get(&token).map(|lease| lease.holder.clone()) else { return };
        Renew { tokens: vec![token], holder, ttl: None }.decide(self, turn);
    }

    fn give_back(&mut self, turn: &mut Turn<'_>, id: TaskId, token: Token) {
        self.tasks.by_token.remove(&token);
        self.end(turn, token, End::Released, Cause::default());
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        task.token = None;
        let queue = queue_of(task);
        self.tasks.queues.stopped(&queue);
    }

    /// Keeps what there is so far; a polled task is handed out again after a while (T3).
    fn delay(&mut self, turn: &mut Turn<'_>, id: TaskId, after_s: u64, output: crate::task::Json) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let (is_work, is_loop) =
            (self.is_work(task), self.step_of(task).is_some_and(|step| matches!(step.op, Op::Loop { .. })));
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        // What a loop has so far is what came of its rounds, whatever is said about it.
        if !is_loop {
            task.output = output;
        }
        task.updated_at = Some(turn.now());
        if !is_work {
            task.status = Status::InProgress;
            return self.touch(id);
        }
        task.callback_s = after_s;
        if task.is_queued {
            task.is_queued = false;
            let task = task.clone();
            self.tasks.queues.remove(&queue_of(&task), &task);
        }
        self.put_back(turn, id, turn.now().plus_ms(after_s.saturating_mul(1_000)));
    }

    pub(crate) fn keep_logs(&mut self, id: TaskId, logs: Vec<Log>) {
        if logs.is_empty() {
            return;
        }
        let Some(task) = self.tasks.all.get_mut(&id) else { return };
        let kept = &mut task.extra_mut().logs;
        kept.extend(logs.into_iter().take(LOGS_PER_UPDATE_MAX).map(shorten));
        let too_many = kept.len().saturating_sub(LOGS_PER_TASK_MAX);
        kept.drain(..too_many);
        self.touch(id);
    }

    /// A word that came too late: nothing changes, and the event says who was late.
    fn late(&mut self, turn: &mut Turn<'_>, id: TaskId, by: Option<&Holder>, act: &Act) -> Outcome {
        let Some(task) = self.tasks.all.get(&id) else { return Outcome::Unknown };
        let reason = match (lateness(task), &task.worker) {
            (Late::Ended, _) => format!("{} after the task was {}", said(act), task.status.as_str()),
            (Late::Held, Some(worker)) => format!("{} while {worker} holds the task", said(act)),
            (Late::Held, None) => format!("{} while another worker holds the task", said(act)),
            _ => format!("{} after the task was given back", said(act)),
        };
        let event = task_event(EventKind::TaskLate, turn.now(), task);
        self.emit(turn, Event { by: by.cloned(), reason: Some(reason.into()), ..event });
        Outcome::Late
    }

    /// The run of the task is over and in the store, or the id was never given out.
    fn late_for_unknown(&mut self, turn: &mut Turn<'_>, update: &Update) -> Outcome {
        if !self.was_granted(update.task.token()) {
            return Outcome::Unknown;
        }
        let event = Event {
            resources: [Resource::of_task(update.task)].into_iter().collect(),
            by: update.by.clone(),
            reason: Some(format!("{} after the workflow was over", said(&update.act)).into()),
            ..Event::new(EventKind::TaskLate, turn.now())
        };
        self.emit(turn, event);
        Outcome::Late
    }

    fn tell_outside(&mut self, turn: &mut Turn<'_>, id: TaskId, by: Option<Holder>) {
        let Some(task) = self.tasks.all.get(&id) else { return };
        let event = task_event(EventKind::TaskAnsweredOutside, turn.now(), task);
        self.emit(turn, Event { by, ..event });
    }

    /// The next task for a worker that has just ended one. What that end set off comes first: it may be the next.
    fn next_for(&mut self, turn: &mut Turn<'_>, queue: &QueueName, by: &Claimant) -> Option<Box<TaskView>> {
        self.follow_up(turn);
        let queue = self.tasks.queues.open(queue, false)?;
        if let Some(queue) = self.tasks.queues.get_mut(queue) {
            queue.last_poll = Some((turn.now(), by.worker.clone()));
        }
        self.claim_one(turn, queue, by).map(Box::new)
    }
}

fn said(act: &Act) -> &'static str {
    match act {
        Act::Beat => "a heartbeat came",
        Act::Yield { .. } => "a yield came",
        Act::End { .. } => "a result came",
    }
}

fn shorten(mut log: Log) -> Log {
    if log.line.len() > LOG_BYTES_MAX {
        let end = (0..=LOG_BYTES_MAX).rev().find(|at| log.line.is_char_boundary(*at)).unwrap_or(0);
        log.line = log.line.get(..end).unwrap_or_default().into();
    }
    log
}

impl Command for UpdateStep {
    type Reply = Option<TaskId>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Option<TaskId> {
        let id = match &self.reference {
            Some(reference) => ledger.open_task_of(self.flow, reference)?,
            None => ledger.first_waiting_task(self.flow, 0)?,
        };
        let task = ledger.tasks.all.get(&id)?;
        // What a worker holds takes its word from the worker only.
        if task.token.is_some() {
            ledger.late(turn, id, self.by.as_ref(), &self.act);
            return Some(id);
        }
        ledger.hear(turn, id, Voice::Outside, self.by, self.act, Vec::new());
        Some(id)
    }
}

impl Command for AddLog {
    type Reply = bool;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> bool {
        let is_there = ledger.tasks.all.contains_key(&self.task);
        ledger.keep_logs(self.task, vec![self.log]);
        is_there
    }
}
