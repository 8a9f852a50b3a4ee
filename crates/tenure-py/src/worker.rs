//! Owns the Rust worker as Python uses it: functions are Python functions that are started by `dispatch`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use serde_json::{Map, Value};
use tenure::{Outcome, TaskContext, TaskType};
use tokio::sync::Notify;

use crate::client::{Client, seconds};
use crate::runtime::{block, tasks};
use crate::{json, work};

/// A worker for polled tasks.
#[pyclass(frozen)]
pub(crate) struct Worker {
    types: Mutex<Vec<TaskType>>,
    drain: Duration,
    stop: Arc<Notify>,
}

#[pymethods]
impl Worker {
    /// `drain` is taken here and not by `run`: that is called in a thread where nobody sees what is wrong with it.
    #[new]
    fn new(drain: f64) -> PyResult<Worker> {
        let drain = seconds("drain_seconds", drain)?;
        Ok(Worker { types: Mutex::default(), drain, stop: Arc::new(Notify::new()) })
    }

    /// Takes tasks of this name: `dispatch(task, context, done)` starts the function.
    #[pyo3(signature = (name, domain, concurrency, extends, poll_interval, dispatch))]
    fn add(
        &self,
        name: String,
        domain: Option<String>,
        concurrency: usize,
        extends: bool,
        poll_interval: f64,
        dispatch: Py<PyAny>,
    ) -> PyResult<()> {
        let dispatch = Arc::new(dispatch);
        let mut kind = TaskType::new(name, move |context| execute(Arc::clone(&dispatch), context))
            .concurrency(concurrency)
            .extend_lease(extends)
            .poll_interval(seconds("poll_interval", poll_interval)?);
        if let Some(domain) = domain {
            kind = kind.domain(domain);
        }
        self.types.lock().unwrap_or_else(PoisonError::into_inner).push(kind);
        Ok(())
    }

    /// Polls and runs until `stop`; blocks without the interpreter lock.
    fn run(&self, py: Python<'_>, client: &Client) -> PyResult<()> {
        let mut worker = tenure::Worker::new(client.background(py)?).drain(self.drain);
        for kind in self.types.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            worker = worker.task(kind.clone());
        }
        let stop = Arc::clone(&self.stop);
        let tasks = tasks(py)?;
        let running = tasks.spawn(async move { worker.run(stop.notified()).await });
        let finished = block(py, &tasks, running);
        self.stop.notify_one();
        finished?.map_err(|broken| pyo3::exceptions::PyRuntimeError::new_err(broken.to_string()))
    }

    fn stop(&self) {
        self.stop.notify_one();
    }
}

/// What a running function may ask and say.
#[pyclass(frozen)]
pub(crate) struct Context(TaskContext);

#[pymethods]
impl Context {
    fn add_log(&self, line: String) {
        self.0.add_log(line);
    }

    #[getter]
    fn poll_count(&self) -> u32 {
        self.0.poll_count()
    }

    #[getter]
    fn loss(&self) -> Option<String> {
        self.0.loss()
    }
}

async fn execute(dispatch: Arc<Py<PyAny>>, context: TaskContext) -> Outcome {
    let task = serde_json::to_value(context.task()).unwrap_or_default();
    let given = work::run(move |py, done| {
        let task = json::to_python(py, &task)?;
        dispatch.call1(py, (task, Py::new(py, Context(context))?, done))
    });
    match given.await {
        Ok(Value::Object(given)) => outcome(given),
        Ok(other) => Outcome::FailedForGood(format!("the worker gave {other}")),
        Err(error) => Outcome::Failed(error),
    }
}

/// Python describes what a function made of its task by `{"outcome": …}`.
fn outcome(mut given: Map<String, Value>) -> Outcome {
    let reason = given.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
    let output = match given.remove("output") {
        Some(Value::Object(output)) => output,
        _ => Map::new(),
    };
    match given.get("outcome").and_then(Value::as_str) {
        Some("completed") => Outcome::Completed(output),
        Some("kept") => Outcome::Kept,
        Some("in_progress") => {
            let after = given.get("callback_after").and_then(Value::as_u64).unwrap_or_default();
            Outcome::InProgress { callback_after: Duration::from_secs(after), output }
        }
        Some("failed_for_good") => failed(reason, output, true),
        _ => failed(reason, output, false),
    }
}

/// A failure that says nothing leaves what was reported so far.
fn failed(reason: String, output: Map<String, Value>, for_good: bool) -> Outcome {
    match (output.is_empty(), for_good) {
        (false, _) => Outcome::FailedWith { reason, output, for_good },
        (true, true) => Outcome::FailedForGood(reason),
        (true, false) => Outcome::Failed(reason),
    }
}
