//! Owns the listing of locks as the judge has them.

use tenure_core::Timestamp;

use crate::error::Error;
use crate::lease::Locks;
use crate::name::LockName;
use crate::view::View;

/// One lock in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What is held.
    pub name: LockName,
    /// Who holds it.
    pub owner: String,
    /// Until when; 0: released.
    pub expires_unix_ms: u64,
    /// Its fencing number, where its commit carries one.
    pub token: Option<u64>,
}

impl Listed {
    /// Held at this moment.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now.unix_ms() < self.expires_unix_ms
    }
}

/// All locks, at one moment.
#[derive(Debug, Clone)]
pub struct Status {
    /// The moment.
    pub now: Timestamp,
    /// Held now, by resource.
    pub live: Vec<Listed>,
    /// Run out and not yet removed, by resource. Released ones are not listed.
    pub expired: Vec<Listed>,
    /// Locks of others that overlap a lock of the caller: another program took them without asking.
    pub conflicts: Vec<Listed>,
    /// Refs that cannot be read, with the reason.
    pub unreadable: Vec<(String, String)>,
}

impl Locks<'_> {
    /// Lists the locks as the judge has them now.
    pub fn status(&self) -> Result<Status, Error> {
        let view = self.read_fresh()?.judge;
        Ok(status_of(&view, &self.me, (self.clock)()))
    }

    /// Lists the locks as they were last seen: enough to know what the caller itself holds, since nobody else can end it.
    pub fn status_as_last_seen(&self) -> Result<Status, Error> {
        Ok(status_of(&self.read_last_seen()?, &self.me, (self.clock)()))
    }
}

/// Lists what was read.
pub fn status_of(view: &View, me: &str, now: Timestamp) -> Status {
    let mut status =
        Status { now, live: Vec::new(), expired: Vec::new(), conflicts: Vec::new(), unreadable: Vec::new() };
    for entry in &view.locks {
        match &entry.payload {
            Err(why) => status.unreadable.push((entry.reference.clone(), why.clone())),
            Ok(payload) => {
                let listed = Listed {
                    name: LockName::found(&payload.resource),
                    owner: payload.owner.clone(),
                    expires_unix_ms: payload.expires_unix_ms,
                    token: entry.token,
                };
                if listed.is_live(now) {
                    status.live.push(listed);
                } else if !payload.is_released() {
                    status.expired.push(listed);
                }
            }
        }
    }
    status.live.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    status.expired.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    let mine: Vec<&Listed> = status.live.iter().filter(|lock| lock.owner == me).collect();
    let meets_mine = |lock: &&Listed| lock.owner != me && mine.iter().any(|own| own.name.overlaps(&lock.name));
    status.conflicts = status.live.iter().filter(meets_mine).cloned().collect();
    status
}
