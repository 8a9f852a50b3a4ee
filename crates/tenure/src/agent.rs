//! Owns an agent's life: it is told of work, takes the intent's lease before the handler runs, keeps it while the handler
//! runs, writes what the handler gives into the intent's state, and releases.
//!
//! ```text
//! assigned ──► lease intent:<id>/* ──► handler ──► patch state ──► release
//!                 (kept alive)           │ lease lost: the handler is dropped, nothing is written
//!                                        └ failed or panicked: reported, the lease is released, the retry policy decides
//! ```
//!
//! Relies on [`Client::acquire`](crate::Client::acquire) for the lease and on [`Signals`](crate::Signals) for the news.
//! A handler that is dropped stops at its next `await`; work that never awaits is fenced by the token alone.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::guard::{Lease, Loss};
use crate::intents::{Intent, Intents};
use crate::panics::caught;
use crate::request::Acquire;
use crate::signals::{Signal, SignalKind, Signals};

/// The ttl of the automatic lease if none is said.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// How long an assigned agent stands in line for an intent that somebody holds.
const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// How many signals are worked on at the same time if nothing is said.
const DEFAULT_CONCURRENCY: usize = 16;
/// How long handlers may finish after the agent was told to stop.
const DEFAULT_DRAIN: Duration = Duration::from_secs(30);

/// What a handler gives: members to set in the intent's state, or why it failed.
pub type Handled = Result<Map<String, Value>, Box<dyn std::error::Error + Send + Sync>>;
type Running = Pin<Box<dyn Future<Output = Handled> + Send>>;
type Handler = Arc<dyn Fn(Work) -> Running + Send + Sync>;

/// What a handler works on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Work {
    /// The intent, as it was when the work began.
    pub intent: Intent,
    /// Why the handler was called.
    pub signal: SignalKind,
    /// The lease on the whole intent, for assignments.
    pub lease: Option<Arc<Lease>>,
    /// Calls in the agent's name.
    pub intents: Intents,
}

impl Work {
    /// Leases one scope of the intent, within the lease on the whole if there is one.
    ///
    /// # Errors
    /// As [`crate::Client::acquire`].
    pub async fn acquire(&self, scope: &str, ttl: Duration) -> Result<Lease, Error> {
        let mut request = Acquire::one(format!("intent:{}/{scope}", self.intent.id)).ttl(ttl);
        if let Some(whole) = &self.lease {
            request = request.within(whole);
        }
        self.intents.client().acquire(request).await
    }
}

/// An agent: handlers, and how it leases.
#[derive(Clone)]
pub struct Agent {
    intents: Intents,
    ttl: Duration,
    wait: Duration,
    drain: Duration,
    leases: bool,
    registered: Option<(Vec<String>, Duration)>,
    slots: Arc<Semaphore>,
    assigned: Option<Handler>,
    retried: Option<Handler>,
    completed: Option<Handler>,
    available: HashMap<String, Handler>,
    changed: Vec<(Vec<String>, Handler)>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("intents", &self.intents).finish_non_exhaustive()
    }
}

/// Boxes a handler.
fn boxed<F, R>(handler: F) -> Handler
where
    F: Fn(Work) -> R + Send + Sync + 'static,
    R: Future<Output = Handled> + Send + 'static,
{
    Arc::new(move |work| Box::pin(handler(work)))
}

macro_rules! handlers {
    ($($(#[$doc:meta])* $name:ident => $field:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name<F, R>(mut self, handler: F) -> Agent
        where
            F: Fn(Work) -> R + Send + Sync + 'static,
            R: Future<Output = Handled> + Send + 'static,
        {
            self.$field = Some(boxed(handler));
            self
        }
    )*};
}

impl Agent {
    /// An agent with the name of the client's holder, without handlers.
    pub fn new(intents: Intents) -> Agent {
        Agent {
            intents,
            ttl: DEFAULT_TTL,
            wait: DEFAULT_WAIT,
            drain: DEFAULT_DRAIN,
            leases: true,
            registered: None,
            slots: Arc::new(Semaphore::new(DEFAULT_CONCURRENCY)),
            assigned: None,
            retried: None,
            completed: None,
            available: HashMap::new(),
            changed: Vec::new(),
        }
    }

    /// How long the automatic lease lasts if this process stops answering (30 s).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Agent {
        self.ttl = ttl;
        self
    }

    /// How long to stand in line for an assigned intent that somebody holds (5 min).
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Agent {
        self.wait = wait;
        self
    }

    /// How many handlers run at the same time (16).
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Agent {
        self.slots = Arc::new(Semaphore::new(handlers.max(1)));
        self
    }

    /// How long handlers may finish after the agent was told to stop (30 s).
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Agent {
        self.drain = drain;
        self
    }

    /// Leaves leasing to the handlers.
    #[must_use]
    pub fn without_leases(mut self) -> Agent {
        self.leases = false;
        self
    }

    /// Registers the agent while it runs, as one that can do this, and beats so often ([`crate::AGENT_BEAT`]).
    #[must_use]
    pub fn registered(mut self, capabilities: impl IntoIterator<Item = impl Into<String>>, beat: Duration) -> Agent {
        self.registered = Some((capabilities.into_iter().map(Into::into).collect(), beat));
        self
    }

    handlers! {
        /// Called for an intent that is assigned to this agent, with its lease.
        on_assignment => assigned;
        /// Called instead of [`Agent::on_assignment`] for another try.
        on_retry => retried;
        /// Called when an intent is complete.
        on_complete => completed;
    }

    /// Called when this scope of an intent becomes free; what it needs it leases itself, with [`Work::acquire`].
    #[must_use]
    pub fn on_lease_available<F, R>(mut self, scope: impl Into<String>, handler: F) -> Agent
    where
        F: Fn(Work) -> R + Send + Sync + 'static,
        R: Future<Output = Handled> + Send + 'static,
    {
        self.available.insert(scope.into(), boxed(handler));
        self
    }

    /// Called when one of these members of the state changes; of any member, if none is named.
    #[must_use]
    pub fn on_state_change<F, R>(mut self, members: impl IntoIterator<Item = impl Into<String>>, handler: F) -> Agent
    where
        F: Fn(Work) -> R + Send + Sync + 'static,
        R: Future<Output = Handled> + Send + 'static,
    {
        self.changed.push((members.into_iter().map(Into::into).collect(), boxed(handler)));
        self
    }

    /// Works until `stop` resolves; then lets the running handlers finish for a while. A failed handler does not end
    /// the agent.
    ///
    /// # Errors
    /// If the server refuses to tell this agent anything.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let mut signals = self.intents.signals()?;
        let (halt, halted) = watch::channel(false);
        let mut running = JoinSet::new();
        let mut known = std::pin::pin!(self.stay_known());
        let outcome = tokio::select! {
            () = stop => Ok(()),
            error = self.listen(&mut signals, &halted, &mut running) => Err(error),
            never = &mut known => match never {},
        };
        let finished = async { while running.join_next().await.is_some() {} };
        // Who falls silent while it drains would lose what its handlers hold.
        let drained = tokio::select! {
            drained = tokio::time::timeout(self.drain, finished) => drained,
            never = &mut known => match never {},
        };
        if drained.is_err() {
            // They are dropped where they stand, and what they hold is given back.
            let _ = halt.send(true);
            while running.join_next().await.is_some() {}
        }
        if self.registered.is_some() {
            // Who cannot say it is found out by its silence.
            let _ = self.intents.deregister().await;
        }
        outcome
    }

    /// Calls the handlers of what comes; why nothing more can come.
    async fn listen(&self, signals: &mut Signals, halted: &watch::Receiver<bool>, running: &mut JoinSet<()>) -> Error {
        loop {
            // Not begun again when a handler ends: what a connection has brought by then would be lost with it.
            let mut next = std::pin::pin!(signals.next());
            let signal = loop {
                tokio::select! {
                    signal = &mut next => break signal,
                    Some(_) = running.join_next() => {}
                }
            };
            match signal {
                Ok(signal) => self.dispatch(signal, halted, running),
                Err(error) => return error,
            }
        }
    }

    async fn stay_known(&self) -> Infallible {
        match &self.registered {
            Some((capabilities, beat)) => self.intents.stay_known(capabilities, *beat).await,
            None => std::future::pending().await,
        }
    }

    fn dispatch(&self, signal: Signal, halted: &watch::Receiver<bool>, running: &mut JoinSet<()>) {
        for handler in self.handlers(&signal.kind) {
            let (agent, signal, mut halted) = (self.clone(), signal.clone(), halted.clone());
            running.spawn(async move {
                let id = signal.intent_id.clone();
                let begun = tokio::select! {
                    begun = agent.begin(&signal) => begun,
                    () = is_halted(&mut halted) => return,
                };
                let done = match begun {
                    Ok((_slot, lease)) => agent.handle(signal, &handler, lease, &mut halted).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = done {
                    tracing::warn!(intent = %id, "work on intent {id} ended: {error}");
                }
            });
        }
    }

    fn handlers(&self, kind: &SignalKind) -> Vec<Handler> {
        let one = |handler: &Option<Handler>| handler.iter().cloned().collect();
        match kind {
            SignalKind::Assigned => one(&self.assigned),
            SignalKind::Retried { .. } => one(if self.retried.is_some() { &self.retried } else { &self.assigned }),
            SignalKind::Completed => one(&self.completed),
            SignalKind::LeaseAvailable { scope } => self.available.get(scope).cloned().into_iter().collect(),
            SignalKind::StateChanged { old, new } => {
                let changed = |member: &String| old.get(member) != new.get(member);
                let wanted =
                    self.changed.iter().filter(|(members, _)| members.is_empty() || members.iter().any(changed));
                wanted.map(|(_, handler)| Arc::clone(handler)).collect()
            }
        }
    }

    /// Waits for a slot, and for the lease of an assignment.
    async fn begin(&self, signal: &Signal) -> Result<(Option<SemaphorePermit<'_>>, Option<Arc<Lease>>), Error> {
        // Nobody closes the semaphore.
        let slot = self.slots.acquire().await.ok();
        let lease = match attempt(&signal.kind).filter(|_| self.leases) {
            Some(_) => Some(Arc::new(self.take(&signal.intent_id).await?)),
            None => None,
        };
        Ok((slot, lease))
    }

    async fn handle(
        &self,
        signal: Signal,
        handler: &Handler,
        lease: Option<Arc<Lease>>,
        halted: &mut watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let (id, attempt) = (signal.intent_id.clone(), attempt(&signal.kind));
        let handled = tokio::select! {
            handled = self.call(signal, handler, lease.clone()) => handled.map(Some),
            loss = lost(lease.as_deref()) => {
                tracing::warn!(intent = %id, "the lease on intent {id} is lost: {loss}");
                return Ok(());
            }
            () = is_halted(halted) => Ok(None),
        };
        let written = match handled {
            Ok(Some(Ok(patch))) => self.write(&id, &patch, lease.as_deref()).await,
            Ok(Some(Err(error))) => self.failed(&id, attempt, &*error).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Some(lease) = lease {
            self.intents.client().release(lease.id()).await?;
        }
        written
    }

    async fn call(&self, signal: Signal, handler: &Handler, lease: Option<Arc<Lease>>) -> Result<Handled, Error> {
        // After the lease: what was read before it may be old.
        let intent = self.intents.get(&signal.intent_id).await?;
        let work = Work { intent, signal: signal.kind, lease, intents: self.intents.clone() };
        Ok(caught(async { handler(work).await }).await.unwrap_or_else(|panic| Err(panic.into())))
    }

    async fn take(&self, id: &str) -> Result<Lease, Error> {
        let request = Acquire::one(format!("intent:{id}/*")).ttl(self.ttl).wait(self.wait);
        self.intents.client().acquire(request).await
    }

    async fn write(&self, id: &str, patch: &Map<String, Value>, lease: Option<&Lease>) -> Result<(), Error> {
        if patch.is_empty() {
            return Ok(());
        }
        self.intents.update_state(id, lease.map(Lease::id), |_| patch.clone()).await.map(drop)
    }

    async fn failed(
        &self,
        id: &str,
        attempt: Option<u32>,
        error: &(dyn std::error::Error + Send + Sync),
    ) -> Result<(), Error> {
        tracing::warn!(intent = %id, "a handler failed on intent {id}: {error}");
        match attempt {
            Some(attempt) => self.intents.report_failure(id, attempt, &error.to_string()).await,
            None => Ok(()),
        }
    }
}

/// Which attempt at an intent this is about, if it is an assignment.
fn attempt(kind: &SignalKind) -> Option<u32> {
    match kind {
        SignalKind::Assigned => Some(1),
        SignalKind::Retried { attempt, .. } => Some(attempt.saturating_add(1)),
        _ => None,
    }
}

/// Resolves when the time to drain is over, or nobody is left to say so.
async fn is_halted(halted: &mut watch::Receiver<bool>) {
    let _ = halted.wait_for(|halted| *halted).await;
}

/// Never resolves without a lease.
async fn lost(lease: Option<&Lease>) -> Loss {
    match lease {
        Some(lease) => lease.lost().await,
        None => std::future::pending().await,
    }
}
