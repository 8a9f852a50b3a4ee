//! The ledger: who holds what, until when, and what happens when they stop answering.
#![warn(missing_docs)]

pub mod holder;
pub mod limits;
pub mod resource;
pub mod time;
pub mod token;

pub use holder::Holder;
pub use resource::Resource;
pub use time::{Timestamp, Ttl};
pub use token::{Epoch, LeaseId, Token};
