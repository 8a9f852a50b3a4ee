//! Owns the ids of tasks and flows: drawn from the same counter as tokens, so that they grow with time, are never
//! given twice, also after a crash, and cost eight bytes.
//!
//! Written `t-<epoch>-<counter>` and `w-<epoch>-<counter>`. Callers treat them as opaque text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::change::RecordId;
use crate::{LeaseId, Token};

/// A text that is not an id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id that was given out here")]
pub struct BadId;

macro_rules! counted_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Token);

        impl $name {
            /// The place in the counter of tokens it was drawn from.
            pub const fn token(self) -> Token {
                self.0
            }
        }

        impl From<Token> for $name {
            fn from(token: Token) -> $name {
                $name(token)
            }
        }

        impl From<$name> for RecordId {
            fn from(id: $name) -> RecordId {
                id.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (epoch, all) = (self.0.epoch(), self.0.as_u64());
                write!(f, concat!($prefix, "-{}-{}"), epoch.0, all - Token::start_of(epoch).as_u64())
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<$name, BadId> {
                let number = text.strip_prefix(concat!($prefix, "-")).ok_or(BadId)?;
                // One reader for all numbers of this shape, and its refusals with it.
                let read: LeaseId = format!("lease-{number}").parse().map_err(|_| BadId)?;
                Ok($name(read.token()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

counted_id! {
    /// Names one attempt at a step of a workflow: a retry is a new task.
    TaskId, "t"
}
counted_id! {
    /// Names one run of a workflow.
    FlowId, "w"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    #[test]
    fn an_id_reads_back_and_no_other_text_reads_as_one() {
        let id = TaskId::from(Token::start_of(Epoch(7)).next());
        assert_eq!(id.to_string(), "t-7-1");
        assert_eq!("t-7-1".parse(), Ok(id));
        for text in ["", "7-1", "w-7-1", "t-07-1", "t-7", "t-7-x", "lease-7-1", "t-t-7-1"] {
            assert_eq!(text.parse::<TaskId>(), Err(BadId), "{text}");
        }
    }
}
