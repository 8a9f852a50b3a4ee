//! Owns what the runs of one actor under one lock know of each other: a run inside another, or beside it, runs under the
//! lock that is held already, and the last one gives it back. A lock that was not taken by a run stays.
//!
//! There is a file for each such lock. Every run holds it shared, so that the kernel knows who is left however a run
//! ends. It names the grant that a run took.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use tenure_git::{Error, LockName, Repo};

/// One run among those under its lock.
pub(super) struct Runs {
    path: PathBuf,
    file: File,
}

impl Runs {
    /// Comes before the lock is asked for: from here on no other run gives it back.
    pub(super) fn enter(repo: &Repo, actor: &str, name: &LockName) -> Result<Runs, Error> {
        let folder = repo.common_dir.join("tenure").join("runs");
        let reference = name.ref_name();
        let path = folder.join(format!("{actor}-{}", reference.rsplit('/').next().unwrap_or_default()));
        let entered = || {
            fs::create_dir_all(&folder)?;
            loop {
                let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
                file.lock_shared()?;
                let runs = Runs { path: path.clone(), file };
                if runs.is_current()? {
                    return Ok(runs);
                }
            }
        };
        entered().map_err(|source| Error::Io { path: path.clone(), source })
    }

    /// This run took the lock. A failure only means that the lock ends with its ttl.
    pub(super) fn took(&self, nonce: &str) {
        let _ = self.file.set_len(0).and_then(|()| self.file.write_all_at(nonce.as_bytes(), 0));
    }

    /// Leaves; the last one gives back the grant that a run took.
    pub(super) fn leave(mut self, give_back: impl FnOnce(&str)) {
        // Not turned into the other kind at once: of two who leave together each would still see the other.
        let is_last = self.file.unlock().is_ok() && self.file.try_lock().is_ok() && self.is_current().unwrap_or(false);
        if !is_last {
            return;
        }
        let mut nonce = String::new();
        if self.file.read_to_string(&mut nonce).is_ok() && !nonce.is_empty() {
            give_back(&nonce);
        }
        let _ = fs::remove_file(&self.path);
    }

    /// Whether others find this very file: the last run removes it, and who opened it before is alone with it.
    fn is_current(&self) -> io::Result<bool> {
        let found = match fs::metadata(&self.path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        Ok(found.ino() == self.file.metadata()?.ino())
    }
}
