//! Owns staying alive and ending (L4–L6, L10–L12): renewals, releases, revokes, and what lapses by itself.

use crate::Token;
use crate::change::{Change, Closure, KeyedEnd, Record, RecordKind};
use crate::command::{Command, Ending, Release, Renew, Renewal, Revoke};
use crate::event::{Event, EventKind};
use crate::lease::{End, Lease};
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::IDEMPOTENCY_KEEP_MS;

/// How and why a lease ends.
#[derive(Default, Clone)]
pub(crate) struct Cause {
    pub(crate) by: Option<crate::Holder>,
    pub(crate) reason: Option<Box<str>>,
    pub(crate) ended_with: Option<Token>,
}

impl Command for Renew {
    type Reply = Vec<Renewal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Vec<Renewal> {
        self.tokens.iter().map(|token| ledger.renew(turn, *token, &self)).collect()
    }
}

impl Command for Release {
    type Reply = Ending;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Ending {
        match ledger.leases.get(&self.token) {
            None if ledger.was_granted(self.token) => Ending::Over,
            None => Ending::Unknown,
            Some(lease) if lease.holder != self.holder => Ending::NotHolder { holder: lease.holder.clone() },
            Some(_) => ledger.end_now(turn, self.token, End::Released, Cause::default()),
        }
    }
}

impl Command for Revoke {
    type Reply = Ending;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Ending {
        match ledger.leases.contains_key(&self.token) {
            false if ledger.was_granted(self.token) => Ending::Over,
            false => Ending::Unknown,
            true => {
                let cause = Cause { by: Some(self.by), reason: Some(self.reason), ended_with: None };
                ledger.end_now(turn, self.token, End::Revoked, cause)
            }
        }
    }
}

impl Ledger {
    fn renew(&mut self, turn: &mut Turn<'_>, token: Token, request: &Renew) -> Renewal {
        let was_granted = self.was_granted(token);
        let Some(lease) = self.leases.get_mut(&token) else {
            return if was_granted { Renewal::Over } else { Renewal::Unknown };
        };
        if lease.holder != request.holder {
            return Renewal::NotHolder { holder: lease.holder.clone() };
        }
        let ttl = request.ttl.unwrap_or(lease.ttl);
        let expires_at = turn.now().plus_ms(ttl.ms());
        let comes_sooner = expires_at < lease.expires_at;
        let keeps_ttl = ttl == lease.ttl;
        lease.expires_at = expires_at;
        lease.ttl = ttl;
        if comes_sooner {
            // An entry that is too late would let the lease live on.
            self.deadlines.push_again(expires_at, Due::Lease(token));
        }
        if keeps_ttl {
            turn.changes.push(Change::Renewed(token, expires_at));
        } else {
            let lease = lease.clone();
            self.emit(turn, Event::of_lease(EventKind::LeaseRenewed, turn.now(), &lease));
            turn.changes.push(Change::Put(Record::Lease(lease)));
        }
        Renewal::Renewed { expires_at, ttl }
    }

    /// Whether a lease with this token exists or existed. Tokens are given in order, so the largest one tells; a token of
    /// an older epoch that was never given out counts as one that was: the history decides.
    pub(crate) fn was_granted(&self, token: Token) -> bool {
        self.head.token.is_some_and(|last| token <= last)
    }

    fn end_now(&mut self, turn: &mut Turn<'_>, token: Token, end: End, cause: Cause) -> Ending {
        match self.end(turn, token, end, cause) {
            Some(lease) => Ending::Ended(lease, turn.now()),
            None => Ending::Over,
        }
    }

    /// Ends a lease because of something else that happened.
    pub(crate) fn end_because(&mut self, turn: &mut Turn<'_>, token: Token, end: End, why: &str) {
        self.end(turn, token, end, Cause { reason: Some(why.into()), ..Cause::default() });
    }

    /// Renews a lease with its own ttl.
    pub(crate) fn renew_own(&mut self, turn: &mut Turn<'_>, token: Token) {
        if let Some(holder) = self.leases.get(&token).map(|lease| lease.holder.clone()) {
            self.renew(turn, token, &Renew { tokens: Vec::new(), holder, ttl: None });
        }
    }

    /// Ends a lease and, before it, everything that lives within it.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>, token: Token, end: End, cause: Cause) -> Option<Lease> {
        for child in self.children.remove(&token).unwrap_or_default() {
            self.end(turn, child, end, Cause { ended_with: Some(token), ..cause.clone() });
        }
        let lease = self.remove_lease(token)?;
        turn.changes.push(Change::Ended(token));
        let event = Event::of_lease(end.into(), turn.now(), &lease);
        self.emit(turn, Event { by: cause.by, reason: cause.reason.clone(), ended_with: cause.ended_with, ..event });
        self.remember_end(turn, &lease, end);
        if lease.grace_ms > 0 && end != End::Released {
            self.close(turn, &lease);
        }
        self.refuse_nested(turn, token);
        self.note_end(&lease, end);
        self.freed.extend(lease.resources.iter().cloned());
        self.lease_of_task_ended(turn, &lease, end, cause.reason.as_deref());
        Some(lease)
    }

    fn remove_lease(&mut self, token: Token) -> Option<Lease> {
        let lease = self.leases.remove(&token)?;
        self.held.remove(&lease.resources, lease.mode, token.as_u64());
        self.holders.remove_lease(&lease.holder, token);
        if let Some(parent) = lease.within
            && let Some(siblings) = self.children.get_mut(&parent)
        {
            siblings.retain(|sibling| *sibling != token);
            if siblings.is_empty() {
                self.children.remove(&parent);
            }
        }
        Some(lease)
    }

    /// Keeps the answer to a keyed acquire for a while.
    fn remember_end(&mut self, turn: &mut Turn<'_>, lease: &Lease, end: End) {
        let until = turn.now().plus_ms(IDEMPOTENCY_KEEP_MS);
        if let Some(keyed) = self.keys.get_mut(lease.token) {
            keyed.ended = Some(Box::new(KeyedEnd { lease: lease.clone(), end, until }));
            turn.changes.push(Change::Put(Record::Key(keyed.clone())));
            self.deadlines.push(until, Due::Key(lease.token));
        }
    }

    fn close(&mut self, turn: &mut Turn<'_>, lease: &Lease) {
        let until = turn.now().plus_ms(u64::from(lease.grace_ms));
        let closure =
            Closure { token: lease.token, holder: lease.holder.clone(), resources: lease.resources.clone(), until };
        turn.changes.push(Change::Put(Record::Closure(closure.clone())));
        self.insert_closure(closure);
    }

    pub(crate) fn insert_closure(&mut self, closure: Closure) {
        for resource in &closure.resources {
            self.closed.insert(resource, closure.token.as_u64());
        }
        self.deadlines.push(closure.until, Due::Closure(closure.token));
        self.closures.insert(closure.token, closure);
    }

    fn open_again(&mut self, turn: &mut Turn<'_>, token: Token) {
        let Some(closure) = self.closures.remove(&token) else { return };
        for resource in &closure.resources {
            self.closed.remove(resource, token.as_u64());
        }
        turn.changes.push(Change::Delete(RecordKind::Closure, token.into()));
        self.freed.extend(closure.resources);
    }

    /// Ends everything that is due, in the order in which it was due, and gives what becomes free to those in line.
    pub(crate) fn lapse(&mut self, turn: &mut Turn<'_>) {
        while let Some((_, due)) = self.deadlines.peek().filter(|(at, _)| *at <= turn.now()) {
            let deadline = self.deadline_of(due);
            if !self.deadlines.correct_first(deadline) {
                continue;
            }
            self.deadlines.pop();
            match due {
                Due::Lease(token) => drop(self.end(turn, token, End::Expired, Cause::default())),
                Due::Wait(waiter) => self.time_out(turn, waiter),
                Due::Closure(token) => self.open_again(turn, token),
                Due::Key(token) => {
                    if self.keys.remove(token).is_some() {
                        turn.changes.push(Change::Delete(RecordKind::Key, token.into()));
                    }
                }
                Due::Lost(token) => self.forget_lost(turn, token),
                Due::Retry(id) => self.retry(turn, id),
                Due::Agent(id) => self.silence_agent(turn, id),
                Due::Coordinator(id) => self.silence_term(turn, id),
                Due::Task(id) => self.task_due(turn, id),
                Due::Flow(id) => self.flow_due(turn, id),
                Due::Poll(id) => self.poll_timed_out(turn, id),
                Due::Queue(id) => self.queue_opened(id),
                Due::Advance => {}
            }
            self.settle(turn);
            self.settle_tasks(turn);
            self.serve_queue(turn);
        }
    }

    /// When this really lapses; nothing if it is gone.
    pub(crate) fn deadline_of(&self, due: Due) -> Option<crate::Timestamp> {
        match due {
            Due::Lease(token) => self.leases.get(&token).map(|lease| lease.expires_at),
            Due::Wait(waiter) => self.queue.get(waiter).map(|waiter| waiter.deadline),
            Due::Closure(token) => self.closures.get(&token).map(|closure| closure.until),
            Due::Key(token) => self.keys.get(token)?.ended.as_ref().map(|ended| ended.until),
            Due::Lost(token) => self.lost.until(token),
            Due::Retry(id) => self.intents.get(id)?.attempts.next_at,
            Due::Agent(id) => self.agents.deadline(id),
            Due::Coordinator(id) => self.coordinators.deadline(id),
            Due::Task(id) => self.deadline_of_task(id),
            Due::Flow(id) => self.flows.get(id)?.deadline(),
            Due::Poll(id) => self.tasks.queues.deadline_of(id),
            Due::Queue(id) => self.tasks.queues.get(id)?.wakes_at,
            Due::Advance => self.flows.goes_on_at,
        }
    }
}
