//! Owns the query and the address of a request: `True` is what one of the clients writes for true, and errors have this API's
//! shape.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::fault::Fault;

/// The query, read.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Params<T>, Fault> {
        let pairs = parts.uri.query().unwrap_or_default().split('&').map(|pair| match pair.split_once('=') {
            Some((name, "True")) => format!("{name}=true"),
            Some((name, "False")) => format!("{name}=false"),
            // A parameter without a value is one that was not given.
            Some((_, "")) => String::new(),
            _ => pair.to_owned(),
        });
        let query = pairs.filter(|pair| !pair.is_empty()).collect::<Vec<_>>().join("&");
        let uri: Uri = format!("/?{query}").parse().map_err(|_| Fault::bad("the query cannot be read"))?;
        let read = Query::<T>::try_from_uri(&uri);
        read.map(|Query(params)| Params(params)).map_err(|error| Fault::bad(error.body_text()))
    }
}

/// What an address names, read.
pub(crate) struct Place<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Place<T>, Fault> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(place)| Place(place)).map_err(|error| Fault::bad(error.body_text()))
    }
}
