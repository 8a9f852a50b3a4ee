//! Owns who asks: the key behind `X-Authorization`, and the names of workers it may use.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_core::Holder;

use super::fault::Fault;
use crate::http::App;
use crate::http::auth::Caller;

/// Who asks.
pub(crate) struct Asker(Caller);

impl FromRequestParts<App> for Asker {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Asker, Fault> {
        Ok(Asker(Caller::from_request_parts(parts, app).await?))
    }
}

impl Asker {
    /// Who looks; nothing more is needed.
    pub(super) fn reading(&self) -> Result<(), Fault> {
        Ok(self.0.reading()?)
    }

    /// Who changes something under no name of its own.
    pub(super) fn working(&self) -> Result<(), Fault> {
        Ok(self.0.working()?)
    }

    /// The worker that acts, if it says its name.
    pub(super) fn worker(&self, name: Option<&str>) -> Result<Option<Holder>, Fault> {
        match name.map(str::trim).filter(|name| !name.is_empty()) {
            Some(name) => Ok(Some(self.0.acting(Some(name))?)),
            None => self.working().map(|()| None),
        }
    }
}
