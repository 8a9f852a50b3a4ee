//! Owns deliveries to webhooks: each subscription with a URL has a task that posts its events in order, each until it is
//! accepted. How far it has come is kept by the ledger, so a delivery outlives this process: at least once, never skipped.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};
use serde_json::Value;
use tenure_core::event::{Cursor, Event};
use tenure_core::ledger::subscriptions::{Delivered, ListSubscriptions, SubjectOf};
use tenure_core::serial::{IntentId, SubscriptionId};
use tenure_core::subscription::Subscription;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{events, model};
use crate::engine::{Lagging, Unavailable};
use crate::http::App;

/// How long one delivery may take, from the connection to the answer.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(10);
/// After so many events that were not asked for, the place of a subscription is written down.
const UNWRITTEN_MAX: u64 = 10_000;

/// The URL of a receiver, if it is one that can be posted to.
pub(crate) fn parse(url: &str) -> Result<Url, &'static str> {
    let url = Url::parse(url).map_err(|_| "this is not the URL of a host")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("a webhook begins with http:// or https://");
    }
    Ok(url)
}

/// The way to receivers of both kinds: reading the machine's certificates takes time and memory, so it is done once, and a machine
/// that has none can still post without TLS.
static PLAIN: LazyLock<Result<Client, String>> = LazyLock::new(|| client(|http| http.tls_certs_only([])));
static SECURED: LazyLock<Result<Client, String>> = LazyLock::new(|| client(|http| http));

/// Goes straight to the receiver, whatever proxies the environment names, and nowhere that it points to. It may close a connection
/// at any time between two events, so each event gets one of its own.
fn client(tune: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    // The provider of whoever embeds this server stays if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = Client::builder().no_proxy().redirect(Policy::none()).pool_max_idle_per_host(0);
    tune(http).build().map_err(|error| first_cause(&error))
}

/// Posts one event; what the receiver answers beyond its status is not read.
async fn post(url: &Url, body: String) -> Result<(), String> {
    let way = if url.scheme() == "https" { &SECURED } else { &PLAIN };
    let request = way.as_ref()?.post(url.clone()).header(CONTENT_TYPE, "application/json");
    let answer = request.timeout(DELIVERY_TIME_MAX).body(body).send().await;
    let answer = answer.map_err(|error| match error.is_timeout() {
        true => "the receiver took too long".to_owned(),
        false => first_cause(&error),
    })?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("the receiver answered {status}")),
    }
}

/// What went wrong in the end; what lies above is how the HTTP client is built.
fn first_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// Starts delivering, now and whenever it is told that subscriptions have changed. It does not follow the events itself:
/// without a webhook, every commit would wake a task that has nothing to do.
pub(crate) fn start(app: App) -> Arc<Notify> {
    let changed = Arc::new(Notify::new());
    let heard = Arc::clone(&changed);
    tokio::spawn(async move {
        if let Err(error) = run(&app, &heard).await {
            tracing::warn!(%error, "webhooks are no longer delivered");
        }
    });
    changed
}

async fn run(app: &App, changed: &Notify) -> Result<(), Unavailable> {
    let mut tasks: HashMap<SubscriptionId, JoinHandle<()>> = HashMap::new();
    loop {
        let all = app.engine().apply(ListSubscriptions { with_url: true, ..ListSubscriptions::default() }).await?;
        tasks.retain(|id, task| {
            let is_wanted = all.iter().any(|one| one.id == *id);
            if !is_wanted {
                task.abort();
            }
            is_wanted && !task.is_finished()
        });
        for one in all {
            tasks.entry(one.id).or_insert_with(|| tokio::spawn(serve(app.clone(), one)));
        }
        tokio::select! {
            () = changed.notified() => {}
            () = app.closing() => {
                tasks.into_values().for_each(|task| task.abort());
                return Ok(());
            }
        }
    }
}

async fn serve(app: App, subscription: Arc<Subscription>) {
    let id = subscription.id;
    if let Err(error) = (Delivery { app, subscription, seen: Cursor::default() }).run().await {
        tracing::warn!(%error, subscription = %id, "deliveries to a webhook stop");
    }
}

struct Delivery {
    app: App,
    subscription: Arc<Subscription>,
    /// How far events have been looked at.
    seen: Cursor,
}

impl Delivery {
    async fn run(mut self) -> Result<(), Lagging> {
        let url = self.subscription.url.clone().unwrap_or_default();
        let Ok(url) = parse(&url) else { return Ok(()) };
        self.seen = self.subscription.delivered;
        let mut follower = self.app.engine().follow(self.seen).await?;
        loop {
            let unseen = follower.next().await?;
            let subjects = self.app.engine().apply(SubjectOf(self.subscription.id)).await?;
            for published in unseen.iter() {
                let event = published.event();
                if let Some(body) = self.body(event, &subjects)
                    && self.deliver(&url, event.cursor, &body).await?.is_none()
                {
                    return Ok(());
                }
                self.seen = event.cursor;
            }
            if self.seen.0 - self.subscription.delivered.0 > UNWRITTEN_MAX && self.note(Ok(self.seen)).await?.is_none()
            {
                return Ok(());
            }
        }
    }

    /// The event as it is posted, if it is asked for.
    fn body(&self, event: &Event, subjects: &[IntentId]) -> Option<Value> {
        let (_, id) = model::intent_in(&event.resources)?;
        let told = events::tell(event).filter(|_| subjects.contains(&id))?;
        let types = &self.subscription.event_types;
        let is_asked = types.is_empty() || types.iter().any(|name| **name == *told.kind);
        let mut body = is_asked.then(|| told.view(event, Some(id)))?;
        body.as_object_mut()?.insert("subscription_id".to_owned(), self.subscription.id.to_string().into());
        Some(body)
    }

    /// Posts until it is accepted; nothing if the subscription is gone.
    async fn deliver(&mut self, url: &Url, cursor: Cursor, body: &Value) -> Result<Option<()>, Lagging> {
        loop {
            if let Some(at) = self.subscription.next_at {
                let wait = at.ms_since(self.app.engine().now());
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            if !self.subscription.is_active(self.app.engine().now()) {
                return Ok(None);
            }
            let result = post(url, body.to_string()).await;
            let is_accepted = result.is_ok();
            if self.note(result.map(|()| cursor)).await?.is_none() {
                return Ok(None);
            }
            if is_accepted {
                return Ok(Some(()));
            }
        }
    }

    async fn note(&mut self, result: Result<Cursor, String>) -> Result<Option<()>, Lagging> {
        let command = Delivered { id: self.subscription.id, result: result.map_err(Into::into), jitter_permille: 0 };
        let Some(now) = self.app.engine().apply(command).await? else { return Ok(None) };
        self.subscription = now;
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_the_url_of_a_host() {
        for good in ["http://example.test:81/a?b=c", "http://example.test", "https://example.test", "http://[::1]:9/"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["", "example.test", "//example.test", "file:///etc/passwd", "http://", "https:///", "http://a b/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
