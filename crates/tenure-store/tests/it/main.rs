//! The tests of the store, one target.

mod audit;
mod common;
mod conformance;
