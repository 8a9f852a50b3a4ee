//! Owns the client's monotonic clock. It counts the time that the machine slept, too: a laptop that was closed for an
//! hour must not trust a lease of a minute when it wakes.

use std::time::Duration;

/// A point on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) const fn from_millis(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    /// Whole milliseconds, rounded down: a deadline that passes through here can only become earlier.
    pub(crate) fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn plus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }

    /// The time from `earlier` to this moment; zero if that is later.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Tells the time.
pub(crate) trait Clock: Send + Sync + 'static {
    fn now(&self) -> Moment;
}

/// The machine's clock.
pub(crate) struct SystemClock;

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Clock for SystemClock {
    fn now(&self) -> Moment {
        use nix::time::{ClockId, clock_gettime};
        // The kernel has both clocks since 2.6.39; the second one only misses the time asleep.
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
        Moment(now.map(Duration::from).unwrap_or(Duration::MAX))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Clock for SystemClock {
    fn now(&self) -> Moment {
        static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        Moment(START.elapsed())
    }
}

/// Tokio's clock, which tests can pause; it starts at zero.
#[cfg(test)]
pub(crate) struct PausedClock(tokio::time::Instant);

#[cfg(test)]
impl PausedClock {
    pub(crate) fn start() -> PausedClock {
        PausedClock(tokio::time::Instant::now())
    }
}

#[cfg(test)]
impl Clock for PausedClock {
    fn now(&self) -> Moment {
        Moment(self.0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clock_moves_on() {
        let start = SystemClock.now();
        std::thread::yield_now();
        assert!(SystemClock.now() >= start);
        assert_eq!(start.since(start.plus(Duration::from_secs(1))), Duration::ZERO);
    }
}
