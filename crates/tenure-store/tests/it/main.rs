//! The tests of the store, one target.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, also in its helpers"
)]

mod audit;
mod check;
mod common;
mod conformance;
mod crash;
mod disk;
mod earlier;
mod files;
mod model;
mod removed;
