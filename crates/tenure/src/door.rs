//! Owns reading the answers of the doors that speak other protocols: their refusals are JSON objects with a `message`,
//! and become [`Error::Refused`] with everything they said.

use serde_json::{Map, Value};

use crate::error::{Error, Problem};

/// The answer; an empty body is `null`, and text that is not JSON is a JSON string.
pub(crate) fn read(url: &str, status: u16, bytes: &[u8]) -> Result<Value, Error> {
    let body = match serde_json::from_slice::<Value>(bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(bytes).into_owned()),
    };
    if (200..300).contains(&status) {
        return Ok(body);
    }
    match body {
        Value::Object(more) => Err(refused(status, more)),
        other => {
            let text: String = other.to_string().chars().take(200).collect();
            Err(Error::BadAnswer { url: url.to_owned(), what: format!("status {status}: {text}"), source: None })
        }
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

    #[test]
    fn a_refusal_keeps_everything_that_was_said() {
        let body = br#"{"message":"held by a","current_holder":"a","existing_lease":{"id":"lease-1-2"}}"#;
        let error = read("u", 409, body).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), ("held", "held by a"));
        let Error::Refused(refused) = error else { panic!() };
        assert_eq!((refused.problem.status, &refused.problem.more["current_holder"]), (409, &"a".into()));
        assert_eq!(read("u", 409, br#"{"message":"m","current_version":3}"#).unwrap_err().code(), "stale_version");
    }

    #[test]
    fn what_is_not_json_is_an_answer_that_cannot_be_read_or_a_text() {
        assert_eq!(read("u", 500, b"oops").unwrap_err().code(), "bad_answer");
        assert_eq!(read("u", 200, b"oops").unwrap(), Value::from("oops"));
        assert_eq!(read("u", 204, b"").unwrap(), Value::Null);
    }
}
