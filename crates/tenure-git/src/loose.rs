//! Owns compare-and-swap on loose refs without a git process, where the repository is of the plainest shape. Does what
//! git's own files backend does, step by step: `<ref>.lock` appears or is somebody's, the old value is read under it,
//! the new one is written and renamed into place (like git, without a sync unless `core.fsync` asks for one: then git
//! does it). Whatever is not plain, or busy, is left to git.
//!
//! A killed git leaves its `.lock` behind, and nobody knows for a minute whether it still lives. Here that is known at
//! once: only the holder of `tenure/refs.lock` (freed by the kernel) makes such files, and each is also linked under
//! `tenure/` while it is needed, so what is found linked there was left by a killed one.
//!
//! Locks go first into place and the guard last, in the order they are given: who sees the new guard sees the lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::limits::REF_LOCK_WAIT_MS;
use crate::objects::Oid;
use crate::plain;
use crate::repo::Repo;
use crate::swap::Line;

/// How the files under `tenure/` begin that are linked to a ref's `.lock`.
const LINKED: &str = "ref.";

/// What became of the lines.
pub(crate) enum Outcome {
    /// All of them are made.
    Done,
    /// None is: a ref is not what was judged.
    Refused(String),
    /// Nothing was changed; git has to do it.
    LeftToGit,
}

/// Makes all changes or none.
pub(crate) fn swap(repo: &Repo, lines: &[Line]) -> Outcome {
    if !is_plain(repo, lines) {
        return Outcome::LeftToGit;
    }
    let Ok(Some(_alone)) = alone(&repo.common_dir, Duration::from_millis(REF_LOCK_WAIT_MS)) else {
        return Outcome::LeftToGit;
    };
    match held_and_compared(repo, lines) {
        Ok(Compared::AsJudged(held)) => commit(held),
        Ok(Compared::Otherwise(detail)) => Outcome::Refused(detail),
        Err(_) => Outcome::LeftToGit,
    }
}

/// Whether git would do nothing beyond changing these files: no hook, no log, no deletion from the packed refs.
fn is_plain(repo: &Repo, lines: &[Line]) -> bool {
    let unset = ["core.hookspath", "core.fsync", "core.fsyncmethod", "core.fsyncobjectfiles"];
    let logs = repo.setting("core.logallrefupdates").is_some_and(|value| value.eq_ignore_ascii_case("always"));
    let is_logged = |line: &Line| repo.common_dir.join("logs").join(&line.reference).exists();
    repo.is_plain
        && !repo.objects.shared
        && !logs
        && unset.iter().all(|key| repo.setting(key).is_none())
        && matches!(repo.setting("extensions.refstorage"), None | Some("files"))
        && !repo.common_dir.join("hooks/reference-transaction").exists()
        && lines.iter().all(|line| line.new.is_some() && !is_logged(line))
}

/// The right to make `.lock` files, while the file lives; none: somebody has it for too long.
fn alone(common_dir: &Path, patience: Duration) -> io::Result<Option<File>> {
    const STEP: Duration = Duration::from_millis(1);
    let folder = common_dir.join("tenure");
    let open = || OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("refs.lock"));
    let file = open().or_else(|_| fs::create_dir_all(&folder).and_then(|()| open()))?;
    for _ in 0..=patience.as_millis() / STEP.as_millis() {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(STEP),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// A ref's `.lock` with its new value; given up when dropped.
struct Held {
    reference: PathBuf,
    lock: PathBuf,
    linked: PathBuf,
    is_in_place: bool,
}

impl Held {
    fn put_in_place(&mut self) -> io::Result<()> {
        fs::rename(&self.lock, &self.reference)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Once in place, a `.lock` with this name is somebody else's.
        if !self.is_in_place {
            let _ = fs::remove_file(&self.lock);
        }
        let _ = fs::remove_file(&self.linked);
    }
}

enum Compared {
    AsJudged(Vec<Held>),
    Otherwise(String),
}

fn held_and_compared(repo: &Repo, lines: &[Line]) -> io::Result<Compared> {
    let mut held = Vec::with_capacity(lines.len());
    for line in lines {
        held.push(hold(&repo.common_dir, line)?);
        let Some(expected) = &line.expected else { continue };
        let found = current(&repo.common_dir, &line.reference)?;
        if found != *expected {
            let text = |oid: &Option<Oid>| oid.as_ref().map_or("nothing", Oid::as_str).to_owned();
            let (found, expected) = (text(&found), text(expected));
            return Ok(Compared::Otherwise(format!("'{}' is at {found} but expected {expected}", line.reference)));
        }
    }
    Ok(Compared::AsJudged(held))
}

/// Writes the new value into the ref's `.lock`.
fn hold(common_dir: &Path, line: &Line) -> io::Result<Held> {
    let reference = common_dir.join(&line.reference);
    // A folder of refs that are gone, or a link: git knows what to do with it.
    if fs::symlink_metadata(&reference).is_ok_and(|about| !about.is_file()) {
        return Err(ErrorKind::IsADirectory.into());
    }
    let lock = common_dir.join(format!("{}.lock", line.reference));
    let linked = linked(common_dir, &line.reference);
    remove_left_behind(&linked, &lock)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&linked)?;
    let value = line.new.as_ref().map_or("", Oid::as_str);
    let written = file.write_all(format!("{value}\n").as_bytes());
    let linked_there = written.and_then(|()| match fs::hard_link(&linked, &lock) {
        Err(none) if none.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(lock.parent().unwrap_or(common_dir))?;
            fs::hard_link(&linked, &lock)
        }
        other => other,
    });
    match linked_there {
        Ok(()) => Ok(Held { reference, lock, linked, is_in_place: false }),
        Err(error) => {
            // The `.lock` is somebody else's: it stays.
            let _ = fs::remove_file(&linked);
            Err(error)
        }
    }
}

/// Where a ref's `.lock` is linked while it is needed.
fn linked(common_dir: &Path, reference: &str) -> PathBuf {
    let name = reference.replace('%', "%25").replace('/', "%2f");
    common_dir.join("tenure").join(format!("{LINKED}{name}"))
}

/// Removes what a killed holder of `refs.lock` left; the caller holds it now.
fn remove_left_behind(linked: &Path, lock: &Path) -> io::Result<()> {
    let Ok(left) = fs::symlink_metadata(linked) else { return Ok(()) };
    if fs::symlink_metadata(lock).is_ok_and(|about| (about.dev(), about.ino()) == (left.dev(), left.ino())) {
        fs::remove_file(lock)?;
    }
    fs::remove_file(linked)
}

/// Removes what killed processes left of these files; gives the `.lock` files.
pub(crate) fn heal(common_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    if !common_dir.join("tenure/refs.lock").exists() {
        return Ok(removed);
    }
    let Some(_alone) = alone(common_dir, Duration::from_millis(REF_LOCK_WAIT_MS))? else { return Ok(removed) };
    for entry in fs::read_dir(common_dir.join("tenure"))?.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(LINKED)) else { continue };
        let reference = name.replace("%2f", "/").replace("%25", "%");
        let lock = common_dir.join(format!("{reference}.lock"));
        let was_there = lock.exists();
        remove_left_behind(&entry.path(), &lock)?;
        if was_there && !lock.exists() {
            removed.push(lock);
        }
    }
    Ok(removed)
}

/// What the ref is, read while its `.lock` is held: packing takes that too before it removes the loose file.
fn current(common_dir: &Path, reference: &str) -> io::Result<Option<Oid>> {
    let not_plain = || io::Error::from(ErrorKind::InvalidData);
    match plain::loose_ref(&common_dir.join(reference)).ok_or_else(not_plain)? {
        Some(oid) => Ok(Some(oid)),
        None => plain::packed_ref(common_dir, reference).ok_or_else(not_plain),
    }
}

/// The first rename that fails leaves everything to git; a later one cannot be undone, as in git itself.
fn commit(mut held: Vec<Held>) -> Outcome {
    for (at, one) in held.iter_mut().enumerate() {
        match one.put_in_place() {
            Ok(()) => {}
            Err(_) if at == 0 => return Outcome::LeftToGit,
            Err(error) => return Outcome::Refused(format!("{}: {error}", one.reference.display())),
        }
    }
    Outcome::Done
}
