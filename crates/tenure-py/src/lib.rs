//! The native half of the Python package `tenure`: the Rust crate of the same name, given to Python.
//!
//! Owns the border between the two: calls that run on the thread that waits for them, without the interpreter lock, asyncio futures,
//! errors as exceptions. The heartbeats run in the Rust crate's own thread and never touch the interpreter. Types,
//! decorators and documentation for people are in `python/tenure`; nothing here is meant to be called from elsewhere.

mod agent;
mod bridge;
mod client;
mod errors;
mod events;
mod guard;
mod json;
mod lanes;
mod own;
mod runtime;
mod watch;
mod work;
mod worker;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::agent::Agent;
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::events::Events;
    #[pymodule_export]
    use crate::guard::Guard;
    #[pymodule_export]
    use crate::runtime::{after_fork, before_fork, forked, shutdown};
    #[pymodule_export]
    use crate::work::Done;
    #[pymodule_export]
    use crate::worker::{Context, Worker};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("DEFAULT_URL", tenure::DEFAULT_URL)
    }
}
