//! Owns reading requests of this door: a JSON object field by field, ids in addresses, `If-Match`. What is wrong is said
//! with the name of the field.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde_json::{Map, Value};
use tenure_core::ledger::writes::Expected;
use tenure_core::limits::{TEXT_BYTES_MAX, TITLE_BYTES_MAX};
use tenure_core::{Holder, Timestamp};

use super::Door;
use super::error::No;
use super::model::parse_time;
use crate::http::auth::header_text;
use crate::http::payload::Payload;

/// The body of a request, an object; absent is empty.
pub(crate) struct Body(Map<String, Value>);

impl FromRequest<Door> for Body {
    type Rejection = No;

    async fn from_request(request: Request, door: &Door) -> Result<Body, No> {
        let payload = Payload::from_request(request, &door.app).await?;
        Ok(Body(payload.object_or_default()?))
    }
}

impl Body {
    /// Refuses fields that would be ignored.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), No> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(No::field(name, format!("unknown; this request knows {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    /// The value of a field; null is absent.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str, max: usize) -> Result<Option<&str>, No> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= max => Ok(Some(text)),
            Some(Value::String(_)) => Err(No::field(name, format!("at most {max} bytes"))),
            Some(_) => Err(No::field(name, "this is a text")),
        }
    }

    /// A text that fits a line and is not empty.
    pub(crate) fn title(&self, name: &str) -> Result<Box<str>, No> {
        match self.text(name, TITLE_BYTES_MAX)? {
            Some(text) if !text.trim().is_empty() => Ok(text.into()),
            _ => Err(No::field(name, "this is needed")),
        }
    }

    pub(crate) fn long_text(&self, name: &str) -> Result<Option<&str>, No> {
        self.text(name, TEXT_BYTES_MAX)
    }

    pub(crate) fn holder(&self, name: &str) -> Result<Option<Holder>, No> {
        let text = self.text(name, TITLE_BYTES_MAX)?;
        text.map(|text| Holder::parse(text).map_err(|why| No::field(name, why.to_string()))).transpose()
    }

    pub(crate) fn object(&self, name: &str) -> Result<Map<String, Value>, No> {
        match self.get(name) {
            None => Ok(Map::new()),
            Some(Value::Object(map)) => Ok(map.clone()),
            // Old clients send an empty list for an empty object.
            Some(Value::Array(list)) if list.is_empty() => Ok(Map::new()),
            Some(_) => Err(No::field(name, "this is an object")),
        }
    }

    /// A whole number of this range. A text, a fraction or true is none.
    pub(crate) fn whole(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, No> {
        let refuse = || No::field(name, format!("a whole number from {min} to {max}"));
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().filter(|number| (min..=max).contains(number)).map(Some).ok_or_else(refuse),
        }
    }

    /// As [`Body::whole`], but null is absent.
    pub(crate) fn whole_or_null(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, No> {
        if self.get(name).is_none() { Ok(None) } else { self.whole(name, min, max) }
    }

    pub(crate) fn id<T: FromStr>(&self, name: &str, what: &'static str) -> Result<Option<T>, No> {
        let text = self.text(name, TITLE_BYTES_MAX)?;
        text.map(|text| text.parse().map_err(|_| No::not_found(what))).transpose()
    }

    pub(crate) fn list(&self, name: &str, max: usize) -> Result<&[Value], No> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= max => Ok(list),
            Some(Value::Array(_)) => Err(No::field(name, format!("at most {max} entries"))),
            Some(_) => Err(No::field(name, "this is a list")),
        }
    }

    pub(crate) fn texts(&self, name: &str, max: usize) -> Result<Vec<Box<str>>, No> {
        let text = |value: &Value| value.as_str().filter(|text| text.len() <= TITLE_BYTES_MAX).map(Box::from);
        let texts = self.list(name, max)?.iter().map(text).collect::<Option<Vec<_>>>();
        texts.ok_or_else(|| No::field(name, "this is a list of texts"))
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, No> {
        let text = self.text(name, TITLE_BYTES_MAX)?;
        let refuse = || No::field(name, "a time such as 2026-11-15T18:49:56, in UTC or with its zone, not before 1970");
        text.map(|text| parse_time(text).ok_or_else(refuse)).transpose()
    }
}

impl From<Map<String, Value>> for Body {
    fn from(fields: Map<String, Value>) -> Body {
        Body(fields)
    }
}

/// The ids in an address.
pub(crate) struct Ids<T>(pub(crate) T);

/// What can stand in an address.
pub(crate) trait InAddress: Sized {
    fn read(parts: &[String]) -> Option<Self>;
}

impl<A: FromStr> InAddress for (A,) {
    fn read(parts: &[String]) -> Option<Self> {
        Some((parts.first()?.parse().ok()?,))
    }
}

impl<A: FromStr, B: FromStr> InAddress for (A, B) {
    fn read(parts: &[String]) -> Option<Self> {
        Some((parts.first()?.parse().ok()?, parts.get(1)?.parse().ok()?))
    }
}

impl<T: InAddress> FromRequestParts<Door> for Ids<T> {
    type Rejection = No;

    /// What could not be an id names nothing: there is no such thing.
    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Ids<T>, No> {
        let path: Result<Path<Vec<(String, String)>>, _> = Path::from_request_parts(parts, door).await;
        let Path(pairs) = path.map_err(|_| No::not_found("address"))?;
        let texts: Vec<String> = pairs.into_iter().map(|(_, text)| text).collect();
        T::read(&texts).map(Ids).ok_or_else(|| No::not_found("id"))
    }
}

/// The name of an agent in an address.
pub(crate) struct AgentName(pub(crate) Holder);

impl FromStr for AgentName {
    type Err = ();

    fn from_str(text: &str) -> Result<AgentName, ()> {
        Holder::parse(text).map(AgentName).map_err(|_| ())
    }
}

/// The version a write is based on: a number with or without quotes, or `*`.
pub(crate) struct IfMatch(pub(crate) Expected);

impl FromRequestParts<Door> for IfMatch {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, _door: &Door) -> Result<IfMatch, No> {
        if_match(&parts.headers)
    }
}

fn if_match(headers: &HeaderMap) -> Result<IfMatch, No> {
    let refuse = |why: &str| No::field("If-Match", why);
    let text =
        header_text(headers, "if-match")?.ok_or_else(|| refuse("this header names the version that was read"))?;
    if text.trim() == "*" {
        return Ok(IfMatch(Expected::Any));
    }
    let bare = text.trim().trim_start_matches("W/");
    let bare = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(bare);
    let version = bare.parse().map_err(|_| refuse("a version is a whole number, with or without quotes, or *"))?;
    Ok(IfMatch(Expected::Version(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_is_a_number_with_or_without_quotes_or_a_star() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("if-match", axum::http::HeaderValue::from_static(text));
            if_match(&headers).map(|IfMatch(expected)| expected)
        };
        for text in ["3", "\"3\"", "W/\"3\""] {
            assert_eq!(read(text).expect(text), Expected::Version(3));
        }
        assert_eq!(read("*").expect("a star"), Expected::Any);
        for text in ["", "three", "-1", "\"3", "3.0"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(if_match(&HeaderMap::new()).is_err());
    }
}
