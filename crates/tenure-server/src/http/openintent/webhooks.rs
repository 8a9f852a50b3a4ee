//! Owns deliveries to webhooks: each subscription with a URL has a task that posts its events in order, each until it is
//! accepted. How far it has come is kept by the ledger, so a delivery outlives this process: at least once, never skipped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tenure_core::event::{Cursor, Event};
use tenure_core::ledger::subscriptions::{Delivered, ListSubscriptions, SubjectOf};
use tenure_core::serial::{IntentId, SubscriptionId};
use tenure_core::subscription::Subscription;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{events, model};
use crate::engine::{Lagging, Unavailable};
use crate::http::App;

/// How long one delivery may take, from the connection to the answer.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(10);
/// After so many events that were not asked for, the place of a subscription is written down.
const UNWRITTEN_MAX: u64 = 10_000;

/// Where to post: `http://host[:port]/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    authority: String,
    path: String,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Target, &'static str> {
        let uri: hyper::Uri = url.parse().map_err(|_| "this is not a URL")?;
        if uri.scheme_str() != Some("http") {
            return Err("only http:// is delivered to; put a proxy in front of what needs TLS");
        }
        let host = uri.host().ok_or("the URL names no host")?;
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Target { authority, path })
    }

    /// Posts one event; what the receiver answers is read and dropped.
    async fn post(&self, body: String) -> Result<(), String> {
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let request = hyper::Request::post(&self.path)
            .header(hyper::header::HOST, &self.authority)
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .header(hyper::header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string());
        let status = answer.as_ref().map(|answer| answer.status()).map_err(Clone::clone);
        if let Ok(answer) = answer {
            answer.into_body().frame().await;
        }
        connection.abort();
        match status? {
            status if status.is_success() => Ok(()),
            status => Err(format!("the receiver answered {status}")),
        }
    }
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
        let Ok(target) = Target::parse(&url) else { return Ok(()) };
        self.seen = self.subscription.delivered;
        let mut follower = self.app.engine().follow(self.seen).await?;
        loop {
            let unseen = follower.next().await?;
            let subjects = self.app.engine().apply(SubjectOf(self.subscription.id)).await?;
            for published in unseen.iter() {
                let event = published.event();
                if let Some(body) = self.body(event, &subjects)
                    && self.deliver(&target, event.cursor, &body).await?.is_none()
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
    async fn deliver(&mut self, target: &Target, cursor: Cursor, body: &Value) -> Result<Option<()>, Lagging> {
        loop {
            if let Some(at) = self.subscription.next_at {
                let wait = at.ms_since(self.app.engine().now());
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            if !self.subscription.is_active(self.app.engine().now()) {
                return Ok(None);
            }
            let posted = tokio::time::timeout(DELIVERY_TIME_MAX, target.post(body.to_string())).await;
            let result = posted.unwrap_or_else(|_| Err("the receiver took too long".to_owned()));
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
    fn a_target_is_a_plain_url_of_a_host() {
        let target = Target::parse("http://example.test:81/a?b=c").expect("a target");
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("example.test:81", "/a?b=c"));
        assert_eq!(Target::parse("http://example.test").expect("a target").path, "/");
        for bad in ["", "example.test", "https://example.test", "file:///etc/passwd", "http://"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}
