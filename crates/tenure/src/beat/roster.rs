//! Owns what the callers and the heartbeat's thread share: the schedule, and when the thread will look at it next.
//!
//! The thread is woken only for a lease that needs attention before it would look anyway. Waking it for every acquire and
//! release would cost each of them a change of threads, which is more than the rest of the SDK costs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::heartbeat::Beat;
use tenure_core::{LeaseId, Ttl};
use tokio::sync::Notify;

use super::clock::Moment;
use super::pulse::Pulse;
use super::schedule::{Answer, Batch, Schedule};
use crate::guard::Loss;

/// The longest sleep: the timer does not count the time a machine is suspended, the clock does.
pub(crate) const NAP_MAX: Duration = Duration::from_secs(1);

/// All leases of one client.
#[derive(Default)]
pub(crate) struct Roster {
    page: Mutex<Page>,
    wake: Notify,
}

#[derive(Default)]
struct Page {
    schedule: Schedule,
    /// When the thread looks again if nobody wakes it. Nothing: it sleeps until it is woken.
    looks_at: Option<Moment>,
    closed: bool,
}

/// What the thread has to do now.
pub(super) struct Look {
    pub(super) batches: Vec<Batch>,
    /// Then it sleeps this long; without it until it is woken.
    pub(super) nap: Option<Duration>,
}

impl Roster {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a lease alive whose last accepted request was sent at `sent_at`.
    pub(crate) fn keep(&self, pulse: Arc<Pulse>, beat: Beat, sent_at: Moment) {
        let mut page = self.page();
        if page.closed {
            // It is new: nobody waits for its loss yet.
            return pulse.lose(Loss::HeartbeatStopped);
        }
        page.schedule.keep(pulse, beat, sent_at);
        self.wake_in_time(page);
    }

    fn wake_in_time(&self, page: MutexGuard<'_, Page>) {
        let next = page.schedule.next();
        let wakes = next.is_some_and(|next| page.looks_at.is_none_or(|at| next < at));
        drop(page);
        if wakes {
            self.wake.notify_one();
        }
    }

    /// A renewal of this lease that was not the heartbeat's was answered.
    pub(crate) fn answered(&self, now: Moment, sent_at: Moment, id: LeaseId, answer: Answer) {
        self.change(|schedule| schedule.answered(now, sent_at, id, answer));
        self.wake_in_time(self.page());
    }

    /// A renewal with this ttl that is not the heartbeat's is being sent. [`Roster::settled`] follows.
    pub(crate) fn asked(&self, sent_at: Moment, id: LeaseId, ttl: Ttl) {
        self.change(|schedule| schedule.asked(sent_at, id, ttl));
        self.wake_in_time(self.page());
    }

    /// Its answer was taken in ([`Roster::answered`]), or it was given up then.
    pub(crate) fn settled(&self, id: LeaseId, given_up: Option<Moment>) {
        self.change(|schedule| schedule.settled(id, given_up));
    }

    /// Stops renewing it for this guard.
    pub(crate) fn forget(&self, pulse: &Arc<Pulse>) {
        self.change(|schedule| schedule.forget(pulse));
    }

    /// The guard with this pulse releases its lease.
    pub(crate) fn release(&self, pulse: &Arc<Pulse>) {
        self.change(|schedule| schedule.release(pulse));
    }

    /// The lease is given back by its id: every guard of it has lost it.
    pub(crate) fn give_up(&self, id: LeaseId) {
        self.change(|schedule| schedule.lose(id, Loss::Released));
    }

    /// Nobody is left who could be told anything: the thread ends.
    pub(crate) fn close(&self) {
        self.page().closed = true;
        self.wake.notify_one();
    }

    /// The thread has ended. Whoever still believes in a lease is told.
    pub(super) fn end(&self) {
        let mut page = self.page();
        page.closed = true;
        let over = std::mem::take(&mut page.schedule);
        drop(page);
        drop(over);
    }

    /// Ends trust that has run out and takes what is due; nothing once the roster is closed.
    pub(super) fn look(&self, now: Moment) -> Option<Look> {
        let mut page = self.page();
        if page.closed {
            return None;
        }
        page.schedule.lapse(now);
        let batches = page.schedule.take_due(now);
        let nap = page.schedule.next().map(|at| at.since(now).min(NAP_MAX));
        page.looks_at = nap.map(|nap| now.plus(nap));
        tell_lost(page);
        Some(Look { batches, nap })
    }

    /// Changes the schedule, and tells whoever has lost a lease by that.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Schedule)) {
        let mut page = self.page();
        change(&mut page.schedule);
        tell_lost(page);
    }

    /// Until somebody has something that cannot wait.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// Tells whoever waits, after the lock was given back.
fn tell_lost(mut page: MutexGuard<'_, Page>) {
    let lost = page.schedule.take_lost();
    drop(page);
    for pulse in lost {
        match pulse.loss() {
            // It was meant to be.
            Some(loss @ Loss::Released) => {
                tracing::debug!(lease.id = %pulse.id(), "lease {} is over: {loss}", pulse.id())
            }
            Some(loss) => tracing::warn!(lease.id = %pulse.id(), "lease {} is lost: {loss}", pulse.id()),
            None => {}
        }
        pulse.tell();
    }
}

impl std::fmt::Debug for Roster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roster").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tenure_core::Token;

    use super::*;

    /// A roster whose thread would look at the times the test says.
    #[derive(Default)]
    struct Rig(Roster);

    impl Rig {
        /// Keeps a lease from this second on; whether that woke the thread.
        fn keep(&self, number: u64, second: u64, ttl_ms: u64) -> bool {
            self.guard(number, second, ttl_ms);
            self.was_woken()
        }

        fn guard(&self, number: u64, second: u64, ttl_ms: u64) -> Arc<Pulse> {
            let (beat, now) = (Beat::new(Ttl::from_ms_native(ttl_ms).unwrap()), Moment::from_millis(second * 1_000));
            let pulse = Arc::new(Pulse::new(Token::from_u64(number).into(), now.plus(beat.trusted_for())));
            self.0.keep(Arc::clone(&pulse), beat, now);
            pulse
        }

        fn was_woken(&self) -> bool {
            self.0.woken().now_or_never().is_some()
        }

        fn look(&self, second: u64) -> Look {
            self.0.look(Moment::from_millis(second * 1_000)).unwrap()
        }
    }

    #[test]
    fn the_thread_is_woken_only_for_what_cannot_wait_until_it_looks() {
        let rig = Rig::default();
        assert!(rig.keep(1, 0, 30_000), "it sleeps without an end");
        assert_eq!(rig.look(0).nap, Some(NAP_MAX));
        assert!(!rig.keep(2, 0, 30_000), "due in ten seconds, and it looks in one");
        assert!(rig.keep(3, 0, 300), "due in 100 ms");
        assert_eq!(rig.look(0).nap, Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_thousand_leases_that_come_and_go_wake_the_thread_once() {
        let rig = Rig::default();
        let woken = (0..1_000).filter(|number| {
            let pulse = rig.guard(*number, 0, 30_000);
            let woken = rig.was_woken();
            if woken {
                rig.look(0);
            }
            rig.0.forget(&pulse);
            woken || rig.was_woken()
        });
        assert_eq!(woken.count(), 1);
        assert_eq!(rig.look(1).nap, None, "nothing is left to be looked at");
        assert!(rig.keep(1_000, 1, 30_000));
    }

    #[test]
    fn who_waits_at_another_guard_of_a_released_lease_is_woken() {
        let rig = Rig::default();
        let (first, second) = (rig.guard(1, 0, 30_000), rig.guard(1, 0, 30_000));
        let mut waiting = Box::pin(first.lost());
        assert_eq!(waiting.as_mut().now_or_never(), None);
        rig.0.release(&second);
        assert_eq!(waiting.now_or_never(), Some(Loss::Released));
    }

    #[test]
    fn a_shorter_ttl_wakes_the_thread_in_time() {
        let rig = Rig::default();
        let pulse = rig.guard(1, 0, 30_000);
        assert!(rig.was_woken());
        rig.look(0);
        let answer = Answer::Renewed(Ttl::from_ms_native(300).unwrap());
        rig.0.answered(Moment::from_millis(200), Moment::from_millis(100), pulse.id(), answer);
        assert_eq!(pulse.trusted_until(), Moment::from_millis(325));
        assert!(rig.was_woken());
    }

    #[test]
    fn a_closed_roster_keeps_nothing_and_says_so() {
        let rig = Rig::default();
        let pulse = |number: u64| Arc::new(Pulse::new(Token::from_u64(number).into(), Moment::from_millis(1_000)));
        let beat = Beat::new(Ttl::from_ms_native(30_000).unwrap());
        let (before, after) = (pulse(1), pulse(2));
        rig.0.keep(Arc::clone(&before), beat, Moment::from_millis(0));
        rig.0.close();
        assert!(rig.was_woken() && rig.0.look(Moment::from_millis(0)).is_none());
        rig.0.end();
        rig.0.keep(Arc::clone(&after), beat, Moment::from_millis(0));
        assert_eq!((before.loss(), after.loss()), (Some(&Loss::HeartbeatStopped), Some(&Loss::HeartbeatStopped)));
    }
}
