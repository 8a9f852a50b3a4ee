//! The client against a scripted server: what it sends, and what it makes of every kind of answer.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod acquire;
mod agent;
mod calls;
mod events;
mod fake;
mod heartbeat;
mod worker;
