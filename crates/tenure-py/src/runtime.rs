//! Owns the two runtimes on which calls run, and who may touch the interpreter when.
//!
//! 1. Two runtimes per process, each made when it is first needed. A call that blocks runs on the thread that waits for it
//!    ([`CALLS`]): handing it to another one would cost more than the call itself. What goes on while Python does something
//!    else has threads of its own ([`TASKS`]). Connections belong to the runtime that made them.
//! 2. A forked child makes its own and never touches what it inherited: the threads of the parent do not exist there,
//!    and their locks may be held for ever.
//! 3. A call waits without the interpreter lock and looks for signals meanwhile, so Ctrl-C ends it.
//! 4. After [`shutdown`] no thread of this module asks for the interpreter lock: doing so while the interpreter ends
//!    would take the process down.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime, RuntimeFlavor};

use crate::guard;

/// A waiting call looks for signals this often.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// What is still held when the interpreter ends is given back for at most this long.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Network and timers need no more; calls of Python run on threads of their own.
const WORKER_THREADS: usize = 2;

/// A runtime of this process.
pub(crate) struct Shared {
    /// Locked only while the interpreter lock is held and never across a wait, so that no fork finds it locked.
    slot: Mutex<Option<(u32, Arc<Runtime>)>>,
    build: fn() -> io::Result<Runtime>,
}

/// For calls that block: nothing runs there while nobody waits.
pub(crate) static CALLS: Shared =
    Shared { slot: Mutex::new(None), build: || Builder::new_current_thread().enable_all().build() };

/// For everything else.
pub(crate) static TASKS: Shared = Shared {
    slot: Mutex::new(None),
    build: || Builder::new_multi_thread().worker_threads(WORKER_THREADS).thread_name("tenure").enable_all().build(),
};

impl Shared {
    /// This process's; the proof of the interpreter lock keeps forks away (2).
    pub(crate) fn get(&self, _py: Python<'_>) -> PyResult<Arc<Runtime>> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        if let Some((_, runtime)) = slot.as_ref().filter(|(owner, _)| *owner == pid) {
            return Ok(Arc::clone(runtime));
        }
        // The parent's (2): not even dropping it is safe here.
        std::mem::forget(slot.take());
        let runtime = (self.build)()
            .map_err(|error| PyRuntimeError::new_err(format!("tenure cannot start its threads: {error}")))?;
        let runtime = Arc::new(runtime);
        *slot = Some((pid, Arc::clone(&runtime)));
        Ok(runtime)
    }
}

static CLOSED: AtomicBool = AtomicBool::new(false);
static VISITORS: AtomicUsize = AtomicUsize::new(0);

/// Waits for it without the interpreter lock; a signal handler that raises ends the wait (3).
pub(crate) fn block<T: Send>(py: Python<'_>, runtime: &Runtime, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let mut future = Box::pin(async {
        // Connections that were closed while nobody waited are noticed before one of them is used: the first turn finds
        // out what happened, the second lets every connection see it.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        future.await
    });
    loop {
        let attempt = py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNALS_EVERY, &mut future).await }));
        match attempt {
            Ok(done) => return Ok(done),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Does it although nobody waits: on the runtime's threads, or on a new one if it has none.
pub(crate) fn detach(runtime: &Arc<Runtime>, future: impl Future<Output = ()> + Send + 'static) {
    if runtime.handle().runtime_flavor() != RuntimeFlavor::CurrentThread {
        runtime.spawn(future);
        return;
    }
    let runtime = Arc::clone(runtime);
    let started = std::thread::Builder::new().name("tenure".to_owned()).spawn(move || runtime.block_on(future));
    // Without a thread it is not done: a lease lapses after its ttl.
    drop(started);
}

/// Visits the interpreter from a thread of the runtime. Nothing once it is ending (4).
pub(crate) fn visit<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    VISITORS.fetch_add(1, Ordering::SeqCst);
    let result = if CLOSED.load(Ordering::SeqCst) { None } else { Python::try_attach(work) };
    VISITORS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Gives back what is still held and keeps every thread away from the interpreter from now on (4). For `atexit`.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) -> PyResult<()> {
    let held = guard::take_all_live();
    if !held.is_empty() {
        // Connections of the other runtime have threads.
        let calls = CALLS.get(py)?;
        py.detach(|| calls.block_on(async { tokio::time::timeout(FAREWELL_MAX, guard::release_all(held)).await.ok() }));
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
