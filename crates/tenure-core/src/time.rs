//! Owns the ledger's notion of time: milliseconds since 1970 UTC, given by the caller with every command.

use serde::{Deserialize, Serialize};

use crate::limits::{TTL_MS_MAX, TTL_MS_MIN, TTL_MS_MIN_NATIVE};

/// A moment, in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment so many milliseconds after 1970-01-01 UTC.
    pub const fn from_unix_ms(ms: u64) -> Timestamp {
        Timestamp(ms)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// This moment and so many milliseconds; the end of time if that is past it.
    pub const fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }

    /// The milliseconds from `earlier` to this moment; 0 if `earlier` is later.
    pub const fn ms_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long a grant lasts without a renewal (L3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ttl(u64);

/// A ttl outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a ttl is {min_ms} to {max_ms} ms, not {asked_ms} ms")]
pub struct TtlOutOfRange {
    /// What was asked for.
    pub asked_ms: u64,
    /// The shortest allowed.
    pub min_ms: u64,
    /// The longest allowed.
    pub max_ms: u64,
}

impl Ttl {
    /// A ttl of the doors that count in seconds: 1 s to 30 days.
    pub const fn from_ms(ms: u64) -> Result<Ttl, TtlOutOfRange> {
        Ttl::within(ms, TTL_MS_MIN)
    }

    /// A ttl of the native door: 100 ms to 30 days.
    pub const fn from_ms_native(ms: u64) -> Result<Ttl, TtlOutOfRange> {
        Ttl::within(ms, TTL_MS_MIN_NATIVE)
    }

    /// The longest one.
    pub(crate) const MAX: Ttl = Ttl(TTL_MS_MAX);

    const fn within(ms: u64, min_ms: u64) -> Result<Ttl, TtlOutOfRange> {
        if ms < min_ms || ms > TTL_MS_MAX {
            return Err(TtlOutOfRange { asked_ms: ms, min_ms, max_ms: TTL_MS_MAX });
        }
        Ok(Ttl(ms))
    }

    /// In milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l3_a_ttl_outside_its_range_is_refused_and_the_range_is_said() {
        assert!(Ttl::from_ms(1_000).is_ok() && Ttl::from_ms(TTL_MS_MAX).is_ok());
        assert!(Ttl::from_ms_native(100).is_ok());
        for ms in [0, 999, TTL_MS_MAX + 1, u64::MAX] {
            let refused = Ttl::from_ms(ms).expect_err("out of range");
            assert_eq!((refused.asked_ms, refused.min_ms, refused.max_ms), (ms, TTL_MS_MIN, TTL_MS_MAX));
        }
        assert!(Ttl::from_ms_native(99).is_err());
    }
}
