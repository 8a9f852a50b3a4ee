//! Owns what to do about `.lock` files that a killed git left beside a ref: name them, and remove those that are
//! much older than git ever holds one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::limits::STALE_REF_LOCK_AGE;
use crate::loose;

/// The file that a complaint of git names, if it is the lock of a ref in this repository.
fn named_in(complaint: &str, common_dir: &Path) -> Option<PathBuf> {
    let (_, rest) = complaint.split_once("Unable to create '")?;
    let (path, _) = rest.split_once("': File exists")?;
    let path = PathBuf::from(path);
    let path = if path.is_absolute() { path } else { common_dir.parent()?.join(path) };
    let refs = common_dir.join("refs");
    let is_ref_lock = path.extension().is_some_and(|extension| extension == "lock") && path.starts_with(&refs);
    is_ref_lock.then_some(path)
}

/// How long a file has lain unchanged, by the file system's own clock.
fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// Removes the ref lock that a complaint names if it is old. `None`: not named, or still young.
pub(crate) fn heal_named_in(complaint: &str, common_dir: &Path) -> Result<Option<PathBuf>, Error> {
    match named_in(complaint, common_dir) {
        Some(path) if age(&path).is_some_and(|age| age >= STALE_REF_LOCK_AGE) => remove(&path).map(|()| Some(path)),
        _ => Ok(None),
    }
}

/// The error that tells about the file a complaint names.
pub(crate) fn error_about(complaint: &str, common_dir: &Path) -> Option<Error> {
    let path = named_in(complaint, common_dir)?;
    let age = age(&path).unwrap_or_default();
    Some(Error::RefLockFile { path, age })
}

/// Removes every old lock file beside the refs this crate works on; gives what it removed and what it left.
pub fn heal_all(common_dir: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let own = loose::heal(common_dir).map_err(|source| Error::Io { path: common_dir.join("tenure"), source })?;
    let (mut removed, mut left) = (own, Vec::new());
    let mut folders = vec![common_dir.join("refs/grite"), common_dir.join("refs/tenure")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lock") {
                if age(&path).is_some_and(|age| age >= STALE_REF_LOCK_AGE) {
                    remove(&path)?;
                    removed.push(path);
                } else {
                    left.push(path);
                }
            }
        }
    }
    Ok((removed, left))
}

/// By renaming first: if a new lock took the place in between, the file moved away is young, and it is put back.
fn remove(path: &Path) -> Result<(), Error> {
    // Still a `.lock`: git takes no other file in this folder for anything but a ref.
    let aside = path.with_extension(format!("{}.lock", uuid::Uuid::new_v4().simple()));
    match fs::rename(path, &aside) {
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
        Ok(()) => {}
    }
    if age(&aside).is_some_and(|age| age < STALE_REF_LOCK_AGE) {
        // A link never replaces a third one's lock.
        let _ = fs::hard_link(&aside, path);
    }
    fs::remove_file(&aside).map_err(|source| Error::Io { path: aside, source })
}
