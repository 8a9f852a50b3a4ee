//! Owns keeping leases alive over the native door, one by one or many in one request.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tenure_core::command::Renew;
use tenure_core::{Holder, LeaseId, Timestamp, Token, Ttl};
use utoipa::ToSchema;

use super::leases::LeasePath;
use super::model::renew_after_ms;
use super::refusals;
use super::requests::{RenewManyRequest, RenewRequest};
use crate::engine::Renewed;
use crate::http::App;
use crate::http::auth::Caller;
use crate::http::error::Problem;
use crate::http::payload::Payload;
use crate::http::reply::{self, At};
use crate::http::status::ProblemBody;

/// A lease that runs on.
#[derive(Serialize, ToSchema)]
pub(crate) struct RenewReply {
    #[schema(value_type = String)]
    id: LeaseId,
    #[schema(value_type = u64)]
    token: Token,
    /// `active`.
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    expires_at: At,
    ttl_ms: u64,
    renew_after_ms: u64,
    #[schema(value_type = String, format = DateTime)]
    server_time: At,
}

impl RenewReply {
    fn of(token: Token, expires_at: Timestamp, ttl: Ttl, now: Timestamp) -> RenewReply {
        RenewReply {
            id: token.into(),
            token,
            status: "active",
            expires_at: At(expires_at),
            ttl_ms: ttl.ms(),
            renew_after_ms: renew_after_ms(ttl),
            server_time: At(now),
        }
    }
}

/// Keeps a lease alive, with another ttl if one is given. Never revives one that is over.
#[utoipa::path(post, path = "/v1/leases/{id}/renew", tag = "leases",
    params(("id" = String, Path), ("X-Tenure-Holder" = Option<String>, Header, description = "who keeps it")),
    request_body(content = Option<RenewRequest>),
    responses((status = 200, body = RenewReply), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn one(
    State(app): State<App>,
    caller: Caller,
    LeasePath(id): LeasePath,
    payload: Payload,
) -> Result<Response, Problem> {
    let ttl = payload.object_or_default::<RenewRequest>()?.ttl()?;
    let holder = caller.acting(None)?;
    let renewed = app.engine().renew(Renew { tokens: vec![id.token()], holder, ttl }).await?;
    match renewed.into_iter().next() {
        Some(Renewed::Renewed { expires_at, ttl }) => {
            let now = app.engine().now();
            Ok(reply::json(StatusCode::OK, &RenewReply::of(id.token(), expires_at, ttl, now)))
        }
        Some(Renewed::Lost(lost)) => Err(refusals::lost(id, &lost)),
        Some(Renewed::NotHolder(holder)) => Err(refusals::not_holder(&holder)),
        Some(Renewed::Unknown) | None => Err(refusals::unknown(&id.to_string())),
    }
}

/// What became of each lease, in the order asked.
#[derive(Serialize, ToSchema)]
pub(crate) struct RenewManyReply<'a> {
    results: Vec<Outcome<'a>>,
    #[schema(value_type = String, format = DateTime)]
    server_time: At,
}

/// What became of one lease.
#[derive(Serialize, ToSchema)]
pub(crate) struct Outcome<'a> {
    /// As it was asked for.
    id: &'a str,
    /// `renewed`, `lost`, `not_holder` or `unknown`.
    outcome: &'static str,
    /// As in the answer to a single renewal, or as in its refusal.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: More,
}

#[derive(Serialize)]
#[serde(untagged)]
enum More {
    Renewed { token: Token, status: &'static str, expires_at: At, ttl_ms: u64, renew_after_ms: u64 },
    Other(Map<String, Value>),
}

/// Keeps many leases alive at once; each is answered on its own.
#[utoipa::path(post, path = "/v1/leases/renew", tag = "leases",
    params(("X-Tenure-Holder" = Option<String>, Header, description = "who keeps them")),
    request_body = RenewManyRequest,
    responses((status = 200, body = RenewManyReply), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn many(State(app): State<App>, caller: Caller, payload: Payload) -> Result<Response, Problem> {
    let request: RenewManyRequest<'_> = payload.object()?;
    let leases = request.leases()?;
    let holder = caller.acting(None)?;
    let tokens = leases.iter().filter_map(|(_, token)| *token).collect();
    let mut renewed = app.engine().renew(Renew { tokens, holder, ttl: None }).await?.into_iter();
    let mut of = |token: Option<Token>| Some((token?, renewed.next()?));
    let results = leases.into_iter().map(|(id, token)| outcome(id, of(token))).collect();
    let body = RenewManyReply { results, server_time: At(app.engine().now()) };
    Ok(reply::json(StatusCode::OK, &body))
}

fn outcome(id: &str, renewed: Option<(Token, Renewed)>) -> Outcome<'_> {
    let (outcome, more) = match renewed {
        Some((token, Renewed::Renewed { expires_at, ttl })) => {
            let renewed = More::Renewed {
                token,
                status: "active",
                expires_at: At(expires_at),
                ttl_ms: ttl.ms(),
                renew_after_ms: renew_after_ms(ttl),
            };
            ("renewed", renewed)
        }
        Some((_, Renewed::Lost(lost))) => {
            let fields = refusals::lost_fields(&lost).into_iter().map(|(name, value)| (name.to_owned(), value));
            ("lost", More::Other(fields.collect()))
        }
        Some((_, Renewed::NotHolder(holder))) => ("not_holder", More::Other(named(&holder))),
        Some((_, Renewed::Unknown)) | None => ("unknown", More::Other(Map::new())),
    };
    Outcome { id, outcome, more }
}

fn named(holder: &Holder) -> Map<String, Value> {
    Map::from_iter([("holder".to_owned(), json!(holder.as_str()))])
}
