//! The program on real repositories: what a person types, reads and scripts.
#![expect(clippy::indexing_slicing, reason = "a missing member of a JSON answer fails the test")]
#![expect(clippy::print_stdout, reason = "a test that cannot run here says so")]

mod chained;
mod check;
mod hooks;
mod interop;
mod kill;
mod lock;
mod pushes;
mod run;
mod seed;
mod support;
