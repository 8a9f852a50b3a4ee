//! The client of Tenure: take a lease, keep it alive, be told when it is lost.
//!
//! ```no_run
//! use std::time::Duration;
//! use tenure::{Acquire, Client};
//!
//! # async fn work(_token: tenure::Token) {}
//! # async fn example() -> Result<(), tenure::Error> {
//! let client = Client::builder().holder("agent-7").build()?;
//! let lease = client
//!     .acquire(Acquire::one("path:src/parser.rs").ttl(Duration::from_secs(30)).wait(Duration::from_secs(60)))
//!     .await?;
//! tokio::select! {
//!     () = work(lease.token()) => lease.release().await?,
//!     loss = lease.lost() => eprintln!("stop: {loss}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **What a guard promises.** A [`Lease`] is renewed by one operating-system thread per [`Client`], which goes on while
//! the program's own runtime is blocked or busy; a thousand leases cost one request per beat. [`Lease::lost`] resolves
//! *before* the lease can have run out: the guard trusts its lease until the send time of the last accepted renewal
//! plus the ttl minus a margin, on a monotonic clock. An outage or a restart of the server that is shorter than that
//! is not noticed at all.
//!
//! **What it does not promise.** A lease that an administrator takes away may be another's at once; the guard notices
//! at the next beat, a third of the ttl later at most ([`Acquire::grace`] keeps others out meanwhile). So does one whose
//! ttl was made shorter by another process of the same holder ([`Client::renew`]), and one [within](Acquire::within) a lease that
//! another client keeps, if that one ends. A process
//! that is stopped (SIGSTOP, a paused machine) cannot notice anything. What it does when it wakes is fenced by the
//! token: hand [`Lease::token`] to whatever the work writes to, and let that refuse a token smaller than the largest
//! it has seen.
//!
//! **Dropping a guard** stops the heartbeat and nothing else: the lease lapses after its ttl, and guards of leases within it are told. Giving it back at once is
//! [`Lease::release`], after the guarded work has stopped.
//!
//! Failures are [`Error`]: [`Error::Refused`] carries everything the server said (who holds it, until when, when to try
//! again); the other variants mean that nothing was decided.
#![warn(missing_docs)]

mod agent;
mod beat;
pub mod blocking;
mod client;
mod coordinator;
mod door;
mod error;
mod events;
mod guard;
mod intents;
mod model;
mod panics;
mod register;
mod request;
mod signals;
mod sse;
mod state;
mod tasks;
mod transport;
mod worker;

pub use agent::{Agent, Handled, Work};
pub use client::{Client, ClientBuilder, DEFAULT_URL};
pub use coordinator::{Coordinator, Term};
pub use error::{BadField, Error, Problem, Refusal, Refused};
pub use events::Events;
pub use guard::{Lease, Loss, State};
pub use intents::{Expected, Intent, Intents};
pub use model::{By, Check, Conflict, Ended, Event, EventPage, LeaseInfo, LeasePage, Mode, Renewal, Status};
pub use register::AGENT_BEAT;
pub use request::{Acquire, EventQuery, LeaseQuery};
pub use signals::{Signal, SignalKind, Signals};
pub use state::STATE_TRIES_MAX;
pub use tasks::Tasks;
pub use tenure_core::{Holder, LeaseId, Resource, Token};
pub use worker::{EXTEND_AT_PERCENT, Outcome, Task, TaskContext, TaskType, Worker};

/// The snippets of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
