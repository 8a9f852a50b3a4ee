//! The ledger: who holds what, until when, and what happens when they stop answering.
#![warn(missing_docs)]

pub mod access;
pub mod agent;
pub mod change;
pub mod command;
pub mod coordinator;
pub mod document;
pub mod event;
pub mod flow;
pub mod heartbeat;
pub mod holder;
pub mod id;
pub mod intent;
pub mod json;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod patch;
pub mod portfolio;
pub mod refusal;
pub mod resource;
pub mod retry;
pub mod serial;
pub mod subscription;
pub mod task;
mod text;
pub mod time;
pub mod token;
pub mod workflow;

pub use holder::Holder;
pub use ledger::{Ledger, Turn};
pub use resource::Resource;
pub use time::{Timestamp, Ttl};
pub use token::{Epoch, LeaseId, Token};
