//! Owns where time comes from. Nothing else in the server asks the operating system what time it is.
//!
//! Ledger time is the wall clock as it was when the server started, carried on by the monotonic clock: somebody who sets
//! the machine's clock expires nobody. While the machine is suspended ledger time stands still, as it does while the
//! server is down; the times shown then lag behind the wall clock until the next start.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tenure_core::Timestamp;

/// Says what time it is, and how long to sleep until a moment comes.
pub trait Clock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// How long to sleep until `moment`; `None` if no sleep leads there and the clock will say when it has moved.
    fn until(&self, moment: Timestamp) -> Option<Duration>;

    /// Asks to be told when the clock has moved other than by time passing.
    fn on_move(&self, wake: Box<dyn Fn() + Send + Sync>);
}

/// The time of the machine, free of jumps.
pub struct SystemClock {
    started: Instant,
    started_at: Timestamp,
}

impl SystemClock {
    /// A clock that reads the wall clock once, now.
    pub fn new() -> SystemClock {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SystemClock { started: Instant::now(), started_at: Timestamp::from_unix_ms(since_1970.as_millis() as u64) }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started_at.plus_ms(self.started.elapsed().as_millis() as u64)
    }

    fn until(&self, moment: Timestamp) -> Option<Duration> {
        let from_start = Duration::from_millis(moment.ms_since(self.started_at));
        Some(from_start.saturating_sub(self.started.elapsed()))
    }

    fn on_move(&self, _wake: Box<dyn Fn() + Send + Sync>) {}
}

/// A clock that stands still until it is moved: time for tests and simulations.
#[derive(Clone)]
pub struct ManualClock(Arc<Mutex<Manual>>);

struct Manual {
    now: Timestamp,
    wakes: Vec<Arc<dyn Fn() + Send + Sync>>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock(Arc::new(Mutex::new(Manual { now, wakes: Vec::new() })))
    }

    /// Moves on by so many milliseconds and wakes who sleeps.
    pub fn advance_ms(&self, ms: u64) {
        let mut manual = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        manual.now = manual.now.plus_ms(ms);
        let wakes = manual.wakes.clone();
        // Whoever is woken asks what time it is, perhaps with a lock in its hands that the wake-up needs.
        drop(manual);
        for wake in wakes {
            wake();
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    fn until(&self, moment: Timestamp) -> Option<Duration> {
        // Woken for nothing is harmless; asleep past the moment is not.
        (moment <= self.now()).then_some(Duration::ZERO)
    }

    fn on_move(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wakes.push(Arc::from(wake));
    }
}

/// The ledger's time: the clock's, moved forward once at the start if the ledger has already seen a later time, so that it
/// neither goes back nor stands still until the clock has caught up.
#[derive(Clone)]
pub(super) struct LedgerTime {
    clock: Arc<dyn Clock>,
    ahead_ms: u64,
    pub(super) last: Timestamp,
}

impl LedgerTime {
    pub(super) fn resume(clock: Arc<dyn Clock>, last: Timestamp) -> LedgerTime {
        let ahead_ms = last.ms_since(clock.now());
        LedgerTime { clock, ahead_ms, last }
    }

    pub(super) fn stamp(&mut self) -> Timestamp {
        self.last = self.now();
        self.last
    }

    pub(super) fn now(&self) -> Timestamp {
        self.last.max(self.clock.now().plus_ms(self.ahead_ms))
    }

    pub(super) fn until(&self, moment: Timestamp) -> Option<std::time::Duration> {
        self.clock.until(Timestamp::from_unix_ms(moment.unix_ms().saturating_sub(self.ahead_ms)))
    }
}

/// A stopwatch for metrics, so that measuring needs no clock of its own.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}
