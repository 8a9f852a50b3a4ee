//! Owns the guard: the right to believe that a lease is held, and the duty to stop when it is not.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Holder, LeaseId, Resource, Token};

use crate::beat::Heart;
use crate::beat::pulse::Pulse;
use crate::client::Client;
use crate::error::{Error, Refusal};
use crate::model::{Ended, LeaseInfo, Mode, Status};

/// What a holder may believe about its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The last renewal was accepted.
    Held,
    /// A renewal is overdue. The lease is still held, and the guard goes on trying; work that is hard to undo
    /// should not be started now.
    AtRisk,
    /// It is over, or may be over. Final.
    Lost,
}

/// How a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The server said that it has ended, and how.
    Ended(Box<Ended>),
    /// No renewal was accepted in time. The server may or may not have ended it yet.
    OutOfTouch,
    /// The server does not know the lease, or says that it is somebody else's.
    Disowned,
    /// The heartbeat of this process is gone.
    HeartbeatStopped,
    /// This process has released it, by its id or by another guard of it.
    Released,
}

impl Loss {
    /// How a lease was lost whose renewal was answered with this error; nothing if it may still be held.
    pub(crate) fn of(error: &Error) -> Option<Loss> {
        match error.refusal()? {
            Refusal::Lost(ended) => Some(Loss::Ended(ended.clone())),
            Refusal::NotHolder { .. } | Refusal::UnknownLease => Some(Loss::Disowned),
            _ => None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Ended(ended) => {
                match ended.reason {
                    Some(Status::Expired) => f.write_str("it expired")?,
                    Some(reason) => write!(f, "it was {reason}")?,
                    None => f.write_str("it has ended")?,
                }
                match &ended.note {
                    Some(note) => write!(f, " ({note})"),
                    None => Ok(()),
                }
            }
            Loss::OutOfTouch => f.write_str("no renewal was accepted in time"),
            Loss::Disowned => f.write_str("the server does not know it as this holder's"),
            Loss::HeartbeatStopped => f.write_str("the heartbeat of this process has stopped"),
            Loss::Released => f.write_str("this process has released it"),
        }
    }
}

/// A lease that is kept alive for as long as this guard lives.
///
/// Work under it should stop when [`Lease::lost`] resolves, and should pass [`Lease::token`] to whatever it writes to.
/// When it is done, [`Lease::release`] gives the resources back at once. **Dropping the guard only stops the
/// heartbeat**: the lease lapses after its ttl, because a drop can happen while the guarded work still runs.
///
/// Who acquires twice under one idempotency key has two guards of one lease. It is kept alive until both are dropped;
/// when one releases it, the other has lost it.
#[derive(Debug)]
#[must_use = "a dropped guard is not renewed: the lease lapses after its ttl"]
pub struct Lease {
    info: Arc<LeaseInfo>,
    pulse: Arc<Pulse>,
    heart: Arc<Heart>,
    client: Client,
}

impl Lease {
    pub(crate) fn new(info: LeaseInfo, pulse: Arc<Pulse>, heart: Arc<Heart>, client: Client) -> Lease {
        Lease { info: Arc::new(info), pulse, heart, client }
    }

    /// Its id.
    pub fn id(&self) -> LeaseId {
        self.info.id
    }

    /// Its fencing number: larger than every token granted before.
    pub fn token(&self) -> Token {
        self.info.token
    }

    /// What is held.
    pub fn resources(&self) -> &[Resource] {
        &self.info.resources
    }

    /// Who holds it.
    pub fn holder(&self) -> &Holder {
        &self.info.holder
    }

    /// Alone or together with others.
    pub fn mode(&self) -> Mode {
        self.info.mode
    }

    /// The lease as it was granted; its `expires_at` is the first one, before any renewal. Can be kept longer than the guard.
    pub fn info(&self) -> &Arc<LeaseInfo> {
        &self.info
    }

    /// What may be believed about it now. Costs one look at the clock; asks nobody.
    pub fn state(&self) -> State {
        self.pulse.state(self.client.now())
    }

    /// How long it may still be trusted if nothing more is heard from the server; zero when it is lost.
    pub fn trusted_for(&self) -> Duration {
        self.pulse.trusted_for(self.client.now())
    }

    /// How long the guarded work may take to stop: until the trust given by the last accepted renewal ends. The same as
    /// [`Lease::trusted_for`], but a lease that the server has ended still leaves the work this long to wind down.
    pub fn stop_within(&self) -> Duration {
        self.pulse.trusted_until().since(self.client.now())
    }

    /// How it was lost, if the heartbeat has noticed that it was.
    pub fn loss(&self) -> Option<&Loss> {
        self.pulse.loss()
    }

    /// Resolves when the lease is lost: when the server says so in answer to a renewal, and otherwise when
    /// [`Lease::trusted_for`] reaches zero, which is before the lease can have run out.
    ///
    /// The future does not borrow the guard, so it can be moved into the work. It never resolves for a guard
    /// that was dropped or released before it was lost.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let pulse = Arc::clone(&self.pulse);
        async move { pulse.lost().await }
    }

    /// Gives the resources back, now. Call it after the guarded work has stopped.
    ///
    /// # Errors
    /// A lease that was lost before is answered with [`crate::Refusal::Lost`]: somebody else may have worked since. If
    /// the server cannot be reached, the lease lapses after its ttl.
    pub async fn release(self) -> Result<(), Error> {
        // Stop first: a renewal that overtakes the release would only be told that the lease is over.
        // Whoever works under another guard of this lease has to stop, too.
        self.heart.release(&self.pulse);
        self.client.give_back(self.info.id).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.heart.forget(&self.pulse);
    }
}
