//! Owns what the hooks decide: what the locks say about the paths that are touched.

use std::collections::BTreeSet;
use std::path::Path;

use tenure_git::actor::{Actor, Source, Wanted};
use tenure_git::policy::{Policy, Touched, against_push, line, touched};
use tenure_git::status::{Listed, Status};
use tenure_git::{Error, LockName, Locks, Mode};

use super::super::lock::door::now;
use super::super::lock::{Door, explain, path_name, visible, why_not};
use super::pushed::{Base, Update, paths_in, updates};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// How many reasons are printed; a tree-wide change has thousands.
const REASONS_MAX: usize = 20;

/// Before a commit: the staged paths.
pub(super) fn pre_commit(door: &Door, output: Output) -> Outcome {
    let is_merge = door.repo.git.run(&["rev-parse", "-q", "--verify", "MERGE_HEAD"], b"").map_err(explain)?.ok();
    commit(door, is_merge, output)
}

/// Before a merge that git commits by itself: the paths that it brings.
pub(super) fn pre_merge_commit(door: &Door, output: Output) -> Outcome {
    commit(door, true, output)
}

fn commit(door: &Door, is_merge: bool, output: Output) -> Outcome {
    decide(door, output, |policy| {
        let paths = if is_merge { merged(door)? } else { staged(door, &[])? };
        let me = acting(door, output)?;
        let Some(status) = look(door, me.as_deref(), policy, output)? else { return Ok(Exit::OK) };
        let mut found = Found::default();
        found.touched(policy, &status, &touched(&status, me.as_deref(), &names(&paths)));
        say(policy, found, "commit", output)
    })
}

/// Before a push: nobody else may be at work on the repository as a whole, or on a path that is pushed. Sees what git
/// asks no hook about when it is committed.
pub(super) fn pre_push(door: &Door, remote: &str, output: Output) -> Outcome {
    decide(door, output, |policy| {
        let git = &door.repo.git;
        let work = updates()?.into_iter().filter(Update::is_work);
        let updates = work.map(|update| update.known_here(git)).collect::<Result<Vec<_>, _>>()?;
        if updates.is_empty() {
            return Ok(Exit::OK);
        }
        let me = acting(door, output)?;
        let Some(status) = look(door, me.as_deref(), policy, output)? else { return Ok(Exit::OK) };
        let paths = pushed(door, &updates, &Base::of_remote(git, remote)?)?;
        say(policy, Found::in_push(policy, &status, me.as_deref(), &paths), "push", output)
    })
}

/// On the server, for everybody who pushes. Its own refs are the locks.
pub(super) fn pre_receive(door: &Door, output: Output) -> Outcome {
    decide(door, output, |policy| {
        let git = &door.repo.git;
        let (work, own): (Vec<Update>, Vec<Update>) = updates()?.into_iter().partition(Update::is_work);
        let mut found = Found::default();
        if !work.is_empty() {
            let me = pusher();
            let locks = Locks::open(&door.repo, &Mode::Local, me.clone().unwrap_or_default(), &now).map_err(explain)?;
            let paths = pushed(door, &work, &Base::here(git)?)?;
            found = Found::in_push(policy, &locks.status().map_err(explain)?, me.as_deref(), &paths);
            if me.is_none() && policy == Policy::Require && !found.lines.is_empty() {
                found.lines.push("nobody said who pushes: git push -o tenure-actor=ID".to_owned());
            }
        }
        for update in &own {
            found.lines.extend(update.stray(git)?.map(|line| visible(&line)));
        }
        say(policy, found, "push", output)
    })
}

/// Has a hook decide. Only `require` refuses: under `warn` what goes wrong is said, and no more.
fn decide(door: &Door, output: Output, hook: impl FnOnce(Policy) -> Outcome) -> Outcome {
    let policy = door.repo.policy().map_err(explain)?;
    match policy {
        Policy::Off => Ok(Exit::OK),
        Policy::Require => hook(policy),
        Policy::Warn => hook(policy).or_else(|failure| {
            output.note(&format!("Warning: nobody looked at the locks: {}", visible(&failure.message)));
            Ok(Exit::OK)
        }),
    }
}

/// Who acts here, if anybody. What the environment says may be meant for another repository, or from another folder:
/// `lock run` hands its actor to everything below it, and git has gone to the top before it calls a hook.
fn acting(door: &Door, output: Output) -> Result<Option<String>, Failure> {
    let id = |found: Option<(Actor, Source)>| found.map(|(actor, _)| actor.id);
    let failure = match door.looker() {
        Ok(found) => return Ok(id(found)),
        Err(failure) if set("TENURE_ACTOR").is_none() && set("GRITE_HOME").is_none() => return Err(failure),
        Err(failure) => failure,
    };
    if let Some(home) = set("GRITE_HOME") {
        let data_dir = Path::new(&set("GIT_PREFIX").unwrap_or_default()).join(home);
        if let Ok(found) = door.repo.existing_actor(&Wanted { name: None, data_dir: Some(data_dir) }) {
            return Ok(id(found));
        }
    }
    output.note(&format!("Note: {}; judged as the default actor of this worktree", visible(&failure.message)));
    Ok(id(door.repo.existing_actor(&Wanted::default()).map_err(explain)?))
}

/// The paths in which the index differs from a commit, of itself `HEAD`. Settings must not hide a submodule.
fn staged(door: &Door, commit: &[&str]) -> Result<BTreeSet<String>, Failure> {
    let diff = ["diff", "--cached", "--name-only", "-z", "--no-renames", "--no-relative", "--ignore-submodules=none"];
    Ok(paths_in(&door.repo.git.bulk(&[diff.as_slice(), commit].concat(), b"").map_err(explain)?))
}

/// The paths that a merge changes here. What the remote's default branch has, as last seen, is no work of this clone.
fn merged(door: &Door) -> Result<BTreeSet<String>, Failure> {
    let paths = staged(door, &[])?;
    let Some(remote) = door.repo.judge(&door.mode).map_err(explain)? else { return Ok(paths) };
    match Base::of_remote(&door.repo.git, remote.name())?.tip() {
        Some(tip) => Ok(paths.intersection(&staged(door, &[tip])?).cloned().collect()),
        None => Ok(paths),
    }
}

fn pushed(door: &Door, updates: &[Update], base: &Base) -> Result<BTreeSet<String>, Failure> {
    let mut paths = BTreeSet::new();
    for update in updates {
        paths.extend(update.touched(&door.repo.git, base)?);
    }
    Ok(paths)
}

/// The locks as the judge has them. Out of reach, what was last seen is enough for `require` to know the caller's own.
fn look(door: &Door, me: Option<&str>, policy: Policy, output: Output) -> Result<Option<Status>, Failure> {
    let locks = Locks::open(&door.repo, &door.mode, me.unwrap_or_default(), &now).map_err(explain)?;
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
    /// What stands against a push of these paths.
    fn in_push(policy: Policy, status: &Status, me: Option<&str>, paths: &BTreeSet<String>) -> Found {
        let mut found = Found::default();
        found.held(against_push(status, me), status);
        found.touched(policy, status, &touched(status, me, &names(paths)));
        found
    }

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

/// Who pushes, as the pusher says: a push option, else the environment of a push on this machine. A name, no proof.
fn pusher() -> Option<String> {
    let count: usize = set("GIT_PUSH_OPTION_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    let mut options = (0..count).rev().filter_map(|number| set(&format!("GIT_PUSH_OPTION_{number}")));
    // The last one counts, as in git's own settings.
    let named = options.find_map(|option| option.strip_prefix("tenure-actor=").map(str::to_owned));
    named.or_else(|| set("TENURE_ACTOR"))
}

/// A variable of the environment that says something.
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn names(paths: &BTreeSet<String>) -> Vec<LockName> {
    paths.iter().map(|path| path_name(path)).collect()
}
