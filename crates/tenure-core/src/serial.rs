//! Owns the ids of everything the ledger makes besides leases: `<kind>-<epoch>-<number>`.
//!
//! The number is the cursor of the event that made the thing, so an id is unique, needs no chance, and grows with time;
//! the epoch keeps it unique also after a restore that lost the last events.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Epoch;
use crate::change::RecordId;
use crate::event::Cursor;

/// What tells two things of one kind apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial {
    epoch: Epoch,
    number: u64,
}

/// A text that is not an id of the kind asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is written {0}-<epoch>-<number>")]
pub struct BadId(pub &'static str);

impl Serial {
    /// The serial of what is made by the event at `cursor`.
    pub fn of(epoch: Epoch, cursor: Cursor) -> Serial {
        Serial { epoch, number: cursor.0 }
    }

    fn parse(text: &str) -> Option<Serial> {
        let (epoch, number) = text.split_once('-')?;
        let serial = Serial { epoch: Epoch(epoch.parse().ok()?), number: number.parse().ok()? };
        // One text for one id: no sign, no leading zero.
        (serial.to_string() == text).then_some(serial)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch.0, self.number)
    }
}

/// Fixed width, so that the order of texts is the order of ids.
impl From<Serial> for RecordId {
    fn from(serial: Serial) -> RecordId {
        RecordId(format!("{:06x}{:014x}", serial.epoch.0, serial.number))
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) Serial);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}-{}", $kind, self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<$name, BadId> {
                let rest = text.strip_prefix(concat!($kind, "-"));
                rest.and_then(Serial::parse).map($name).ok_or(BadId($kind))
            }
        }

        impl From<$name> for RecordId {
            fn from(id: $name) -> RecordId {
                id.0.into()
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
    )*};
}

ids! {
    /// Names an intent.
    IntentId = "intent";
    /// Names a portfolio.
    PortfolioId = "portfolio";
    /// Names a coordinator's term.
    CoordinatorId = "coordinator";
    /// Names the registration of an agent.
    AgentId = "agent";
    /// Names a subscription.
    SubscriptionId = "subscription";
    /// Names a run of a workflow.
    WorkflowId = "workflow";
    /// Names an entry of an access list, or a request for one.
    AccessId = "access";
    /// Names a recorded failure.
    FailureId = "failure";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_nothing_else_reads_as_one() {
        let id = IntentId(Serial::of(Epoch(7), Cursor(42)));
        assert_eq!(id.to_string(), "intent-7-42");
        assert_eq!("intent-7-42".parse(), Ok(id));
        for text in ["", "intent", "intent-7", "portfolio-7-42", "intent-07-42", "intent-7-+42", "intent-7-42 "] {
            assert_eq!(text.parse::<IntentId>(), Err(BadId("intent")), "{text:?}");
        }
    }

    #[test]
    fn records_are_in_the_order_in_which_they_were_made() {
        let id = |epoch, cursor| RecordId::from(IntentId(Serial::of(Epoch(epoch), Cursor(cursor))));
        assert!(id(1, 9) < id(1, 10) && id(1, u64::from(u32::MAX)) < id(2, 1));
    }
}
