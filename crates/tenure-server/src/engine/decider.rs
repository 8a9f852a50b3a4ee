//! Owns the decisions: stamps the time, asks the ledger, and gathers what has to be written.
//!
//! A decision is made in memory before the ones it rests on are on the disk, and never told before they are: every answer
//! names the batch it waits for. The one exception is a renewal that keeps its ttl, because recovery extends every lease by its
//! ttl (L13), so the promise holds also when the write is lost.

use std::sync::Arc;

use tenure_core::change::{Batch, Change, Head, Record};
use tenure_core::command::{Command, Renew, Renewal};
use tenure_core::{Ledger, Timestamp, Token, Turn};

use super::Unavailable;
use super::batch::{Fate, InFlight, Open, Sealed};
use super::clock::LedgerTime;
use super::renewals::Renewals;
use super::waits::Waits;

/// A decision, and what it rests on.
pub(super) struct Decided<T> {
    pub(super) reply: T,
    /// Nobody may hear of the reply before this is on the disk.
    pub(super) rests_on: Option<Arc<Fate>>,
}

impl<T> Decided<T> {
    /// The reply, once everything that it rests on is on the disk.
    pub(super) async fn settled(self) -> Result<T, Unavailable> {
        if let Some(fate) = self.rests_on {
            fate.wait().await?;
        }
        Ok(self.reply)
    }
}

pub(super) struct Decider {
    ledger: Ledger,
    pub(super) time: LedgerTime,
    waits: Waits,
    pub(super) open: Open,
    in_flight: Option<InFlight>,
    renewals: Renewals,
    /// The last token whose grant is on the disk.
    durable_token: Option<Token>,
    /// The number of the last batch.
    seq: u64,
}

impl Decider {
    pub(super) fn new(ledger: Ledger, time: LedgerTime, seq: u64) -> Decider {
        Decider {
            durable_token: ledger.head().token,
            ledger,
            time,
            waits: Waits::default(),
            open: Open::default(),
            in_flight: None,
            renewals: Renewals::default(),
            seq,
        }
    }

    /// Decides a command.
    pub(super) fn apply<C: Command>(&mut self, command: C) -> Decided<C::Reply> {
        self.decide(|ledger, turn, _| ledger.apply(turn, command))
    }

    /// Decides something that may put its client in line.
    pub(super) fn decide<T>(&mut self, decide: impl FnOnce(&mut Ledger, &mut Turn<'_>, &Waits) -> T) -> Decided<T> {
        let reply = self.turn(decide);
        Decided { reply, rests_on: self.unwritten() }
    }

    /// Decides, and keeps what has to be written. For itself alone where nobody waits for a reply.
    pub(super) fn turn<T>(&mut self, decide: impl FnOnce(&mut Ledger, &mut Turn<'_>, &Waits) -> T) -> T {
        let now = self.time.stamp();
        let waits = &self.waits;
        let is_waiting = |waiter| waits.is_waiting(waiter);
        let mut turn = Turn::new(now, &is_waiting);
        turn.changes = std::mem::take(&mut self.open.changes);
        turn.events = std::mem::take(&mut self.open.events);
        let before = turn.changes.len();
        let reply = decide(&mut self.ledger, &mut turn, waits);
        self.open.is_durable = turn.is_durable();
        let Turn { changes, events, settled, polled, .. } = turn;
        let settled = settled.into_iter().filter_map(|(waiter, answer)| waits.settle(waiter, answer));
        self.open.deliveries.extend(settled);
        let polled = polled.into_iter().filter_map(|(waiter, tasks)| waits.settle_poll(waiter, tasks));
        self.open.deliveries.extend(polled);
        // What is on its way to the disk is known there by the time that anything open is asked about.
        let known = self.in_flight.as_ref().map_or(self.durable_token, |batch| batch.token);
        let altered = changes.iter().skip(before).filter_map(|change| match change {
            Change::Put(Record::Lease(lease)) => Some(lease.token).filter(|token| Some(*token) <= known),
            Change::Put(_) | Change::Delete(..) | Change::Granted(_) | Change::Ended(_) | Change::Renewed(..) => None,
        });
        self.open.altered.extend(altered);
        (self.open.changes, self.open.events) = (changes, events);
        if !self.open.is_durable {
            self.renewals.keep(&mut self.open.changes, now);
        }
        reply
    }

    /// The latest batch that is not on the disk, if there is one.
    fn unwritten(&mut self) -> Option<Arc<Fate>> {
        if self.open.is_wanted() {
            self.open.commands += 1;
            return Some(Arc::clone(&self.open.fate));
        }
        self.in_flight.as_ref().map(|batch| Arc::clone(&batch.fate))
    }

    /// Keeps leases alive. If all of them are, and as they were when they were last written, nobody needs the disk to know it:
    /// the next start gives each its whole ttl again (L13).
    pub(super) fn renew(&mut self, renew: Renew) -> Decided<Vec<Renewal>> {
        let is_as_written = |token: &Token| Some(*token) <= self.durable_token && !self.is_altered(token);
        let were_as_written = renew.tokens.iter().all(is_as_written);
        let altered = self.open.altered.len();
        let reply = self.turn(|ledger, turn, _| ledger.apply(turn, renew));
        let is_renewed = |renewal: &Renewal| matches!(renewal, Renewal::Renewed { .. });
        let is_safe = were_as_written && self.open.altered.len() == altered && reply.iter().all(is_renewed);
        let rests_on = if is_safe { None } else { self.unwritten() };
        Decided { reply, rests_on }
    }

    /// Whether a lease that is on the disk is not there as it is now.
    fn is_altered(&self, token: &Token) -> bool {
        let in_flight = self.in_flight.as_ref();
        self.open.altered.contains(token) || in_flight.is_some_and(|batch| batch.altered.contains(token))
    }

    /// When there is something to do that nobody asks for.
    pub(super) fn deadline(&mut self) -> Option<Timestamp> {
        // Renewals cannot be written while another batch is.
        let renewals = self.renewals.due().filter(|_| self.in_flight.is_none());
        [self.ledger.next_deadline(), renewals].into_iter().flatten().min()
    }

    /// Whether someone waits for what is open, or it has waited long enough, and nothing else is being written.
    pub(super) fn is_ready(&self) -> bool {
        let is_due = || self.renewals.due().is_some_and(|due| due <= self.time.last);
        self.in_flight.is_none() && (self.open.is_wanted() || is_due())
    }

    /// Whether there is something to write, and nothing else is being written.
    pub(super) fn is_writable(&self) -> bool {
        self.in_flight.is_none() && (self.open.is_wanted() || self.renewals.due().is_some())
    }

    /// Whether everything is written.
    pub(super) fn is_clean(&self) -> bool {
        self.in_flight.is_none() && !self.is_writable()
    }

    /// Takes everything that is not on the disk: it is about to be.
    pub(super) fn seal(&mut self) -> Sealed {
        let next = Open::with_room_of(&self.open);
        let Open { changes, events, deliveries, commands, altered, fate, .. } = std::mem::replace(&mut self.open, next);
        let changes = self.renewals.write_before(changes);
        let is_empty = changes.is_empty() && events.is_empty();
        self.seq += u64::from(!is_empty);
        let head = Head { seq: self.seq, at: self.time.last, ..self.ledger.head() };
        let batch = (!is_empty).then_some(Batch { head, changes, events });
        self.in_flight = Some(InFlight { fate: Arc::clone(&fate), token: head.token, altered });
        Sealed { batch, deliveries, commands, fate }
    }

    /// What was sealed is on the disk.
    pub(super) fn landed(&mut self) {
        if let Some(batch) = self.in_flight.take() {
            self.durable_token = batch.token;
        }
    }

    /// The end, without an answer for anyone who still waits for one.
    pub(super) fn give_up(&mut self) {
        self.open.fate.give_up();
        if let Some(batch) = &self.in_flight {
            batch.fate.give_up();
        }
        self.open.deliveries.clear();
        self.waits = Waits::default();
    }
}
