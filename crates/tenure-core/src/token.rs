//! Owns the fencing number (L2) and the lease id made from it.
//!
//! `token = epoch × 2³² + counter`. The epoch grows with every start of the ledger, so a token is larger than
//! every token granted before, also when the counter's last values were lost with the machine. Below 2⁵³, so
//! that readers of JSON keep it exact. A token belongs to one grant for ever, so it is the lease's id too.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json;

const COUNTER_BITS: u32 = 32;

/// The fencing number of one grant: larger than every token granted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(u64);

/// The span of one life of the ledger: a start, a restore, a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The largest epoch whose tokens a JSON reader keeps exact.
    pub const MAX: Epoch = Epoch((1 << (53 - COUNTER_BITS)) - 1);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl Token {
    /// The place before the first token of an epoch; never granted itself.
    pub const fn start_of(epoch: Epoch) -> Token {
        Token((epoch.0 as u64) << COUNTER_BITS)
    }

    /// The token with this number, as read from the outside.
    pub const fn from_u64(number: u64) -> Token {
        Token(number)
    }

    /// As a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The token after this one. A counter that is used up runs on into the next epoch.
    #[must_use]
    pub const fn next(self) -> Token {
        Token(self.0 + 1)
    }

    /// The epoch it was granted in.
    pub const fn epoch(self) -> Epoch {
        Epoch((self.0 >> COUNTER_BITS) as u32)
    }

    const fn counter(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The longest lease id: the largest epoch and the largest counter.
pub const LEASE_ID_BYTES_MAX: usize = "lease-2097151-4294967295".len();

/// The name of one grant, written `lease-<epoch>-<counter>`: another view of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(Token);

/// A text that is not a lease id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is written lease-<epoch>-<counter>")]
pub struct BadLeaseId;

impl LeaseId {
    /// Appends it as it is written.
    pub fn write(self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"lease-");
        json::number(to, self.0.epoch().0.into());
        to.push(b'-');
        json::number(to, self.0.counter().into());
    }

    /// The fencing token of the same grant.
    pub const fn token(self) -> Token {
        self.0
    }
}

impl From<Token> for LeaseId {
    fn from(token: Token) -> LeaseId {
        LeaseId(token)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease-{}-{}", self.0.epoch().0, self.0.counter())
    }
}

impl FromStr for LeaseId {
    type Err = BadLeaseId;

    fn from_str(text: &str) -> Result<LeaseId, BadLeaseId> {
        let (epoch, counter) = text.strip_prefix("lease-").and_then(|rest| rest.split_once('-')).ok_or(BadLeaseId)?;
        let epoch = Epoch(decimal(epoch)?);
        if epoch > Epoch::MAX {
            return Err(BadLeaseId);
        }
        Ok(LeaseId(Token(Token::start_of(epoch).0 + u64::from(decimal(counter)?))))
    }
}

/// One text for one number: no sign, no leading zero.
fn decimal(text: &str) -> Result<u32, BadLeaseId> {
    if text.starts_with('+') || (text.starts_with('0') && text.len() > 1) {
        return Err(BadLeaseId);
    }
    text.parse().map_err(|_| BadLeaseId)
}

impl Serialize for LeaseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LeaseId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LeaseId, D::Error> {
        crate::text::parsed(deserializer, str::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_a_later_epoch_is_larger_than_every_counter_of_an_earlier_one() {
        let last_of_six = Token::from_u64(Token::start_of(Epoch(7)).as_u64() - 1);
        assert_eq!(last_of_six.epoch(), Epoch(6));
        assert!(Token::start_of(Epoch(7)) > last_of_six);
        assert!(Token::start_of(Epoch::MAX).as_u64() + u64::from(u32::MAX) < 1 << 53);
    }

    #[test]
    fn a_lease_id_reads_back_and_nothing_else_reads_as_one() {
        let id = LeaseId::from(Token::start_of(Epoch(7)).next());
        assert_eq!(id.to_string(), "lease-7-1");
        assert_eq!("lease-7-1".parse(), Ok(id));
        let longest = LeaseId::from(Token::from_u64((1 << 53) - 1)).to_string();
        assert_eq!((longest.len(), longest.parse::<LeaseId>().is_ok()), (LEASE_ID_BYTES_MAX, true));
        for text in ["", "lease-7", "lease-07-1", "lease-+7-1", "lease-7-4294967296", "lease-9999999-1", "7-1"] {
            assert_eq!(text.parse::<LeaseId>(), Err(BadLeaseId), "{text}");
        }
    }
}
