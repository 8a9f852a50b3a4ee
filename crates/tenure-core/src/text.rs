//! Owns the one normal form of names (R1), NFC, and how they are read from JSON: without a copy that is thrown away.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};
use unicode_normalization::UnicodeNormalization;

/// The normal form of a text. Nearly every name is ASCII, which is its own normal form and costs one look.
pub(crate) fn normal_form(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().collect()) }
}

/// Reads what `parse` makes of a text.
pub(crate) fn parsed<'de, D, T, E>(deserializer: D, parse: fn(&str) -> Result<T, E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
{
    deserializer.deserialize_str(Parsed(parse))
}

struct Parsed<T, E>(fn(&str) -> Result<T, E>);

impl<T, E: fmt::Display> Visitor<'_> for Parsed<T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
        (self.0)(text).map_err(F::custom)
    }
}
