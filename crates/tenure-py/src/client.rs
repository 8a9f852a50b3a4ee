//! Owns the calls of the native API for Python. One object serves both styles: made `asynchronous`, every call gives
//! an asyncio future, otherwise it blocks.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;
use tenure::{Acquire, EventQuery, Lease, LeaseId, LeaseQuery, Mode, Status};

use crate::bridge::answer;
use crate::errors::raised;
use crate::events::Events;
use crate::guard::Guard;
use crate::json;
use crate::lanes::Lane;
use crate::own::Own;
use crate::runtime::{Place, tasks};

/// How to reach a server. After a fork the child makes connections of its own.
#[derive(Clone)]
pub(crate) struct Settings {
    url: String,
    api_key: Option<String>,
    holder: Option<String>,
    timeout: Option<f64>,
    patience: Option<f64>,
}

impl Settings {
    /// The error of the client is not an exception yet: making one runs Python, which may come back here.
    fn client(&self) -> PyResult<Result<tenure::Client, tenure::Error>> {
        let mut builder = tenure::Client::builder().url(&self.url);
        if let Some(key) = &self.api_key {
            builder = builder.api_key(key);
        }
        if let Some(holder) = &self.holder {
            builder = builder.holder(holder);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(seconds("timeout", timeout)?);
        }
        if let Some(patience) = self.patience {
            builder = builder.patience(seconds("patience", patience)?);
        }
        Ok(builder.build())
    }
}

/// A client with the connections that were made at one place.
#[derive(Clone)]
struct Connection {
    place: Place,
    client: tenure::Client,
}

impl Connection {
    /// Whether a call that starts now would not have to share its runtime with another.
    fn is_quiet(&self) -> bool {
        match &self.place {
            Place::Lane(lane) => lane.is_quiet(),
            Place::Tasks(_) => true,
        }
    }
}

/// The native API.
#[pyclass(frozen)]
pub(crate) struct Client {
    settings: Settings,
    asynchronous: bool,
    /// The one that was used last at the end. Locked only under the interpreter lock, never across a wait.
    connections: Mutex<Own<Vec<Connection>>>,
}

impl Client {
    /// A connection of this process for one call: the one that was used last, among those where nobody waits.
    fn connection(&self, py: Python<'_>) -> PyResult<Connection> {
        self.find_or_make(py)?.map_err(|error| raised(py, &error))
    }

    fn find_or_make(&self, py: Python<'_>) -> PyResult<Result<Connection, tenure::Error>> {
        let mut slot = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let known = slot.get_or_default();
        if let Some(quiet) = known.iter().rposition(Connection::is_quiet) {
            let connection = known.remove(quiet);
            known.push(connection.clone());
            return Ok(Ok(connection));
        }
        let place = if self.asynchronous { Place::Tasks(tasks(py)?) } else { Place::Lane(Lane::quietest(py)?) };
        if let Some(shared) = known.iter().find(|connection| connection.place.is(&place)) {
            return Ok(Ok(shared.clone()));
        }
        let client = match known.first() {
            Some(first) => first.client.with_own_connections(),
            None => self.settings.client()?,
        };
        Ok(client.map(|client| {
            let connection = Connection { place, client };
            known.push(connection.clone());
            connection
        }))
    }

    /// A client for what goes on beside Python.
    pub(crate) fn background(&self, py: Python<'_>) -> PyResult<tenure::Client> {
        match self.connection(py)? {
            Connection { place: Place::Tasks(_), client } => Ok(client),
            Connection { client, .. } => client.with_own_connections().map_err(|error| raised(py, &error)),
        }
    }

    /// A call whose answer is read in Rust.
    fn json<'py, T: Serialize + Send + 'static, F>(
        &self,
        py: Python<'py>,
        call: impl FnOnce(tenure::Client) -> F,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        F: Future<Output = Result<T, tenure::Error>> + Send + 'static,
    {
        let Connection { place, client } = self.connection(py)?;
        answer(py, &place, call(client), |py, value| json::to_python(py, &value))
    }

    /// A call whose answer is read in Python.
    fn text<'py, F>(&self, py: Python<'py>, call: impl FnOnce(tenure::Client) -> F) -> PyResult<Bound<'py, PyAny>>
    where
        F: Future<Output = Result<Vec<u8>, tenure::Error>> + Send + 'static,
    {
        let Connection { place, client } = self.connection(py)?;
        answer(py, &place, call(client), |py, said| json::answer_to_python(py, &said))
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, api_key, holder, timeout, patience, asynchronous))]
    fn new(
        py: Python<'_>,
        url: String,
        api_key: Option<String>,
        holder: Option<String>,
        timeout: Option<f64>,
        patience: Option<f64>,
        asynchronous: bool,
    ) -> PyResult<Client> {
        let settings = Settings { url, api_key, holder, timeout, patience };
        let client = Client { settings, asynchronous, connections: Mutex::new(Own::nothing()) };
        client.connection(py)?;
        Ok(client)
    }

    #[getter]
    fn url(&self) -> &str {
        &self.settings.url
    }

    #[getter]
    fn holder(&self) -> Option<&str> {
        self.settings.holder.as_deref()
    }

    /// A guard. `options` are those of [`request`].
    fn acquire<'py>(
        &self,
        py: Python<'py>,
        resources: Vec<String>,
        options: Options<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let waits = options.wait.is_some();
        let request = options.request(resources)?;
        let Connection { place, client } = self.connection(py)?;
        let acquire = Box::pin(async move { client.acquire(request).await });
        let grant = Granting { acquire: Some(acquire), waits, place: place.clone() };
        answer(py, &place.clone(), grant, |py, lease| Ok(Py::new(py, Guard::new(lease, place))?.into_any()))
    }

    /// A lease that nobody keeps alive.
    fn acquire_without_heartbeat<'py>(
        &self,
        py: Python<'py>,
        resources: Vec<String>,
        options: Options<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = options.request(resources)?;
        self.json(py, |client| async move { client.acquire_without_heartbeat(request).await })
    }

    fn renew<'py>(&self, py: Python<'py>, id: &str, ttl: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let (id, ttl) = (lease_id(id)?, ttl.map(|ttl| seconds("ttl", ttl)).transpose()?);
        self.json(py, |client| async move { client.renew(id, ttl).await })
    }

    fn release<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyAny>> {
        let id = lease_id(id)?;
        self.json(py, |client| async move { client.release(id).await })
    }

    fn revoke<'py>(&self, py: Python<'py>, id: &str, reason: String) -> PyResult<Bound<'py, PyAny>> {
        let id = lease_id(id)?;
        self.json(py, |client| async move { client.revoke(id, &reason).await })
    }

    fn check<'py>(&self, py: Python<'py>, resources: Vec<String>, shared: bool) -> PyResult<Bound<'py, PyAny>> {
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        self.json(py, |client| async move { client.check(resources, mode).await })
    }

    fn lease<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyAny>> {
        let id = lease_id(id)?;
        self.json(py, |client| async move { client.lease(id).await })
    }

    fn history<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyAny>> {
        let id = lease_id(id)?;
        self.json(py, |client| async move { client.history(id).await })
    }

    /// One page, as the server gives it.
    fn leases<'py>(
        &self,
        py: Python<'py>,
        resource: Option<String>,
        holder: Option<String>,
        status: Option<&str>,
        after: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut query = LeaseQuery::default();
        if let Some(resource) = resource {
            query = query.resource(resource);
        }
        if let Some(holder) = holder {
            query = query.holder(holder);
        }
        if let Some(word) = status {
            query = query.status(status_of(word)?);
        }
        if let Some(after) = after {
            query = query.after(after);
        }
        self.json(py, |client| async move { client.leases(&query).await })
    }

    /// One page, as the server gives it.
    fn events<'py>(
        &self,
        py: Python<'py>,
        after: u64,
        kind: Option<String>,
        resource: Option<String>,
        holder: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let query = event_query(Some(after), kind, resource, holder);
        self.json(py, |client| async move { client.events(&query).await })
    }

    /// Events as they happen, from `after` on; without it, from now on.
    #[pyo3(signature = (after, kind, resource, holder))]
    fn watch(
        &self,
        py: Python<'_>,
        after: Option<u64>,
        kind: Option<String>,
        resource: Option<String>,
        holder: Option<String>,
    ) -> PyResult<Events> {
        let query = event_query(after, kind, resource, holder);
        let Connection { place, client } = self.connection(py)?;
        Ok(Events::new(client.watch(query), place))
    }

    /// Any call of the OpenIntent door, below `/api/v1`.
    fn intents<'py>(
        &self,
        py: Python<'py>,
        method: String,
        path: String,
        body: Option<Bound<'py, PyAny>>,
        if_match: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let body = body.map(|body| json::text_from_python(&body)).transpose()?;
        self.text(py, |client| async move { client.intents().request_text(&method, &path, body, if_match).await })
    }

    /// Any call of the Conductor door, below `/api`.
    fn tasks<'py>(
        &self,
        py: Python<'py>,
        method: String,
        path: String,
        body: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let body = body.map(|body| json::text_from_python(&body)).transpose()?;
        self.text(py, |client| async move { client.tasks().request_text(&method, &path, body).await })
    }

    fn version<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.json(py, |client| async move { client.version().await })
    }
}

/// What an acquire may say beside the resources, as a Python tuple or object with these attributes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options<'py> {
    ttl: Option<f64>,
    wait: Option<f64>,
    shared: bool,
    grace: Option<f64>,
    within: Option<String>,
    metadata: Option<Bound<'py, PyAny>>,
    key: Option<String>,
}

impl Options<'_> {
    fn request(self, resources: Vec<String>) -> PyResult<Acquire> {
        let mut request = Acquire::all(resources);
        if let Some(ttl) = self.ttl {
            request = request.ttl(seconds("ttl", ttl)?);
        }
        if let Some(wait) = self.wait {
            request = request.wait(seconds("wait", wait)?);
        }
        if self.shared {
            request = request.shared();
        }
        if let Some(grace) = self.grace {
            request = request.grace(seconds("grace", grace)?);
        }
        if let Some(parent) = &self.within {
            request = request.within_id(lease_id(parent)?);
        }
        if let Some(metadata) = &self.metadata {
            request = request.metadata(json::from_python(metadata)?);
        }
        if let Some(key) = self.key {
            request = request.idempotency_key(key);
        }
        Ok(request)
    }
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Lease, tenure::Error>> + Send>>;

/// Acquires for somebody who may go away meanwhile: then a wait ends at once, and what was granted is given back.
struct Granting {
    acquire: Option<Acquiring>,
    waits: bool,
    place: Place,
}

impl Future for Granting {
    type Output = Result<Lease, tenure::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(acquire) = &mut self.acquire else { return Poll::Pending };
        let result = ready!(acquire.as_mut().poll(context));
        self.acquire = None;
        Poll::Ready(result)
    }
}

impl Drop for Granting {
    fn drop(&mut self) {
        if let Some(acquire) = self.acquire.take().filter(|_| !self.waits) {
            self.place.detach(async move {
                if let Ok(lease) = acquire.await {
                    // Nobody is left to be told if this fails; then it lapses.
                    let _ = lease.release().await;
                }
            });
        }
    }
}

pub(crate) fn seconds(what: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{what} must be a number of seconds, not {value}")))
}

fn lease_id(text: &str) -> PyResult<LeaseId> {
    text.parse().map_err(|_| PyValueError::new_err(format!("{text:?} is not the id of a lease")))
}

fn status_of(word: &str) -> PyResult<Status> {
    serde_json::from_value(word.into())
        .map_err(|_| PyValueError::new_err(format!("{word:?} is no status: active, released, expired or revoked")))
}

fn event_query(
    after: Option<u64>,
    kind: Option<String>,
    resource: Option<String>,
    holder: Option<String>,
) -> EventQuery {
    let query = after.into_iter().fold(EventQuery::default(), EventQuery::after);
    let query = kind.into_iter().fold(query, EventQuery::kind);
    let query = resource.into_iter().fold(query, EventQuery::resource);
    holder.into_iter().fold(query, EventQuery::holder)
}
