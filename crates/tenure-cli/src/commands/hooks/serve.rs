//! Owns what the hooks decide: which paths are touched, and what the locks say about them.

use std::collections::BTreeSet;
use std::io::Read;

use tenure_git::policy::{Policy, Touched, against_push, line, touched};
use tenure_git::status::{Listed, Status};
use tenure_git::{Error, LockName, Locks, Mode};

use super::super::lock::door::now;
use super::super::lock::{Door, explain, path_name, visible, why_not};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// How many reasons are printed; a tree-wide change has thousands.
const REASONS_MAX: usize = 20;

/// Before a commit: the staged paths.
pub(super) fn pre_commit(door: &Door, output: Output) -> Outcome {
    let policy = door.repo.policy().map_err(explain)?;
    if policy == Policy::Off {
        return Ok(Exit::OK);
    }
    let staged = ["diff", "--cached", "--name-only", "-z", "--no-renames"];
    let paths = paths_in(&door.repo.git.done(&staged, b"").map_err(explain)?.text());
    let me = door.looker()?.map(|(actor, _)| actor.id);
    let Some(status) = look(door, policy, output)? else { return Ok(Exit::OK) };
    let mut found = Found::default();
    found.touched(policy, &status, &touched(&status, me.as_deref(), &names(&paths)));
    say(policy, found, "commit", output)
}

/// Before a push: nobody else may be at work on the repository as a whole.
pub(super) fn pre_push(door: &Door, output: Output) -> Outcome {
    let policy = door.repo.policy().map_err(explain)?;
    let pushes_work = updates()?.iter().any(|update| !is_own(&update.reference));
    if policy == Policy::Off || !pushes_work {
        return Ok(Exit::OK);
    }
    let me = door.looker()?.map(|(actor, _)| actor.id);
    let Some(status) = look(door, policy, output)? else { return Ok(Exit::OK) };
    let mut found = Found::default();
    found.held(against_push(&status, me.as_deref()), &status);
    say(policy, found, "push", output)
}

/// On the server, for everybody who pushes. Its own refs are the locks.
pub(super) fn pre_receive(door: &Door, output: Output) -> Outcome {
    let policy = door.repo.policy().map_err(explain)?;
    let updates: Vec<Update> = updates()?.into_iter().filter(|update| !is_own(&update.reference)).collect();
    if policy == Policy::Off || updates.is_empty() {
        return Ok(Exit::OK);
    }
    let me = pusher();
    let locks = Locks::open(&door.repo, &Mode::Local, me.clone().unwrap_or_default(), &now).map_err(explain)?;
    let status = locks.status().map_err(explain)?;
    let mut found = Found::default();
    found.held(against_push(&status, me.as_deref()), &status);
    let mut paths = BTreeSet::new();
    for update in &updates {
        paths.extend(update.touched(door)?);
    }
    found.touched(policy, &status, &touched(&status, me.as_deref(), &names(&paths)));
    if me.is_none() && policy == Policy::Require && !found.lines.is_empty() {
        found.lines.push("nobody said who pushes: git push -o tenure-actor=ID".to_owned());
    }
    say(policy, found, "push", output)
}

/// The locks as the judge has them. Out of reach, what was last seen is enough for `require` to know the caller's own.
fn look(door: &Door, policy: Policy, output: Output) -> Result<Option<Status>, Failure> {
    let locks = door.locks_to_look()?;
    match locks.status() {
        Ok(status) => Ok(Some(status)),
        Err(Error::RemoteUnavailable { name, .. }) => {
            output.note(&format!("Warning: remote '{name}' cannot be reached; judged by the locks as last seen"));
            let status = locks.status_as_last_seen().map_err(explain)?;
            Ok((policy == Policy::Require).then_some(status))
        }
        Err(error) => Err(explain(error)),
    }
}

/// What the locks have against an act.
#[derive(Default)]
struct Found {
    /// Why, a line each.
    lines: Vec<String>,
    /// A lock of somebody else in the way.
    in_the_way: Option<Listed>,
    /// Whether something is touched that nobody has locked.
    is_uncovered: bool,
}

impl Found {
    /// Locks of others.
    fn held(&mut self, locks: Vec<Listed>, status: &Status) {
        self.lines.extend(locks.iter().map(|lock| visible(&line(lock, status.now))));
        self.in_the_way = self.in_the_way.take().or(locks.into_iter().next());
    }

    /// What is touched, as far as the policy has something to say about it.
    fn touched(&mut self, policy: Policy, status: &Status, looked: &[Touched]) {
        let speaks = |touched: &&Touched| match policy {
            Policy::Require => !touched.is_fine(policy),
            _ => !touched.held_by.is_empty(),
        };
        let mut seen: BTreeSet<String> = self.lines.iter().cloned().collect();
        for touched in looked.iter().filter(speaks) {
            self.lines.extend(why_not(touched, status).into_iter().filter(|line| seen.insert(line.clone())));
            self.in_the_way = self.in_the_way.take().or_else(|| touched.held_by.first().cloned());
            self.is_uncovered |= touched.held_by.is_empty();
        }
    }

    /// What would make the act possible.
    fn hints(&self, act: &str) -> Vec<String> {
        let wait = self.in_the_way.as_ref().map(|Listed { name, owner, .. }| {
            visible(&format!("{owner} holds {name}: {act} again when it is given back; 'tenure lock status' tells"))
        });
        let take = "take the lock first: tenure lock acquire --resource path:PATH --ttl 30m";
        wait.into_iter().chain(self.is_uncovered.then(|| take.to_owned())).collect()
    }
}

fn say(policy: Policy, found: Found, act: &str, output: Output) -> Outcome {
    let lines = &found.lines;
    if lines.is_empty() {
        return Ok(Exit::OK);
    }
    let head = if policy == Policy::Require { "Error" } else { "Warning" };
    for line in lines.iter().take(REASONS_MAX) {
        output.note(&format!("{head}: {line}"));
    }
    if lines.len() > REASONS_MAX {
        output.note(&format!("{head}: and {} more", lines.len() - REASONS_MAX));
    }
    if policy != Policy::Require {
        return Ok(Exit::OK);
    }
    let failure =
        Failure::new(Exit::CONFLICT, "conflict", format!("the lock policy of this repository refuses this {act}"));
    Err(found.hints(act).into_iter().fold(failure, Failure::hint))
}

/// One line of what git tells a hook about a ref.
struct Update {
    old: String,
    new: String,
    reference: String,
}

impl Update {
    /// Every path that this update touches: in each commit that is new here, and what a reset takes back.
    fn touched(&self, door: &Door) -> Result<BTreeSet<String>, Failure> {
        let git = &door.repo.git;
        let mut paths = BTreeSet::new();
        if is_nothing(&self.new) {
            return Ok(paths);
        }
        let log = ["log", "-z", "-c", "--name-only", "--no-renames", "--format=", &self.new, "--not", "--all"];
        paths.extend(paths_in(&git.done(&log, b"").map_err(explain)?.text()));
        let goes_on = || git.run(&["merge-base", "--is-ancestor", &self.old, &self.new], b"").map(|output| output.ok());
        if !is_nothing(&self.old) && !goes_on().map_err(explain)? {
            let diff = ["diff", "-z", "--name-only", "--no-renames", &self.old, &self.new];
            paths.extend(paths_in(&git.done(&diff, b"").map_err(explain)?.text()));
        }
        Ok(paths)
    }
}

/// Reads both forms: `local sha remote sha` of a push, `old new ref` of a receive.
fn updates() -> Result<Vec<Update>, Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(anyhow::Error::from)?;
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (old, new, reference) = match fields[..] {
            [_, new, reference, old] => (old, new, reference),
            [old, new, reference] => (old, new, reference),
            _ => return None,
        };
        Some(Update { old: old.to_owned(), new: new.to_owned(), reference: reference.to_owned() })
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// Locks and issues are not work on files.
fn is_own(reference: &str) -> bool {
    reference.starts_with("refs/grite/") || reference.starts_with("refs/tenure/")
}

fn is_nothing(oid: &str) -> bool {
    oid.bytes().all(|byte| byte == b'0')
}

/// Who pushes, as the pusher says: a push option, else the environment of a push on this machine. A name, no proof.
fn pusher() -> Option<String> {
    let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let count: usize = get("GIT_PUSH_OPTION_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    let mut options = (0..count).rev().filter_map(|number| get(&format!("GIT_PUSH_OPTION_{number}")));
    // The last one counts, as in git's own settings.
    let named = options.find_map(|option| option.strip_prefix("tenure-actor=").map(str::to_owned));
    named.or_else(|| get("TENURE_ACTOR"))
}

fn paths_in(listed: &str) -> BTreeSet<String> {
    let paths = listed.split('\0').map(|path| path.trim_start_matches('\n'));
    paths.filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

fn names(paths: &BTreeSet<String>) -> Vec<LockName> {
    paths.iter().map(|path| path_name(path)).collect()
}
