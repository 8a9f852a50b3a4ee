//! Owns the two ways in which Python waits for a call: by blocking, or by an asyncio future.

use std::future::Future;

use pyo3::exceptions::asyncio::InvalidStateError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::errors::raised;
use crate::guard::Guard;
use crate::runtime::{Place, visit};

static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Runs a call and gives its converted result: now, or as an asyncio future.
pub(crate) fn answer<'py, T: Send + 'static>(
    py: Python<'py>,
    place: &Place,
    future: impl Future<Output = Result<T, tenure::Error>> + Send + 'static,
    convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    let result = match place {
        Place::Lane(lane) => lane.wait(py, future)?,
        Place::Tasks(tasks) => return promise(py, tasks, future, convert),
    };
    match result {
        Ok(value) => convert(py, value).map(|object| object.into_bound(py)),
        Err(error) => Err(raised(py, &error)),
    }
}

/// An asyncio future of the running loop. Cancelling it ends the call.
fn promise<'py, T: Send + 'static>(
    py: Python<'py>,
    tasks: &Runtime,
    future: impl Future<Output = Result<T, tenure::Error>> + Send + 'static,
    convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    let event_loop = RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()?;
    let promise = event_loop.call_method0("create_future")?;
    let (loop_, told) = (event_loop.unbind(), promise.clone().unbind());
    let call = tasks.spawn(async move {
        let result = future.await;
        // Not on a thread of the runtime: getting the interpreter lock may take as long as Python likes.
        tokio::task::spawn_blocking(move || {
            visit(|py| {
                let result = match result {
                    Ok(value) => convert(py, value),
                    Err(error) => Err(raised(py, &error)),
                };
                deliver(py, &loop_, told, result);
            })
        });
    });
    promise.call_method1("add_done_callback", (Stop(call.abort_handle()),))?;
    Ok(promise)
}

/// Hands the result to the loop's own thread. A loop that is closed has nobody who waits.
fn deliver(py: Python<'_>, event_loop: &Py<PyAny>, promise: Py<PyAny>, result: PyResult<Py<PyAny>>) {
    let settle = Settle { promise, result: Some(result) };
    let Ok(settle) = Bound::new(py, settle) else { return };
    if event_loop.call_method1(py, "call_soon_threadsafe", (&settle,)).is_err() {
        let result = settle.borrow_mut().result.take();
        result.into_iter().for_each(|result| unwanted(py, result));
    }
}

/// A lease that came after nobody waited for it any more is given back.
fn unwanted(py: Python<'_>, result: PyResult<Py<PyAny>>) {
    if let Some(guard) = result.ok().as_ref().and_then(|value| value.cast_bound::<Guard>(py).ok()) {
        guard.get().abandon();
    }
}

/// Settles the future, on the loop's thread.
#[pyclass]
struct Settle {
    promise: Py<PyAny>,
    result: Option<PyResult<Py<PyAny>>>,
}

#[pymethods]
impl Settle {
    fn __call__(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(result) = self.result.take() else { return Ok(()) };
        let promise = self.promise.bind(py);
        if promise.call_method0("done")?.extract()? {
            unwanted(py, result);
            return Ok(());
        }
        let settled = match result {
            Ok(value) => promise.call_method1("set_result", (value,)),
            Err(error) => promise.call_method1("set_exception", (error.into_value(py),)),
        };
        match settled {
            Err(error) if error.is_instance_of::<InvalidStateError>(py) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Ends a call whose future is done: finished, or cancelled by whoever waited.
#[pyclass(frozen)]
struct Stop(AbortHandle);

#[pymethods]
impl Stop {
    fn __call__(&self, promise: &Bound<'_, PyAny>) {
        let _ = promise;
        self.0.abort();
    }
}
