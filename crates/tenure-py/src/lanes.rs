//! Owns where calls that block run: on a lane, which is a runtime without threads that is driven by whoever waits on it.
//!
//! Handing a call to another thread would cost more than the call itself, and so would two threads that wait on one
//! runtime: one of them would drive both. So every thread that waits at the same time gets a lane of its own, as long as
//! there are fewer than [`LANES_MAX`]. Waiting on a lane on which somebody waits already is safe, only slower.
//!
//! A lane lives as long as its process. A forked child makes its own and never touches what it inherited.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::own::Own;
use crate::runtime::{block, no_threads};

/// More calls than this that block at once share lanes: each costs three file descriptors.
const LANES_MAX: usize = 64;

/// A runtime without threads, with the connections that were made on it.
pub(crate) struct Lane {
    runtime: Runtime,
    waiting: AtomicUsize,
}

/// Locked only under the interpreter lock, so that no fork finds it locked.
static LANES: Mutex<Own<Vec<Arc<Lane>>>> = Mutex::new(Own::nothing());

impl Lane {
    /// The one on which the fewest wait: nobody, while there may be more of them.
    pub(crate) fn quietest(_py: Python<'_>) -> PyResult<Arc<Lane>> {
        let mut slot = LANES.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes = slot.get_or_default();
        let quietest = lanes.iter().min_by_key(|lane| lane.waiting.load(Ordering::Relaxed));
        if let Some(lane) = quietest.filter(|lane| lane.is_quiet() || lanes.len() >= LANES_MAX) {
            return Ok(Arc::clone(lane));
        }
        match (Builder::new_current_thread().enable_all().build(), quietest) {
            (Ok(runtime), _) => {
                let lane = Arc::new(Lane { runtime, waiting: AtomicUsize::new(0) });
                lanes.push(Arc::clone(&lane));
                Ok(lane)
            }
            // Without more file descriptors, those that are there must do.
            (Err(_), Some(lane)) => Ok(Arc::clone(lane)),
            (Err(error), None) => Err(no_threads(error)),
        }
    }

    /// Whether nobody waits on it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Waits without the interpreter lock, and drives everything else on this lane meanwhile.
    pub(crate) fn wait<T: Send>(&self, py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
        let _seat = Seat::take(&self.waiting);
        block(py, &self.runtime, future)
    }
}

/// A place among those who wait.
struct Seat<'a>(&'a AtomicUsize);

impl Seat<'_> {
    fn take(waiting: &AtomicUsize) -> Seat<'_> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Seat(waiting)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
