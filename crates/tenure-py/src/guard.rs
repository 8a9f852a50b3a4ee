//! Owns the guard as Python sees it: what it may believe, giving it back, and telling the work when it is lost.
//!
//! The heartbeat is the Rust crate's and needs nothing from here. A forked child that inherits a guard does not hold
//! the lease: it believes nothing, renews nothing and gives nothing back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tenure::{Lease, LeaseId, LeaseInfo, State};

use crate::bridge::answer;
use crate::json;
use crate::runtime::{Place, tasks};
use crate::watch::Watch;

/// Everything this process holds, for the end of the interpreter, by a number of its own: two servers may give out the same id.
/// Locked only under the interpreter lock.
static LIVE: Mutex<Option<HashMap<u64, Weak<Body>>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(0);

struct Body {
    pid: u32,
    number: u64,
    id: LeaseId,
    /// Where it was acquired, and with whose connections it is given back.
    place: Place,
    lease: Mutex<Option<Lease>>,
    watches: Mutex<Vec<Arc<Watch>>>,
}

impl Body {
    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let (lease, watches) = (self.lease.get_mut(), self.watches.get_mut());
        if self.pid != std::process::id() {
            // The parent's threads are not here; talking to them could wait for ever.
            std::mem::forget(lease.map(Option::take));
            std::mem::forget(watches.map(std::mem::take));
            return;
        }
        watches.unwrap_or_else(PoisonError::into_inner).iter().for_each(|watch| watch.end());
    }
}

/// A lease that is kept alive.
#[pyclass(frozen)]
pub(crate) struct Guard {
    body: Arc<Body>,
    info: Arc<LeaseInfo>,
}

impl Guard {
    pub(crate) fn new(lease: Lease, place: Place) -> Guard {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (pid, id, info) = (std::process::id(), lease.id(), Arc::clone(lease.info()));
        let body = Body { pid, number, id, place, lease: Mutex::new(Some(lease)), watches: Mutex::default() };
        let body = Arc::new(body);
        live(|live| live.insert(number, Arc::downgrade(&body)));
        Guard { body, info }
    }

    fn refuse_foreign(&self) -> PyResult<()> {
        if self.body.is_ours() {
            return Ok(());
        }
        let what = format!("{} belongs to process {}, from which this one was forked", self.body.id, self.body.pid);
        Err(PyRuntimeError::new_err(what))
    }

    fn take(&self) -> Option<Lease> {
        live(|live| live.remove(&self.body.number));
        self.body.lease().take()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.body.is_ours() {
            live(|live| live.remove(&self.body.number));
        }
    }
}

#[pymethods]
impl Guard {
    /// The lease as it was granted.
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        json::to_python(py, &*self.info)
    }

    #[getter]
    fn id(&self) -> String {
        self.info.id.to_string()
    }

    #[getter]
    fn resources(&self) -> Vec<String> {
        self.info.resources.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn holder(&self) -> &str {
        self.info.holder.as_str()
    }

    #[getter]
    fn token(&self) -> u64 {
        self.info.token.as_u64()
    }

    /// `held`, `at_risk`, `lost` or `released`.
    #[getter]
    fn state(&self) -> &'static str {
        if !self.body.is_ours() {
            return "lost";
        }
        match self.body.lease().as_ref().map(Lease::state) {
            None => "released",
            Some(State::Held) => "held",
            Some(State::AtRisk) => "at_risk",
            Some(State::Lost) => "lost",
        }
    }

    /// Seconds.
    #[getter]
    fn trusted_for(&self) -> f64 {
        let lease = self.body.is_ours().then(|| self.body.lease());
        lease.and_then(|lease| lease.as_ref().map(Lease::trusted_for)).unwrap_or(Duration::ZERO).as_secs_f64()
    }

    /// How it was lost, in words.
    #[getter]
    fn loss(&self) -> Option<String> {
        if !self.body.is_ours() {
            return Some(format!("it belongs to process {}, from which this one was forked", self.body.pid));
        }
        let lease = self.body.lease();
        let lease = lease.as_ref().filter(|lease| lease.state() == State::Lost)?;
        Some(lease.loss().map_or_else(|| tenure::Loss::OutOfTouch.to_string(), ToString::to_string))
    }

    /// Calls it once when the lease is lost, from another thread.
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.refuse_foreign()?;
        let lost = self.body.lease().as_ref().map(Lease::lost);
        let Some(lost) = lost else { return Ok(()) };
        let watch = Watch::start(lost, callback, tasks(py)?.handle().clone());
        self.body.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
        Ok(())
    }

    /// Gives it back. Doing it twice is no error.
    fn release<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.refuse_foreign()?;
        let lease = self.take();
        let release = async move {
            match lease {
                Some(lease) => lease.release().await,
                None => Ok(()),
            }
        };
        answer(py, &self.body.place, release, |py, ()| Ok(py.None()))
    }

    /// Gives it back without waiting for the answer: nobody took it over.
    pub(crate) fn abandon(&self) {
        if let Some(lease) = self.body.is_ours().then(|| self.take()).flatten() {
            // If that fails, it lapses.
            self.body.place.detach(async move { drop(lease.release().await) });
        }
    }

    /// Stops the heartbeat without giving it back: it lapses after its ttl.
    fn forget(&self) {
        if self.body.is_ours() {
            drop(self.take());
        }
    }
}

fn live<T>(work: impl FnOnce(&mut HashMap<u64, Weak<Body>>) -> T) -> T {
    work(LIVE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Everything this process still holds, and where each is given back.
pub(crate) fn take_all_live() -> Vec<(Place, Vec<Lease>)> {
    let bodies: Vec<Arc<Body>> = live(|live| live.drain().filter_map(|(_, body)| body.upgrade()).collect());
    let mut held: Vec<(Place, Vec<Lease>)> = Vec::new();
    for body in bodies.iter().filter(|body| body.is_ours()) {
        let Some(lease) = body.lease().take() else { continue };
        match held.iter_mut().find(|(place, _)| place.is(&body.place)) {
            Some((_, leases)) => leases.push(lease),
            None => held.push((body.place.clone(), vec![lease])),
        }
    }
    held
}

/// Gives them back together, as far as the server answers.
pub(crate) async fn release_all(leases: Vec<Lease>) {
    let mut releases = tokio::task::JoinSet::new();
    for lease in leases {
        releases.spawn(lease.release());
    }
    releases.join_all().await;
}
