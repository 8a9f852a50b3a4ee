//! Owns the data directory: its files and the lock that keeps a second process out.
//!
//! The lock is the system's lock on a file, so it ends with the process that has it, however that one ends. The process
//! id in the file is only there to be named in the refusal.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::Error;

const JOURNAL: &str = "journal.db";
const TABLES: &str = "tables.db";
const LOCK: &str = "tenure.lock";

/// A data directory that is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    dir: PathBuf,
    lock: File,
}

impl DataDir {
    /// Makes the directory if it is not there, and locks it.
    pub(crate) fn create(dir: &Path) -> Result<DataDir, Error> {
        fs::create_dir_all(dir).map_err(|why| Error::io("make the directory", dir, why))?;
        DataDir::lock(dir)
    }

    /// Locks a directory that is there.
    pub(crate) fn lock(dir: &Path) -> Result<DataDir, Error> {
        let path = dir.join(LOCK);
        let fail = |why| Error::io("open", &path, why);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { dir: dir.into(), pid: read_pid(&mut file) }),
            Err(TryLockError::Error(why)) => return Err(Error::io("lock", &path, why)),
        }
        write_pid(&mut file).map_err(|why| Error::io("write", &path, why))?;
        Ok(DataDir { dir: dir.into(), lock: file })
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.join(JOURNAL)
    }

    pub(crate) fn tables(&self) -> PathBuf {
        self.dir.join(TABLES)
    }
}

impl Drop for DataDir {
    /// Closing is not enough: a process that is being started elsewhere in this one shares the file until it runs.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

/// The bytes of a database and its write-ahead log.
pub(crate) fn bytes_of(path: &Path) -> u64 {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    [path, Path::new(&wal)].iter().filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum()
}
