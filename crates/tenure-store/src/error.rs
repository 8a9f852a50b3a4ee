//! Owns what can go wrong with a store, in words for the person who has to do something about it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::Epoch;

/// Something broke.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the data directory.
    #[error("{} is in use by process {}: stop that server, or start this one with another data directory", dir.display(), pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string()))]
    InUse {
        /// The data directory.
        dir: PathBuf,
        /// Who has it, if that could be read.
        pid: Option<u32>,
    },
    /// The disk or quota is used up.
    #[error("no space left to write {}: free some space on its disk, then start again; nothing that was answered is lost", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file or its directory cannot be written, or not even read.
    #[error("no permission to {doing} {}: give the user that runs this server read and write access to it and to its directory", path.display())]
    Denied {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// The file is damaged or was never a database.
    #[error("{} is damaged ({detail}): keep a copy of it, then restore the last backup or run `tenure check` on a copy to see what is left", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The two files do not belong together.
    #[error("{} does not fit the other file in its directory ({detail}): one of them was replaced or removed; put the one that belongs to it back, or restore a backup", path.display())]
    OutOfStep {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The file is not the one that was opened.
    #[error("{} was removed or replaced while the server ran: what was granted since is lost, and so is everything before unless the file is elsewhere; put the data directory back, or restore a backup, then start again", path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of Tenure wrote it.
    #[error("{} was written by a newer version of tenure ({detail}): run that version, or restore a backup made by this one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What this version does not know.
        detail: String,
    },
    /// Something stands where a new file was to be made.
    #[error("{} exists and is not overwritten: choose another name or remove it first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The system refused for another reason.
    #[error("could not {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another program holds a lock on the file.
    #[error("{} is locked by another program: close what has it open for writing", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The database refused for another reason.
    #[error("the database {} failed: {detail}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Its answer.
        detail: String,
    },
    /// A record or event does not encode or decode.
    #[error("{what} cannot be {doing}: {source}")]
    Value {
        /// Which one.
        what: String,
        /// Read or written.
        doing: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// A batch out of its turn: a defect of the caller.
    #[error("batch {got} was committed where {expected} is next")]
    Sequence {
        /// The number that is next.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// A commit failed before; what is durable is known after opening the store again.
    #[error("an earlier commit failed, so nothing more is written: start again to see what is durable")]
    Poisoned,
    /// The tables cannot be brought up to date.
    #[error("the tables cannot be brought up to date: {0}")]
    Folding(Arc<Error>),
    /// The writer of this store is gone.
    #[error("the store has been closed")]
    Closed,
    /// The driver cannot do this.
    #[error("the {driver} store cannot {what}")]
    Unsupported {
        /// Which driver.
        driver: &'static str,
        /// What was asked.
        what: &'static str,
    },
}

impl Error {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Error::InUse { .. } => "store_in_use",
            Error::Full { .. } => "store_full",
            Error::Denied { .. } => "store_denied",
            Error::Corrupt { .. } => "store_corrupt",
            Error::OutOfStep { .. } => "store_out_of_step",
            Error::Removed { .. } => "store_removed",
            Error::Newer { .. } => "store_newer",
            Error::Exists { .. } => "file_exists",
            Error::Io { .. } => "store_io",
            Error::Locked { .. } => "store_locked",
            Error::Database { .. } => "store_database",
            Error::Value { .. } => "store_value",
            Error::Sequence { .. } => "store_sequence",
            Error::Poisoned => "store_poisoned",
            Error::Folding(why) => why.code(),
            Error::Closed => "store_closed",
            Error::Unsupported { .. } => "store_unsupported",
        }
    }

    /// The system's refusal to do something with a file, sorted.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::Denied { doing, path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::Full { path }
            }
            io::ErrorKind::AlreadyExists => Error::Exists { path },
            _ => Error::Io { doing, path, source },
        }
    }
}

/// Why a batch was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A newer epoch has been claimed: this writer is no longer the one. Nothing was written.
    #[error("epoch {} has taken over from epoch {}", .now.0, .ours.0)]
    Fenced {
        /// The epoch of the refused batch.
        ours: Epoch,
        /// The epoch of the store.
        now: Epoch,
    },
    /// Something broke; whether the batch is durable is known after opening the store again.
    #[error(transparent)]
    Failed(#[from] Error),
}
