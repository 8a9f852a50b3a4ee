//! The server: one desk around the ledger, and the doors in front of it.
//!
//! ```text
//!  connection ─► router ─► http/native (a door: translates, decides nothing) ─► engine ─► store
//! ```
//!
//! [`Engine::open`] brings a ledger up from a store; [`serve`] answers connections from it until told to stop. A new door is a
//! folder in `http` and its lines in `router`; it uses the engine's handle and nothing below it.

pub mod config;
pub mod engine;
mod http;
pub mod keys;
pub mod metrics;
pub mod query;
mod router;
mod serve;

pub use config::Config;
pub use engine::Engine;
pub use http::error::Code;
pub use http::openintent::workflow_file;
pub use router::openapi_json;
pub use serve::{ServeError, bind, serve};
