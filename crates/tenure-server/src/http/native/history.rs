//! Owns listings: active leases from the ledger, ended ones from the store, the events of one lease.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tenure_core::access::Caller as Looker;
use tenure_core::command::{List, Page, Tick};
use tenure_core::event::{Event, EventKind};
use tenure_core::lease::End;
use tenure_core::limits::KIND_BYTES_MAX;
use tenure_core::{Holder, LeaseId, Resource};
use tenure_store::{EventPage, EventQuery};
use utoipa::ToSchema;

use super::events::shows;
use super::leases::LeasePath;
use super::model::{EventView, LeaseView};
use super::query::Params;
use super::refusals;
use super::requests::parse_lease;
use crate::engine::Found;
use crate::http::App;
use crate::http::auth::Caller;
use crate::http::error::Problem;
use crate::http::reply::{self, At};
use crate::http::sight;
use crate::http::status::ProblemBody;

/// A page of leases.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeasePage<'a> {
    leases: Vec<LeaseView<'a>>,
    /// Give it as `after` to read on; nothing on the last page. A page can be short while more follow.
    next: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    server_time: At,
}

/// Lists leases: active ones by token, ended ones by when they ended, latest first.
#[utoipa::path(get, path = "/v1/leases", tag = "leases",
    params(("resource" = Option<String>, Query, description = "only those that overlap it"),
           ("holder" = Option<String>, Query, description = "only those of this holder"),
           ("status" = Option<super::model::Status>, Query, description = "active if not said"),
           ("kind" = Option<String>, Query, description = "only those with a resource of this kind"),
           ("after" = Option<String>, Query, description = "`next` of the page before"),
           ("limit" = Option<u64>, Query, minimum = 1, maximum = 1_000)),
    responses((status = 200, body = LeasePage), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, Problem> {
    let looker = caller.looking_by_lists()?;
    let params = Params::of(&uri, &["resource", "holder", "status", "kind", "after", "limit"])?;
    match parse_status(params.get("status"))? {
        None => list_active(&app, looker, &params).await,
        Some(end) => list_ended(&app, looker, &params, end).await,
    }
}

async fn list_active(app: &App, looker: Option<Looker>, params: &Params) -> Result<Response, Problem> {
    let kind = kind(params)?;
    let after = params.get("after").map(|id| parse_lease("after", id)).transpose()?.map(LeaseId::token);
    let query = List { resource: params.resource()?, holder: params.holder()?, kind, after, limit: params.limit()? };
    let Page { leases, next, now } = app.engine().apply(query).await?;
    let sight = sight::of(app, looker.as_ref(), leases.iter().flat_map(|lease| &lease.resources)).await?;
    let seen = leases.iter().filter(|lease| sight.shows(&lease.resources, Some(&lease.holder)));
    let leases = seen.map(|lease| LeaseView::of(lease, None, now)).collect();
    let next = next.map(|token| LeaseId::from(token).to_string());
    Ok(reply::json(StatusCode::OK, &LeasePage { leases, next, server_time: At(now) }))
}

async fn list_ended(app: &App, looker: Option<Looker>, params: &Params, end: End) -> Result<Response, Problem> {
    let kind = kind(params)?;
    let query = EventQuery {
        kinds: vec![EventKind::from(end)],
        before: params.cursor("after")?,
        resource: params.resource()?,
        holder: params.holder()?,
        ..EventQuery::ends(params.limit()?)
    };
    // What is due by now has ended, whether or not anyone has noticed yet.
    app.engine().apply(Tick).await?;
    let page = app.engine().read(move |reader| reader.events(&query)).await?;
    let sight = sight::of(app, looker.as_ref(), page.events.iter().flat_map(|event| &event.resources)).await?;
    let now = app.engine().now();
    let is_wanted = |event: &&Event| {
        kind.as_ref().is_none_or(|kind| event.resources.iter().any(|resource| resource.kind() == kind))
            && shows(&sight, event)
    };
    let leases = page.events.iter().filter(is_wanted).filter_map(|event| LeaseView::of_end(event, now)).collect();
    let next = page.more.then(|| page.next.0.to_string());
    Ok(reply::json(StatusCode::OK, &LeasePage { leases, next, server_time: At(now) }))
}

/// A page of events.
#[derive(Serialize, ToSchema)]
#[schema(as = EventPage)]
pub(crate) struct EventPageView<'a> {
    events: Vec<EventView<'a>>,
    /// Give it as `after` to read on; nothing if these were the last so far. A page can be short while more follow.
    next: Option<u64>,
}

impl<'a> From<&'a EventPage> for EventPageView<'a> {
    fn from(page: &'a EventPage) -> EventPageView<'a> {
        EventPageView {
            events: page.events.iter().map(EventView::from).collect(),
            next: page.more.then_some(page.next.0),
        }
    }
}

/// What happened to one lease, oldest first.
#[utoipa::path(get, path = "/v1/leases/{id}/events", tag = "leases",
    params(("id" = String, Path), ("after" = Option<u64>, Query), ("limit" = Option<u64>, Query, minimum = 1, maximum = 1_000)),
    responses((status = 200, body = EventPageView), (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn of_lease(
    State(app): State<App>,
    caller: Caller,
    LeasePath(id): LeasePath,
    uri: Uri,
) -> Result<Response, Problem> {
    let looker = caller.looking_by_lists()?;
    let params = Params::of(&uri, &["after", "limit"])?;
    let after = params.cursor("after")?.unwrap_or_default();
    let query = EventQuery { token: Some(id.token()), ..EventQuery::after(after, params.limit()?) };
    let page = app.engine().read(move |reader| reader.events(&query)).await?;
    if page.events.is_empty() && matches!(app.engine().find(id.token()).await?, Found::Unknown) {
        return Err(refusals::unknown(&id.to_string()));
    }
    // All of them are about one lease.
    if let Some(event) = page.events.first() {
        check_seen(&app, looker.as_ref(), &event.resources, event.holder.as_ref()).await?;
    }
    Ok(reply::json(StatusCode::OK, &EventPageView::from(&page)))
}

/// Refuses to show a lease that somebody may not see.
pub(super) async fn check_seen(
    app: &App,
    looker: Option<&Looker>,
    resources: &[Resource],
    holder: Option<&Holder>,
) -> Result<(), Problem> {
    let sight = sight::of(app, looker, resources).await?;
    sight.check(resources, holder).map_err(|refusal| refusals::refused(refusal, app.engine().now()))
}

fn parse_status(status: Option<&str>) -> Result<Option<End>, Problem> {
    match status {
        None | Some("active") => Ok(None),
        Some("released") => Ok(Some(End::Released)),
        Some("expired") => Ok(Some(End::Expired)),
        Some("revoked") => Ok(Some(End::Revoked)),
        Some(_) => {
            Err(Problem::field("status", "a status is active, or the way a lease ended; /openapi.json lists them"))
        }
    }
}

fn kind(params: &Params) -> Result<Option<String>, Problem> {
    let Some(kind) = params.get("kind") else { return Ok(None) };
    if kind.is_empty() || kind.len() > KIND_BYTES_MAX {
        return Err(Problem::field("kind", format!("a kind has 1 to {KIND_BYTES_MAX} characters")));
    }
    Ok(Some(kind.to_owned()))
}
