//! Owns the acts: acquire, renew, release. Reads, lets [`crate::judge`] decide, writes, and has the change taken by
//! the judge, or starts again.
//!
//! With a remote the first try is judged on what was last seen of it, so that an act is one push: the remote refuses
//! it if the locks it rests on have changed, and otherwise shows its refs while taking it. Only when that does not
//! settle the matter are the remote's locks fetched. Nothing is refused on old knowledge.

use std::time::Instant;

use tenure_core::{Timestamp, Ttl};
use uuid::Uuid;

use crate::error::{Conflict, Error, NotHeld, Verb, Why};
use crate::judge::{Case, Verdict};
use crate::limits::CHANGES_MAX;
use crate::name::LockName;
use crate::objects::Oid;
use crate::record::{Commit, Payload};
use crate::remote::{Advertised, Change, Pushed, Remote};
use crate::repo::{Mode, Repo};
use crate::round::Round;
pub(crate) use crate::round::pause;
use crate::swap::{self, Swapped};
use crate::view::{self, Entry, GUARD, Space, View, What};

/// Tells the time.
pub type Clock<'a> = &'a dyn Fn() -> Timestamp;

/// The locks of a repository, as one agent deals with them.
#[derive(Clone)]
pub struct Locks<'a> {
    pub(crate) repo: &'a Repo,
    pub(crate) remote: Option<Remote>,
    pub(crate) skew_ms: u64,
    pub(crate) me: String,
    pub(crate) clock: Clock<'a>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The resource.
    pub name: &'a LockName,
    /// How long.
    pub ttl: Ttl,
}

/// A lock in the caller's hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// As it is stored.
    pub payload: Payload,
    /// Its fencing number; none only for a lock that another program took and this one found.
    pub token: Option<u64>,
    /// Whether it was granted now; no: it was held already, and now lasts longer.
    pub acquired: bool,
}

/// A renewal is a grant that was held already.
pub type Renewed = Granted;

/// A lock of the caller that is to last longer.
struct Mine<'v> {
    entry: &'v Entry,
    payload: &'v Payload,
    /// It may not end before this, however short the new ttl is: another process of the same holder may rely on it.
    not_before: u64,
}

/// The judge took a change; a remote showed its refs while doing so.
struct Taken(Advertised);

/// What the judge has, and what only this clone has.
pub(crate) struct Views {
    pub(crate) judge: View,
    pub(crate) local: View,
}

impl<'a> Locks<'a> {
    /// The locks that `mode` judges, for this actor.
    pub fn open(repo: &'a Repo, mode: &Mode, me: impl Into<String>, clock: Clock<'a>) -> Result<Locks<'a>, Error> {
        Ok(Locks { repo, remote: repo.judge(mode)?, skew_ms: repo.skew_ms()?, me: me.into(), clock })
    }

    /// The remote that judges; none: this repository does.
    pub fn remote(&self) -> Option<&str> {
        self.remote.as_ref().map(Remote::name)
    }

    /// The same locks, for acts that are given up at this moment: no talk with the remote outlasts it.
    pub fn until(&self, deadline: Instant) -> Locks<'a> {
        let remote = self.remote.clone().map(|remote| remote.until(deadline));
        Locks { remote, ..self.clone() }
    }

    /// Takes a lock; one that the caller holds already is renewed, and never made to end earlier.
    pub fn acquire(&self, ask: Ask<'_>) -> Result<Granted, Error> {
        // One for all tries: by it a try is known that arrived although nobody said so.
        let nonce = Uuid::new_v4().to_string();
        let mut round = Round::first(self.remote.is_some());
        loop {
            let views = self.read(&mut round, What::All)?;
            let case = self.case(ask.name);
            let (slot, lapsed) = match case.acquire(&views.judge) {
                Verdict::Free { slot, lapsed } => (slot, lapsed),
                Verdict::Refused(_) if round.on_old_knowledge => {
                    round.fetch_next();
                    continue;
                }
                Verdict::Refused(conflict) => return Err(conflict.into()),
                Verdict::Mine(entry, payload) => {
                    let mine = Mine { entry, payload, not_before: payload.expires_unix_ms };
                    match self.extend(ask, &views, &mine, &mut round)? {
                        Some(granted) if granted.payload.nonce == nonce => {
                            return self.confirm(Granted { acquired: true, ..granted }, ask, &views, None);
                        }
                        Some(granted) => return Ok(granted),
                        None => continue,
                    }
                }
            };
            match self.local_only(&case, &views)? {
                Some(_) if round.on_old_knowledge => {
                    round.fetch_next();
                    continue;
                }
                Some(conflict) => return Err(conflict.into()),
                None => {}
            }
            if lapsed.len() > CHANGES_MAX {
                self.end_lapsed(&lapsed, ask.name, &views, &mut round)?;
                continue;
            }
            let (granted, changes) = self.write_grant(ask, &views, &case, &nonce, (slot, &lapsed))?;
            if let Some(Taken(advertised)) = self.take(&changes, ask.name, &views, &mut round)? {
                return self.confirm(granted, ask, &views, advertised);
            }
        }
    }

    /// Keeps a lock the caller holds (L5). Never revives one.
    pub fn renew(&self, ask: Ask<'_>) -> Result<Renewed, Error> {
        self.renew_if(ask, None)
    }

    /// Keeps the very grant with this nonce, and never makes it end earlier.
    pub fn renew_grant(&self, ask: Ask<'_>, nonce: &str) -> Result<Renewed, Error> {
        self.renew_if(ask, Some(nonce))
    }

    fn renew_if(&self, ask: Ask<'_>, nonce: Option<&str>) -> Result<Renewed, Error> {
        let mut round = Round::first(self.remote.is_some());
        loop {
            let views = self.read(&mut round, What::One(ask.name))?;
            match self.case(ask.name).renew(&views.judge) {
                Ok((entry, payload)) if is_meant(payload, nonce) => {
                    let not_before = nonce.map_or(0, |_| payload.expires_unix_ms);
                    let mine = Mine { entry, payload, not_before };
                    if let Some(renewed) = self.extend(ask, &views, &mine, &mut round)? {
                        return Ok(renewed);
                    }
                }
                _ if round.on_old_knowledge => round.fetch_next(),
                Ok(_) => return Err(Error::NotHeld(NotHeld::Absent(ask.name.to_string()))),
                Err(ended) => return Err(ended.into()),
            }
        }
    }

    /// Gives a lock back (L6): nothing happens if it is nobody's. Whether there was something to give back.
    pub fn release(&self, name: &LockName) -> Result<bool, Error> {
        self.release_if(name, None)
    }

    /// Gives the very grant with this nonce back, and leaves a later one of the same holder alone.
    pub fn release_grant(&self, name: &LockName, nonce: &str) -> Result<bool, Error> {
        self.release_if(name, Some(nonce))
    }

    fn release_if(&self, name: &LockName, nonce: Option<&str>) -> Result<bool, Error> {
        let mut round = Round::first(self.remote.is_some());
        loop {
            let views = self.read(&mut round, What::One(name))?;
            let case = self.case(name);
            let (entry, payload) = match case.release(&views.judge) {
                Ok(Some(mine)) if is_meant(mine.1, nonce) => mine,
                _ if round.on_old_knowledge => {
                    round.fetch_next();
                    continue;
                }
                Ok(Some(_)) => return Ok(false),
                Ok(None) => return self.release_local_only(&case, &views, nonce),
                Err(conflict) => return Err(conflict.into()),
            };
            let changes = [self.write_release(entry, payload, case.now)?];
            if self.take(&changes, name, &views, &mut round)?.is_some() {
                return Ok(true);
            }
        }
    }

    /// Tries once to make the caller's own lock last longer; none: it has to be judged anew.
    fn extend(
        &self,
        ask: Ask<'_>,
        views: &Views,
        mine: &Mine<'_>,
        round: &mut Round,
    ) -> Result<Option<Granted>, Error> {
        let Mine { entry, payload, not_before } = mine;
        let now = (self.clock)();
        let expires_unix_ms = now.plus_ms(ask.ttl.ms()).unix_ms().max(*not_before);
        let payload = Payload { expires_unix_ms, ..(*payload).clone() };
        let token = match entry.token {
            Some(token) => Some(token),
            None => self.token_by_nonce(&payload.nonce)?,
        };
        let commit = Commit { payload: &payload, parent: Some(&entry.oid), token, now };
        let (_, new) = commit.write(&self.repo.git, &self.repo.objects)?;
        match self.take(&[change(&entry.reference, Some(entry), new)], ask.name, views, round)? {
            Some(_) => self.in_time(Granted { payload, token, acquired: false }, ask.name).map(Some),
            None => Ok(None),
        }
    }

    /// Ends lapsed locks ahead of a grant that has no room for all of them. What was renewed meanwhile, or ended by
    /// somebody else, is judged anew.
    fn end_lapsed(
        &self,
        lapsed: &[(&Entry, &Payload)],
        name: &LockName,
        views: &Views,
        round: &mut Round,
    ) -> Result<(), Error> {
        for part in self.ends_of(lapsed)?.chunks(CHANGES_MAX) {
            if self.take(part, name, views, round)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A grant stands only if the remote had no other locks while taking it: what it was judged on may be old, and a
    /// remote shows its refs one after the other, so that a guard may have been fetched without the lock it came with.
    fn confirm(
        &self,
        granted: Granted,
        ask: Ask<'_>,
        judged: &Views,
        advertised: Advertised,
    ) -> Result<Granted, Error> {
        if self.remote.is_some() && !advertised.is_some_and(|refs| same_locks(&refs, &judged.judge)) {
            let views = match self.read(&mut Round::fetching(), What::All) {
                Ok(views) => views,
                Err(error) => return Err(self.given_back(&granted, ask.name, error)),
            };
            let case = self.case(ask.name);
            let others =
                View { locks: views.judge.locks.into_iter().filter(|e| !is_of(e, &granted)).collect(), guard: None };
            if let Verdict::Refused(conflict) = case.acquire(&others) {
                // A lock that another program brought to the remote without the guard: it was there first.
                return Err(self.given_back(&granted, ask.name, conflict.into()));
            }
        }
        self.in_time(granted, ask.name)
    }

    /// A lease that ended while the answer was on its way is given back, not reported as held.
    fn in_time(&self, granted: Granted, name: &LockName) -> Result<Granted, Error> {
        if granted.payload.is_live((self.clock)()) {
            return Ok(granted);
        }
        Err(self.given_back(&granted, name, Error::TooLate { resource: name.to_string() }))
    }

    /// Gives back what the remote took and nobody may rely on. The reason; or that the lock may be left behind.
    fn given_back(&self, granted: &Granted, name: &LockName, reason: Error) -> Error {
        match self.release_grant(name, &granted.payload.nonce) {
            Ok(_) => reason,
            Err(failed) => match reason {
                Error::RemoteUnavailable { .. } => reason.with_unknown_end(),
                _ => failed.with_unknown_end(),
            },
        }
    }

    fn write_grant(
        &self,
        ask: Ask<'_>,
        views: &Views,
        case: &Case<'_>,
        nonce: &str,
        (slot, lapsed): (Option<&Entry>, &[(&Entry, &Payload)]),
    ) -> Result<(Granted, Vec<Change>), Error> {
        let (git, objects) = (&self.repo.git, &self.repo.objects);
        let payload = Payload {
            owner: self.me.clone(),
            nonce: nonce.to_owned(),
            expires_unix_ms: case.now.plus_ms(ask.ttl.ms()).unix_ms(),
            resource: ask.name.to_string(),
        };
        // Larger than every token of the judge, and of this clone from before it had one.
        let token = views.judge.generation().max(views.local.generation()).saturating_add(1);
        let guard = views.judge.guard.as_ref().map(|guard| &guard.oid);
        let commit =
            Commit { payload: &payload, parent: slot.map(|entry| &entry.oid), token: Some(token), now: case.now };
        let (tree, new) = commit.write(git, objects)?;
        let new_guard = Commit { parent: guard, ..commit }.write_guard(git, objects, &tree)?;
        let mut changes = vec![change(&ask.name.ref_name(), slot, new)];
        changes.push(Change { reference: GUARD.to_owned(), old: guard.cloned(), new: Some(new_guard) });
        for (entry, payload) in lapsed {
            changes.push(self.write_release(entry, payload, case.now)?);
        }
        Ok((Granted { payload, token: Some(token), acquired: true }, changes))
    }

    pub(crate) fn write_release(&self, entry: &Entry, payload: &Payload, now: Timestamp) -> Result<Change, Error> {
        let released = payload.released();
        let commit = Commit { payload: &released, parent: Some(&entry.oid), token: entry.token, now };
        let (_, new) = commit.write(&self.repo.git, &self.repo.objects)?;
        Ok(change(&entry.reference, Some(entry), new))
    }

    fn case<'c>(&'c self, name: &'c LockName) -> Case<'c> {
        Case { name, me: &self.me, now: (self.clock)(), skew_ms: self.skew_ms }
    }

    /// Reads what the judge has: what was last seen of it while that may do, else the thing itself.
    fn read(&self, round: &mut Round, what: What<'_>) -> Result<Views, Error> {
        let local = Space::local();
        let Some(remote) = &self.remote else {
            let judge = view::read(self.repo, &[&local], what)?.pop().unwrap_or_default();
            return Ok(Views { judge: judge.clone(), local: judge });
        };
        let spaces = [&remote.space(), &local];
        if round.on_old_knowledge {
            let views = pair(view::read(self.repo, &spaces, what)?);
            if views.judge.guard.is_some() {
                return Ok(views);
            }
            round.on_old_knowledge = false;
        }
        remote.fetch_locks(self.repo).map_err(|error| round.told(error))?;
        Ok(pair(view::read(self.repo, &spaces, what)?))
    }

    /// Reads everything from the judge itself.
    pub(crate) fn read_fresh(&self) -> Result<Views, Error> {
        self.read(&mut Round::fetching(), What::All)
    }

    /// Reads what was last seen of the judge.
    pub(crate) fn read_last_seen(&self) -> Result<View, Error> {
        let space = self.remote.as_ref().map_or_else(Space::local, Remote::space);
        Ok(view::read(self.repo, &[&space], What::All)?.pop().unwrap_or_default())
    }

    /// Has the judge take the changes; none: they have to be judged anew.
    fn take(
        &self,
        changes: &[Change],
        name: &LockName,
        views: &Views,
        round: &mut Round,
    ) -> Result<Option<Taken>, Error> {
        match self.swap(changes).map_err(|error| round.told(error))? {
            Swapped::Done(advertised) => {
                self.settle(changes, name, views);
                return Ok(Some(Taken(advertised)));
            }
            Swapped::Refused(detail) => round.lost(self, changes, detail, || self.contended(name, views))?,
            Swapped::Unanswered { detail, sent } => round.unanswered(self, detail, sent)?,
        }
        Ok(None)
    }

    fn swap(&self, changes: &[Change]) -> Result<Swapped, Error> {
        let Some(remote) = &self.remote else { return swap::local(self.repo, changes) };
        match remote.push(self.repo, changes) {
            Ok(Pushed::Done(advertised)) => Ok(Swapped::Done(advertised)),
            Ok(Pushed::Refused(detail)) => Ok(Swapped::Refused(detail)),
            Ok(Pushed::Unknown(detail)) => self.ask_what_became(remote, changes, detail),
            Err(Error::RemoteUnavailable { detail, .. }) => {
                // Nothing was sent: is the remote away, or does it only take no pushes?
                remote.fetch_locks(self.repo)?;
                Ok(Swapped::Unanswered { detail, sent: false })
            }
            Err(error) => Err(error),
        }
    }

    /// A push without an answer: the remote's ref tells, because every attempt is a commit of its own.
    fn ask_what_became(&self, remote: &Remote, changes: &[Change], detail: String) -> Result<Swapped, Error> {
        if remote.fetch_locks(self.repo).is_err() {
            return Err(remote.unavailable(detail, true));
        }
        let view = view::read(self.repo, &[&remote.space()], What::All)?.pop().unwrap_or_default();
        let arrived = |change: &Change| view.at(&change.reference).map(|entry| &entry.oid) == change.new.as_ref();
        let lock = changes.first();
        match lock.is_some_and(arrived) {
            true => Ok(Swapped::Done(None)),
            // It may still be on its way.
            false => Ok(Swapped::Unanswered { detail, sent: true }),
        }
    }

    /// The judge took the change; make this clone's copies say the same. Copies decide nothing, so failing is fine.
    fn settle(&self, changes: &[Change], name: &LockName, views: &Views) {
        let Some(remote) = &self.remote else { return };
        let cached =
            changes.iter().map(|change| swap::Line::set(remote.cached(&change.reference), change.new.as_ref()));
        let own = name.ref_name();
        let copies = changes.iter().filter(|change| change.reference != GUARD).filter_map(|change| {
            let known = views.local.at(&change.reference).map(|entry| entry.oid.clone());
            // A copy of the caller's own lock is made; of others' only if there was one to correct.
            (change.reference == own || known.is_some())
                .then(|| swap::Line::swap(change.reference.clone(), change.new.as_ref(), known.as_ref()))
        });
        let (cached, copies): (Vec<_>, Vec<_>) = (cached.collect(), copies.collect());
        let all: Vec<swap::Line> = cached.iter().chain(&copies).cloned().collect();
        if !swap::write(self.repo, &all) {
            swap::write(self.repo, &cached);
            swap::write(self.repo, &copies);
        }
    }

    /// A lock that never reached the remote and is in the way here: its holder believes in it.
    fn local_only(&self, case: &Case<'_>, views: &Views) -> Result<Option<Conflict>, Error> {
        if self.remote.is_none() {
            return Ok(None);
        }
        for entry in &views.local.locks {
            let known = views.judge.at(&entry.reference).map(|judged| &judged.oid);
            if known == Some(&entry.oid) {
                continue;
            }
            let Some(conflict) = case.local_only(entry) else { continue };
            let replaced = match known {
                None => false,
                Some(judged) => self.is_ancestor(&entry.oid, judged)?,
            };
            if !replaced {
                return Ok(Some(conflict));
            }
        }
        Ok(None)
    }

    fn is_ancestor(&self, older: &Oid, newer: &Oid) -> Result<bool, Error> {
        Ok(self.repo.git.run(&["merge-base", "--is-ancestor", older.as_str(), newer.as_str()], b"")?.ok())
    }

    /// The judge has nothing of the caller's; a lock that only this clone knows is given back here.
    fn release_local_only(&self, case: &Case<'_>, views: &Views, nonce: Option<&str>) -> Result<bool, Error> {
        let mine = match self.remote {
            Some(_) => case.release(&views.local).ok().flatten(),
            None => None,
        };
        let Some((entry, payload)) = mine.filter(|(_, payload)| is_meant(payload, nonce)) else { return Ok(false) };
        if let Some(judged) = views.judge.at(&entry.reference)
            && self.is_ancestor(&entry.oid, &judged.oid)?
        {
            // An old copy of what the judge has ended: a release of its own would never fast-forward (G5).
            swap::write(self.repo, &[swap::Line::swap(entry.reference.clone(), Some(&judged.oid), Some(&entry.oid))]);
            return Ok(false);
        }
        let change = self.write_release(entry, payload, case.now)?;
        Ok(matches!(swap::local(self.repo, &[change])?, Swapped::Done(_)))
    }

    /// Looks a token up where no other program writes: the guard's history has every grant with its nonce.
    fn token_by_nonce(&self, nonce: &str) -> Result<Option<u64>, Error> {
        let guard = self.remote.as_ref().map_or(GUARD.to_owned(), |remote| remote.space().guard);
        crate::guard::token_of(&self.repo.git, &guard, nonce)
    }

    fn contended(&self, name: &LockName, views: &Views) -> Conflict {
        let last =
            views.judge.locks.iter().max_by_key(|entry| entry.token).and_then(|entry| entry.payload.clone().ok());
        Conflict {
            verb: Verb::Acquire,
            asked: name.to_string(),
            held: last.as_ref().map_or_else(String::new, |payload| payload.resource.clone()),
            owner: last.as_ref().map_or_else(|| "unknown".to_owned(), |payload| payload.owner.clone()),
            expires_unix_ms: last.as_ref().map_or(0, |payload| payload.expires_unix_ms),
            token: None,
            why: Why::Contended,
            expires_in_s: 0,
        }
    }
}

fn pair(views: Vec<View>) -> Views {
    let mut views = views.into_iter();
    Views { judge: views.next().unwrap_or_default(), local: views.next().unwrap_or_default() }
}

fn change(reference: &str, old: Option<&Entry>, new: Oid) -> Change {
    Change { reference: reference.to_owned(), old: old.map(|entry| entry.oid.clone()), new: Some(new) }
}

/// Whether a lock is the one that is spoken of: any of the caller's, or the grant with this nonce.
fn is_meant(payload: &Payload, nonce: Option<&str>) -> bool {
    nonce.is_none_or(|nonce| payload.nonce == nonce)
}

fn is_of(entry: &Entry, granted: &Granted) -> bool {
    entry.payload.as_ref().is_ok_and(|payload| payload.nonce == granted.payload.nonce)
}

/// Whether the remote showed exactly the locks that were judged.
fn same_locks(refs: &std::collections::HashMap<String, Oid>, judged: &View) -> bool {
    let shown = refs.iter().filter(|(name, _)| name.starts_with(crate::name::LOCKS)).count();
    shown == judged.locks.len() && judged.locks.iter().all(|entry| refs.get(&entry.reference) == Some(&entry.oid))
}
