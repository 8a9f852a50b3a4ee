//! `tenure answer-query`: the server's helper for queries of workflows. Not for people: it bounds itself, answers one
//! question and ends.

use nix::sys::resource::{Resource, setrlimit};
use tenure_server::query;

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

pub(crate) fn run() -> Outcome {
    let bounds = [
        (Resource::RLIMIT_CPU, query::SECONDS_MAX),
        (Resource::RLIMIT_AS, query::MEMORY_BYTES_MAX),
        // A query that is too large is no reason to write its memory to the disk.
        (Resource::RLIMIT_CORE, 0),
    ];
    for (what, most) in bounds {
        setrlimit(what, most, most).map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    }
    query::answer(std::io::stdin().lock(), std::io::stdout().lock())
        .map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    Ok(Exit::OK)
}
