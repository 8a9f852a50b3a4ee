//! Owns staying alive: one operating-system thread per client that renews every lease of it in batches and tells the
//! guards when trust ends.
//!
//! The thread has a runtime and connections of its own, so it goes on while the program's runtime is blocked. It
//! relies on `tenure_core::heartbeat` for the pace and on [`schedule`] for who is next. It starts with the first
//! guard and ends when the client and all its guards are gone. A lease is never revived, and none is trusted
//! longer than its last accepted renewal allows, even if this thread died.

pub(crate) mod clock;
pub(crate) mod pulse;
pub(crate) mod schedule;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::LeaseId;
use tenure_core::heartbeat::Beat;
use tokio::sync::mpsc;

use self::clock::{Clock, Moment, SystemClock};
use self::pulse::Pulse;
use self::schedule::{Answer, Batch, Schedule};
use crate::error::Error;
use crate::transport::Transport;

/// The longest sleep: the timer does not count the time a machine is suspended, the clock does.
const NAP_MAX: Duration = Duration::from_secs(1);

/// Sends one renewal for many leases.
pub(crate) trait Renew: 'static {
    fn renew(&self, batch: &Batch) -> impl Future<Output = Result<Vec<(LeaseId, Answer)>, Error>>;
}

enum Order {
    Keep { pulse: Arc<Pulse>, beat: Beat, sent_at: Moment },
    Forget(LeaseId),
}

/// The running heartbeat. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Heart {
    orders: mpsc::UnboundedSender<Order>,
}

impl Heart {
    /// Starts the thread.
    pub(crate) fn start(transport: Transport) -> io::Result<Heart> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("tenure-beat".to_owned())
            .spawn(move || runtime.block_on(beat(inbox, transport, Arc::new(SystemClock))))?;
        Ok(Heart { orders })
    }

    /// Keeps a lease alive whose last accepted request was sent at `sent_at`.
    pub(crate) fn keep(&self, pulse: Arc<Pulse>, beat: Beat, sent_at: Moment) {
        let order = Order::Keep { pulse: Arc::clone(&pulse), beat, sent_at };
        if self.orders.send(order).is_err() {
            pulse.lose(crate::guard::Loss::HeartbeatStopped);
        }
    }

    /// Stops renewing it.
    pub(crate) fn forget(&self, id: LeaseId) {
        // If the thread is gone, nothing is renewed anyway.
        let _ = self.orders.send(Order::Forget(id));
    }
}

async fn beat(mut inbox: mpsc::UnboundedReceiver<Order>, renew: impl Renew, clock: Arc<dyn Clock>) {
    let mut schedule = Schedule::default();
    let mut flights = FuturesUnordered::new();
    loop {
        let now = clock.now();
        schedule.lapse(now);
        for batch in schedule.take_due(now) {
            flights.push(fly(&renew, batch, Arc::clone(&clock)));
        }
        let nap = schedule.next().map_or(NAP_MAX, |at| at.since(now).min(NAP_MAX));
        tokio::select! {
            biased;
            order = inbox.recv() => match order {
                Some(Order::Keep { pulse, beat, sent_at }) => schedule.keep(pulse, beat, sent_at),
                Some(Order::Forget(id)) => schedule.forget(id),
                None => return,
            },
            Some(flight) = flights.next() => land(&mut schedule, flight, clock.now()),
            () = tokio::time::sleep(nap), if schedule.next().is_some() => {}
        }
    }
}

/// One request on its way.
struct Flight {
    sent_at: Moment,
    batch: Batch,
    result: Result<Vec<(LeaseId, Answer)>, Error>,
}

async fn fly(renew: &impl Renew, batch: Batch, clock: Arc<dyn Clock>) -> Flight {
    // Before the request leaves: a slow answer must not lengthen trust.
    let sent_at = clock.now();
    let result = renew.renew(&batch).await;
    Flight { sent_at, batch, result }
}

fn land(schedule: &mut Schedule, flight: Flight, now: Moment) {
    let Flight { sent_at, batch, result } = flight;
    let asked = result.as_ref().err().and_then(Error::retry_after);
    match result {
        Ok(answers) => answers.into_iter().for_each(|(id, answer)| schedule.answered(now, sent_at, id, answer)),
        Err(error) => tracing::debug!(leases = batch.ids.len(), "renewing {} leases failed: {error}", batch.ids.len()),
    }
    // One jitter for the batch: what travelled together goes on together. An answered lease is not in flight any more.
    let jitter = rand::random::<f64>();
    for id in batch.ids {
        if schedule.is_in_flight(id) {
            schedule.unanswered(now, id, asked, jitter);
        }
    }
}

#[cfg(test)]
mod tests;
