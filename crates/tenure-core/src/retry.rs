//! Owns when failed work is tried again (T4). One rule serves every front end: the `retry:` of a workflow file, the retry
//! policy of an intent and the retry settings of a task definition all become a [`RetryRule`].
//!
//! Pure arithmetic: chance comes in as a number, time stays outside. Attempts are counted with the first try, so a rule
//! of three attempts retries twice.

use serde::{Deserialize, Serialize};

use crate::limits::{ATTEMPTS_MAX, RETRY_DELAY_MS_MAX};

/// How the delay grows from one retry to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// Always the base delay.
    Fixed,
    /// The base delay, twice, three times it …
    Linear,
    /// The base delay, twice, four times, eight times it …
    #[default]
    Exponential,
}

impl Backoff {
    /// The word for it on every wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Backoff::Fixed => "fixed",
            Backoff::Linear => "linear",
            Backoff::Exponential => "exponential",
        }
    }
}

/// How often failed work is tried and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryRule {
    /// How the delay grows.
    pub backoff: Backoff,
    /// The delay before the second attempt.
    pub base_delay_ms: u64,
    /// No delay is longer.
    pub max_delay_ms: u64,
    /// How many attempts there are in all, the first try included.
    pub max_attempts: u32,
}

/// Why numbers do not make a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRetryRule {
    /// The number of attempts is out of range.
    #[error("max_attempts counts the first try and is 1 to {ATTEMPTS_MAX}, not {0}")]
    Attempts(u32),
    /// A delay is out of range.
    #[error("a retry delay is at most {RETRY_DELAY_MS_MAX} ms, not {0} ms")]
    Delay(u64),
}

impl RetryRule {
    /// One try and no more.
    pub const NEVER: RetryRule =
        RetryRule { backoff: Backoff::Fixed, base_delay_ms: 0, max_delay_ms: RETRY_DELAY_MS_MAX, max_attempts: 1 };

    /// A checked rule whose delays have no bound of their own but [`RETRY_DELAY_MS_MAX`].
    pub fn new(backoff: Backoff, base_delay_ms: u64, max_attempts: u32) -> Result<RetryRule, BadRetryRule> {
        RetryRule { backoff, base_delay_ms, max_delay_ms: RETRY_DELAY_MS_MAX, max_attempts }.checked()
    }

    /// The same rule, if its numbers are in range.
    pub fn checked(self) -> Result<RetryRule, BadRetryRule> {
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            return Err(BadRetryRule::Attempts(self.max_attempts));
        }
        match [self.base_delay_ms, self.max_delay_ms].into_iter().find(|delay| *delay > RETRY_DELAY_MS_MAX) {
            Some(delay) => Err(BadRetryRule::Delay(delay)),
            None => Ok(self),
        }
    }

    /// How long to wait after the attempt with this number (the first is 1) has failed; nothing if it was the last.
    ///
    /// `jitter_permille` takes up to that many thousandths off the delay, so that those who failed together do not all
    /// come back together: the caller draws it, 0 is none.
    pub fn delay_after(&self, attempt: u32, jitter_permille: u32) -> Option<u64> {
        if attempt >= self.max_attempts {
            return None;
        }
        let retry = u64::from(attempt.max(1));
        let factor = match self.backoff {
            Backoff::Fixed => 1,
            Backoff::Linear => retry,
            Backoff::Exponential => 1u64.checked_shl(attempt.max(1) - 1).unwrap_or(u64::MAX),
        };
        let delay = self.base_delay_ms.saturating_mul(factor).min(self.max_delay_ms).min(RETRY_DELAY_MS_MAX);
        Some(delay - delay * u64::from(jitter_permille.min(1_000)) / 1_000)
    }
}

impl Default for RetryRule {
    /// Three attempts, one second and two seconds apart.
    fn default() -> RetryRule {
        RetryRule { backoff: Backoff::Exponential, base_delay_ms: 1_000, max_delay_ms: 60_000, max_attempts: 3 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delays(backoff: Backoff, max_attempts: u32) -> Vec<u64> {
        let rule = RetryRule::new(backoff, 2_000, max_attempts).unwrap();
        (1..).map_while(|attempt| rule.delay_after(attempt, 0)).collect()
    }

    #[test]
    fn t4_max_attempts_counts_the_first_try() {
        assert_eq!(delays(Backoff::Fixed, 1), [] as [u64; 0]);
        assert_eq!(delays(Backoff::Fixed, 3), [2_000, 2_000]);
        assert_eq!(RetryRule::NEVER.delay_after(1, 0), None);
    }

    #[test]
    fn t4_delays_grow_as_the_backoff_says() {
        assert_eq!(delays(Backoff::Fixed, 5), [2_000, 2_000, 2_000, 2_000]);
        assert_eq!(delays(Backoff::Linear, 5), [2_000, 4_000, 6_000, 8_000]);
        assert_eq!(delays(Backoff::Exponential, 5), [2_000, 4_000, 8_000, 16_000]);
    }

    #[test]
    fn t4_no_delay_is_longer_than_its_bound() {
        let rule = RetryRule { max_delay_ms: 5_000, ..RetryRule::new(Backoff::Exponential, 2_000, 200).unwrap() };
        assert_eq!(rule.delay_after(2, 0), Some(4_000));
        assert_eq!(rule.delay_after(3, 0), Some(5_000));
        assert_eq!(rule.delay_after(199, 0), Some(5_000));
    }

    #[test]
    fn t4_numbers_out_of_range_are_refused() {
        assert_eq!(RetryRule::new(Backoff::Fixed, 0, 0), Err(BadRetryRule::Attempts(0)));
        assert_eq!(RetryRule::new(Backoff::Fixed, 0, ATTEMPTS_MAX + 1), Err(BadRetryRule::Attempts(ATTEMPTS_MAX + 1)));
        assert_eq!(RetryRule::new(Backoff::Fixed, u64::MAX, 1), Err(BadRetryRule::Delay(u64::MAX)));
    }

    proptest! {
        #[test]
        fn t4_every_rule_ends_and_jitter_only_shortens(
            base in 0..=RETRY_DELAY_MS_MAX, max in 0..=RETRY_DELAY_MS_MAX, attempts in 1..=ATTEMPTS_MAX,
            jitter in any::<u32>(), kind in 0..3u8,
        ) {
            let backoff = [Backoff::Fixed, Backoff::Linear, Backoff::Exponential][usize::from(kind)];
            let rule = RetryRule { backoff, base_delay_ms: base, max_delay_ms: max, max_attempts: attempts }.checked().unwrap();
            let mut last = 0;
            for attempt in 1..attempts {
                let plain = rule.delay_after(attempt, 0).expect("an attempt is left");
                prop_assert!(plain >= last && plain <= max, "delays neither shrink nor pass their bound");
                prop_assert!(rule.delay_after(attempt, jitter).expect("an attempt is left") <= plain);
                last = plain;
            }
            prop_assert_eq!(rule.delay_after(attempts, jitter), None);
        }
    }
}
