//! The server over real sockets, as a client sees it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod access;
mod bad_input;
mod bounds;
mod closed;
mod conductor;
mod events;
mod fleet;
mod gone;
mod harness;
mod leases;
mod listing;
mod names;
mod openintent;
mod refusals;
mod server;
