//! Owns the body of a request: its type, its size, the time it may take, and JSON errors that name the field.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::Deserialize;

use super::App;
use super::error::{Code, Problem};

/// How much of a body that is too large is still read and thrown away …
const DISCARDED_BYTES_MAX: usize = 16 * 1_024 * 1_024;
/// … and for how long.
const DISCARDED_TIME_MAX: Duration = Duration::from_secs(5);

/// A body, complete.
pub(crate) struct Payload(Bytes);

impl FromRequest<App> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Payload, Problem> {
        let (head, body) = request.into_parts();
        let config = &app.0.config;
        let read = tokio::time::timeout(config.body_time_max, read(body, config.body_bytes_max));
        let bytes = read.await.map_err(|_| Problem::new(Code::BadRequest, "the body took too long to arrive"))??;
        if !bytes.is_empty() && !is_json(&head.headers) {
            return Err(Problem::new(Code::UnsupportedMediaType, "send the body as Content-Type: application/json"));
        }
        Ok(Payload(bytes))
    }
}

impl Payload {
    /// The body as a JSON object of a known form.
    pub(crate) fn object<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        // A list would be read as the fields in their order, which nobody means.
        match self.0.trim_ascii_start().first() {
            Some(b'{') => self.json(),
            _ => Err(Problem::new(Code::BadRequest, "the request needs a JSON object as its body")),
        }
    }

    /// The body as JSON.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        // Checked first: a string in an unread part would pass otherwise.
        let text = std::str::from_utf8(&self.0).map_err(|_| Problem::new(Code::BadRequest, "the body is not UTF-8"))?;
        serde_json::from_str(text).map_err(|error| in_words::<T>(text, &error))
    }

    /// The body as a JSON object, or nothing at all.
    pub(crate) fn object_or_default<'a, T: Deserialize<'a> + Default>(&'a self) -> Result<T, Problem> {
        if self.0.is_empty() { Ok(T::default()) } else { self.object() }
    }

    /// As it came.
    pub(crate) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}

/// Reads the text again, slowly, to find out which field it was.
fn in_words<'a, T: Deserialize<'a>>(text: &'a str, error: &serde_json::Error) -> Problem {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => error.path().to_string(),
        Ok(_) => ".".to_owned(),
    };
    let message = error.to_string();
    // An unknown or repeated field is no place in the form; its name stands in the message.
    let named = message.split('`').nth(1).filter(|_| message.contains(" field `"));
    match named.or(Some(path.as_str()).filter(|path| *path != ".")) {
        Some(field) => Problem::field(field, message.clone()),
        None => Problem::new(Code::BadRequest, format!("the body is not valid: {message}")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

pub(crate) async fn read(mut body: Body, max: usize) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > max as u64 {
        discard(body);
        return Err(too_large(max));
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(Code::BadRequest, "the body ended before it was complete"))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size > max {
            discard(body);
            return Err(too_large(max));
        }
        // Nearly every body comes in one piece and is used as it is.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() { Ok(first) } else { Ok([first, rest.freeze()].concat().into()) }
}

/// Reads on while the refusal is under way. Many clients send all of a request before they read, and a connection that is closed
/// with something unread is reset: they would never hear why.
fn discard(mut body: Body) {
    let read = async move {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { break };
            left = less;
        }
    };
    tokio::spawn(tokio::time::timeout(DISCARDED_TIME_MAX, read));
}

fn too_large(max: usize) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("the body is larger than {max} bytes")).with("max_bytes", max)
}
