//! Owns the acts: acquire, renew, release. Reads, lets [`crate::judge`] decide, writes, and has the change taken by
//! the judge, or starts again.
//!
//! With a remote the first try is judged on what was last seen of it, so that an act is one push: the remote refuses
//! it if the locks it rests on have changed, and otherwise shows its refs while taking it. Only when that does not
//! settle the matter are the remote's locks fetched. Nothing is refused on old knowledge.

use std::thread;
use std::time::Duration;

use tenure_core::{Timestamp, Ttl};
use uuid::Uuid;

use crate::error::{Conflict, Error, Verb, Why};
use crate::judge::{Case, Verdict};
use crate::limits::{ATTEMPTS_MAX, BACKOFF_MS_MAX, BACKOFF_MS_MIN, UNMOVED_REFUSALS_MAX};
use crate::name::LockName;
use crate::objects::Oid;
use crate::record::{Commit, Payload};
use crate::remote::{Advertised, Change, Pushed, Remote};
use crate::repo::{Mode, Repo};
use crate::swap::{self, Swapped};
use crate::view::{self, Entry, GUARD, Space, View, What};

/// Tells the time.
pub type Clock<'a> = &'a dyn Fn() -> Timestamp;

/// The locks of a repository, as one agent deals with them.
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

    /// Takes a lock, or renews it if the caller holds it already.
    pub fn acquire(&self, ask: Ask<'_>) -> Result<Granted, Error> {
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
                Verdict::Mine(entry, payload) => match self.extend(ask, &views, (entry, payload), &mut round)? {
                    Some(granted) => return Ok(granted),
                    None => continue,
                },
            };
            match self.local_only(&case, &views)? {
                Some(_) if round.on_old_knowledge => {
                    round.fetch_next();
                    continue;
                }
                Some(conflict) => return Err(conflict.into()),
                None => {}
            }
            let (granted, changes) = self.write_grant(ask, &views, &case, slot, &lapsed)?;
            match self.swap(&changes)? {
                Swapped::Done(advertised) => {
                    self.settle(&changes, &views);
                    return self.confirm(granted, ask, &views, advertised);
                }
                Swapped::Refused(detail) => round.lost(self, &changes, detail, || self.contended(ask.name, &views))?,
            }
        }
    }

    /// Keeps a lock the caller holds (L5). Never revives one.
    pub fn renew(&self, ask: Ask<'_>) -> Result<Renewed, Error> {
        let mut round = Round::first(self.remote.is_some());
        loop {
            let views = self.read(&mut round, What::One(ask.name))?;
            match self.case(ask.name).renew(&views.judge) {
                Err(_) if round.on_old_knowledge => round.fetch_next(),
                Err(ended) => return Err(ended.into()),
                Ok(mine) => {
                    if let Some(renewed) = self.extend(ask, &views, mine, &mut round)? {
                        return Ok(renewed);
                    }
                }
            }
        }
    }

    /// Gives a lock back (L6): nothing happens if it is nobody's. Whether there was something to give back.
    pub fn release(&self, name: &LockName) -> Result<bool, Error> {
        let mut round = Round::first(self.remote.is_some());
        loop {
            let views = self.read(&mut round, What::One(name))?;
            let case = self.case(name);
            let (entry, payload) = match case.release(&views.judge) {
                Ok(Some(mine)) => mine,
                _ if round.on_old_knowledge => {
                    round.fetch_next();
                    continue;
                }
                Ok(None) => return self.release_local_only(&case, &views),
                Err(conflict) => return Err(conflict.into()),
            };
            let changes = [self.write_release(entry, payload, case.now)?];
            match self.swap(&changes)? {
                Swapped::Done(_) => {
                    self.settle(&changes, &views);
                    return Ok(true);
                }
                Swapped::Refused(detail) => round.lost(self, &changes, detail, || self.contended(name, &views))?,
            }
        }
    }

    /// Tries once to make the caller's own lock last longer; none: it has to be judged anew.
    fn extend(
        &self,
        ask: Ask<'_>,
        views: &Views,
        (entry, payload): (&Entry, &Payload),
        round: &mut Round,
    ) -> Result<Option<Granted>, Error> {
        let now = (self.clock)();
        let payload = Payload { expires_unix_ms: now.plus_ms(ask.ttl.ms()).unix_ms(), ..payload.clone() };
        let token = match entry.token {
            Some(token) => Some(token),
            None => self.token_by_nonce(&payload.nonce)?,
        };
        let commit = Commit { payload: &payload, parent: Some(&entry.oid), token, now };
        let (_, new) = commit.write(&self.repo.git, &self.repo.objects)?;
        let changes = [change(&entry.reference, Some(entry), new)];
        match self.swap(&changes)? {
            Swapped::Done(_) => {
                self.settle(&changes, views);
                self.in_time(Granted { payload, token, acquired: false }, ask.name).map(Some)
            }
            Swapped::Refused(detail) => {
                round.lost(self, &changes, detail, || self.contended(ask.name, views))?;
                Ok(None)
            }
        }
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
            let views = self.read(&mut Round::fetching(), What::All)?;
            let case = self.case(ask.name);
            let others =
                View { locks: views.judge.locks.into_iter().filter(|e| !is_of(e, &granted)).collect(), guard: None };
            if let Verdict::Refused(conflict) = case.acquire(&others) {
                // A lock that another program brought to the remote without the guard: it was there first.
                self.release(ask.name)?;
                return Err(conflict.into());
            }
        }
        self.in_time(granted, ask.name)
    }

    /// A lease that ended while the answer was on its way is given back, not reported as held.
    fn in_time(&self, granted: Granted, name: &LockName) -> Result<Granted, Error> {
        if granted.payload.is_live((self.clock)()) {
            return Ok(granted);
        }
        self.release(name)?;
        Err(Error::TooLate { resource: name.to_string() })
    }

    fn write_grant(
        &self,
        ask: Ask<'_>,
        views: &Views,
        case: &Case<'_>,
        slot: Option<&Entry>,
        lapsed: &[(&Entry, &Payload)],
    ) -> Result<(Granted, Vec<Change>), Error> {
        let (git, objects) = (&self.repo.git, &self.repo.objects);
        let payload = Payload {
            owner: self.me.clone(),
            nonce: Uuid::new_v4().to_string(),
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

    fn write_release(&self, entry: &Entry, payload: &Payload, now: Timestamp) -> Result<Change, Error> {
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
        remote.fetch_locks(self.repo)?;
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

    fn swap(&self, changes: &[Change]) -> Result<Swapped, Error> {
        match &self.remote {
            None => swap::local(self.repo, changes),
            Some(remote) => match remote.push(self.repo, changes)? {
                Pushed::Done(advertised) => Ok(Swapped::Done(advertised)),
                Pushed::Refused(detail) => Ok(Swapped::Refused(detail)),
                Pushed::Unknown(detail) => self.ask_what_became(remote, changes, detail),
            },
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
        if lock.is_some_and(arrived) { Ok(Swapped::Done(None)) } else { Ok(Swapped::Refused(detail)) }
    }

    /// The judge took the change; make this clone's copies say the same. Copies decide nothing, so failing is fine.
    fn settle(&self, changes: &[Change], views: &Views) {
        let Some(remote) = &self.remote else { return };
        let cached =
            changes.iter().map(|change| swap::Line::set(remote.cached(&change.reference), change.new.as_ref()));
        let copies = changes.iter().filter(|change| change.reference != GUARD).filter_map(|change| {
            let known = views.local.at(&change.reference).map(|entry| entry.oid.clone());
            // A copy of the caller's own lock is made; of others' only if there was one to correct.
            let is_own = changes.first().is_some_and(|own| own.reference == change.reference);
            (is_own || known.is_some())
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
    fn release_local_only(&self, case: &Case<'_>, views: &Views) -> Result<bool, Error> {
        let mine = match self.remote {
            Some(_) => case.release(&views.local).ok().flatten(),
            None => None,
        };
        let Some((entry, payload)) = mine else { return Ok(false) };
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

fn is_of(entry: &Entry, granted: &Granted) -> bool {
    entry.payload.as_ref().is_ok_and(|payload| payload.nonce == granted.payload.nonce)
}

/// Whether the remote showed exactly the locks that were judged.
fn same_locks(refs: &std::collections::HashMap<String, Oid>, judged: &View) -> bool {
    let shown = refs.iter().filter(|(name, _)| name.starts_with(crate::name::LOCKS)).count();
    shown == judged.locks.len() && judged.locks.iter().all(|entry| refs.get(&entry.reference) == Some(&entry.oid))
}

/// The bounded fight for a change.
struct Round {
    attempt: u32,
    on_old_knowledge: bool,
    /// What the last refused change rested on, and how often that did not move.
    refused: Option<(Vec<Option<Oid>>, u32)>,
}

impl Round {
    fn first(has_remote: bool) -> Round {
        Round { attempt: 0, on_old_knowledge: has_remote, refused: None }
    }

    fn fetching() -> Round {
        Round { attempt: 0, on_old_knowledge: false, refused: None }
    }

    fn fetch_next(&mut self) {
        self.on_old_knowledge = false;
    }

    /// A change was refused: pause and try again, or give up.
    fn lost(
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
}

/// Longer after every lost race, and never the same for two who lost the same one.
pub(crate) fn pause(attempt: u32) {
    let ceiling = (BACKOFF_MS_MIN << attempt.min(10)).min(BACKOFF_MS_MAX);
    let random = u64::from(Uuid::new_v4().as_fields().0);
    thread::sleep(Duration::from_millis(BACKOFF_MS_MIN + random % ceiling));
}
