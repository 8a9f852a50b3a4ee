//! Owns the poll (T1): one atomic claim that makes a task's attempt a lease; and what waits for one.

use crate::command::{Acquire, Command, WaiterId};
use crate::id::TaskId;
use crate::lease::End;
use crate::lease::Mode;
use crate::ledger::conflict::{Chain, Wanted};
use crate::ledger::deadlines::Due;
use crate::ledger::keep::Cause;
use crate::ledger::tasks::queue::Waiting;
use crate::ledger::tasks::{QueueId, queue_of};
use crate::ledger::{Ledger, Turn};
use crate::limits::{POLL_WAIT_MS_MAX, POLLS_PER_QUEUE_MAX, TASKS_PER_POLL_MAX, TTL_MS_MAX};
use crate::task::command::{Claimant, Poll, Polled, TaskView, Unclaim};
use crate::task::{Status, Task};
use crate::{Holder, Resource, Token, Ttl};

/// The lease of a worker that does not say its name.
const NAMELESS: &str = "unnamed worker";
/// How long the server's own evaluator may be silent.
const EVALUATION_TTL_MS: u64 = 60_000;
/// How many tasks at the front of a queue may be blocked by leases of other doors before a poll gives up.
const BLOCKED_MAX: usize = 64;

impl Command for Poll {
    type Reply = Polled;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Polled {
        let Some(queue) = ledger.tasks.queues.open(&self.queue, false) else { return Polled::Tasks(Vec::new()) };
        if let Some(queue) = ledger.tasks.queues.get_mut(queue) {
            queue.last_poll = Some((turn.now(), self.by.worker.clone()));
        }
        let count = self.count.clamp(1, TASKS_PER_POLL_MAX);
        let tasks = ledger.claim(turn, queue, &self.by, count);
        let is_full = ledger.tasks.queues.get(queue).is_none_or(|queue| queue.waiting.len() >= POLLS_PER_QUEUE_MAX);
        if !tasks.is_empty() || self.wait_ms == 0 || is_full {
            return Polled::Tasks(tasks);
        }
        let deadline = turn.now().plus_ms(self.wait_ms.min(POLL_WAIT_MS_MAX));
        let id = ledger.queue.next_id();
        ledger.tasks.queues.wait(queue, id, Waiting { by: self.by, count, deadline });
        ledger.deadlines.push(deadline, Due::Poll(id));
        Polled::Queued(id)
    }
}

impl Command for Unclaim {
    type Reply = ();

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) {
        for (id, token) in self.0 {
            ledger.unclaim(turn, id, token);
        }
    }
}

impl Ledger {
    /// Claims up to `count` tasks.
    pub(crate) fn claim(&mut self, turn: &mut Turn<'_>, queue: QueueId, by: &Claimant, count: usize) -> Vec<TaskView> {
        let mut claimed = Vec::new();
        while claimed.len() < count
            && let Some(task) = self.claim_one(turn, queue, by)
        {
            claimed.push(task);
        }
        claimed
    }

    pub(crate) fn claim_one(&mut self, turn: &mut Turn<'_>, queue: QueueId, by: &Claimant) -> Option<TaskView> {
        let id = self.next_in(turn, queue)?;
        let task = self.tasks.all.get(&id)?;
        let (name, rules) = (queue_of(task), self.rules_of(task));
        let holder = by.worker.clone().or_else(|| Holder::parse(NAMELESS).ok())?;
        let ttl = ttl_of(task, rules.response_s, by.grace_ms);
        let request = Acquire::new([Resource::of_task(id)], holder, ttl);
        self.admit(&request).ok()?;
        self.tasks.queues.remove(&name, task);
        let lease = self.grant(turn, request).lease;
        self.tasks.queues.started(&name, rules.rate.map(|_| turn.now()));
        self.tasks.by_token.insert(lease.token, id);
        let task = self.tasks.all.get_mut(&id)?;
        task.is_queued = false;
        task.token = Some(lease.token);
        task.status = Status::InProgress;
        task.worker = by.worker.as_ref().map(|_| lease.holder.clone());
        task.polls += 1;
        task.callback_s = 0;
        task.started_at.get_or_insert(turn.now());
        task.updated_at = Some(turn.now());
        self.touch(id);
        self.watch_task(id);
        self.view(self.tasks.all.get(&id)?)
    }

    /// The task that is next in this queue, if limits let it through.
    fn next_in(&mut self, turn: &Turn<'_>, queue: QueueId) -> Option<TaskId> {
        let found = self.tasks.queues.get(queue)?;
        let free = |id: &TaskId| self.is_free(*id);
        let id = found.ready().take(BLOCKED_MAX).find(free)?;
        let name = found.name.name.clone();
        let rules = self.rules_of(self.tasks.all.get(&id)?);
        if rules.concurrent_max.is_some_and(|max| self.tasks.queues.running(&name) >= max as usize) {
            return None;
        }
        let Some(rate) = rules.rate else { return Some(id) };
        let opens_at = self.tasks.queues.open_at(&name, rate, turn.now());
        if let Some(at) = opens_at {
            self.tasks.queues.get_mut(queue)?.wakes_at = Some(at);
            self.deadlines.push_again(at, Due::Queue(queue));
            return None;
        }
        Some(id)
    }

    /// Whether no other door's lease stands against holding this task.
    fn is_free(&self, id: TaskId) -> bool {
        let resources = [Resource::of_task(id)].into_iter().collect();
        let chain = Chain::new();
        self.obstacle(&Wanted { resources: &resources, mode: Mode::Exclusive, chain: &chain, place: None }).is_none()
    }

    /// Takes a claim back that never reached its worker.
    fn unclaim(&mut self, turn: &mut Turn<'_>, id: TaskId, token: Token) {
        let claimed = self.tasks.all.get(&id);
        let held = claimed.filter(|task| task.token == Some(token) && !task.status.is_over());
        let Some(task) = held else { return };
        let (queue, visible_at) = (queue_of(task), task.visible_at);
        self.tasks.by_token.remove(&token);
        let reason = Some("the answer to the poll could not be delivered".into());
        self.end(turn, token, End::Released, Cause { reason, ..Cause::default() });
        self.tasks.queues.not_started(&queue);
        if let Some(task) = self.tasks.all.get_mut(&id) {
            task.polls = task.polls.saturating_sub(1);
            if task.polls == 0 {
                (task.started_at, task.worker) = (None, None);
            }
        }
        self.put_back(turn, id, visible_at);
    }

    /// Hands out what became available to the polls that wait for it, the oldest first.
    pub(crate) fn serve_polls(&mut self, turn: &mut Turn<'_>) {
        while let Some(queue) = self.tasks.queues.next_offered() {
            while let Some(id) = self.first_waiting(queue) {
                if !turn.is_waiting(id) {
                    self.tasks.queues.leave(id);
                    continue;
                }
                let Some((by, count)) = self.wish_of(queue, id) else { break };
                let tasks = self.claim(turn, queue, &by, count);
                if tasks.is_empty() {
                    break;
                }
                self.tasks.queues.leave(id);
                turn.polled.push((id, tasks));
            }
        }
    }

    fn first_waiting(&self, queue: QueueId) -> Option<WaiterId> {
        let queue = self.tasks.queues.get(queue)?;
        if queue.len() == 0 {
            return None;
        }
        queue.waiting.keys().next().copied()
    }

    fn wish_of(&self, queue: QueueId, id: WaiterId) -> Option<(Claimant, usize)> {
        let waiting = self.tasks.queues.get(queue)?.waiting.get(&id)?;
        Some((waiting.by.clone(), waiting.count))
    }

    /// Answers a poll that waited in vain.
    pub(crate) fn poll_timed_out(&mut self, turn: &mut Turn<'_>, id: WaiterId) {
        if self.tasks.queues.leave(id).is_some() {
            turn.polled.push((id, Vec::new()));
        }
    }

    /// The rate limit of a queue lets one more through.
    pub(crate) fn queue_opened(&mut self, id: QueueId) {
        if let Some(queue) = self.tasks.queues.get_mut(id) {
            queue.wakes_at = None;
        }
        self.tasks.queues.offer(id);
    }
}

fn ttl_of(task: &Task, response_s: u64, grace_ms: u64) -> Ttl {
    let is_asked = task.extra.as_ref().is_some_and(|extra| extra.asked.is_some());
    let ms = match response_s {
        _ if is_asked => EVALUATION_TTL_MS,
        0 => TTL_MS_MAX,
        seconds => seconds.saturating_mul(1_000).saturating_add(grace_ms).min(TTL_MS_MAX),
    };
    // In range by construction; the longest lease would be the harmless answer.
    Ttl::from_ms_native(ms).unwrap_or(Ttl::MAX)
}
