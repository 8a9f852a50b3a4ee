//! Owns which lease is renewed when, which renewals travel together, and when trust ends. Pure: time comes in with
//! every call.
//!
//! ```text
//!                           ┌──┐ no answer yet: sent again, at risk
//!            due (by sent + ttl/3) │   it failed: again after a jittered while, at risk
//!   held ───────────────► in flight ─────────────────────────────────► held, at risk ──┐
//!    ▲                      │    │                                         ▲   │       │
//!    └──── accepted ◄───────┘    └── the server says it is over ─► lost    └───┘       │
//!                                    now >= sent + trusted_for     ─► lost ◄───────────┘
//! ```
//!
//! 1. Trust is counted from the moment the accepted request was *sent*; a slow answer does not lengthen it.
//! 2. Lost is final: whatever is answered later changes nothing.
//! 3. A request that is not answered soon is not given up: the lease is sent once more, on another connection, and the
//!    first answer counts. An answer that was overtaken by one to a later request can only shorten trust.
//! 4. A lease within another is trusted no longer than that one, if both are kept here: the server ends them together.
//! 5. From the moment a renewal with another ttl is sent, either ttl may hold, and the shorter one counts: until that renewal is
//!    answered, or a beat that was sent after it had been given up.
//! 6. Leases of the same ttl are soon due together, however far apart they were taken: a beat comes at a multiple of the
//!    interval after the first lease of all, or earlier by so little that those which come there travel along.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::heartbeat::Beat;
use tenure_core::limits::RENEWALS_PER_REQUEST_MAX;
use tenure_core::{LeaseId, Ttl};

use super::clock::Moment;
use super::pulse::Pulse;
use crate::guard::Loss;

/// A beat may come earlier by one part in this of its interval, to travel with others that are due.
const EARLY_DIVISOR: u32 = 4;
/// Beats further away than this are never brought forward.
const EARLY_MAX: Duration = Duration::from_secs(30);
/// The first retry of an unanswered renewal comes after about one part in this of the interval.
const RETRY_DIVISOR: u32 = 16;
/// Retries come at most this far apart: a server that returns is found soon.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// A server that is down is not asked more often than this.
const RETRY_MIN: Duration = Duration::from_millis(5);
/// A request is given up after the interval of its shortest lease, at most this long.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// The least time a request gets.
const TIMEOUT_MIN: Duration = Duration::from_millis(50);

/// What the server said about one lease.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// It runs on, with this ttl.
    Renewed(Ttl),
    /// It does not.
    Lost(Loss),
}

/// Leases to be renewed by one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) ids: Vec<LeaseId>,
    /// Tells the requests for one lease apart.
    pub(crate) flight: u64,
    pub(crate) timeout: Duration,
}

struct Entry {
    /// One for each guard: who acquires twice under one key has two guards of one lease.
    pulses: Vec<Arc<Pulse>>,
    /// The lease that it ends with.
    within: Option<LeaseId>,
    beat: Beat,
    /// When the last accepted request was sent.
    accepted: Moment,
    /// When it is sent, or sent again.
    due: Moment,
    /// The last request, while its answer is awaited.
    in_flight: Option<u64>,
    failures: u32,
    doubt: Option<Doubt>,
}

/// Renewals with a ttl of their own whose answers are not there (5). The server may carry them out at any time.
struct Doubt {
    /// Of the shortest ttl that was asked for.
    beat: Beat,
    /// What is certain if that one holds.
    trusted_until: Moment,
    /// How many of them are on their way.
    open: u32,
    /// When one was given up. A beat that is sent later finds what became of it.
    given_up: Option<Moment>,
}

impl Entry {
    fn trusted_until(&self) -> Moment {
        let known = self.accepted.plus(self.beat.trusted_for());
        self.doubt.as_ref().map_or(known, |doubt| known.min(doubt.trusted_until))
    }

    /// The pace of the shortest ttl that may hold.
    fn pace(&self) -> Beat {
        self.doubt.as_ref().map_or(self.beat, |doubt| shorter(self.beat, doubt.beat))
    }

    /// A renewal with this pace is being sent (5).
    fn ask(&mut self, beat: Beat, sent_at: Moment) {
        let trusted_until = sent_at.plus(beat.trusted_for());
        let doubt = self.doubt.get_or_insert(Doubt { beat, trusted_until, open: 0, given_up: None });
        doubt.beat = shorter(doubt.beat, beat);
        doubt.trusted_until = doubt.trusted_until.min(trusted_until);
        doubt.open += 1;
        self.due = self.due.min(sent_at.plus(beat.interval()));
        self.tell_trust();
    }

    /// One that was asked for is answered, or was given up then.
    fn settle(&mut self, given_up: Option<Moment>) {
        let Some(doubt) = &mut self.doubt else { return };
        doubt.open = doubt.open.saturating_sub(1);
        doubt.given_up = doubt.given_up.max(given_up);
        if doubt.open == 0 && doubt.given_up.is_none() {
            self.doubt = None;
            self.tell_trust();
        }
    }

    /// A request that was sent at `sent_at` was accepted: nothing is in doubt any more, or the shorter ttl runs from then.
    fn clear(&mut self, sent_at: Moment) {
        let Some(doubt) = &mut self.doubt else { return };
        if doubt.open == 0 && doubt.given_up.is_none_or(|at| sent_at >= at) {
            self.doubt = None;
        } else {
            doubt.trusted_until = doubt.trusted_until.max(sent_at.plus(doubt.beat.trusted_for()));
        }
    }

    fn tell_trust(&self) {
        self.pulses.iter().for_each(|pulse| pulse.trust_until(self.trusted_until()));
    }

    /// When this lease next needs attention.
    fn next(&self) -> Moment {
        self.due.min(self.trusted_until())
    }

    /// What is on its way is not sent again early.
    fn is_due(&self, now: Moment) -> bool {
        self.due <= if self.in_flight.is_some() { now } else { now.plus(early(self.pace())) }
    }

    fn send(&mut self, now: Moment, flight: u64) {
        if self.in_flight.replace(flight).is_some() {
            self.put_at_risk();
        }
        self.due = now.plus(self.pace().resend_after());
    }

    fn put_at_risk(&self) {
        self.pulses.iter().for_each(|pulse| pulse.set_at_risk(true));
    }

    /// Takes in that a request which was sent at `sent_at` was accepted.
    fn accept(&mut self, start: Moment, beat: Beat, sent_at: Moment) {
        if sent_at >= self.accepted {
            self.accepted = sent_at;
            self.beat = beat;
        } else {
            // It is not known which of the two the server has heard last.
            self.beat = shorter(self.beat, beat);
        }
        self.clear(sent_at);
        self.due = due(start, self.pace(), self.accepted);
        self.in_flight = None;
        self.failures = 0;
        self.tell_trust();
        self.pulses.iter().for_each(|pulse| pulse.set_at_risk(false));
    }

    fn retry_after(&self, asked: Option<Duration>, jitter: f64) -> Duration {
        let interval = self.pace().interval();
        let base = interval / RETRY_DIVISOR * 2_u32.saturating_pow(self.failures.min(8).saturating_sub(1));
        // Half the interval at most, also if the server asks for more: otherwise its request would end the lease.
        let most = (interval / 2).min(RETRY_MAX);
        base.max(asked.unwrap_or_default()).max(RETRY_MIN).min(most.max(RETRY_MIN)).mul_f64(0.5 + jitter)
    }
}

fn shorter(one: Beat, other: Beat) -> Beat {
    if other.interval() < one.interval() { other } else { one }
}

/// By how much a beat may come earlier.
fn early(beat: Beat) -> Duration {
    (beat.interval() / EARLY_DIVISOR).min(EARLY_MAX)
}

/// When a lease whose accepted request was sent at `sent_at` is renewed: never later than an interval after that (6).
fn due(start: Moment, beat: Beat, sent_at: Moment) -> Moment {
    let latest = sent_at.plus(beat.interval());
    let past_the_beat = latest.since(start).as_nanos().checked_rem(beat.interval().as_nanos()).unwrap_or_default();
    // Less than an interval, which is less than the centuries that fit.
    let past_the_beat = Duration::from_nanos(u64::try_from(past_the_beat).unwrap_or_default());
    let since_sent = beat.interval().saturating_sub(past_the_beat);
    // So soon after the last request it would be one more: this lease is due a little before the others and takes them along.
    if since_sent > early(beat) { sent_at.plus(since_sent) } else { latest }
}

/// All leases that are kept alive.
#[derive(Default)]
pub(crate) struct Schedule {
    entries: HashMap<LeaseId, Entry>,
    agenda: BTreeSet<(Moment, LeaseId)>,
    /// Which of them live within a lease (4).
    within: HashMap<LeaseId, BTreeSet<LeaseId>>,
    /// When the request for the first lease was sent: beats are counted from there (6).
    start: Option<Moment>,
    /// Lost, and nobody was told yet.
    lost: Vec<Arc<Pulse>>,
    flights: u64,
}

impl Schedule {
    /// Keeps a lease alive whose last accepted request was sent at `sent_at`, for one guard more if others have it already.
    pub(crate) fn keep(&mut self, pulse: Arc<Pulse>, beat: Beat, sent_at: Moment) {
        let id = pulse.id();
        let start = *self.start.get_or_insert(sent_at);
        let within = pulse.parent();
        let new = || Entry {
            pulses: Vec::new(),
            within,
            beat,
            accepted: sent_at,
            due: sent_at,
            in_flight: None,
            failures: 0,
            doubt: None,
        };
        self.entries.entry(id).or_insert_with(new);
        if let Some(parent) = within {
            self.within.entry(parent).or_default().insert(id);
        }
        self.update(id, |entry| {
            entry.pulses.push(pulse);
            entry.accept(start, beat, sent_at);
        });
    }

    /// Lets a lease be, as far as this guard is concerned.
    pub(crate) fn forget(&mut self, pulse: &Arc<Pulse>) {
        let Some(entry) = self.entries.get_mut(&pulse.id()) else { return };
        entry.pulses.retain(|kept| !Arc::ptr_eq(kept, pulse));
        if entry.pulses.is_empty() {
            self.remove(pulse.id());
            self.lose_within(pulse.id(), &Loss::HeartbeatStopped);
        }
    }

    /// Whoever has this guard releases the lease: the other guards of it have lost it.
    pub(crate) fn release(&mut self, pulse: &Arc<Pulse>) {
        self.lose_within(pulse.id(), &Loss::Released);
        self.forget(pulse);
        self.lose(pulse.id(), Loss::Released);
    }

    fn remove(&mut self, id: LeaseId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.agenda.remove(&(entry.next(), id));
        if let Some(parent) = entry.within
            && let Some(siblings) = self.within.get_mut(&parent)
        {
            siblings.remove(&id);
            if siblings.is_empty() {
                self.within.remove(&parent);
            }
        }
        Some(entry)
    }

    /// When to look again.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Ends the trust that has run out (2).
    pub(crate) fn lapse(&mut self, now: Moment) {
        let over: Vec<LeaseId> = self.agenda.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in over {
            if self.entries.get(&id).is_some_and(|entry| entry.trusted_until() <= now) {
                self.lose(id, Loss::OutOfTouch);
            }
        }
    }

    /// Tells every guard of a lease that it is lost, and lets it be.
    pub(crate) fn lose(&mut self, id: LeaseId, loss: Loss) {
        let Some(entry) = self.remove(id) else { return };
        entry.pulses.iter().for_each(|pulse| pulse.lose(loss.clone()));
        self.lost.extend(entry.pulses);
        self.lose_within(id, &loss);
    }

    /// What lives within a lease has ended with it, or will when its ttl is over (4).
    fn lose_within(&mut self, parent: LeaseId, loss: &Loss) {
        let within = self.within.remove(&parent).unwrap_or_default();
        within.into_iter().for_each(|id| self.lose(id, loss.clone()));
    }

    /// What was lost since this was asked last; [`Pulse::tell`] is still to be called.
    pub(crate) fn take_lost(&mut self) -> Vec<Arc<Pulse>> {
        std::mem::take(&mut self.lost)
    }

    /// The requests to send now: everything that is due, and what would soon be. Nothing while nothing is due.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Batch> {
        if self.next().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let near = self.agenda.range(..=(now.plus(EARLY_MAX), LeaseId::from(tenure_core::Token::from_u64(u64::MAX))));
        let ready = near.map(|(_, id)| *id).filter(|id| self.entries.get(id).is_some_and(|entry| entry.is_due(now)));
        let ids: Vec<LeaseId> = ready.collect();
        self.flights += 1;
        let flight = self.flights;
        ids.iter().for_each(|id| self.update(*id, |entry| entry.send(now, flight)));
        ids.chunks(RENEWALS_PER_REQUEST_MAX).map(|ids| self.batch(ids)).collect()
    }

    fn batch(&self, ids: &[LeaseId]) -> Batch {
        let intervals = ids.iter().filter_map(|id| Some(self.entries.get(id)?.pace().interval()));
        let timeout = intervals.min().unwrap_or(TIMEOUT_MAX).clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        Batch { ids: ids.to_vec(), flight: self.flights, timeout }
    }

    /// Takes in what the server said about a request that was sent at `sent_at`.
    pub(crate) fn answered(&mut self, now: Moment, sent_at: Moment, id: LeaseId, answer: Answer) {
        self.lapse(now);
        let start = self.start.unwrap_or(sent_at);
        match answer {
            Answer::Lost(loss) => self.lose(id, loss),
            Answer::Renewed(ttl) => self.update(id, |entry| entry.accept(start, Beat::new(ttl), sent_at)),
        }
    }

    /// A renewal with this ttl that is not the heartbeat's is being sent. [`Schedule::settled`] follows.
    pub(crate) fn asked(&mut self, sent_at: Moment, id: LeaseId, ttl: Ttl) {
        self.update(id, |entry| entry.ask(Beat::new(ttl), sent_at));
    }

    /// Its answer was taken in, or it was given up then.
    pub(crate) fn settled(&mut self, id: LeaseId, given_up: Option<Moment>) {
        self.update(id, |entry| entry.settle(given_up));
    }

    /// No answer came about the leases of this request that are still in flight with it. `jitter` is between 0 and 1.
    pub(crate) fn unanswered(&mut self, now: Moment, batch: &Batch, asked: Option<Duration>, jitter: f64) {
        self.lapse(now);
        for id in &batch.ids {
            self.update(*id, |entry| {
                if entry.in_flight == Some(batch.flight) {
                    entry.failures = entry.failures.saturating_add(1);
                    entry.due = now.plus(entry.retry_after(asked, jitter));
                    entry.in_flight = None;
                    entry.put_at_risk();
                }
            });
        }
    }

    /// Changes an entry and its place in the agenda together.
    fn update(&mut self, id: LeaseId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.agenda.remove(&(entry.next(), id));
        change(entry);
        self.agenda.insert((entry.next(), id));
    }
}

impl Drop for Schedule {
    /// Nobody keeps them alive any more, whatever the reason: a guard that still lives must know.
    fn drop(&mut self) {
        for pulse in self.entries.values().flat_map(|entry| &entry.pulses) {
            pulse.lose(Loss::HeartbeatStopped);
            pulse.tell();
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
