//! Owns the part of an address behind the question mark: known names only, each once, all of it UTF-8.

use axum::http::Uri;
use tenure_core::event::Cursor;
use tenure_core::limits::PAGE_MAX;
use tenure_core::{Holder, Resource};

use super::requests::parse_resource;
use crate::http::error::{Code, Problem};

/// How long a page is if nobody says.
const PAGE_DEFAULT: usize = 100;

/// No event is further than this; readers of JSON keep numbers up to here exact.
const CURSOR_MAX: u64 = (1 << 53) - 1;

/// What stands behind the question mark.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads it; `known` are the names it may have.
    pub(crate) fn of(uri: &Uri, known: &[&str]) -> Result<Params, Problem> {
        let written = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = written.map(decoded_pair).collect::<Result<Vec<_>, _>>()?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(Problem::field(name, format!("unknown; this address knows {}", known.join(", "))));
            }
            if pairs.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(Problem::field(name, "it is given more than once"));
            }
        }
        Ok(Params(pairs))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn resource(&self) -> Result<Option<Resource>, Problem> {
        self.get("resource").map(|text| parse_resource("resource", text)).transpose()
    }

    pub(crate) fn holder(&self) -> Result<Option<Holder>, Problem> {
        let parse = |name| Holder::parse(name).map_err(|why| Problem::field("holder", why.to_string()));
        self.get("holder").map(parse).transpose()
    }

    /// A place in the order of events.
    pub(crate) fn cursor(&self, name: &str) -> Result<Option<Cursor>, Problem> {
        self.get(name).map(|text| parse_cursor(name, text)).transpose()
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let parse = |text: &str| text.parse().map_err(|_| Problem::field(name, "this is a whole number"));
        self.get(name).map(parse).transpose()
    }

    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        match self.number("limit")? {
            None => Ok(PAGE_DEFAULT),
            Some(limit) if (1..=PAGE_MAX as u64).contains(&limit) => Ok(limit as usize),
            Some(_) => Err(Problem::field("limit", format!("a page has 1 to {PAGE_MAX} entries"))),
        }
    }
}

/// A name and its value, as they were before they were written into an address.
fn decoded_pair(pair: &str) -> Result<(String, String), Problem> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let name = decoded(name).ok_or_else(|| Problem::new(Code::BadRequest, "a name in the query is not UTF-8"))?;
    match decoded(value) {
        Some(value) => Ok((name, value)),
        None => Err(Problem::field(&name, "it is not UTF-8")),
    }
}

/// The text behind a percent encoding; nothing if that is not UTF-8. A `%` without two digits stands for itself.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let encoded = more.get(..2).filter(|_| *first == b'%').and_then(hex_byte);
        bytes.push(match first {
            b'+' => b' ',
            _ => encoded.unwrap_or(*first),
        });
        rest = if encoded.is_some() { more.get(2..).unwrap_or_default() } else { more };
    }
    String::from_utf8(bytes).ok()
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

/// A place in the order of events.
pub(crate) fn parse_cursor(field: &str, text: &str) -> Result<Cursor, Problem> {
    let number = text.parse().ok().filter(|number| *number <= CURSOR_MAX);
    number.map(Cursor).ok_or_else(|| Problem::field(field, format!("a cursor is a whole number up to {CURSOR_MAX}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_text_is_read_exactly_or_not_at_all() {
        for (written, text) in [
            ("", Some("")),
            ("path:a+b%2Bc%2f", Some("path:a b+c/")),
            ("%C3%A9%EF%BF%BD", Some("é\u{fffd}")),
            ("100%", Some("100%")),
            ("%zz%4", Some("%zz%4")),
            ("%+1", Some("% 1")),
            ("%ff", None),
            ("%ED%A0%80", None),
        ] {
            assert_eq!(decoded(written).as_deref(), text, "{written}");
        }
    }
}
