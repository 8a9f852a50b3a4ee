//! Owns the only way to the ledger: a handle that any number of tasks share, in front of one writer thread.
//!
//! ```text
//!  task ──► queue (bounded) ──► writer: stamp · decide · commit ──► task
//!                                  └─► feed: ring, wake-ups ──► followers
//! ```
//!
//! Promises: no answer, event or read leaves before what it rests on is durable, renewals apart (L13); once a commit has failed
//! nobody is answered any more and [`Engine::finished`] says why. Does not promise that a grant reaches a client that
//! went away while it was written: it ends by its ttl, and an idempotency key asks for it again.

pub mod clock;
pub mod feed;
mod follow;
mod history;
mod job;
mod polls;
mod queue;
mod recover;
mod renewals;
mod waits;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use tenure_core::Timestamp;
use tenure_core::command::{Acquire, Command, Grant};
use tenure_core::refusal::Refusal;
use tenure_core::task::command::{Poll, TaskView, Update, Updated};
use tenure_store::{Reader, Store};
use tokio::sync::{Semaphore, oneshot, watch};

use self::clock::Clock;
use self::feed::Feed;
pub use self::follow::{Follower, Lagging};
pub use self::history::{Ended, Found, Lost, Released, Renewed};
use self::job::{Call, Gone, Place, Take};
use self::polls::{Ask, Say};
use self::queue::{Closed, Queue};
pub use self::recover::OpenError;
pub use self::renewals::RENEWALS_KEPT_MS_MAX;
pub use self::writer::BATCH_MAX;
use self::writer::LedgerTime;
use crate::metrics::{Metrics, Snapshot};

/// How many commands may stand in front of the writer. At tens of thousands a second this is less than a second of waiting;
/// beyond it a client is better told to come back.
pub const QUEUE_MAX: usize = 16_384;

/// How many reads of the store run at once: they share the disk with the journal.
pub const STORE_READS_MAX: usize = 4;

/// Why there is no answer. Nothing is known about what was asked for: it may have happened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unavailable {
    /// Too many stand in line. Nothing happened.
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
    /// The writer's thread panicked.
    #[error("the writer stopped unexpectedly")]
    Panic,
}

/// The handle. Cheap to clone; the engine stops when the last one is gone, or when told to.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    feed: Arc<Feed>,
    reader: Arc<dyn Reader>,
    reads: Semaphore,
    metrics: Arc<Metrics>,
    state: watch::Receiver<State>,
    time: LedgerTime,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Engine {
    /// Loads the ledger, makes its start durable and begins to serve. Blocks while it loads.
    pub fn open(mut store: Box<dyn Store>, clock: Arc<dyn Clock>) -> Result<Engine, OpenError> {
        let metrics = Arc::new(Metrics::default());
        let queue = Arc::new(Queue::new(QUEUE_MAX));
        let recovered = recover::recover(&mut *store, Arc::clone(&clock))?;
        let feed = Feed::start(recovered.ledger.head().cursor).map_err(OpenError::Thread)?;
        let reader = store.reader();
        clock.on_move(Box::new({
            let queue = Arc::downgrade(&queue);
            move || {
                if let Some(queue) = queue.upgrade() {
                    queue.poke();
                }
            }
        }));
        let writer = writer::Writer {
            queue: Arc::clone(&queue),
            feed: Arc::clone(&feed),
            metrics: Arc::clone(&metrics),
            store,
            ledger: recovered.ledger,
            time: recovered.time.clone(),
            waits: waits::Waits::default(),
            renewals: renewals::Renewals::default(),
            seq: recovered.seq,
        };
        let state = spawn(writer).map_err(OpenError::Thread)?;
        let reads = Semaphore::new(STORE_READS_MAX);
        Ok(Engine(Arc::new(Inner { queue, feed, reader, reads, metrics, state, time: recovered.time })))
    }

    /// Asks the ledger.
    pub async fn apply<C: Command>(&self, command: C) -> Result<C::Reply, Unavailable> {
        let (job, reply) = Call::new(command);
        self.0.queue.push(job).map_err(|closed| self.closed(closed))?;
        reply.await.map_err(|_| Unavailable::Stopped)
    }

    /// Takes resources; waits for them in line if the command says so. Whoever drops the future leaves the line.
    pub async fn acquire(&self, acquire: Acquire) -> Result<Result<Grant, Refusal>, Unavailable> {
        let place = acquire.wait_ms.map(|_| Arc::new(Place::default()));
        let (job, answer) = Take::new(acquire, place.clone());
        self.0.queue.push(job).map_err(|closed| self.closed(closed))?;
        let answer = match place {
            None => answer.await,
            Some(place) => Waiting { answer: Some(answer), place, queue: &self.0.queue }.answer().await,
        };
        let answer = answer.map_err(|_| Unavailable::Stopped)?;
        if let Err(refusal) = &answer {
            self.0.metrics.refused(refusal.code());
        }
        Ok(answer)
    }

    /// Polls for tasks; waits for the first if the command says so. Whoever drops the future leaves the line.
    pub async fn poll(&self, poll: Poll) -> Result<Vec<TaskView>, Unavailable> {
        let place = Arc::new(Place::default());
        let (job, answer) = Ask::new(poll, Arc::clone(&place), Arc::clone(&self.0.queue));
        self.0.queue.push(job).map_err(|closed| self.closed(closed))?;
        let waiting = Waiting { answer: Some(answer), place, queue: &self.0.queue };
        waiting.answer().await.map_err(|_| Unavailable::Stopped)
    }

    /// Takes a worker's word about a task.
    pub async fn update(&self, update: Update) -> Result<Updated, Unavailable> {
        let (job, answer) = Say::new(update, Arc::clone(&self.0.queue));
        self.0.queue.push(job).map_err(|closed| self.closed(closed))?;
        answer.await.map_err(|_| Unavailable::Stopped)
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
        self.0.queue.close();
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

    /// The ledger's time, as near as somebody outside the writer can know it.
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
            queue: self.0.queue.len(),
            store,
        })
    }

    fn closed(&self, closed: Closed) -> Unavailable {
        match closed {
            Closed::Full => {
                self.0.metrics.refused("overloaded");
                Unavailable::Overloaded
            }
            Closed::Stopped => Unavailable::Stopped,
        }
    }
}

/// Runs the writer on its own thread: it blocks on the disk.
fn spawn(writer: writer::Writer) -> std::io::Result<watch::Receiver<State>> {
    let (end, state) = watch::channel(State::Running);
    let queue = Arc::clone(&writer.queue);
    thread::Builder::new().name("tenure-writer".to_owned()).spawn(move || {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run()));
        let failure = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Failure::Commit(error)),
            Err(_) => Some(Failure::Panic),
        };
        // What stands in line is dropped unanswered: whoever asked is told that there is no answer.
        queue.abandon();
        end.send_replace(failure.map_or(State::Stopped, |failure| State::Failed(Arc::new(failure))));
    })?;
    Ok(state)
}

/// A client in line: leaves it when it is dropped before the answer.
struct Waiting<'a, T> {
    answer: Option<oneshot::Receiver<T>>,
    place: Arc<Place>,
    queue: &'a Queue,
}

impl<T> Waiting<'_, T> {
    async fn answer(mut self) -> Result<T, oneshot::error::RecvError> {
        let Some(answer) = &mut self.answer else { unreachable!("taken below only") };
        let answered = answer.await;
        self.answer = None;
        answered
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        // The channel closes first, so that the writer sees an empty chair before it hears of it.
        if self.answer.take().is_some()
            && let Some(waiter) = self.place.get()
        {
            self.queue.push_always(Box::new(Gone(waiter)));
        }
    }
}
