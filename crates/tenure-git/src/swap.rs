//! Owns compare-and-swap on this repository's own refs: all lines or none. As files where [`crate::loose`] can, else
//! through `git update-ref`.

use std::time::Duration;

use crate::error::Error;
use crate::heal;
use crate::limits::REF_LOCK_WAIT_MS;
use crate::loose;
use crate::objects::{Hash, Oid};
use crate::remote::{Advertised, Change};
use crate::repo::Repo;

/// How often a busy `.lock` file is asked for again within its waiting time.
const BUSY_ATTEMPTS: u32 = 20;

/// What became of a change.
#[derive(Debug)]
pub(crate) enum Swapped {
    /// All of it is made. A remote also shows what it had.
    Done(Advertised),
    /// None of it is made; why, in git's words.
    Refused(String),
    /// Nobody said, and the remote does not have it.
    Unanswered {
        /// git's words.
        detail: String,
        /// It may still arrive.
        sent: bool,
    },
}

/// One line for `git update-ref --stdin`.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) reference: String,
    pub(crate) new: Option<Oid>,
    /// None: whatever it was.
    pub(crate) expected: Option<Option<Oid>>,
}

impl Line {
    /// Sets a ref, whatever it was.
    pub(crate) fn set(reference: String, new: Option<&Oid>) -> Line {
        Line { reference, new: new.cloned(), expected: None }
    }

    /// Sets a ref if it is what was judged.
    pub(crate) fn swap(reference: String, new: Option<&Oid>, old: Option<&Oid>) -> Line {
        Line { reference, new: new.cloned(), expected: Some(old.cloned()) }
    }

    fn text(&self, hash: Hash) -> String {
        let hex = |oid: &Option<Oid>| oid.as_ref().map_or(hash.zero(), Oid::as_str).to_owned();
        let expected = self.expected.as_ref().map(|old| format!(" {}", hex(old))).unwrap_or_default();
        match &self.new {
            Some(new) => format!("update {} {new}{expected}\n", self.reference),
            None => format!("delete {}{expected}\n", self.reference),
        }
    }
}

fn text(repo: &Repo, lines: &[Line]) -> String {
    lines.iter().map(|line| line.text(repo.objects.hash)).collect()
}

/// Makes all changes or none, each only if its ref still is what was judged.
pub(crate) fn local(repo: &Repo, changes: &[Change]) -> Result<Swapped, Error> {
    let line = |change: &Change| Line::swap(change.reference.clone(), change.new.as_ref(), change.old.as_ref());
    let lines: Vec<Line> = changes.iter().map(line).collect();
    match loose::swap(repo, &lines) {
        loose::Outcome::Done => return Ok(Swapped::Done(None)),
        loose::Outcome::Refused(detail) => return Ok(Swapped::Refused(detail)),
        loose::Outcome::LeftToGit => {}
    }
    let text = text(repo, &lines);
    for attempt in 0.. {
        let output = repo.git.run(&["update-ref", "--stdin"], text.as_bytes())?;
        if output.ok() {
            return Ok(Swapped::Done(None));
        }
        let Some(in_the_way) = heal::error_about(&output.stderr, &repo.common_dir) else {
            return Ok(Swapped::Refused(output.complaint()));
        };
        if heal::heal_named_in(&output.stderr, &repo.common_dir)?.is_none() {
            if attempt >= BUSY_ATTEMPTS {
                return Err(in_the_way);
            }
            std::thread::sleep(Duration::from_millis(REF_LOCK_WAIT_MS / u64::from(BUSY_ATTEMPTS)));
        }
    }
    Ok(Swapped::Refused(String::new()))
}

/// Writes copies that decide nothing; whether it worked.
pub(crate) fn write(repo: &Repo, lines: &[Line]) -> bool {
    if lines.is_empty() {
        return true;
    }
    match loose::swap(repo, lines) {
        loose::Outcome::Done => true,
        loose::Outcome::Refused(_) => false,
        loose::Outcome::LeftToGit => write_through_git(repo, lines),
    }
}

fn write_through_git(repo: &Repo, lines: &[Line]) -> bool {
    repo.git.run(&["update-ref", "--stdin"], text(repo, lines).as_bytes()).is_ok_and(|out| out.ok())
}
