//! Owns reading the answers of the doors that speak other protocols: their refusals are JSON objects with a `message`,
//! and become [`Error::Refused`] with everything they said.

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Map, Value};

use crate::error::{Error, Problem};
use crate::transport::setup;

/// The word for what is to be done.
pub(crate) fn method(word: &str) -> Result<Method, Error> {
    Method::from_bytes(word.as_bytes()).map_err(|error| setup("the method", error))
}

/// An answer that is no refusal, as it came.
pub(crate) fn accepted(url: &str, status: u16, body: Bytes) -> Result<Bytes, Error> {
    if (200..300).contains(&status) {
        return Ok(body);
    }
    match value(&body) {
        Value::Object(more) => Err(refused(status, more)),
        other => {
            let text: String = other.to_string().chars().take(200).collect();
            Err(Error::BadAnswer { url: url.to_owned(), what: format!("status {status}: {text}"), source: None })
        }
    }
}

/// What an answer says: an empty body is `null`, and text that is not JSON is a JSON string.
pub(crate) fn value(body: &[u8]) -> Value {
    match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(_) if body.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(body).into_owned()),
    }
}

fn refused(status: u16, more: Map<String, Value>) -> Error {
    let word = |name: &str| more.get(name).and_then(Value::as_str).map(str::to_owned);
    let code = word("code").unwrap_or_else(|| code(status, &more).to_owned());
    let detail = word("detail").or_else(|| word("message")).unwrap_or_else(|| format!("status {status}"));
    Problem::foreign(status, &code, detail, more).into()
}

/// The code of the same refusal in the native API, where there is one.
fn code(status: u16, more: &Map<String, Value>) -> &'static str {
    match status {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 if more.contains_key("current_version") => "stale_version",
        409 if more.contains_key("existing_lease") || more.contains_key("current_holder") => "held",
        409 => "conflict",
        410 => "gone",
        412 => "lease_over",
        429 | 503 => "overloaded",
        _ => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &'static [u8]) -> Result<Value, Error> {
        accepted("u", status, Bytes::from_static(body)).map(|body| value(&body))
    }

    #[test]
    fn a_refusal_keeps_everything_that_was_said() {
        let body = br#"{"message":"held by a","current_holder":"a","existing_lease":{"id":"lease-1-2"}}"#;
        let error = read(409, body).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), ("held", "held by a"));
        let Error::Refused(refused) = error else { panic!() };
        assert_eq!((refused.problem.status, &refused.problem.more["current_holder"]), (409, &"a".into()));
        assert_eq!(read(409, br#"{"message":"m","current_version":3}"#).unwrap_err().code(), "stale_version");
    }

    #[test]
    fn what_is_not_json_is_an_answer_that_cannot_be_read_or_a_text() {
        assert_eq!(read(500, b"oops").unwrap_err().code(), "bad_answer");
        assert_eq!(read(200, b"oops").unwrap(), Value::from("oops"));
        assert_eq!(read(204, b"").unwrap(), Value::Null);
    }
}
