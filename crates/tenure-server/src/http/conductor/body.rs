//! Owns the bodies of this API: JSON of any size that a payload may have, chunked or not, whatever their type is called; and
//! answers that are a text.

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::json::depth;
use tenure_core::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use tenure_core::task::{Json, to_json};

use super::fault::Fault;
use crate::http::{App, payload, reply};

/// A payload, and as much again for what stands around it.
const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1_024;

/// A body, complete.
pub(crate) struct Body(Bytes);

impl FromRequest<App> for Body {
    type Rejection = Fault;

    async fn from_request(request: Request, app: &App) -> Result<Body, Fault> {
        let read = payload::read(request.into_body(), BODY_BYTES_MAX);
        let read = tokio::time::timeout(app.0.config.body_time_max, read).await;
        let late = |_| Fault::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
        Ok(Body(read.map_err(late)??))
    }
}

impl Body {
    /// The body as JSON of a known form.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        if self.0.is_empty() {
            return Err(Fault::bad("the request needs a JSON body"));
        }
        let text = self.text()?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = serde_path_to_error::deserialize(&mut reader);
        let value = read.map_err(|error| {
            let path = error.path().to_string();
            Fault::invalid(vec![(path, error.into_inner().to_string())])
        })?;
        reader.end().map_err(|error| Fault::bad(format!("the body is not one JSON value: {error}")))?;
        Ok(value)
    }

    /// The body as JSON, or nothing at all.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Fault> {
        let is_null = self.0.trim_ascii() == b"null";
        if self.0.is_empty() || is_null { Ok(T::default()) } else { self.json() }
    }

    /// As it came.
    pub(super) fn text(&self) -> Result<&str, Fault> {
        std::str::from_utf8(&self.0).map_err(|_| Fault::bad("the body is not UTF-8"))
    }
}

/// A payload as it is kept; `field` is where it stood. What could not be read back later is refused now.
pub(super) fn payload(field: &str, value: &Value) -> Result<Json, Fault> {
    fit(field, to_json(value))
}

fn fit(field: &str, json: Json) -> Result<Json, Fault> {
    if depth(json.get()) > PAYLOAD_DEPTH_MAX {
        let why = format!("is nested deeper than {PAYLOAD_DEPTH_MAX}");
        return Err(Fault::invalid(vec![(field.to_owned(), why)]));
    }
    Ok(json)
}

/// The same, of a payload that is kept as it came.
pub(super) fn raw_payload(field: &str, raw: &RawValue) -> Result<Json, Fault> {
    // The text was skipped over so far: numbers that are none and halves of characters are found now.
    serde_json::from_str::<Value>(raw.get())
        .map_err(|error| Fault::invalid(vec![(field.to_owned(), format!("cannot be read: {error}"))]))?;
    fit(field, raw.to_owned().into())
}

/// An answer that is a text: ids are.
pub(super) fn text(said: impl ToString) -> Response {
    reply::typed(StatusCode::OK, "text/plain; charset=utf-8", said.to_string())
}
