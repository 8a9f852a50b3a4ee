//! Owns what all doors share: requests read within bounds, callers known, refusals in one shape.

pub(crate) mod auth;
pub(crate) mod conductor;
pub(crate) mod error;
pub(crate) mod native;
pub(crate) mod openintent;
pub(crate) mod payload;
pub(crate) mod reply;
pub(crate) mod sight;
pub(crate) mod status;

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::Config;
use crate::engine::Engine;

/// What every handler has at hand.
#[derive(Clone)]
pub(crate) struct App(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    /// Turns true when the server is told to stop: streams and waits end then.
    pub(crate) closing: watch::Receiver<bool>,
}

impl App {
    /// The ledger.
    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Comes back when the server is told to stop.
    pub(crate) async fn closing(&self) {
        // The other end lives as long as the server; if it is gone, so is the server.
        self.0.closing.clone().wait_for(|closing| *closing).await.ok();
    }
}
