//! Owns the rules: who gets a ref, given what was read. Pure; the caller reads, writes and tells the time.

use tenure_core::Timestamp;

use crate::error::{Conflict, NotHeld, Verb, Why};
use crate::name::LockName;
use crate::record::Payload;
use crate::view::{Entry, View};

/// Who asks for what, when, and how far clocks may differ.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The resource.
    pub name: &'a LockName,
    /// The caller.
    pub me: &'a str,
    /// The moment of the decision.
    pub now: Timestamp,
    /// The margin for differing clocks.
    pub skew_ms: u64,
}

/// What an acquire comes to.
#[derive(Debug)]
pub enum Verdict<'v> {
    /// The caller holds it already.
    Mine(&'v Entry, &'v Payload),
    /// It is free.
    Free {
        /// What its ref says now: a released or lapsed lock.
        slot: Option<&'v Entry>,
        /// Overlapping locks of others that have lapsed; they must be marked released with the grant (G4).
        lapsed: Vec<(&'v Entry, &'v Payload)>,
    },
    /// Somebody stands in the way.
    Refused(Conflict),
}

impl<'a> Case<'a> {
    /// Judges an acquire on everything the judge has.
    pub fn acquire<'v>(&self, view: &'v View) -> Verdict<'v> {
        let reference = self.name.ref_name();
        let slot = view.at(&reference);
        match slot.map(|entry| (entry, entry.payload.as_ref())) {
            Some((entry, Err(_))) => return Verdict::Refused(self.unreadable(entry)),
            Some((entry, Ok(payload))) if payload.resource != self.name.as_str() && !self.is_free(payload) => {
                // Its ref is taken by a lock on something else: not ours to replace.
                return Verdict::Refused(Conflict {
                    why: Why::Unreadable,
                    ..self.conflict(Verb::Acquire, entry, payload)
                });
            }
            Some((entry, Ok(payload))) if payload.owner == self.me && payload.is_live(self.now) => {
                return Verdict::Mine(entry, payload);
            }
            _ => {}
        }
        if let Some((entry, payload)) = self.overlapping(view).find(|(_, payload)| !self.is_free(payload)) {
            return Verdict::Refused(self.conflict(Verb::Acquire, entry, payload));
        }
        let lapsed = self.overlapping(view).filter(|(entry, payload)| {
            // The slot itself is replaced anyway; a released lock cannot be renewed.
            entry.reference != reference && !payload.is_released()
        });
        Verdict::Free { slot, lapsed: lapsed.collect() }
    }

    /// The lock in the way among those that only this clone knows; the caller leaves out what the remote knows too.
    pub fn local_only(&self, entry: &Entry) -> Option<Conflict> {
        let payload = entry.payload.as_ref().ok()?;
        let in_the_way = payload.owner != self.me && !self.is_free(payload) && self.meets(payload);
        in_the_way.then(|| Conflict { why: Why::LocalOnly, ..self.conflict(Verb::Acquire, entry, payload) })
    }

    /// The caller's own live lock, or why there is nothing to renew.
    pub fn renew<'v>(&self, view: &'v View) -> Result<(&'v Entry, &'v Payload), Ended> {
        let Some(entry) = view.at(&self.name.ref_name()) else {
            return Err(Ended::NotHeld(NotHeld::Absent(self.name.to_string())));
        };
        let payload = entry.payload.as_ref().map_err(|_| Ended::Conflict(self.unreadable(entry)))?;
        if payload.is_released() {
            return Err(Ended::NotHeld(NotHeld::Absent(self.name.to_string())));
        }
        if payload.owner != self.me || payload.resource != self.name.as_str() {
            return Err(Ended::Conflict(self.conflict(Verb::Renew, entry, payload)));
        }
        if !payload.is_live(self.now) {
            let ago_s = self.now.unix_ms().saturating_sub(payload.expires_unix_ms) / 1_000;
            return Err(Ended::NotHeld(NotHeld::Expired { resource: self.name.to_string(), ago_s }));
        }
        Ok((entry, payload))
    }

    /// The caller's own lock to give back; `Ok(None)`: nobody's, so there is nothing to do (L6).
    pub fn release<'v>(&self, view: &'v View) -> Result<Option<(&'v Entry, &'v Payload)>, Conflict> {
        let Some(entry) = view.at(&self.name.ref_name()) else { return Ok(None) };
        let payload = match &entry.payload {
            Err(_) => return Err(Conflict { verb: Verb::Release, ..self.unreadable(entry) }),
            Ok(payload) if payload.is_released() => return Ok(None),
            Ok(payload) => payload,
        };
        if payload.owner != self.me || payload.resource != self.name.as_str() {
            return Err(self.conflict(Verb::Release, entry, payload));
        }
        Ok(Some((entry, payload)))
    }

    fn is_free(&self, payload: &Payload) -> bool {
        payload.is_free(self.now, self.skew_ms)
    }

    fn meets(&self, payload: &Payload) -> bool {
        LockName::found(&payload.resource).overlaps(self.name)
    }

    /// Other holders' locks that overlap the asked one, whatever their state.
    fn overlapping<'v>(&self, view: &'v View) -> impl Iterator<Item = (&'v Entry, &'v Payload)> {
        let (me, name) = (self.me, self.name);
        let readable = view.locks.iter().filter_map(|entry| Some((entry, entry.payload.as_ref().ok()?)));
        readable.filter(move |(_, payload)| payload.owner != me && LockName::found(&payload.resource).overlaps(name))
    }

    fn conflict(&self, verb: Verb, entry: &Entry, payload: &Payload) -> Conflict {
        Conflict {
            verb,
            asked: self.name.to_string(),
            held: payload.resource.clone(),
            owner: payload.owner.clone(),
            expires_unix_ms: payload.expires_unix_ms,
            token: entry.token,
            why: if payload.is_live(self.now) { Why::Held } else { Why::Lapsing },
            expires_in_s: payload.expires_unix_ms.saturating_sub(self.now.unix_ms()) / 1_000,
        }
    }

    fn unreadable(&self, entry: &Entry) -> Conflict {
        Conflict {
            verb: Verb::Acquire,
            asked: self.name.to_string(),
            held: entry.reference.clone(),
            owner: "unknown".to_owned(),
            expires_unix_ms: 0,
            token: None,
            why: Why::Unreadable,
            expires_in_s: 0,
        }
    }
}

/// Why a renewal cannot be.
#[derive(Debug)]
pub enum Ended {
    /// Somebody else's.
    Conflict(Conflict),
    /// Nobody's, or the caller's own and over.
    NotHeld(NotHeld),
}

impl From<Ended> for crate::Error {
    fn from(ended: Ended) -> crate::Error {
        match ended {
            Ended::Conflict(conflict) => conflict.into(),
            Ended::NotHeld(why) => crate::Error::NotHeld(why),
        }
    }
}
