//! Owns staying alive: one operating-system thread per client that renews every lease of it in batches and tells the
//! guards when trust ends.
//!
//! The thread has a runtime and connections of its own, so it goes on while the program's runtime is blocked. It
//! relies on `tenure_core::heartbeat` for the pace and on [`schedule`] for who is next. It starts with the first
//! guard and ends when the client and all its guards are gone. A lease is never revived, and none is trusted
//! longer than its last accepted renewal allows, even if this thread died.

pub(crate) mod clock;
pub(crate) mod pulse;
pub(crate) mod roster;
pub(crate) mod schedule;

use std::future::Future;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::LeaseId;

use self::clock::{Clock, Moment, SystemClock};
use self::roster::{Look, Roster};
use self::schedule::{Answer, Batch, Schedule};
use crate::error::Error;
use crate::transport::Transport;

/// Sends one renewal for many leases.
pub(crate) trait Renew: 'static {
    fn renew(&self, batch: &Batch) -> impl Future<Output = Result<Vec<(LeaseId, Answer)>, Error>>;
}

/// The running heartbeat: who is kept alive. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Heart {
    roster: Arc<Roster>,
}

impl Heart {
    /// Starts the thread.
    pub(crate) fn start(transport: Transport) -> io::Result<Heart> {
        let heart = Heart { roster: Arc::default() };
        let roster = Arc::clone(&heart.roster);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("tenure-beat".to_owned())
            .spawn(move || runtime.block_on(beat(roster, transport, Arc::new(SystemClock))))?;
        Ok(heart)
    }
}

impl Deref for Heart {
    type Target = Roster;

    fn deref(&self) -> &Roster {
        &self.roster
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.roster.close();
    }
}

/// Tells the guards when the thread ends, however it does.
struct Ending(Arc<Roster>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn beat(roster: Arc<Roster>, renew: impl Renew, clock: Arc<dyn Clock>) {
    let _ending = Ending(Arc::clone(&roster));
    let mut flights = FuturesUnordered::new();
    while let Some(Look { batches, nap }) = roster.look(clock.now()) {
        for batch in batches {
            flights.push(fly(&renew, batch, Arc::clone(&clock)));
        }
        tokio::select! {
            biased;
            () = roster.woken() => {}
            Some(flight) = flights.next() => roster.change(|schedule| land(schedule, flight, clock.now())),
            () = tokio::time::sleep(nap.unwrap_or_default()), if nap.is_some() => {}
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
    // One jitter for the batch: what travelled together goes on together.
    schedule.unanswered(now, &batch, asked, rand::random());
}

#[cfg(test)]
mod tests;
