//! The program as people and scripts use it: the real binary in a cleared environment, with a real server of its own.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

mod leases;
mod processes;
mod rig;
mod run;
mod sdk;
mod serving;
mod tasks;
mod usage;
