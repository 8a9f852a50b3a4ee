//! Owns the way of JSON between the two languages: as text, through Python's own reader and writer.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use serde::Serialize;
use serde_json::Value;

static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// As Python objects: dictionaries, lists, texts, numbers.
pub(crate) fn to_python(py: Python<'_>, value: &impl Serialize) -> PyResult<Py<PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    LOADS.import(py, "json", "loads")?.call1((text,)).map(Bound::unbind)
}

/// From Python objects. What JSON cannot say is a `ValueError` or `TypeError` that names it.
pub(crate) fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    let text: String = DUMPS.import(py, "json", "dumps")?.call((object,), Some(&options))?.extract()?;
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(error.to_string()))
}
