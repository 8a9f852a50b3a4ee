//! Owns running a Python function as a future: it is started, waited for without the interpreter lock, and told to stop
//! when the future is dropped.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::json;
use crate::runtime::visit;

/// What a Python function gave: JSON, or how it failed in words.
pub(crate) type Given = Result<Value, String>;

/// Given to Python with every piece of work: called once, with the result or with what went wrong.
#[pyclass]
pub(crate) struct Done(Option<oneshot::Sender<Given>>);

#[pymethods]
impl Done {
    #[pyo3(signature = (result, error = None))]
    fn __call__(&mut self, result: &Bound<'_, PyAny>, error: Option<String>) -> PyResult<()> {
        let given = match error {
            Some(error) => Err(error),
            None => Ok(json::from_python(result)?),
        };
        if let Some(done) = self.0.take() {
            // Nobody waits once the work was told to stop.
            let _ = done.send(given);
        }
        Ok(())
    }
}

/// How far a piece of work has come.
enum Stage {
    Starting,
    Running(Py<PyAny>),
    /// Nobody wants it any more, or it has ended.
    Over,
}

#[derive(Clone)]
struct Progress(Arc<Mutex<Stage>>);

impl Progress {
    /// What it was before.
    fn set(&self, stage: Stage) -> Stage {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), stage)
    }

    /// The work has started; it is stopped at once if nobody wants it any more.
    fn started(&self, py: Python<'_>, job: Py<PyAny>) {
        if matches!(self.set(Stage::Running(job.clone_ref(py))), Stage::Over) {
            self.set(Stage::Over);
            stop(py, &job);
        }
    }
}

/// Stops the work when it is dropped before the end, also while it is being started.
struct Stop(Progress);

impl Drop for Stop {
    fn drop(&mut self) {
        if let Stage::Running(job) = self.0.set(Stage::Over) {
            // Elsewhere: getting the interpreter lock may take as long as Python likes.
            tokio::task::spawn_blocking(move || visit(|py| stop(py, &job)));
        }
    }
}

fn stop(py: Python<'_>, job: &Py<PyAny>) {
    if let Err(error) = job.call_method0(py, "stop") {
        error.write_unraisable(py, None);
    }
}

/// Starts a piece of work and waits for it. `start` gives an object whose `stop()` ends the work early.
pub(crate) async fn run(start: impl FnOnce(Python<'_>, Py<Done>) -> PyResult<Py<PyAny>> + Send + 'static) -> Given {
    let (done, given) = oneshot::channel();
    let progress = Progress(Arc::new(Mutex::new(Stage::Starting)));
    let stop = Stop(progress.clone());
    let started = tokio::task::spawn_blocking(move || {
        visit(|py| {
            let job = start(py, Py::new(py, Done(Some(done)))?)?;
            progress.started(py, job);
            PyResult::Ok(())
        })
    });
    match started.await {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(error))) => return Err(error.to_string()),
        Ok(None) | Err(_) => return Err("the interpreter is ending".to_owned()),
    }
    let given = given.await.unwrap_or_else(|_| Err("the work ended without a result".to_owned()));
    stop.0.set(Stage::Over);
    given
}
