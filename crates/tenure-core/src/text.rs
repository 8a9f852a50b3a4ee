//! Owns the one normal form of names (R1): NFC.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

/// The normal form of a text. Nearly every name is ASCII, which is its own normal form and costs one look.
pub(crate) fn normal_form(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().collect()) }
}
