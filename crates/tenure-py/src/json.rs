//! Owns the way of JSON between the two languages: as text, through Python's own reader and writer.
//!
//! Whole numbers of Python have no end; those of the server and of the Rust client have 64 bits, and what is larger would be
//! kept as the nearest float without a word. So it is refused here, before it is sent.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use serde::Serialize;
use serde_json::Value;

/// Every whole number of so many characters fits into 64 bits.
const DIGITS_THAT_FIT: usize = 18;
/// Of a number that is refused, no more is shown.
const DIGITS_SHOWN_MAX: usize = 60;

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

/// As text. What JSON cannot say, or the server cannot keep, is a `ValueError` or `TypeError` that names it; half of a
/// surrogate pair is escaped, and for the server to refuse.
pub(crate) fn text_from_python(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = object.py();
    let write = WRITE.get_or_try_init(py, || strict_writer(py))?;
    let text: String = write.call1(py, (object,))?.extract(py)?;
    match first_too_large(&text) {
        Some(number) => Err(PyValueError::new_err(refusal(number))),
        None => Ok(text),
    }
}

/// The first whole number that 64 bits do not hold, outside of strings.
fn first_too_large(text: &str) -> Option<&str> {
    let mut in_string = false;
    for part in text.split('"') {
        if !in_string {
            let mut numbers = part.split(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
            if let Some(number) = numbers.find(|number| is_too_large(number)) {
                return Some(number);
            }
        }
        let backslashes = part.bytes().rev().take_while(|byte| *byte == b'\\').count();
        let quote_is_escaped = in_string && backslashes % 2 == 1;
        in_string = in_string == quote_is_escaped;
    }
    None
}

fn is_too_large(number: &str) -> bool {
    let is_whole = number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    is_whole && number.len() > DIGITS_THAT_FIT && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

fn refusal(number: &str) -> String {
    let shown = number.get(..DIGITS_SHOWN_MAX).map_or_else(|| number.to_owned(), |first| format!("{first}…"));
    format!("{shown} does not fit into 64 bits and would not be kept exactly: give it as a text")
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
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(format!("the server cannot keep this: {error}")))
}
