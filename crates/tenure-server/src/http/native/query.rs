//! Owns the part of an address behind the question mark: known names only, each once, all of it UTF-8.

use axum::extract::Query;
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
        let bad = |error| Problem::new(Code::BadRequest, format!("the query is not valid: {error}"));
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(bad)?;
        for (at, (name, value)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(Problem::field(name, format!("unknown; this address knows {}", known.join(", "))));
            }
            if pairs.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(Problem::field(name, "it is given more than once"));
            }
            // The decoder puts this in place of what it cannot read.
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(Problem::field(name, "it is not UTF-8"));
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

/// A place in the order of events.
pub(crate) fn parse_cursor(field: &str, text: &str) -> Result<Cursor, Problem> {
    let number = text.parse().ok().filter(|number| *number <= CURSOR_MAX);
    number.map(Cursor).ok_or_else(|| Problem::field(field, format!("a cursor is a whole number up to {CURSOR_MAX}")))
}
