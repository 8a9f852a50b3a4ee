//! Owns how a failed call becomes an exception of `tenure.exceptions`, with its causes chained.

use std::error::Error as _;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::json;

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for an error.
pub(crate) fn raised(py: Python<'_>, error: &tenure::Error) -> PyErr {
    make(py, error).unwrap_or_else(|broken| broken)
}

fn make(py: Python<'_>, error: &tenure::Error) -> PyResult<PyErr> {
    let problem = match error {
        tenure::Error::Refused(refused) => json::to_python(py, &refused.problem)?,
        _ => py.None(),
    };
    let mut causes: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    let make = MAKE.import(py, "tenure.exceptions", "_from_native")?;
    Ok(PyErr::from_value(make.call1((error.code(), error.to_string(), problem, causes))?))
}
