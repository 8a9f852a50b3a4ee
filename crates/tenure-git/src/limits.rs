//! Owns every bound of the git door, each with its reason.

use std::time::Duration;

/// A `lock.json` has four short fields; more than this is not a lock.
pub const LOCK_JSON_BYTES_MAX: usize = 64 * 1024;
/// How often a lost race is tried again before it is a conflict. Every round somebody wins, so this is about how many
/// agents may ask for something at the same moment.
pub const ATTEMPTS_MAX: u32 = 24;
/// How often the same change may be refused although nothing it rests on has changed: somebody else's change may be
/// under way, but not for ever.
pub const UNMOVED_REFUSALS_MAX: u32 = 6;
/// How often nobody may say what became of a push before that is the answer: each costs the whole time limit.
pub const UNANSWERED_MAX: u32 = 2;
/// How many refs one push or one transaction changes: command lines have a length, and git compares every ref that is
/// named with every ref that is there.
pub const CHANGES_MAX: usize = 200;
/// The first pause after a lost race; it doubles, with jitter, up to [`BACKOFF_MS_MAX`].
pub const BACKOFF_MS_MIN: u64 = 5;
/// The longest pause after a lost race.
pub const BACKOFF_MS_MAX: u64 = 250;
/// How much two machines' clocks may differ before a takeover could hit a lock its holder believes in.
pub const SKEW_MS_DEFAULT: u64 = 5_000;
/// A larger margin than this means that a clock has to be set, not a margin.
pub const SKEW_MS_MAX: u64 = 3_600_000;
/// How long one talk with a remote may take.
pub const REMOTE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// git holds a ref's `.lock` file for milliseconds; one this old was left by a killed process.
pub const STALE_REF_LOCK_AGE: Duration = Duration::from_secs(60);
/// How long a busy `.lock` file is waited for within one attempt.
pub const REF_LOCK_WAIT_MS: u64 = 1_000;
/// An issue with all its comments; work itself belongs into files.
pub const ISSUE_BYTES_MAX: usize = 1024 * 1024;
/// A title is a line.
pub const ISSUE_TITLE_BYTES_MAX: usize = 512;
/// Labels are words.
pub const ISSUE_LABEL_BYTES_MAX: usize = 64;
/// More labels than this are a text.
pub const ISSUE_LABELS_MAX: usize = 32;

const _: () = assert!(BACKOFF_MS_MIN < BACKOFF_MS_MAX);
const _: () = assert!(REF_LOCK_WAIT_MS < STALE_REF_LOCK_AGE.as_millis() as u64);
