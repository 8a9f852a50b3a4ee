//! Owns the stream of events as Python iterates it. An event counts as given only when Python asks for the one after it: an
//! answer that was cancelled on its way is given again.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::bridge::answer;
use crate::json;
use crate::own::Own;
use crate::runtime::{Place, catch_up};

struct Stream {
    events: tenure::Events,
    given: Option<tenure::Event>,
}

impl Stream {
    async fn next(&mut self, seen: Option<u64>) -> Result<tenure::Event, tenure::Error> {
        if let Some(given) = self.given.as_ref().filter(|given| seen.is_none_or(|seen| seen < given.cursor)) {
            return Ok(given.clone());
        }
        let event = self.events.next().await?;
        Ok(self.given.insert(event).clone())
    }
}

/// Events as they happen.
#[pyclass(frozen)]
pub(crate) struct Events {
    place: Place,
    stream: Own<Arc<Mutex<Stream>>>,
}

impl Events {
    pub(crate) fn new(events: tenure::Events, place: Place) -> Events {
        Events { place, stream: Own::new(Arc::new(Mutex::new(Stream { events, given: None }))) }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let (Place::Lane(_), Some(stream)) = (&self.place, self.stream.take()) {
            // The server sees the end of a stream when its lane runs, and nobody may come to run it again.
            self.place.detach(async move {
                drop(stream);
                catch_up().await;
            });
        }
    }
}

#[pymethods]
impl Events {
    /// The event after the one with this cursor; waits for it, and makes a broken connection again.
    #[pyo3(signature = (seen))]
    fn next<'py>(&self, py: Python<'py>, seen: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let Some(stream) = self.stream.get().map(Arc::clone) else {
            let what = format!("this stream belongs to process {}, from which this one was forked", self.stream.pid());
            return Err(PyRuntimeError::new_err(what));
        };
        let next = async move { stream.lock().await.next(seen).await };
        answer(py, &self.place, next, |py, event| json::to_python(py, &event))
    }
}
