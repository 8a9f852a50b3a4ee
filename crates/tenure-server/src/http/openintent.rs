//! The OpenIntent door: `/api/v1`, as the client package of that project speaks it. Translates, decides nothing.
//!
//! Foreign words (agent_id, duration_seconds, event types …) live in this folder and nowhere else. What the door does
//! differently from that project's own server, and why, is in `docs/compat/openintent.md`.

mod access;
mod agents;
mod body;
mod caller;
mod coordinators;
mod error;
mod event_types;
mod events;
mod hub;
mod intents;
mod leases;
mod model;
mod portfolios;
mod rest;
mod retry;
mod stream;
mod subscriptions;
mod webhooks;
pub mod workflow_file;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{any, delete, get, patch, post};
use tokio::sync::Notify;

use self::hub::Hub;
use super::App;

/// What the handlers of this door have at hand.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) app: App,
    pub(crate) hub: Arc<Hub>,
    /// To be told when subscriptions have changed.
    pub(crate) webhooks: Arc<Notify>,
}

impl FromRef<Door> for App {
    fn from_ref(door: &Door) -> App {
        door.app.clone()
    }
}

/// Every address of the door, to be mounted at the root.
pub(crate) fn routes(app: App) -> Router {
    let hub = Hub::new(app.clone());
    let webhooks = webhooks::start(app.clone());
    let door = Door { app, hub, webhooks };
    let api = Router::new()
        .merge(intent_routes())
        .merge(lease_routes())
        .merge(people_routes())
        .merge(rest::left_out())
        // A route, not a fallback: another door answers for everything else below `/api`.
        .route("/{*rest}", any(rest::not_found))
        .method_not_allowed_fallback(rest::method_not_allowed);
    Router::new()
        .route("/.well-known/openintent.json", get(rest::discovery))
        .route("/.well-known/openintent-compat.json", get(rest::compatibility))
        .nest("/api/v1", api)
        .with_state(door)
}

fn intent_routes() -> Router<Door> {
    Router::new()
        .route("/intents", get(intents::list).post(intents::create))
        .route("/intents/{id}", get(intents::get))
        .route("/intents/{id}/children", get(intents::children).post(intents::create_child))
        .route("/intents/{id}/descendants", get(intents::descendants))
        .route("/intents/{id}/ancestors", get(intents::ancestors))
        .route("/intents/{id}/dependencies", get(intents::dependencies).post(intents::add_dependency))
        .route("/intents/{id}/dependencies/{first}", delete(intents::remove_dependency))
        .route("/intents/{id}/dependents", get(intents::dependents))
        .route("/intents/{id}/ready", get(intents::ready))
        .route("/intents/{id}/blocked", get(intents::blocked))
        .route("/intents/{id}/graph", get(intents::graph))
        .route("/intents/{id}/state", post(intents::patch_state).patch(intents::patch_state))
        .route("/intents/{id}/status", post(intents::set_status).patch(intents::set_status))
        .route("/intents/{id}/events", get(events::list).post(events::log))
        .route("/intents/{id}/agents", get(agents::assigned).post(agents::assign))
        .route("/intents/{id}/agents/{agent}", delete(agents::unassign))
        .route("/intents/{id}/portfolios", get(portfolios::of_intent))
        .route("/intents/{id}/coordinators", get(coordinators::list))
        .route("/intents/{id}/retry-policy", get(retry::get).put(retry::set))
        .route("/intents/{id}/failures", get(retry::failures).post(retry::record))
        .route("/intents/{id}/acl", get(access::get).put(access::set))
        .route("/intents/{id}/acl/entries", post(access::grant))
        .route("/intents/{id}/acl/entries/{entry}", delete(access::revoke))
        .route("/intents/{id}/access-requests", get(access::requests).post(access::request))
        .route("/intents/{id}/access-requests/{request}/approve", post(access::approve))
        .route("/intents/{id}/access-requests/{request}/deny", post(access::deny))
        .route("/intents/{id}/subscribe", get(stream::of_intent))
}

fn lease_routes() -> Router<Door> {
    Router::new()
        .route("/intents/{id}/leases", get(leases::list).post(leases::acquire))
        .route("/intents/{id}/leases/{lease}", patch(leases::renew).delete(leases::release))
        .route("/intents/{id}/leases/{lease}/revoke", post(leases::revoke))
        .route("/leases/{lease}", get(leases::get).patch(leases::renew_by_id).delete(leases::release_by_id))
        .route("/leases/{lease}/revoke", post(leases::revoke_by_id))
        .route("/coordinators", post(coordinators::create))
        .route("/coordinators/{id}", get(coordinators::get).delete(coordinators::end))
        .route("/coordinators/{id}/{act}", post(coordinators::act).put(coordinators::act))
}

fn people_routes() -> Router<Door> {
    Router::new()
        .route("/agents", get(agents::list).post(agents::register))
        .route("/agents/register", post(agents::register))
        .route("/agents/{agent}/record", get(agents::record))
        .route("/agents/{agent}/heartbeat", post(agents::heartbeat))
        .route("/agents/{agent}/status", patch(agents::set_status))
        .route("/agents/{agent}/subscribe", get(stream::of_agent))
        .route("/agents/{agent}", get(agents::record).delete(agents::deregister))
        .route("/portfolios", get(portfolios::list).post(portfolios::create))
        .route("/portfolios/{id}", get(portfolios::get))
        .route("/portfolios/{id}/status", patch(portfolios::set_status))
        .route("/portfolios/{id}/intents", get(portfolios::intents).post(portfolios::add))
        .route("/portfolios/{id}/intents/{intent}", delete(portfolios::remove))
        .route("/portfolios/{id}/subscribe", get(stream::of_portfolio))
        .route("/subscriptions", get(subscriptions::list).post(subscriptions::create))
        .route("/subscriptions/{id}", delete(subscriptions::delete))
        .route("/server/config", get(rest::config))
}
