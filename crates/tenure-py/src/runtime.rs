//! Owns the runtime on which calls run, and who may touch the interpreter when.
//!
//! 1. One runtime per process. A forked child makes its own and never touches what it inherited: the threads of the
//!    parent do not exist there, and their locks may be held for ever.
//! 2. A call waits without the interpreter lock and looks for signals meanwhile, so Ctrl-C ends it.
//! 3. After [`shutdown`] no thread of this module asks for the interpreter lock: doing so while the interpreter ends
//!    would take the process down.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::guard;

/// A waiting call looks for signals this often.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// What is still held when the interpreter ends is given back for at most this long.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Network and timers need no more; calls of Python run on threads of their own.
const WORKER_THREADS: usize = 2;

struct Slot {
    pid: u32,
    runtime: Arc<Runtime>,
}

/// Locked only while the interpreter lock is held and never across a wait, so that no fork finds it locked.
static SLOT: Mutex<Option<Slot>> = Mutex::new(None);
static CLOSED: AtomicBool = AtomicBool::new(false);
static VISITORS: AtomicUsize = AtomicUsize::new(0);

/// This process's runtime; the proof of the interpreter lock keeps forks away (1).
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<Arc<Runtime>> {
    let mut slot = SLOT.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some(slot) = slot.as_ref().filter(|slot| slot.pid == pid) {
        return Ok(Arc::clone(&slot.runtime));
    }
    // The parent's (1): not even dropping it is safe here.
    std::mem::forget(slot.take());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .thread_name("tenure")
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("tenure cannot start its threads: {error}")))?;
    let runtime = Arc::new(runtime);
    *slot = Some(Slot { pid, runtime: Arc::clone(&runtime) });
    Ok(runtime)
}

/// Waits for it without the interpreter lock; a signal handler that raises ends the wait (2).
pub(crate) fn block<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let runtime = runtime(py)?;
    let mut future = Box::pin(future);
    loop {
        let attempt = py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNALS_EVERY, &mut future).await }));
        match attempt {
            Ok(done) => return Ok(done),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Visits the interpreter from a thread of the runtime. Nothing once it is ending (3).
pub(crate) fn visit<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    VISITORS.fetch_add(1, Ordering::SeqCst);
    let result = if CLOSED.load(Ordering::SeqCst) { None } else { Python::try_attach(work) };
    VISITORS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Gives back what is still held and keeps every thread away from the interpreter from now on (3). For `atexit`.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) -> PyResult<()> {
    let started = SLOT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .filter(|slot| slot.pid == std::process::id())
        .map(|slot| Arc::clone(&slot.runtime));
    if let Some(runtime) = started {
        let held = guard::take_all_live();
        py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(FAREWELL_MAX, guard::release_all(held)).await.ok() })
        });
    }
    CLOSED.store(true, Ordering::SeqCst);
    py.detach(|| {
        // Visitors that are already waiting for the lock get it, one after the other.
        while VISITORS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    });
    Ok(())
}
