//! Owns queries in the language of jq: what a query makes of a document, in a process of its own.
//!
//! The engine of queries cannot be interrupted and knows no bound on its memory, so the server does not run it: it starts
//! a helper for each query, whose time and memory the operating system bounds, and reads its answer. The helper is the
//! program itself with a word of its own ([`answer`] is what it does). A query reaches no file, no other document, and an
//! empty environment.

use std::io::{Read, Write};

use jaq_core::load::{Arena, Error as LoadError, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::Val;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a query may compute.
pub const SECONDS_MAX: u64 = 5;
/// How much memory it may take, all of the helper included.
pub const MEMORY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The largest result.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// What the helper is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) query: String,
    pub(crate) input: Value,
}

/// What the helper answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answered {
    Values(Vec<Value>),
    Failed(String),
}

/// The helper's whole life: one question in, one answer out.
///
/// # Errors
/// The question cannot be read, or nobody reads the answer.
pub fn answer(mut from: impl Read, mut to: impl Write) -> std::io::Result<()> {
    let mut text = Vec::new();
    from.read_to_end(&mut text)?;
    let asked: Asked = serde_json::from_slice(&text)?;
    let answered = match values(&asked.query, &asked.input) {
        Ok(values) => Answered::Values(values),
        Err(why) => Answered::Failed(why),
    };
    to.write_all(&serde_json::to_vec(&answered)?)?;
    to.flush()
}

/// Everything that the query makes of the document.
fn values(query: &str, input: &Value) -> Result<Vec<Value>, String> {
    let arena = Arena::default();
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let modules = Loader::new(defs).load(&arena, File { code: query, path: () }).map_err(|errors| {
        let found = errors.first().map(|(_, error)| match error {
            LoadError::Lex(errors) => errors.first().map(|(expect, got)| (expect.as_str(), *got)),
            LoadError::Parse(errors) => errors.first().map(|(expect, got)| (expect.as_str(), *got)),
            LoadError::Io(_) => Some(("no import", query)),
        });
        let (expected, got) = found.flatten().unwrap_or(("a query", query));
        let near: String = got.chars().take(40).collect();
        format!("the query cannot be read: {expected} was expected at {near:?}")
    })?;
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let filter = Compiler::default().with_funs(funs).compile(modules).map_err(|errors| {
        let found = errors.first().and_then(|(_, errors)| errors.first());
        let (name, what) = found.map_or(("", "name"), |(name, what)| (*name, what.as_str()));
        format!("the query names a {what} that is not there: {name}")
    })?;
    let broken = |error: &dyn std::fmt::Display| format!("the input of the query cannot be read: {error}");
    let input = jaq_json::read::parse_single(input.to_string().as_bytes()).map_err(|error| broken(&error))?;
    let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let (mut found, mut bytes) = (Vec::new(), 0);
    for value in filter.id.run((context, input)).map(unwrap_valr) {
        let text = value.map_err(|error| format!("the query failed: {error}"))?.to_string();
        bytes += text.len();
        if bytes > RESULT_BYTES_MAX {
            return Err(format!("the result of the query is larger than {RESULT_BYTES_MAX} bytes"));
        }
        found.push(
            serde_json::from_str(&text).map_err(|error| format!("the result of the query is not JSON: {error}"))?,
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_makes_values_of_a_document() {
        let input = json!({ "people": [{ "name": "ann", "age": 30 }, { "name": "bob", "age": 20 }], "n": 9007199254740991_u64 });
        for (query, found) in [
            (".people | map(.name)", json!([["ann", "bob"]])),
            (".people[] | select(.age > 25) | .name", json!(["ann"])),
            ("{ total: (.people | map(.age) | add), n }", json!([{ "total": 50, "n": 9007199254740991_u64 }])),
            (".people[].name", json!(["ann", "bob"])),
            (".nobody", json!([null])),
            ("empty", json!([])),
            ("[.people[] | .name | ascii_upcase] | join(\"+\")", json!(["ANN+BOB"])),
            (".people | group_by(.age) | length", json!([2])),
        ] {
            assert_eq!(values(query, &input).map(Value::from), Ok(found), "{query}");
        }
    }

    #[test]
    fn a_query_that_is_none_or_fails_is_an_error_in_words() {
        let failed = |query: &str| values(query, &json!({ "a": 1 })).expect_err(query);
        assert!(failed(".a |").contains("cannot be read"), "{}", failed(".a |"));
        assert!(failed("{a").contains("closing brace"), "{}", failed("{a"));
        assert!(failed("nobody").contains("a filter that is not there: nobody"), "{}", failed("nobody"));
        assert!(failed(".a | keys").contains("the query failed"), "{}", failed(".a | keys"));
        assert!(failed("error(\"mine\")").contains("mine"));
        assert!(failed("import \"a\" as a; .").contains("no import"), "{}", failed("import \"a\" as a; ."));
        assert!(failed("range(1000000)").contains("larger than"));
        assert!(failed("nan, infinite, {(1,2): 3}").contains("not JSON") || failed("{(1): 3}").contains("failed"));
    }
}
