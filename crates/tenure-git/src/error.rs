//! Owns what can go wrong at this crate's edge. A refusal names who stands in the way; an error says what broke.

use std::path::PathBuf;
use std::time::Duration;

use tenure_core::resource::ResourceError;

/// Why an act on a lock did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The resource's name cannot be held.
    #[error("{text:?} cannot be locked: {why}")]
    BadName {
        /// As it was typed.
        text: String,
        /// The rule it breaks.
        why: ResourceError,
    },
    /// Somebody else stands in the way.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// A renewal of something the caller does not hold (any more).
    #[error("{0}")]
    NotHeld(NotHeld),
    /// git found no repository here, or will not work in it.
    #[error("{detail}")]
    NotARepository {
        /// git's own words.
        detail: String,
    },
    /// The named remote is not configured.
    #[error("remote '{name}' does not exist")]
    NoSuchRemote {
        /// The name asked for.
        name: String,
    },
    /// The remote is configured in a way that cannot judge.
    #[error("remote '{name}' cannot judge locks: {why}")]
    UnfitRemote {
        /// The remote's name.
        name: String,
        /// What is in the way.
        why: String,
    },
    /// The remote did not answer. Nothing was granted, unless `unknown` says that a change may have arrived.
    #[error("remote '{name}' cannot be reached: {detail}")]
    RemoteUnavailable {
        /// The remote's name.
        name: String,
        /// git's own words.
        detail: String,
        /// A change was sent and nobody said what became of it.
        unknown: bool,
    },
    /// The remote refused a change although nothing it rests on had changed: a hook, a permission, a stuck lock file.
    #[error("remote '{name}' refused the change: {detail}")]
    RemoteRefused {
        /// The remote's name.
        name: String,
        /// The remote's own words.
        detail: String,
    },
    /// A file that a killed git left behind blocks a ref.
    #[error("{} is in the way (left by a killed process?)", path.display())]
    RefLockFile {
        /// The file.
        path: PathBuf,
        /// How old it is.
        age: Duration,
    },
    /// The answer came after the lease it speaks of had ended; the lock was given back.
    #[error("the answer took longer than the ttl; the lock on {resource} was given back")]
    TooLate {
        /// The resource asked for.
        resource: String,
    },
    /// git failed.
    #[error("git {command} failed: {detail}")]
    Git {
        /// The subcommand.
        command: String,
        /// Its standard error.
        detail: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A setting makes no sense.
    #[error("{place}: {why}")]
    Config {
        /// Where it stands.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such actor, or its id cannot be one.
    #[error("{0}")]
    Actor(String),
    /// There is no such issue, or its id fits several.
    #[error("{0}")]
    Issue(String),
    /// The caller's input cannot be used.
    #[error("{0}")]
    BadInput(String),
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What was attempted.
    pub verb: Verb,
    /// The resource asked for.
    pub asked: String,
    /// The resource that is held: the same one, or one that overlaps it.
    pub held: String,
    /// Who holds it.
    pub owner: String,
    /// Until when.
    pub expires_unix_ms: u64,
    /// Its fencing number, where known.
    pub token: Option<u64>,
    /// What kind of conflict it is.
    pub why: Why,
    /// The seconds until it expires, at the moment of the decision.
    pub expires_in_s: u64,
}

/// The kinds of conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Held now.
    Held,
    /// Expired, but by less than the margin for differing clocks.
    Lapsing,
    /// Held by a lock that only this clone knows.
    LocalOnly,
    /// Others were faster every time.
    Contended,
    /// The ref is there and says nothing readable, or speaks of another resource.
    Unreadable,
}

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Take it.
    Acquire,
    /// Keep it.
    Renew,
    /// Give it back.
    Release,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Conflict { asked, owner, .. } = self;
        match self.verb {
            Verb::Acquire => write!(f, "Lock on {asked} is held by {owner} (expires in {}s)", self.expires_in_s),
            Verb::Renew => write!(f, "Cannot renew lock on {asked} - owned by {owner}"),
            Verb::Release => write!(f, "Cannot release lock on {asked} - owned by {owner}"),
        }
    }
}

/// Why there is nothing to renew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHeld {
    /// There is no such lock.
    #[error("Cannot renew lock on {0} - nobody holds it")]
    Absent(String),
    /// The caller held it; it ran out.
    #[error("Cannot renew lock on {resource} - it expired {ago_s}s ago")]
    Expired {
        /// The resource.
        resource: String,
        /// Seconds since then.
        ago_s: u64,
    },
}

impl Error {
    /// The same error after a change was sent of which nobody knows whether it stands.
    pub(crate) fn with_unknown_end(self) -> Error {
        match self {
            Error::RemoteUnavailable { name, detail, .. } => Error::RemoteUnavailable { name, detail, unknown: true },
            other => other,
        }
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Error {
        Error::Conflict(Box::new(conflict))
    }
}
