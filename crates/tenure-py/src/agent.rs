//! Owns the Rust agent as Python uses it: handlers are Python functions that are started by `dispatch`.

use std::sync::Arc;

use pyo3::prelude::*;
use serde_json::{Map, Value};
use tenure::{Handled, SignalKind};
use tokio::sync::Notify;

use crate::client::{Client, seconds};
use crate::errors::raised;
use crate::runtime::{block, tasks};
use crate::{json, work};

/// What an agent listens to, and how it leases.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    ttl: f64,
    wait: f64,
    drain: f64,
    leases: bool,
    concurrency: usize,
    scopes: Vec<String>,
    members: Vec<String>,
    changes: bool,
    /// Registers it as one that can do this.
    capabilities: Option<Vec<String>>,
}

/// A running agent.
#[pyclass(frozen)]
pub(crate) struct Agent {
    stop: Arc<Notify>,
}

#[pymethods]
impl Agent {
    #[new]
    fn new() -> Agent {
        Agent { stop: Arc::new(Notify::new()) }
    }

    /// Works until `stop`; blocks without the interpreter lock. `dispatch(kind, intent, details, done)` starts a handler.
    fn run(&self, py: Python<'_>, client: &Client, settings: Settings, dispatch: Py<PyAny>) -> PyResult<()> {
        let intents = client.background(py)?.intents();
        let dispatch = Arc::new(dispatch);
        let handler = move |work: tenure::Work| handle(Arc::clone(&dispatch), work);
        let mut agent = tenure::Agent::new(intents)
            .ttl(seconds("ttl", settings.ttl)?)
            .wait(seconds("wait", settings.wait)?)
            .drain(seconds("drain_timeout", settings.drain)?)
            .concurrency(settings.concurrency)
            .on_assignment(handler.clone())
            .on_retry(handler.clone())
            .on_complete(handler.clone());
        for scope in settings.scopes {
            agent = agent.on_lease_available(scope, handler.clone());
        }
        if settings.changes {
            agent = agent.on_state_change(settings.members, handler);
        }
        if let Some(capabilities) = settings.capabilities {
            agent = agent.registered(capabilities, tenure::AGENT_BEAT);
        }
        if !settings.leases {
            agent = agent.without_leases();
        }
        let stop = Arc::clone(&self.stop);
        // As a task of the runtime: an interrupt ends the wait here, and the agent by the same stop.
        let tasks = tasks(py)?;
        let running = tasks.spawn(async move { agent.run(stop.notified()).await });
        let _stop_on_interrupt = StopOnDrop(Arc::clone(&self.stop));
        match block(py, &tasks, running)? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(raised(py, &error)),
            Err(broken) => Err(pyo3::exceptions::PyRuntimeError::new_err(broken.to_string())),
        }
    }

    fn stop(&self) {
        self.stop.notify_one();
    }
}

struct StopOnDrop(Arc<Notify>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn handle(dispatch: Arc<Py<PyAny>>, work: tenure::Work) -> Handled {
    let (kind, details) = describe(&work);
    let intent = serde_json::to_value(&work.intent)?;
    let given = work::run(move |py, done| {
        let intent = json::to_python(py, &intent)?;
        dispatch.call1(py, (kind, intent, json::to_python(py, &details)?, done))
    });
    match given.await? {
        Value::Object(patch) => Ok(patch),
        _ => Ok(Map::new()),
    }
}

fn describe(work: &tenure::Work) -> (&'static str, Value) {
    let mut details = Map::new();
    if let Some(lease) = &work.lease {
        details.insert("lease_id".to_owned(), lease.id().to_string().into());
        details.insert("token".to_owned(), lease.token().as_u64().into());
    }
    let mut set = |name: &str, value: Value| details.insert(name.to_owned(), value);
    let kind = match &work.signal {
        SignalKind::Retried { attempt, last_error } => {
            set("attempt", (*attempt).into());
            set("last_error", last_error.clone());
            "retry"
        }
        SignalKind::LeaseAvailable { scope } => {
            set("scope", scope.clone().into());
            "lease_available"
        }
        SignalKind::StateChanged { old, new } => {
            set("old", old.clone().into());
            set("new", new.clone().into());
            "state_change"
        }
        SignalKind::Completed => "complete",
        _ => "assignment",
    };
    (kind, details.into())
}
