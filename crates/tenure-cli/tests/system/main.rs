//! The whole program, as others meet it: real processes, real sockets, SIGKILL, SIGSTOP and full disks.
//!
//! Every test ends with the same question to the history that the server kept: was anything ever held twice, did a token
//! ever go back, is anything missing that someone was told?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that panics has failed")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tests talk to whoever runs them")]

mod audit;
mod crash;
mod full_disk;
mod http;
mod race;
mod server;
