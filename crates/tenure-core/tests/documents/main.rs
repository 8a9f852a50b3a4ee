//! Documents and lifecycles: intents under leases (D1, D2), attempts (T4), runs (T5), coordinators and agents.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test says what it expects by failing")]

mod access;
mod agents;
mod bench;
mod coordinators;
mod intents;
mod model;
mod workflows;
