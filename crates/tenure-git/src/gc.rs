//! Owns removing locks that are over, where that is harmless.
//!
//! A clone of another program that has not seen a release brings a deleted ref back with the state it knows. So a ref
//! is removed only when *every* state in its history has run out; until then its release stays.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::error::Error;
use crate::git::Git;
use crate::heal::heal_all;
use crate::lease::Locks;
use crate::limits::CHANGES_MAX;
use crate::objects::Oid;
use crate::record::Payload;
use crate::remote::Change;
use crate::swap::{self, Swapped};
use crate::view::{Entry, View, read_payloads};

/// What was done.
#[derive(Debug, Default)]
pub struct Collected {
    /// The resources whose refs were removed.
    pub removed: Vec<String>,
    /// Locks that are held, or too freshly over.
    pub held: usize,
    /// Over, but an older state of them could still come back to life: kept as they are.
    pub waiting: usize,
    /// Over, but somebody took or changed them meanwhile.
    pub changed: usize,
    /// Refs that cannot be read, they or what they were before: nobody knows whether they may go.
    pub unreadable: Vec<String>,
    /// Lock files of killed processes that were removed.
    pub healed: Vec<PathBuf>,
    /// Lock files that are too young to be touched.
    pub busy: Vec<PathBuf>,
}

impl Collected {
    /// All refs that still stand.
    pub fn kept(&self) -> usize {
        self.held + self.waiting + self.changed + self.unreadable.len()
    }
}

impl Locks<'_> {
    /// Removes what is over, from the judge and from this clone.
    pub fn gc(&self) -> Result<Collected, Error> {
        let (healed, busy) = heal_all(&self.repo.common_dir)?;
        let views = self.read_fresh()?;
        let mut collected = Collected { healed, busy, ..Collected::default() };
        let doomed = self.over(&views.judge, &mut collected)?;
        let gone = match &self.remote {
            None => self.remove_here(&doomed)?,
            Some(remote) => {
                let mut gone = Vec::new();
                for chunk in doomed.chunks(CHANGES_MAX) {
                    gone.extend(remote.push_any(self.repo, &deletions(chunk))?);
                }
                gone
            }
        };
        collected.changed = doomed.len() - gone.len();
        let removed = doomed.iter().filter(|entry| gone.contains(&entry.reference));
        collected.removed = removed.filter_map(|entry| entry.name()).map(|name| name.to_string()).collect();
        collected.removed.sort();
        if self.remote.is_some() {
            // The same rule for this clone's copies, or a program that synchronises them would bring them back.
            let copies = self.over(&views.local, &mut Collected::default())?;
            self.remove_here(&copies)?;
        }
        Ok(collected)
    }

    /// The refs that may go.
    fn over<'v>(&self, view: &'v View, collected: &mut Collected) -> Result<Vec<&'v Entry>, Error> {
        let now = (self.clock)();
        let mut candidates = Vec::new();
        for entry in &view.locks {
            match &entry.payload {
                Err(_) => collected.unreadable.push(entry.reference.clone()),
                Ok(payload) if payload.is_free(now, self.skew_ms) => candidates.push(entry),
                Ok(_) => collected.held += 1,
            }
        }
        let histories = Histories::read(self.repo, &candidates)?;
        let (candidates, torn): (Vec<&Entry>, Vec<&Entry>) =
            candidates.into_iter().partition(|entry| histories.has(entry));
        collected.unreadable.extend(torn.into_iter().map(|entry| entry.reference.clone()));
        let is_over = |payload: &Payload| payload.is_free(now, self.skew_ms);
        let (over, waiting): (Vec<&Entry>, Vec<&Entry>) =
            candidates.into_iter().partition(|entry| histories.all(&entry.oid, is_over));
        collected.waiting = waiting.len();
        Ok(over)
    }

    /// How lapsed locks are ended: removed where that is harmless, which writes no objects and leaves less to read;
    /// else marked released.
    pub(crate) fn ends_of(&self, lapsed: &[(&Entry, &Payload)]) -> Result<Vec<Change>, Error> {
        let now = (self.clock)();
        let entries: Vec<&Entry> = lapsed.iter().map(|(entry, _)| *entry).collect();
        let histories = Histories::read(self.repo, &entries)?;
        let is_over = |payload: &Payload| payload.is_free(now, self.skew_ms);
        let end = |(entry, payload): &(&Entry, &Payload)| match histories.all(&entry.oid, is_over) {
            true => Ok(deletion(entry)),
            false => self.write_release(entry, payload, now),
        };
        lapsed.iter().map(end).collect()
    }

    fn remove_here(&self, doomed: &[&Entry]) -> Result<Vec<String>, Error> {
        let mut gone = Vec::new();
        for chunk in doomed.chunks(CHANGES_MAX) {
            if matches!(swap::local(self.repo, &deletions(chunk))?, Swapped::Done(_)) {
                gone.extend(chunk.iter().map(|entry| entry.reference.clone()));
                continue;
            }
            // One of them has changed; the others may still go.
            for entry in chunk {
                if matches!(swap::local(self.repo, &deletions(&[entry]))?, Swapped::Done(_)) {
                    gone.push(entry.reference.clone());
                }
            }
        }
        Ok(gone)
    }
}

fn deletions(entries: &[&Entry]) -> Vec<Change> {
    entries.iter().map(|entry| deletion(entry)).collect()
}

fn deletion(entry: &Entry) -> Change {
    Change { reference: entry.reference.clone(), old: Some(entry.oid.clone()), new: None }
}

/// The states that some locks went through, read in two processes for all of them.
struct Histories {
    parents: HashMap<Oid, Vec<Oid>>,
    payloads: HashMap<Oid, Result<Payload, String>>,
}

impl Histories {
    fn read(repo: &crate::repo::Repo, tips: &[&Entry]) -> Result<Histories, Error> {
        if tips.is_empty() {
            return Ok(Histories { parents: HashMap::new(), payloads: HashMap::new() });
        }
        let parents = ancestry(&repo.git, tips)?;
        let payloads = read_payloads(&repo.git, &parents.keys().collect::<Vec<_>>())?;
        Ok(Histories { parents, payloads })
    }

    /// Whether what a lock went through could be read.
    fn has(&self, tip: &Entry) -> bool {
        self.parents.contains_key(&tip.oid)
    }

    /// Whether every state behind this commit is known and passes.
    fn all(&self, tip: &Oid, passes: impl Fn(&Payload) -> bool) -> bool {
        let mut to_see = vec![tip];
        let mut seen = std::collections::HashSet::new();
        while let Some(oid) = to_see.pop() {
            if !seen.insert(oid) {
                continue;
            }
            match (self.parents.get(oid), self.payloads.get(oid)) {
                (Some(parents), Some(Ok(payload))) if passes(payload) => to_see.extend(parents),
                _ => return false,
            }
        }
        true
    }
}

/// The commits behind some locks with their parents. One that git cannot follow stops the whole listing, so it is looked
/// for by halves, and only its own lock is left out.
fn ancestry(git: &Git, tips: &[&Entry]) -> Result<HashMap<Oid, Vec<Oid>>, Error> {
    let asked: String = tips.iter().map(|entry| format!("{}\n", entry.oid)).collect();
    let listed = git.run(&["rev-list", "--parents", "--stdin"], asked.as_bytes())?;
    if listed.ok() {
        let parse = |line: &str| {
            let mut ids = line.split(' ').filter_map(Oid::parse);
            Some((ids.next()?, ids.collect()))
        };
        return Ok(listed.text().lines().filter_map(parse).collect());
    }
    if tips.len() < 2 {
        return Ok(HashMap::new());
    }
    let (some, others) = tips.split_at(tips.len() / 2);
    let mut parents = ancestry(git, some)?;
    parents.extend(ancestry(git, others)?);
    Ok(parents)
}
