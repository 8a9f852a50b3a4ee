//! Owns the arithmetic of staying alive: when to send the next renewal, and until when to trust the last one.
//!
//! All of it is measured on the client's own monotonic clock, from the moment a request was *sent*: the server counts
//! the ttl from a later moment, so a slow answer can only make the client stop too early, never too late. The server's
//! wall clock is never compared with the client's.

use std::time::Duration;

use crate::Ttl;

/// A lease is renewed this many times per ttl, so that two beats may fail.
pub const BEATS_PER_TTL: u32 = 3;

/// A renewal that is not answered is sent again, on another connection, after one part in this of the interval: one
/// connection that died without a word costs nobody a lease.
pub const RESENDS_PER_BEAT: u32 = 4;

/// A renewal is not sent again sooner than this: an answer takes its time.
pub const RESEND_MIN: Duration = Duration::from_millis(20);

/// The part of the ttl by which a holder stops earlier than it must: room for clocks that run at different rates and
/// for the work to notice. One part in [`MARGIN_DIVISOR`], at least [`MARGIN_MIN`].
pub const MARGIN_DIVISOR: u32 = 20;

/// The shortest margin; a lease shorter than four of these uses a quarter of its ttl.
pub const MARGIN_MIN: Duration = Duration::from_millis(250);

/// The pace of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    ttl: Duration,
}

impl Beat {
    /// The pace for this ttl.
    pub fn new(ttl: Ttl) -> Beat {
        Beat { ttl: Duration::from_millis(ttl.ms()) }
    }

    /// How long after an accepted request was sent the next renewal is sent.
    pub fn interval(self) -> Duration {
        self.ttl / BEATS_PER_TTL
    }

    /// How long a renewal is waited for before it is sent again. The first answer counts, whichever request it is for.
    pub fn resend_after(self) -> Duration {
        (self.interval() / RESENDS_PER_BEAT).max(RESEND_MIN)
    }

    /// How much earlier than the ttl a holder stops trusting its lease.
    pub fn margin(self) -> Duration {
        (self.ttl / MARGIN_DIVISOR).max(MARGIN_MIN).min(self.ttl / 4)
    }

    /// How long after an accepted request was sent the lease may be trusted. Work has stopped by then.
    pub fn trusted_for(self) -> Duration {
        self.ttl - self.margin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_beats_fit_between_a_missed_one_and_the_end_of_trust() {
        for ms in [100, 1_000, 30_000, 30 * 24 * 3_600 * 1_000] {
            let beat = Beat::new(Ttl::from_ms_native(ms).unwrap());
            assert!(beat.interval() * 2 < beat.trusted_for(), "{ms}");
            assert!(beat.trusted_for() < Duration::from_millis(ms), "{ms}");
        }
    }

    #[test]
    fn two_more_renewals_fit_between_one_that_hangs_and_the_moment_to_stop_the_work() {
        for ms in [2_000, 3_000, 5_000, 30_000, 30 * 24 * 3_600 * 1_000] {
            let beat = Beat::new(Ttl::from_ms_native(ms).unwrap());
            // Who supervises other processes begins to stop them a quarter of the ttl before trust ends.
            let stop = beat.trusted_for() - Duration::from_millis(ms) / 4;
            let left = stop.checked_sub(beat.interval() + beat.resend_after() * 2).unwrap_or_default();
            assert!(left >= beat.resend_after(), "{ms}: {left:?} for the last answer");
        }
    }
}
