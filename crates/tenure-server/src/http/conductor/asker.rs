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

/// That who asks may look.
pub(crate) struct Reading;

impl FromRequestParts<App> for Reading {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Reading, Fault> {
        Caller::from_request_parts(parts, app).await?.reading()?;
        Ok(Reading)
    }
}

/// That who asks may change something, under no name of its own.
pub(crate) struct Working;

impl FromRequestParts<App> for Working {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Working, Fault> {
        Caller::from_request_parts(parts, app).await?.working()?;
        Ok(Working)
    }
}

impl Asker {
    /// Whether who asks is believed without a name: only administrators are where keys say who may use which.
    pub(super) fn is_believed(&self) -> bool {
        self.0.is_trusted()
    }

    /// The worker that acts, if it says its name.
    pub(super) fn worker(&self, name: Option<&str>) -> Result<Option<Holder>, Fault> {
        match name.map(str::trim).filter(|name| !name.is_empty()) {
            Some(name) => Ok(Some(self.0.acting(Some(name))?)),
            None => Ok(self.0.working().map(|_| None)?),
        }
    }
}
