//! Owns what a guard and the heartbeat share about one lease: until when it is trusted, and how it was lost.
//!
//! Written by the heartbeat only. A lease that was lost stays lost: a renewal that is answered after the end of trust
//! changes nothing (see `Schedule`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::LeaseId;
use tokio::sync::Notify;

use super::clock::Moment;
use crate::guard::{Loss, State};

/// The shared part of one lease.
#[derive(Debug)]
pub(crate) struct Pulse {
    id: LeaseId,
    /// The lease that it ends with.
    within: Option<LeaseId>,
    trusted_until_ms: AtomicU64,
    at_risk: AtomicBool,
    loss: OnceLock<Loss>,
    lost: Notify,
}

impl Pulse {
    pub(crate) fn new(id: LeaseId, trusted_until: Moment) -> Pulse {
        Pulse {
            id,
            within: None,
            trusted_until_ms: AtomicU64::new(trusted_until.as_millis()),
            at_risk: AtomicBool::new(false),
            loss: OnceLock::new(),
            lost: Notify::new(),
        }
    }

    /// The same, of a lease that ends with another.
    pub(crate) fn within(self, parent: Option<LeaseId>) -> Pulse {
        Pulse { within: parent, ..self }
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.id
    }

    pub(super) fn parent(&self) -> Option<LeaseId> {
        self.within
    }

    pub(crate) fn trusted_until(&self) -> Moment {
        Moment::from_millis(self.trusted_until_ms.load(Ordering::Acquire))
    }

    pub(super) fn trust_until(&self, moment: Moment) {
        self.trusted_until_ms.store(moment.as_millis(), Ordering::Release);
    }

    pub(super) fn set_at_risk(&self, at_risk: bool) {
        self.at_risk.store(at_risk, Ordering::Release);
    }

    /// The first reason stands. Whoever waits is told by [`Pulse::tell`].
    pub(super) fn lose(&self, loss: Loss) {
        // It was lost before.
        let _ = self.loss.set(loss);
    }

    /// Wakes whoever waits for the loss. That runs code of others: nothing may be locked meanwhile.
    pub(super) fn tell(&self) {
        self.lost.notify_waiters();
    }

    /// The clock alone can say that a lease is lost: the heartbeat may not have run since.
    pub(crate) fn state(&self, now: Moment) -> State {
        if self.loss.get().is_some() || now >= self.trusted_until() {
            State::Lost
        } else if self.at_risk.load(Ordering::Acquire) {
            State::AtRisk
        } else {
            State::Held
        }
    }

    pub(crate) fn trusted_for(&self, now: Moment) -> Duration {
        match self.state(now) {
            State::Lost => Duration::ZERO,
            State::Held | State::AtRisk => self.trusted_until().since(now),
        }
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.get()
    }

    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let told = self.lost.notified();
            if let Some(loss) = self.loss.get() {
                return loss.clone();
            }
            told.await;
        }
    }
}
