//! The server over real sockets, as a client sees it.

mod access;
mod bad_input;
mod bounds;
mod events;
mod harness;
mod leases;
mod listing;
mod refusals;
mod server;
