//! Owns the places where calls run, and who may touch the interpreter when.
//!
//! 1. A call that blocks runs on the thread that waits for it, on a [`Lane`]. What goes on while Python does something else
//!    has threads of its own ([`tasks`]), made when they are first needed. Connections belong to the runtime that made them.
//! 2. A forked child makes its own and never touches what it inherited: the threads of the parent do not exist there,
//!    and their locks may be held for ever.
//! 3. A call waits without the interpreter lock and looks for signals meanwhile, so Ctrl-C ends it.
//! 4. After [`shutdown`] no thread of this module asks for the interpreter lock: doing so while the interpreter ends
//!    would take the process down.
//! 5. While Python forks, no thread of this module is on its way to the interpreter: a thread that comes there for the first time
//!    takes a lock of CPython's before it has the interpreter lock, and a child forked in that moment never comes out of its fork.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::guard;
use crate::lanes::Lane;
use crate::own::Own;

/// A waiting call looks for signals this often.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// What is still held when the interpreter ends is given back for at most this long.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// A visitor that met a fork looks again after this long.
const FORK_LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Network and timers need no more; calls of Python run on threads of their own.
const WORKER_THREADS: usize = 2;

/// Where a call runs, and with it how Python waits for it.
#[derive(Clone)]
pub(crate) enum Place {
    /// On the thread that waits.
    Lane(Arc<Lane>),
    /// On threads of its own; Python waits by an asyncio future.
    Tasks(Arc<Runtime>),
}

impl Place {
    /// The runtime to which the connections belong that are made here.
    pub(crate) fn runtime(&self) -> &Runtime {
        match self {
            Place::Lane(lane) => lane.runtime(),
            Place::Tasks(tasks) => tasks,
        }
    }

    pub(crate) fn is(&self, other: &Place) -> bool {
        std::ptr::eq(self.runtime(), other.runtime())
    }

    /// Does it although nobody waits: on the place's threads, or on a new one if it has none.
    pub(crate) fn detach(&self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            Place::Tasks(tasks) => drop(tasks.spawn(future)),
            Place::Lane(lane) => {
                let lane = Arc::clone(lane);
                let thread = std::thread::Builder::new().name("tenure".to_owned());
                // Without a thread it is not done: a lease lapses after its ttl.
                drop(thread.spawn(move || lane.runtime().block_on(future)));
            }
        }
    }
}

/// The runtime with threads. Locked only while the interpreter lock is held and never across
/// a wait, so that no fork finds it locked.
static TASKS: Mutex<Own<Arc<Runtime>>> = Mutex::new(Own::nothing());

/// The runtime with threads; the proof of the interpreter lock keeps forks away (2).
pub(crate) fn tasks(_py: Python<'_>) -> PyResult<Arc<Runtime>> {
    let mut slot = TASKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = slot.get() {
        return Ok(Arc::clone(runtime));
    }
    let runtime = Builder::new_multi_thread().worker_threads(WORKER_THREADS).thread_name("tenure").enable_all().build();
    let runtime = Arc::new(runtime.map_err(no_threads)?);
    *slot = Own::new(Arc::clone(&runtime));
    Ok(runtime)
}

pub(crate) fn no_threads(error: io::Error) -> PyErr {
    PyRuntimeError::new_err(format!("tenure cannot start its threads: {error}"))
}

static CLOSED: AtomicBool = AtomicBool::new(false);
static VISITORS: AtomicUsize = AtomicUsize::new(0);
/// The visitors that do not have the interpreter lock yet.
static COMING: AtomicUsize = AtomicUsize::new(0);
/// The forks that are being made.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Waits for it without the interpreter lock; a signal handler that raises ends the wait (3).
pub(crate) fn block<T: Send>(py: Python<'_>, runtime: &Runtime, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let mut future = Box::pin(async {
        // Connections that were closed while nobody waited are noticed before one of them is used.
        catch_up().await;
        future.await
    });
    loop {
        let attempt = py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNALS_EVERY, &mut future).await }));
        if let Ok(done) = attempt {
            return Ok(done);
        }
        if let Err(raised) = py.check_signals() {
            drop(future);
            // A connection whose call was given up is closed when its runtime runs, and nobody may come to run it again.
            py.detach(|| runtime.block_on(catch_up()));
            return Err(raised);
        }
    }
}

/// Lets the connections of a runtime do what is due: the first turn finds out what happened, the second lets each see it.
pub(crate) async fn catch_up() {
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
}

/// Keeps every thread from coming to the interpreter until the fork is made (5). For `os.register_at_fork`.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    FORKS.fetch_add(1, Ordering::SeqCst);
    // Those on their way need the interpreter lock to arrive.
    py.detach(|| {
        while COMING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    });
}

/// The fork is made. For `os.register_at_fork`.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// A forked child has none of the threads that were visiting. For `os.register_at_fork`.
#[pyfunction]
pub(crate) fn forked() {
    for count in [&FORKS, &COMING, &VISITORS] {
        count.store(0, Ordering::SeqCst);
    }
}

/// Visits the interpreter from a thread of the runtime. Nothing once it is ending (4).
pub(crate) fn visit<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    VISITORS.fetch_add(1, Ordering::SeqCst);
    let coming = Coming::when_nobody_forks();
    let arrived = |py: Python<'_>| {
        drop(coming);
        work(py)
    };
    let result = if CLOSED.load(Ordering::SeqCst) { None } else { Python::try_attach(arrived) };
    VISITORS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// On the way to the interpreter.
struct Coming;

impl Coming {
    fn when_nobody_forks() -> Coming {
        loop {
            COMING.fetch_add(1, Ordering::SeqCst);
            let coming = Coming;
            if FORKS.load(Ordering::SeqCst) == 0 {
                return coming;
            }
            drop(coming);
            std::thread::sleep(FORK_LOOK_AGAIN);
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        COMING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Gives back what is still held and keeps every thread away from the interpreter from now on (4). For `atexit`.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) -> PyResult<()> {
    let places = guard::take_all_live();
    py.detach(|| {
        // At once, because a server that does not answer must not keep another from hearing of it.
        std::thread::scope(|scope| {
            for (place, held) in places {
                let farewell = async { tokio::time::timeout(FAREWELL_MAX, guard::release_all(held)).await };
                let give_back = move || drop(place.runtime().block_on(farewell));
                // What is not given back lapses after its ttl.
                drop(std::thread::Builder::new().spawn_scoped(scope, give_back));
            }
        });
    });
    CLOSED.store(true, Ordering::SeqCst);
    py.detach(|| {
        // Visitors that are already waiting for the lock get it, one after the other.
        while VISITORS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    });
    Ok(())
}
