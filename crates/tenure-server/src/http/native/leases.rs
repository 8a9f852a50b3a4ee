//! Owns taking, looking at and giving back one lease over the native door.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use tenure_core::command::{Acquire, Grant, Release, Revoke};
use tenure_core::lease::Lease;
use tenure_core::refusal::Refusal;
use tenure_core::{LeaseId, Timestamp};
use utoipa::ToSchema;

use super::history::check_seen;
use super::model::{ConflictView, LeaseView};
use super::refusals;
use super::requests::{AcquireRequest, CheckRequest, RevokeRequest, parse_key};
use crate::engine::{Ended, Found, Released, Unavailable};
use crate::http::App;
use crate::http::auth::{Caller, header_text};
use crate::http::error::Problem;
use crate::http::payload::Payload;
use crate::http::reply::{self, At};
use crate::http::status::ProblemBody;
use crate::serve::peer;

/// Takes resources, all or none; waits in line for them if asked to.
#[utoipa::path(post, path = "/v1/leases", tag = "leases",
    params(("Idempotency-Key" = Option<String>, Header, description = "the same key and request get the same grant"),
           ("X-Tenure-Holder" = Option<String>, Header, description = "who takes it, if the body does not say")),
    request_body = AcquireRequest,
    responses((status = 201, body = LeaseView), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) fn acquire(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    payload: Payload,
) -> impl Future<Output = Result<Response, Problem>> {
    let command = requested(&caller, key, &payload);
    async move {
        let command = command?;
        // A key may join a wait that is under way.
        let taken = match (command.wait_ms, &command.key) {
            (None, None) => app.engine().acquire(command).await,
            // In a box of its own, because every acquire would carry the room for it.
            _ => Box::pin(take_in_line(&app, command)).await,
        };
        match taken? {
            // Not the time of the decision: on a slow disk that is long ago, and the holder counts from here.
            Ok(Grant { lease, ended }) => {
                Ok(LeaseView::of(&lease, ended, app.engine().now()).reply(StatusCode::CREATED))
            }
            Err(refusal) => Err(refusals::refused(refusal, app.engine().now())),
        }
    }
}

fn requested(caller: &Caller, key: Option<Box<str>>, payload: &Payload) -> Result<Acquire, Problem> {
    let request: AcquireRequest<'_> = payload.object()?;
    let holder = caller.acting(request.holder.as_deref())?;
    Ok(Acquire { heeds_lists: !caller.is_trusted(), ..request.command(holder, key)? })
}

/// A wait ends when the server stops, and when the client has gone; everything else is answered sooner than that.
async fn take_in_line(app: &App, command: Acquire) -> Result<Result<Grant, Refusal>, Unavailable> {
    tokio::select! {
        answer = app.engine().acquire(command) => answer,
        () = app.closing() => Err(Unavailable::Stopped),
        () = peer::gone() => Err(Unavailable::Stopped),
    }
}

/// Looks a lease up, also one that is over.
#[utoipa::path(get, path = "/v1/leases/{id}", tag = "leases", params(("id" = String, Path)),
    responses((status = 200, body = LeaseView), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn get(State(app): State<App>, caller: Caller, LeasePath(id): LeasePath) -> Result<Response, Problem> {
    let looker = caller.looking_by_lists()?;
    let now = app.engine().now();
    match app.engine().find(id.token()).await? {
        Found::Active(lease) => {
            check_seen(&app, looker.as_ref(), &lease.resources, Some(&lease.holder)).await?;
            Ok(LeaseView::of(&lease, None, now).reply(StatusCode::OK))
        }
        Found::Ended(ended) => {
            check_seen(&app, looker.as_ref(), &ended.0.resources, ended.0.holder.as_ref()).await?;
            ended_reply(&app, id, &ended)
        }
        Found::Unknown => Err(refusals::unknown(&id.to_string())),
    }
}

/// Gives a lease back. Doing it again is no error, also when the lease ended otherwise: the answer says how.
#[utoipa::path(delete, path = "/v1/leases/{id}", tag = "leases",
    params(("id" = String, Path), ("X-Tenure-Holder" = Option<String>, Header, description = "who gives it back")),
    responses((status = 200, body = LeaseView), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) fn release(
    State(app): State<App>,
    caller: Caller,
    LeasePath(id): LeasePath,
) -> impl Future<Output = Result<Response, Problem>> {
    let holder = caller.acting(None);
    async move {
        let released = app.engine().release(Release { token: id.token(), holder: holder? }).await?;
        let reply = |lease: &Lease, at| LeaseView::released(lease, at).reply(StatusCode::OK);
        released_reply(&app, id, released, reply)
    }
}

/// Takes a lease away from its holder, who is told why. Needs the role admin where there are keys.
#[utoipa::path(post, path = "/v1/leases/{id}/revoke", tag = "leases", params(("id" = String, Path)),
    request_body = RevokeRequest,
    responses((status = 200, body = LeaseView), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    LeasePath(id): LeasePath,
    payload: Payload,
) -> Result<Response, Problem> {
    let by = caller.administrator()?;
    let reason = payload.object::<RevokeRequest<'_>>()?.reason()?;
    let command = Revoke { token: id.token(), by: by.clone(), reason: reason.clone() };
    let revoked = app.engine().revoke(command).await?;
    released_reply(&app, id, revoked, |lease, at| LeaseView::revoked(lease, at, &by, &reason).reply(StatusCode::OK))
}

/// Who would stop me? Takes nothing.
#[utoipa::path(post, path = "/v1/leases/check", tag = "leases", request_body = CheckRequest,
    responses((status = 200, body = CheckReply), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn check(State(app): State<App>, caller: Caller, payload: Payload) -> Result<Response, Problem> {
    let looker = caller.looking_by_lists()?;
    let command = payload.object::<CheckRequest<'_>>()?.command()?;
    check_seen(&app, looker.as_ref(), &command.resources, None).await?;
    let checked = app.engine().apply(command).await?;
    let conflicts: Vec<_> = checked.conflicts.iter().map(ConflictView::from).collect();
    let body = CheckReply { free: conflicts.is_empty(), conflicts, server_time: At(checked.now) };
    Ok(reply::json(StatusCode::OK, &body))
}

/// What stands in the way.
#[derive(Serialize, ToSchema)]
pub(crate) struct CheckReply<'a> {
    /// Whether nothing stands in the way; with `holder`, nothing of others. Its own leases would still stop an acquire.
    free: bool,
    /// Who or what stands in the way, a bounded list.
    conflicts: Vec<ConflictView<'a>>,
    #[schema(value_type = String, format = DateTime)]
    server_time: At,
}

fn released_reply(
    app: &App,
    id: LeaseId,
    released: Released,
    reply: impl FnOnce(&Lease, Timestamp) -> Response,
) -> Result<Response, Problem> {
    match released {
        Released::Ended(lease, at) => Ok(reply(&lease, at)),
        Released::Before(ended) => ended_reply(app, id, &ended),
        Released::NotHolder(holder) => Err(refusals::not_holder(&holder)),
        Released::Unknown => Err(refusals::unknown(&id.to_string())),
    }
}

fn ended_reply(app: &App, id: LeaseId, Ended(event): &Ended) -> Result<Response, Problem> {
    let view = LeaseView::of_end(event, app.engine().now()).ok_or_else(|| refusals::unknown(&id.to_string()))?;
    Ok(view.reply(StatusCode::OK))
}

/// The name of a request that may be sent again.
pub(crate) struct IdempotencyKey(Option<Box<str>>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<IdempotencyKey, Problem> {
        parse_key(header_text(&parts.headers, "idempotency-key")?).map(IdempotencyKey)
    }
}

/// The lease in an address.
pub(crate) struct LeasePath(pub(crate) LeaseId);

impl<S: Send + Sync> FromRequestParts<S> for LeasePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<LeasePath, Problem> {
        let path: Result<Path<String>, _> = Path::from_request_parts(parts, state).await;
        let Ok(Path(text)) = path else { return Err(refusals::unknown("with such a name")) };
        text.parse().map(LeasePath).map_err(|_| refusals::unknown(&shortened(&text)))
    }
}

/// A name that may be anything, for a text that should stay readable.
fn shortened(text: &str) -> String {
    let short: String = text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The allocator has a fast way for what is no larger than this, and every request has its future made there.
    const FUTURE_BYTES_MAX: usize = 1_024;

    fn future_of_four<A, B, C, D, R>(_: impl Fn(A, B, C, D) -> R) -> usize {
        size_of::<R>()
    }

    fn future_of_three<A, B, C, R>(_: impl Fn(A, B, C) -> R) -> usize {
        size_of::<R>()
    }

    #[test]
    fn the_futures_of_the_busiest_requests_stay_small() {
        assert!(future_of_four(acquire) <= FUTURE_BYTES_MAX, "{}", future_of_four(acquire));
        assert!(future_of_three(release) <= FUTURE_BYTES_MAX, "{}", future_of_three(release));
    }
}
