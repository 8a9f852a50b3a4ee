//! Owns what the commands that touch the data directory themselves have in common.

use tenure_store::Error;

use crate::exit::Exit;
use crate::failure::Failure;

/// Where a server keeps its data if nothing else is said.
pub(crate) const DEFAULT_DATA: &str = "./tenure-data";

/// A store that could not be opened or read, as a failed command. The texts of the store say what to do.
pub(crate) fn explain(error: &Error) -> Failure {
    let exit = match error {
        Error::InUse { .. } | Error::Exists { .. } => Exit::CONFLICT,
        Error::Denied { .. } => Exit::DENIED,
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Exit::NOT_FOUND,
        _ => Exit::FAILURE,
    };
    Failure::new(exit, error.code(), error.to_string())
}
