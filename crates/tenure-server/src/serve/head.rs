//! Owns the bound on the head of a request, and says so to who sends a larger one.
//!
//! hyper has such bounds too, but answers without a word. They are wider, for who is far beyond ours.

use std::convert::Infallible;

use axum::Router;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, Ready, ready};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};

use crate::config::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::http::error::{Code, Problem};

/// The routes, for requests whose head is small enough.
pub(super) struct Bounded(TowerToHyperService<Router>);

impl Bounded {
    /// Sets hyper's own bound on bytes as well. The one on fields is 100 if nothing is said, and faster than any other.
    pub(super) fn new(router: Router, http: &mut http1::Builder) -> Bounded {
        http.max_buf_size(2 * HEAD_BYTES_MAX);
        Bounded(TowerToHyperService::new(router))
    }
}

impl Service<Request<Incoming>> for Bounded {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, TowerToHyperServiceFuture<Router, Request<Incoming>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        match refused(&request) {
            Some(problem) => Either::Left(ready(Ok(problem.into_response()))),
            None => Either::Right(self.0.call(request)),
        }
    }
}

fn refused<B>(request: &Request<B>) -> Option<Problem> {
    let fields = request.headers();
    if fields.len() > HEADERS_MAX {
        let detail = format!("the request has {} header fields; at most {HEADERS_MAX} are read", fields.len());
        return Some(Problem::new(Code::HeadTooLarge, detail).with("max_fields", HEADERS_MAX));
    }
    let address = request.uri().path_and_query().map_or(0, |address| address.as_str().len());
    let bytes = fields.iter().fold(address, |sum, (name, value)| sum + name.as_str().len() + value.len());
    (bytes > HEAD_BYTES_MAX).then(|| {
        let detail = format!("the address and the header fields together are larger than {HEAD_BYTES_MAX} bytes");
        Problem::new(Code::HeadTooLarge, detail).with("max_bytes", HEAD_BYTES_MAX)
    })
}
