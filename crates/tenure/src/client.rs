//! Owns the calls to the server. Each call is tried again while the server cannot be reached, for as long as the
//! client's patience lasts, if sending it twice does no harm.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_core::heartbeat::Beat;
use tenure_core::{LeaseId, Ttl};

use crate::beat::Heart;
use crate::beat::clock::{Clock, Moment, SystemClock};
use crate::beat::pulse::Pulse;
use crate::beat::schedule::Answer;
use crate::door;
use crate::error::{Error, Problem, Refusal};
use crate::events::Events;
use crate::guard::{Lease, Loss};
use crate::model::{Check, Event, EventPage, LeaseInfo, LeasePage, Mode, Renewal, Status};
use crate::request::{Acquire, EventQuery, LeaseQuery, in_seconds};
use crate::transport::{Address, Call, Exchange, IDEMPOTENCY_KEY, Transport, header, setup};

/// Where a server is looked for if nothing else is said.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8000";

/// How long one try of a call may take, without the time it waits in line.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call is tried again while the server cannot be reached: a restart takes less.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take to make the copy that a backup is read from.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two tries: about this long at first, doubling up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Sets up a [`Client`].
#[derive(Debug, Clone, Default)]
pub struct ClientBuilder {
    url: Option<String>,
    api_key: Option<String>,
    holder: Option<String>,
    timeout: Option<Duration>,
    patience: Option<Duration>,
    ca_pem: Option<Vec<u8>>,
}

impl ClientBuilder {
    /// Where the server is; [`DEFAULT_URL`] if not said.
    pub fn url(mut self, url: impl Into<String>) -> ClientBuilder {
        self.url = Some(url.into());
        self
    }

    /// The API key, for a server that wants one.
    pub fn api_key(mut self, key: impl Into<String>) -> ClientBuilder {
        self.api_key = Some(key.into());
        self
    }

    /// In whose name leases are taken. Two workers that share a name share their leases, so the name should be
    /// unique to the process. May be left out if the API key stands for one holder.
    pub fn holder(mut self, holder: impl Into<String>) -> ClientBuilder {
        self.holder = Some(holder.into());
        self
    }

    /// How long one try of a call may take (10 s), without the time an acquire waits in line.
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = Some(timeout);
        self
    }

    /// How long a call is tried again while the server cannot be reached (10 s); zero tries once.
    /// The heartbeat does not use it: it tries for as long as a lease is trusted.
    pub fn patience(mut self, patience: Duration) -> ClientBuilder {
        self.patience = Some(patience);
        self
    }

    /// Certificates (PEM) to trust beside those of the machine.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> ClientBuilder {
        self.ca_pem = Some(pem.into());
        self
    }

    /// The client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Setup`] if the URL, the holder or the key cannot be used in a request.
    pub fn build(self) -> Result<Client, Error> {
        let text = self.url.as_deref().unwrap_or(DEFAULT_URL);
        let url = Url::parse(text).map_err(|error| setup(&format!("{text:?} is not a URL"), error))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            let what = format!("{text:?} is not the URL of a server: it starts with http:// or https://");
            return Err(Error::Setup { what, source: None });
        }
        let address = Address { url, holder: self.holder, api_key: self.api_key, ca_pem: self.ca_pem };
        Ok(Client {
            transport: Arc::new(Transport::new(&address)?),
            shared: Arc::new(Shared {
                address,
                timeout: self.timeout.unwrap_or(DEFAULT_TIMEOUT),
                patience: self.patience.unwrap_or(DEFAULT_PATIENCE),
                heart: Mutex::new(None),
                clock: Box::new(SystemClock),
            }),
        })
    }
}

struct Shared {
    address: Address,
    timeout: Duration,
    patience: Duration,
    heart: Mutex<Option<Arc<Heart>>>,
    clock: Box<dyn Clock>,
}

/// A connection to a server. Cheap to clone; all clones and their guards share one heartbeat thread.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.address.fmt(f)
    }
}

impl Client {
    /// Sets up a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The same client with connections of its own, for another runtime: connections belong to the runtime that made
    /// them. The guards of both share one heartbeat thread.
    ///
    /// # Errors
    /// [`Error::Setup`] if the connections cannot be prepared.
    pub fn with_own_connections(&self) -> Result<Client, Error> {
        let transport = Arc::new(Transport::new(&self.shared.address)?);
        Ok(Client { transport, shared: Arc::clone(&self.shared) })
    }

    /// In whose name this client acts, if it was told.
    pub fn holder(&self) -> Option<&str> {
        self.shared.address.holder.as_deref()
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        self.shared.address.url.as_str()
    }

    /// Acquires, and keeps the lease alive for as long as the guard lives.
    ///
    /// The request carries an idempotency key, so that a try whose answer was lost does not take the lease twice. If
    /// this future is dropped before it resolves, a wait ends at once; a grant that was under way lapses after its ttl.
    /// A key of one's own ([`Acquire::idempotency_key`]) gets the same lease again while it is active: see [`Lease`].
    ///
    /// # Errors
    /// [`crate::Refusal::Held`] names who has it; [`crate::Refusal::WaitTimedOut`] who still had it when the wait ran out.
    pub async fn acquire(&self, request: Acquire) -> Result<Lease, Error> {
        // Before the lease exists: without a heartbeat it would lapse.
        let heart = self.heart()?;
        let keyed = request.key.is_some();
        let mut sent_at = self.now();
        let mut info = self.acquire_without_heartbeat(request).await?;
        let mut beat = pace(info.ttl_ms, self.url())?;
        // The ttl runs from the grant, and all that is certain about the grant is that it came after the request was
        // sent. After a wait or a retry that is too long ago to build on, so the lease is renewed once. And a key that was
        // used before gets the old grant, which may be about to run out.
        if self.now().since(sent_at) > beat.interval() || keyed && !is_new(&info) {
            sent_at = self.now();
            let renewal = self.renew(info.id, None).await?;
            beat = pace(renewal.ttl_ms, self.url())?;
            info.ttl_ms = renewal.ttl_ms;
            info.expires_at = renewal.expires_at.or(info.expires_at);
        }
        let pulse = Arc::new(Pulse::new(info.id, sent_at.plus(beat.trusted_for())).within(info.within));
        heart.keep(Arc::clone(&pulse), beat, sent_at);
        Ok(Lease::new(info, pulse, heart, self.clone()))
    }

    /// Acquires without keeping it alive: the lease ends after its ttl unless somebody renews it.
    ///
    /// # Errors
    /// As [`Client::acquire`].
    pub async fn acquire_without_heartbeat(&self, mut request: Acquire) -> Result<LeaseInfo, Error> {
        let key = request.key.get_or_insert_with(|| uuid::Uuid::new_v4().to_string()).clone();
        let asked = request.wait.unwrap_or_default();
        let start = self.now();
        let mut pause = Pause::new(asked.saturating_add(self.shared.patience));
        let mut left = asked;
        loop {
            let mut call = self.call(Method::POST, "/v1/leases").body(&request.named(self.holder()));
            call.headers.push((IDEMPOTENCY_KEY, header("the idempotency key", &key)?));
            call.timeout = self.shared.timeout.saturating_add(left);
            match self.transport.call::<LeaseInfo>(&call).await {
                Ok(info) if info.status == Status::Active => return Ok(info),
                Ok(info) => return Err(over(&info)),
                Err(error) => {
                    let error = if asked.is_zero() { error } else { after_a_wait(error) };
                    pause.before_retry(error, self.now().since(start)).await?;
                }
            }
            // The next try waits for what is left of the wait.
            left = asked.saturating_sub(self.now().since(start));
            request.wait = request.wait.map(|_| left);
        }
    }

    /// Renews a lease of this holder, with another ttl from now on if one is given. The guards that this client and its
    /// clones have of it take the new ttl over. While it is not known whether the server has, they trust the shorter one.
    ///
    /// **A shorter ttl takes trust away from whoever keeps the lease elsewhere**: another client or process believes in
    /// the ttl that it knows until its next heartbeat, a third of that ttl later at most, and the lease may be another's by
    /// then. Stop the work there first.
    ///
    /// # Errors
    /// [`crate::Refusal::Lost`] says how it ended and who holds it now; [`crate::Refusal::UnknownLease`].
    pub async fn renew(&self, id: LeaseId, ttl: Option<Duration>) -> Result<Renewal, Error> {
        #[derive(Serialize)]
        struct Ask {
            #[serde(skip_serializing_if = "Option::is_none")]
            ttl_seconds: Option<f64>,
        }
        let body = Ask { ttl_seconds: ttl.map(in_seconds) };
        let sent_at = self.now();
        let asked = ttl.and_then(|ttl| self.asked(sent_at, id, ttl));
        let call = self.call(Method::POST, format!("/v1/leases/{id}/renew")).body(&body);
        let renewed: Result<Renewal, Error> = self.persist(call).await;
        let answer = match &renewed {
            Ok(renewal) => Ttl::from_ms_native(renewal.ttl_ms).ok().map(Answer::Renewed),
            Err(error) => Loss::of(error).map(Answer::Lost),
        };
        if let (Some(heart), Some(answer)) = (self.beating(), answer) {
            heart.answered(self.now(), sent_at, id, answer);
            if let Some(mut asked) = asked {
                asked.is_answered = true;
            }
        }
        renewed
    }

    /// Tells the guards that another ttl is asked for. Nothing if the server will refuse it.
    fn asked(&self, sent_at: Moment, id: LeaseId, ttl: Duration) -> Option<Asked<'_>> {
        let heart = self.beating()?;
        let ttl = Ttl::from_ms_native(u64::try_from(ttl.as_millis()).ok()?).ok()?;
        heart.asked(sent_at, id, ttl);
        Some(Asked { heart, id, client: self, is_answered: false })
    }

    /// Gives a lease of this holder back. Doing it twice is no error. Guards that this client and its clones have of it have
    /// lost it.
    ///
    /// # Errors
    /// [`crate::Refusal::Lost`] if it had ended otherwise; [`crate::Refusal::NotHolder`] names whose it is.
    pub async fn release(&self, id: LeaseId) -> Result<LeaseInfo, Error> {
        // Before it is sent: the next one may have it before the answer is here.
        if let Some(heart) = self.beating() {
            heart.give_up(id);
        }
        let answer = self.persist_unread(self.release_call(id)).await?;
        self.released(&answer)
    }

    /// As [`Client::release`], for a guard. Its connections may have died without a word while the work ran. So one try gets
    /// half of the patience, and the next has a new connection; all of it takes no longer than the patience.
    pub(crate) async fn give_back(&self, id: LeaseId) -> Result<(), Error> {
        let (start, patience) = (self.now(), self.shared.patience);
        let mut pause = Pause::new(patience);
        let mut call = self.release_call(id);
        let mut transport = Arc::clone(&self.transport);
        loop {
            if !patience.is_zero() {
                let left = patience.saturating_sub(self.now().since(start));
                call.timeout = self.shared.timeout.min(patience / 2).min(left);
            }
            match transport.send(&call).await {
                // Reading a lease that nobody looks at costs more than all else that is done here.
                Ok(answer) => return self.released::<serde::de::IgnoredAny>(&answer).map(drop),
                Err(error) => pause.before_retry(error, self.now().since(start)).await?,
            }
            transport = Arc::new(Transport::new(&self.shared.address)?);
        }
    }

    fn release_call(&self, id: LeaseId) -> Call {
        self.call(Method::DELETE, format!("/v1/leases/{id}"))
    }

    /// The answer to a release, as far as it is wanted.
    fn released<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Error> {
        #[derive(Deserialize)]
        struct Became {
            status: Status,
        }
        let transport = &self.transport;
        match transport.read::<Became>(answer)?.status {
            Status::Released | Status::Active => transport.read(answer),
            Status::Expired | Status::Revoked => Err(over(&transport.read(answer)?)),
        }
    }

    /// Takes a lease away from its holder. Needs the admin role; the holder is told the reason. Guards that this client and its
    /// clones have of it have lost it.
    ///
    /// # Errors
    /// [`crate::Refusal::Forbidden`] without the role. It is sent once: a lost answer says nothing about what was done.
    pub async fn revoke(&self, id: LeaseId, reason: &str) -> Result<LeaseInfo, Error> {
        let call = self.call(Method::POST, format!("/v1/leases/{id}/revoke")).body(&json!({ "reason": reason }));
        let sent_at = self.now();
        let revoked: LeaseInfo = self.transport.call(&call).await?;
        if let (Some(heart), Some(loss)) = (self.beating(), Loss::of(&over(&revoked))) {
            heart.answered(self.now(), sent_at, id, Answer::Lost(loss));
        }
        Ok(revoked)
    }

    /// Who would stop an acquire of these resources, without taking anything.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn check(
        &self,
        resources: impl IntoIterator<Item = impl Into<String>>,
        mode: Mode,
    ) -> Result<Check, Error> {
        self.check_but_for(resources, mode, None).await
    }

    /// As [`Client::check`], but leases of this client's holder do not count: is somebody else in the way?
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn check_others(
        &self,
        resources: impl IntoIterator<Item = impl Into<String>>,
        mode: Mode,
    ) -> Result<Check, Error> {
        self.check_but_for(resources, mode, self.holder()).await
    }

    async fn check_but_for(
        &self,
        resources: impl IntoIterator<Item = impl Into<String>>,
        mode: Mode,
        holder: Option<&str>,
    ) -> Result<Check, Error> {
        let resources: Vec<String> = resources.into_iter().map(Into::into).collect();
        #[derive(Serialize)]
        struct Ask<'a> {
            resources: Vec<String>,
            mode: Mode,
            #[serde(skip_serializing_if = "Option::is_none")]
            holder: Option<&'a str>,
        }
        let body = Ask { resources, mode, holder };
        self.persist(self.call(Method::POST, "/v1/leases/check").body(&body)).await
    }

    /// One page of leases.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn leases(&self, query: &LeaseQuery) -> Result<LeasePage, Error> {
        self.persist(self.call(Method::GET, "/v1/leases").query(query)).await
    }

    /// One lease, also after it has ended.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownLease`].
    pub async fn lease(&self, id: LeaseId) -> Result<LeaseInfo, Error> {
        self.persist(self.call(Method::GET, format!("/v1/leases/{id}"))).await
    }

    /// What happened to one lease, oldest first.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownLease`].
    pub async fn history(&self, id: LeaseId) -> Result<Vec<Event>, Error> {
        #[derive(Deserialize)]
        struct History {
            events: Vec<Event>,
        }
        let history: History = self.persist(self.call(Method::GET, format!("/v1/leases/{id}/events"))).await?;
        Ok(history.events)
    }

    /// One page of events.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage, Error> {
        self.persist(self.call(Method::GET, "/v1/events").query(query)).await
    }

    /// Events as they happen, from [`EventQuery::after`] on; without it, from now on. Nothing is skipped: a broken
    /// connection is made again and continues where it broke.
    pub fn watch(&self, query: EventQuery) -> Events {
        Events::new(self.transport(), query, self.shared.timeout)
    }

    /// Downloads everything that is committed as one SQLite file, piece by piece, while the server goes on. Needs the
    /// admin role. Returns its length in bytes.
    ///
    /// # Errors
    /// [`Error::Setup`] if `write` fails; the file is whole only if this returns `Ok`.
    pub async fn backup(&self, mut write: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<u64, Error> {
        // Making the copy takes as long as the data is large.
        let call = Call::new(Method::GET, "/v1/backup", BACKUP_TIMEOUT);
        let transport = &self.transport;
        let mut response = transport.open(&call).await?;
        let mut length = 0;
        while let Some(piece) = response.chunk().await.map_err(|error| transport.unreachable(error))? {
            write(&piece).map_err(|error| setup("the backup cannot be written", error))?;
            length += piece.len() as u64;
        }
        Ok(length)
    }

    /// Runs a workflow file; gives back the run as the server shows it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn run_workflow(&self, file: &str) -> Result<Value, Error> {
        // Sent once: a second send would be a second run.
        let call = self.call(Method::POST, "/v1/workflows").body(&json!({ "file": file }));
        self.transport.call(&call).await
    }

    /// A run of a workflow.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn workflow(&self, id: &str) -> Result<Value, Error> {
        let path: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        self.persist(self.call(Method::GET, format!("/v1/workflows/{path}"))).await
    }

    /// The server's version document.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn version(&self) -> Result<Value, Error> {
        self.persist(self.call(Method::GET, "/version")).await
    }

    /// A client of nobody, with this clock.
    #[cfg(test)]
    pub(crate) fn with_clock(clock: impl Clock) -> Client {
        let Client { transport, shared } = Client::builder().build().expect("a client");
        let shared = Arc::into_inner(shared).map(|shared| Shared { clock: Box::new(clock), ..shared });
        Client { transport, shared: Arc::new(shared.expect("the only one")) }
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    pub(crate) fn call(&self, method: Method, path: impl Into<Cow<'static, str>>) -> Call {
        Call::new(method, path, self.shared.timeout)
    }

    /// A call to a door that speaks another protocol; `path` is below `base` and may have a query.
    pub(crate) fn call_below(&self, base: &str, method: Method, path: &str, body: Option<Bytes>) -> Call {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut call = self.call(method, format!("{base}{path}"));
        call.raw_query = (!query.is_empty()).then(|| query.to_owned());
        call.body = body;
        call
    }

    /// Sends a call that may be sent twice until it is answered or patience ends.
    async fn persist<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let answer = self.persist_unread(call).await?;
        self.transport.read(&answer)
    }

    async fn persist_unread(&self, call: Call) -> Result<Bytes, Error> {
        let start = self.now();
        let mut pause = Pause::new(self.shared.patience);
        loop {
            match self.transport.send(&call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => pause.before_retry(error, self.now().since(start)).await?,
            }
        }
    }

    /// One call to a door that speaks another protocol. A call that may be `repeated` is tried again like any other.
    pub(crate) async fn exchange(&self, call: Call, repeated: bool) -> Result<Value, Error> {
        self.exchange_unread(call, repeated).await.map(|(answer, _)| door::value(&answer))
    }

    /// The same, with an answer that has this shape.
    pub(crate) async fn exchange_typed<T: DeserializeOwned>(&self, call: Call, repeated: bool) -> Result<T, Error> {
        let (answer, _) = self.exchange_unread(call, repeated).await?;
        self.transport.read(&answer)
    }

    /// The answer as it came; what the server says beside it about the lease that the call relied on comes with it.
    pub(crate) async fn exchange_unread(&self, call: Call, repeated: bool) -> Result<(Bytes, Option<String>), Error> {
        let start = self.now();
        let mut pause = Pause::new(if repeated { self.shared.patience } else { Duration::ZERO });
        let once = async || {
            let Exchange { status, lease, body } = self.transport.exchange(&call).await?;
            Ok((door::accepted(self.url(), status, body)?, lease))
        };
        loop {
            match once().await {
                Ok(answer) => return Ok(answer),
                Err(error) => pause.before_retry(error, self.now().since(start)).await?,
            }
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        Transport::clone(&self.transport)
    }

    /// The heartbeat, if it has started.
    fn beating(&self) -> Option<Arc<Heart>> {
        self.shared.heart.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn heart(&self) -> Result<Arc<Heart>, Error> {
        let mut heart = self.shared.heart.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(heart) = &*heart {
            return Ok(Arc::clone(heart));
        }
        // Connections belong to the runtime that made them, so the heartbeat has its own.
        let transport = Transport::for_heartbeat(&self.shared.address)?;
        let started =
            Heart::start(transport).map_err(|error| setup("the heartbeat thread cannot be started", error))?;
        Ok(Arc::clone(heart.insert(Arc::new(started))))
    }
}

/// A renewal with a ttl of its own, from when it is sent until it is answered or nobody waits for that any more.
struct Asked<'a> {
    heart: Arc<Heart>,
    id: LeaseId,
    client: &'a Client,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let given_up = (!self.is_answered).then(|| self.client.now());
        self.heart.settled(self.id, given_up);
    }
}

/// The growing pauses between the tries of one call.
struct Pause {
    next: Duration,
    patience: Duration,
}

impl Pause {
    fn new(patience: Duration) -> Pause {
        Pause { next: RETRY_FIRST, patience }
    }

    /// Sleeps before the next try, or gives the error back if there is none.
    async fn before_retry(&mut self, error: Error, elapsed: Duration) -> Result<(), Error> {
        let pause = error.retry_after().unwrap_or_default().max(self.next.mul_f64(0.5 + rand::random::<f64>()));
        if !error.is_transient() || elapsed.saturating_add(pause) >= self.patience {
            return Err(error);
        }
        tracing::debug!("trying again in {pause:?}: {error}");
        tokio::time::sleep(pause).await;
        self.next = (self.next * 2).min(RETRY_MAX);
        Ok(())
    }
}

/// How an acquire that was to wait has failed. A server that came back after the wait was used up is asked without one, and says
/// only that it is held.
fn after_a_wait(error: Error) -> Error {
    match error {
        Error::Refused(refused) if matches!(refused.why, Refusal::Held(_)) => {
            let (code, title) = ("wait_timed_out".to_owned(), "The wait ran out".to_owned());
            let detail = format!("the wait ran out: {}", refused.problem.detail);
            Problem { status: 408, code, title, detail, ..refused.problem }.into()
        }
        other => other,
    }
}

fn pace(ttl_ms: u64, url: &str) -> Result<Beat, Error> {
    let ttl = Ttl::from_ms_native(ttl_ms).map_err(|error| Error::BadAnswer {
        url: url.to_owned(),
        what: "a lease with an impossible ttl".to_owned(),
        source: Some(error.into()),
    })?;
    Ok(Beat::new(ttl))
}

/// Whether the answer to an acquire tells of a grant that was made for it, or just before. Both times are the server's. The request
/// left before the answer, so what is trusted too long is no more than this age: a tenth of the margin.
fn is_new(info: &LeaseInfo) -> bool {
    let (Some(granted), Some(answered)) = (info.acquired_at, info.server_time) else { return false };
    answered.duration_since(granted).is_ok_and(|age| age * 200 <= Duration::from_millis(info.ttl_ms))
}

/// A lease that the server shows as ended where a living one was asked for: the answer to a retried acquire, or to the
/// release of a lease that was lost before.
fn over(info: &LeaseInfo) -> Error {
    let mut problem = Problem::new("lost", format!("{} has ended before: it was {}", info.id, info.status));
    let shown = serde_json::to_value(info).unwrap_or_default();
    for (name, member) in [("reason", "status"), ("ended_at", "ended_at"), ("holder", "holder"), ("note", "note")] {
        if let Some(value) = shown.get(member) {
            problem.more.insert(name.to_owned(), value.clone());
        }
    }
    problem.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_its_own_connections_shares_the_heartbeat() {
        let client = Client::builder().holder("a").build().unwrap();
        let apart = client.with_own_connections().unwrap();
        assert!(!Arc::ptr_eq(&client.transport, &apart.transport));
        assert!(Arc::ptr_eq(&client.heart().unwrap(), &apart.heart().unwrap()));
    }
}
