//! Owns the way of JSON between the two languages: as text, through Python's own reader and writer.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use serde::Serialize;
use serde_json::Value;

static NOT_JSON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static WRITE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// As Python objects: dictionaries, lists, texts, numbers.
pub(crate) fn to_python(py: Python<'_>, value: &impl Serialize) -> PyResult<Py<PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    LOADS.import(py, "json", "loads")?.call1((text,)).map(Bound::unbind)
}

/// An answer as it came: nothing is `None`, and what is not JSON is a text.
pub(crate) fn answer_to_python(py: Python<'_>, answer: &[u8]) -> PyResult<Py<PyAny>> {
    if answer.is_empty() {
        return Ok(py.None());
    }
    let text = String::from_utf8_lossy(answer);
    let not_json = NOT_JSON.import(py, "json", "JSONDecodeError")?;
    match LOADS.import(py, "json", "loads")?.call1((&text,)) {
        Err(error) if error.is_instance(py, not_json) => Ok(PyString::new(py, &text).into_any().unbind()),
        other => other.map(Bound::unbind),
    }
}

/// As text. What JSON cannot say is a `ValueError` or `TypeError` that names it; half of a surrogate pair is escaped, and for
/// the server to refuse.
pub(crate) fn text_from_python(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = object.py();
    let write = WRITE.get_or_try_init(py, || strict_writer(py))?;
    write.call1(py, (object,))?.extract(py)
}

/// `json.dumps` makes a new writer for every text that may not have a NaN.
fn strict_writer(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    let writer = py.import("json")?.getattr("JSONEncoder")?.call((), Some(&options))?;
    writer.getattr("encode").map(Bound::unbind)
}

/// From Python objects, as [`text_from_python`].
pub(crate) fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text = text_from_python(object)?;
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(error.to_string()))
}
