//! Owns how answers are written: JSON in one buffer, times as people and programs both read them.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};
use tenure_core::Timestamp;

use super::error::{Code, Problem};

/// Most answers fit.
const BODY_BYTES_USUAL: usize = 512;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(BODY_BYTES_USUAL);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => typed(status, "application/json", bytes),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            Problem::new(Code::Internal, "the answer could not be written; the server's log says why").into_response()
        }
    }
}

/// A JSON answer that knows how to write itself.
pub(crate) fn written(status: StatusCode, write: impl FnOnce(&mut Vec<u8>)) -> Response {
    let mut bytes = Vec::with_capacity(BODY_BYTES_USUAL);
    write(&mut bytes);
    typed(status, "application/json", bytes)
}

/// An answer of some type.
pub(crate) fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A time as RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(pub(crate) Timestamp);

impl At {
    /// Appends it as it is written.
    pub(crate) fn write(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.digits());
    }

    /// Every answer has several times in it, and formatting cost more than the rest of writing one: the calendar is asked,
    /// the digits are put in place by hand.
    fn digits(self) -> [u8; 24] {
        let ms = i64::try_from(self.0.unix_ms()).unwrap_or(i64::MAX);
        let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        let moment = jiff::tz::Offset::UTC.to_datetime(moment);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |last: usize, digits: usize, value: i32| {
            let mut value = value.unsigned_abs();
            for byte in text.iter_mut().take(last + 1).rev().take(digits) {
                *byte = b'0' + (value % 10) as u8;
                value /= 10;
            }
        };
        put(3, 4, i32::from(moment.year()));
        put(6, 2, i32::from(moment.month()));
        put(9, 2, i32::from(moment.day()));
        put(12, 2, i32::from(moment.hour()));
        put(15, 2, i32::from(moment.minute()));
        put(18, 2, i32::from(moment.second()));
        put(22, 3, moment.subsec_nanosecond() / 1_000_000);
        text
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl From<At> for serde_json::Value {
    fn from(at: At) -> serde_json::Value {
        at.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_three_decimals() {
        assert_eq!(At(Timestamp::from_unix_ms(1_794_775_800_005)).to_string(), "2026-11-15T20:50:00.005Z");
        assert_eq!(At(Timestamp::from_unix_ms(1_794_775_800_000)).to_string(), "2026-11-15T20:50:00.000Z");
        assert!(At(Timestamp::from_unix_ms(u64::MAX)).to_string().starts_with("9999-"));
        for ms in (0..4_102_444_800_000).step_by(86_399_877_123) {
            let moment = jiff::Timestamp::from_millisecond(ms).unwrap();
            assert_eq!(At(Timestamp::from_unix_ms(ms as u64)).to_string(), format!("{moment:.3}"));
        }
    }
}
