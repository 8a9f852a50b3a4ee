//! Owns the name of who holds. A holder is a name, never a credential: the doors decide who may use it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::HOLDER_BYTES_MAX;
use crate::text::normal_form;

/// Who holds: a normalised name of 1 to 256 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

/// A text that cannot name a holder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a holder has 1 to {HOLDER_BYTES_MAX} bytes, no control characters and no blanks at its ends")]
pub struct BadHolder;

impl Holder {
    /// Reads and normalises a name.
    pub fn parse(text: &str) -> Result<Holder, BadHolder> {
        if text.len() > HOLDER_BYTES_MAX {
            return Err(BadHolder);
        }
        let name = normal_form(text);
        let fits = (1..=HOLDER_BYTES_MAX).contains(&name.len());
        if !fits || name.trim() != name || name.chars().any(char::is_control) {
            return Err(BadHolder);
        }
        Ok(Holder(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Holder {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Holder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Holder, D::Error> {
        crate::text::parsed(deserializer, Holder::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_a_visible_name_of_bounded_length_in_one_form() {
        assert_eq!(Holder::parse("caf\u{e9}"), Holder::parse("cafe\u{301}"));
        for bad in ["", " a", "a\n", "a\0", &"a".repeat(HOLDER_BYTES_MAX + 1)] {
            assert_eq!(Holder::parse(bad), Err(BadHolder), "{bad:?}");
        }
    }
}
