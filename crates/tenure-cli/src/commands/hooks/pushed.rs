//! Owns what a push changes: what git says about it, and which paths it touches. The ref that is pushed to counts, not
//! what the repository knows from other refs: a path changes in a branch also when its new content is elsewhere already.

use std::collections::BTreeSet;
use std::io::Read;

use tenure_git::git::Git;
use tenure_git::policy::{Purpose, purpose};

use super::super::lock::explain;
use crate::failure::Failure;

/// How paths are listed: whatever the settings say, submodules and moved files with them, and nothing stands in for
/// another object.
const TREES: [&str; 7] =
    ["--no-replace-objects", "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--ignore-submodules=none"];

/// One line of what git tells a hook about a ref.
pub(super) struct Update {
    /// None: the ref is new, or what it was is not known here.
    old: Option<String>,
    /// None: it is deleted.
    new: Option<String>,
    reference: String,
}

/// What the repository that is pushed to has.
pub(super) struct Base {
    /// Its default branch: the ref and its commit.
    default: Option<(String, String)>,
    /// What else is there, as arguments for rev-list.
    known: Vec<String>,
}

impl Base {
    /// For a hook of that repository itself. Without a default branch, a new one is compared with all the others.
    pub(super) fn here(git: &Git) -> Result<Base, Failure> {
        let default = default_branch(git, "HEAD", "refs/heads/")?;
        let known = if default.is_none() { vec!["--branches".to_owned()] } else { Vec::new() };
        Ok(Base { default, known })
    }

    /// For a hook of a clone, as far as it has seen that remote.
    pub(super) fn of_remote(git: &Git, name: &str) -> Result<Base, Failure> {
        let branches = format!("refs/remotes/{name}/");
        let default = default_branch(git, &format!("{branches}HEAD"), &branches)?;
        Ok(Base { default, known: vec![format!("--remotes={name}")] })
    }

    /// The commit of the default branch.
    pub(super) fn tip(&self) -> Option<&str> {
        self.default.as_ref().map(|(_, tip)| tip.as_str())
    }
}

fn default_branch(git: &Git, head: &str, branches: &str) -> Result<Option<(String, String)>, Failure> {
    let named = git.run(&["symbolic-ref", "-q", head], b"").map_err(explain)?.text();
    let tip = git.run(&["rev-parse", "-q", "--verify", &format!("{head}^{{commit}}")], b"").map_err(explain)?;
    let branch = named.trim_end().strip_prefix(branches).filter(|_| tip.ok());
    Ok(branch.map(|branch| (format!("refs/heads/{branch}"), tip.text().trim_end().to_owned())))
}

impl Update {
    /// Whether it is something else than locks and issues.
    pub(super) fn is_work(&self) -> bool {
        matches!(purpose(&self.reference), Purpose::Branch | Purpose::Other)
    }

    /// Forgets what the ref was if this clone does not have it.
    pub(super) fn known_here(self, git: &Git) -> Result<Update, Failure> {
        let Some(old) = &self.old else { return Ok(self) };
        match git.run(&["cat-file", "-e", old], b"").map_err(explain)?.ok() {
            true => Ok(self),
            false => Ok(Update { old: None, ..self }),
        }
    }

    /// Why it has no place among the refs of locks and issues.
    pub(super) fn stray(&self, git: &Git) -> Result<Option<String>, Failure> {
        let Some(new) = &self.new else { return Ok(None) };
        let reference = &self.reference;
        match purpose(reference) {
            Purpose::Stray => Ok(Some(format!("{reference} is no ref of locks or issues"))),
            Purpose::Record(file) if !all_paths(git, new)?.iter().eq([file]) => {
                Ok(Some(format!("{reference} is for commits with one file, {file}")))
            }
            _ => Ok(None),
        }
    }

    /// Every path that this update of a branch touches: in its new commits, and in what the branch holds after them.
    pub(super) fn touched(&self, git: &Git, base: &Base) -> Result<BTreeSet<String>, Failure> {
        let is_branch = matches!(purpose(&self.reference), Purpose::Branch);
        let Some(new) = self.new.as_deref().filter(|_| is_branch) else { return Ok(BTreeSet::new()) };
        let mut paths = self.in_commits(git, base, new)?;
        paths.extend(self.in_content(git, base, new)?);
        Ok(paths)
    }

    fn in_commits(&self, git: &Git, base: &Base, new: &str) -> Result<BTreeSet<String>, Failure> {
        let mut list = vec!["--no-replace-objects", "rev-list", new, "--not"];
        list.extend(self.old.as_deref());
        list.extend(base.tip());
        list.extend(base.known.iter().map(String::as_str));
        let commits = git.bulk(&list, b"").map_err(explain)?;
        let diff = [TREES.as_slice(), &["--stdin", "-c", "--root", "--no-commit-id"]].concat();
        Ok(paths_in(&git.bulk(&diff, &commits).map_err(explain)?))
    }

    /// A merge shows no path in which it follows one of its parents, so what the branch holds is compared as well. In
    /// another branch than the default one, what stands as it stood in the default one is no work of the branch.
    fn in_content(&self, git: &Git, base: &Base, new: &str) -> Result<BTreeSet<String>, Failure> {
        let (old, tip) = match (&self.old, &base.default) {
            (None, None) => return Ok(BTreeSet::new()),
            (None, Some((_, tip))) => return own(git, tip, new),
            (Some(old), Some((default, tip))) if *default != self.reference => (old, tip),
            (Some(old), _) => return between(git, old, new),
        };
        let mut of_branch = own(git, tip, old)?;
        of_branch.extend(own(git, tip, new)?);
        Ok(between(git, old, new)?.intersection(&of_branch).cloned().collect())
    }
}

/// Where a commit differs from the default branch as it was when they parted.
fn own(git: &Git, tip: &str, commit: &str) -> Result<BTreeSet<String>, Failure> {
    let found = git.run(&["--no-replace-objects", "merge-base", tip, commit], b"").map_err(explain)?;
    match found.ok() {
        true => between(git, found.text().trim_end(), commit),
        false => all_paths(git, commit),
    }
}

fn between(git: &Git, old: &str, new: &str) -> Result<BTreeSet<String>, Failure> {
    Ok(paths_in(&git.bulk(&[TREES.as_slice(), &[old, new]].concat(), b"").map_err(explain)?))
}

fn all_paths(git: &Git, commit: &str) -> Result<BTreeSet<String>, Failure> {
    let list = ["--no-replace-objects", "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit];
    Ok(paths_in(&git.bulk(&list, b"").map_err(explain)?))
}

/// Reads a list that ends every path with NUL.
pub(super) fn paths_in(listed: &[u8]) -> BTreeSet<String> {
    let listed = String::from_utf8_lossy(listed);
    listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

/// Reads both forms: `local sha remote sha` of a push, `old new ref` of a receive.
pub(super) fn updates() -> Result<Vec<Update>, Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(anyhow::Error::from)?;
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (old, new, reference) = match fields[..] {
            [_, new, reference, old] => (old, new, reference),
            [old, new, reference] => (old, new, reference),
            _ => return None,
        };
        let some = |oid: &str| oid.bytes().any(|byte| byte != b'0').then(|| oid.to_owned());
        Some(Update { old: some(old), new: some(new), reference: reference.to_owned() })
    };
    Ok(text.lines().filter_map(parse).collect())
}
