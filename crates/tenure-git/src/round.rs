//! Owns the bounded fight for a change: how often it is tried, and what it comes to when that does not help.

use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::error::{Conflict, Error};
use crate::lease::Locks;
use crate::limits::{ATTEMPTS_MAX, BACKOFF_MS_MAX, BACKOFF_MS_MIN, UNANSWERED_MAX, UNMOVED_REFUSALS_MAX};
use crate::objects::Oid;
use crate::remote::Change;

/// The tries of one act.
pub(crate) struct Round {
    pub(crate) on_old_knowledge: bool,
    attempt: u32,
    /// What the last refused change rested on, and how often that did not move.
    refused: Option<(Vec<Option<Oid>>, u32)>,
    /// How many pushes nobody answered.
    unanswered: u32,
    /// One of them may still arrive.
    is_open: bool,
}

impl Round {
    pub(crate) fn first(has_remote: bool) -> Round {
        Round { on_old_knowledge: has_remote, attempt: 0, refused: None, unanswered: 0, is_open: false }
    }

    pub(crate) fn fetching() -> Round {
        Round::first(false)
    }

    pub(crate) fn fetch_next(&mut self) {
        self.on_old_knowledge = false;
    }

    /// A change was refused: pause and try again, or give up.
    pub(crate) fn lost(
        &mut self,
        locks: &Locks<'_>,
        changes: &[Change],
        detail: String,
        contended: impl FnOnce() -> Conflict,
    ) -> Result<(), Error> {
        let rested_on: Vec<Option<Oid>> = changes.iter().map(|change| change.old.clone()).collect();
        let unmoved = match &self.refused {
            Some((last, times)) if *last == rested_on && !self.on_old_knowledge => times + 1,
            _ => 0,
        };
        // A hook says no for a reason of its own; asking again would not change its mind.
        if unmoved >= UNMOVED_REFUSALS_MAX || detail.contains("hook declined") {
            return Err(match &locks.remote {
                Some(remote) => Error::RemoteRefused { name: remote.name().to_owned(), detail },
                None => Error::Git { command: "update-ref".to_owned(), detail },
            });
        }
        self.refused = Some((rested_on, unmoved));
        self.attempt += 1;
        if self.attempt >= ATTEMPTS_MAX {
            return Err(contended().into());
        }
        if !self.on_old_knowledge {
            pause(self.attempt);
        }
        self.fetch_next();
        Ok(())
    }

    /// Nobody said what became of a change, and the judge does not have it: that is no lost race.
    pub(crate) fn unanswered(&mut self, locks: &Locks<'_>, detail: String, sent: bool) -> Result<(), Error> {
        self.unanswered += 1;
        self.is_open |= sent;
        if self.unanswered < UNANSWERED_MAX {
            self.fetch_next();
            return Ok(());
        }
        let name = locks.remote().unwrap_or_default().to_owned();
        Err(match self.is_open {
            true => Error::RemoteUnavailable { name, detail, unknown: true },
            // It shows its locks and takes no push.
            false => Error::RemoteRefused { name, detail },
        })
    }

    /// An error of a later try, told with what an earlier one has left open.
    pub(crate) fn told(&self, error: Error) -> Error {
        if self.is_open { error.with_unknown_end() } else { error }
    }
}

/// Longer after every lost race, and never the same for two who lost the same one.
pub(crate) fn pause(attempt: u32) {
    let ceiling = (BACKOFF_MS_MIN << attempt.min(10)).min(BACKOFF_MS_MAX);
    let random = u64::from(Uuid::new_v4().as_fields().0);
    thread::sleep(Duration::from_millis(BACKOFF_MS_MIN + random % ceiling));
}
