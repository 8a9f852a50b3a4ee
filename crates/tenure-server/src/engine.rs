//! Owns the only way to the ledger: a handle that any number of tasks share, in front of one desk.
//!
//! ```text
//!  task ──► desk: decide ──► open batch (bounded) ──► commit ──► task
//!                                                        └─► feed: ring, wake-ups ──► followers
//! ```
//!
//! Promises: no answer, event or read leaves before what it rests on is durable, renewals apart (L13); once a commit has failed
//! nobody is answered any more and [`Engine::finished`] says why. Does not promise that a grant reaches a client that
//! went away while it was written: it ends by its ttl, and an idempotency key asks for it again.

mod batch;
pub mod clock;
mod decider;
mod desk;
pub mod feed;
mod follow;
mod history;
mod line;
mod polls;
mod recover;
mod renewals;
mod waits;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use tenure_core::Timestamp;
use tenure_core::command::{Acquire, Acquired, Command, Grant};
use tenure_core::refusal::Refusal;
use tenure_store::{Reader, Store};
use tokio::sync::{Semaphore, oneshot, watch};

use self::clock::{Clock, LedgerTime};
use self::decider::{Decided, Decider};
use self::desk::Desk;
pub use self::desk::WAITING_MAX;
use self::feed::Feed;
pub use self::follow::{Follower, Lagging};
pub use self::history::{Ended, Found, Lost, Released, Renewed};
use self::line::InLine;
pub use self::recover::OpenError;
pub use self::renewals::RENEWALS_KEPT_MS_MAX;
use self::waits::Answer;
use crate::metrics::{Metrics, Snapshot};

/// How many reads of the store run at once: they share the disk with the journal.
pub const STORE_READS_MAX: usize = 4;

/// Why there is no answer. Nothing is known about what was asked for: it may have happened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unavailable {
    /// Too many wait for one batch. Nothing happened.
    #[error("too many requests are waiting for the ledger")]
    Overloaded,
    /// The engine has stopped, or stopped before the answer.
    #[error("the ledger has stopped")]
    Stopped,
    /// The history could not be read.
    #[error("the history cannot be read: {0}")]
    Unreadable(Arc<tenure_store::Error>),
}

/// How the engine stands.
#[derive(Debug, Clone)]
enum State {
    Running,
    Stopped,
    Failed(Arc<Failure>),
}

/// Why the engine gave up. The process is to end: what is on the disk decides.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A commit failed.
    #[error("the store failed, so nothing more is answered from memory: {0}")]
    Commit(#[from] tenure_store::CommitError),
    /// Something panicked in the middle of a decision or a commit.
    #[error("the ledger stopped unexpectedly")]
    Panic,
}

/// The handle. Cheap to clone; the engine stops when the last one is gone, or when told to.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    desk: Arc<Desk>,
    feed: Arc<Feed>,
    reader: Arc<dyn Reader>,
    reads: Semaphore,
    metrics: Arc<Metrics>,
    state: watch::Receiver<State>,
    time: LedgerTime,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.desk.close();
    }
}

impl Engine {
    /// Loads the ledger, makes its start durable and begins to serve. Blocks while it loads.
    pub fn open(mut store: Box<dyn Store>, clock: Arc<dyn Clock>) -> Result<Engine, OpenError> {
        let metrics = Arc::new(Metrics::default());
        let recovered = recover::recover(&mut *store, Arc::clone(&clock))?;
        let time = recovered.time.clone();
        let feed = Feed::start(recovered.ledger.head().cursor).map_err(OpenError::Thread)?;
        let reader = store.reader();
        let decider = Decider::new(recovered.ledger, recovered.time, recovered.seq);
        let desk = Arc::new(Desk::new(decider, store, Arc::clone(&feed), Arc::clone(&metrics)));
        clock.on_move(Box::new({
            let desk = Arc::downgrade(&desk);
            move || {
                if let Some(desk) = desk.upgrade() {
                    desk.poke();
                }
            }
        }));
        let state = spawn(Arc::clone(&desk)).map_err(OpenError::Thread)?;
        let reads = Semaphore::new(STORE_READS_MAX);
        Ok(Engine(Arc::new(Inner { desk, feed, reader, reads, metrics, state, time })))
    }

    /// Asks the ledger.
    pub async fn apply<C: Command>(&self, command: C) -> Result<C::Reply, Unavailable> {
        self.decide(|decider| decider.apply(command)).await
    }

    /// Takes resources; waits for them in line if the command says so. Whoever drops the future leaves the line.
    pub async fn acquire(&self, acquire: Acquire) -> Result<Result<Grant, Refusal>, Unavailable> {
        let desk = &*self.0.desk;
        let Decided { reply, rests_on } = desk.decide(|decider| {
            decider.decide(|ledger, turn, waits| match ledger.apply(turn, acquire) {
                Acquired::Granted(grant) => Taken::Answered(Ok(grant)),
                Acquired::Refused(refusal) => Taken::Answered(Err(refusal)),
                Acquired::Queued(waiter) => {
                    let (to, answer) = oneshot::channel();
                    waits.keep(waiter, to);
                    // A grant that was not read ends by its ttl: the client may have seen it.
                    Taken::InLine(InLine { desk, waiter, answer: Some(answer), give_back: |_, _| {} })
                }
            })
        })?;
        let answer = match reply {
            // In a box of its own, because every acquire would carry the room for it.
            Taken::InLine(in_line) => Box::pin(in_line.answer()).await?,
            Taken::Answered(reply) => Decided { reply, rests_on }.settled().await?,
        };
        if let Err(refusal) = &answer {
            self.0.metrics.refused(refusal.code());
        }
        Ok(answer)
    }

    /// Decides, and answers once everything that the answer rests on is on the disk.
    async fn decide<T>(&self, decide: impl FnOnce(&mut Decider) -> Decided<T>) -> Result<T, Unavailable> {
        self.0.desk.decide(decide)?.settled().await
    }

    /// Reads from the store, away from the threads that serve connections.
    pub async fn read<T, F>(&self, read: F) -> Result<T, Unavailable>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, tenure_store::Error> + Send + 'static,
    {
        let _permit = self.0.reads.acquire().await.map_err(|_| Unavailable::Stopped)?;
        let reader = Arc::clone(&self.0.reader);
        let done = tokio::task::spawn_blocking(move || read(&*reader)).await;
        done.map_err(|_| Unavailable::Stopped)?.map_err(|error| Unavailable::Unreadable(Arc::new(error)))
    }

    /// Nothing more is taken in; what stands in line is still answered. [`Engine::finished`] tells when all is written.
    pub fn stop(&self) {
        self.0.desk.close();
    }

    /// Whether it still answers.
    pub fn is_running(&self) -> bool {
        matches!(*self.0.state.borrow(), State::Running)
    }

    /// Comes back when the engine has stopped, with the reason if nobody asked it to.
    pub async fn finished(&self) -> Result<(), Arc<Failure>> {
        let mut state = self.0.state.clone();
        let end = state.wait_for(|state| !matches!(state, State::Running)).await;
        match end.as_deref() {
            Ok(State::Failed(failure)) => Err(Arc::clone(failure)),
            Ok(State::Running | State::Stopped) => Ok(()),
            Err(_) => Err(Arc::new(Failure::Panic)),
        }
    }

    /// The ledger's time, as near as somebody away from the desk can know it.
    pub fn now(&self) -> Timestamp {
        self.0.time.now()
    }

    /// What the server counts about itself.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// How much there is at present.
    pub async fn snapshot(&self) -> Result<Snapshot, Unavailable> {
        let counts = self.apply(tenure_core::command::Count).await?;
        let store = self.read(|reader| Ok(reader.stats())).await?;
        Ok(Snapshot {
            leases: counts.leases,
            waiters: counts.waiters,
            holders: counts.holders,
            followers: self.0.feed.followers(),
            queue: self.0.desk.waiting(),
            store,
        })
    }
}

/// Gives the desk its thread.
fn spawn(desk: Arc<Desk>) -> std::io::Result<watch::Receiver<State>> {
    let (end, state) = watch::channel(State::Running);
    thread::Builder::new().name("tenure-writer".to_owned()).spawn(move || {
        let ended = desk.run();
        end.send_replace(ended.map_or_else(|failure| State::Failed(Arc::new(failure)), |()| State::Stopped));
    })?;
    Ok(state)
}

/// An acquire, once it was decided.
enum Taken<'a> {
    Answered(Answer),
    InLine(InLine<'a, Answer>),
}
