//! Owns the data directory: its files and the lock that keeps a second process out.
//!
//! The lock is the system's lock on a file, so it ends with the process that has it, however that one ends. The process
//! id in the file is only there to be named in the refusal.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::Error;

const JOURNAL: [&str; 2] = ["journal.1", "journal.2"];
/// The journal of earlier versions.
const JOURNAL_BEFORE: &str = "journal.db";
const TABLES: &str = "tables.db";
const LOCK: &str = "tenure.lock";

/// A data directory that is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    dir: PathBuf,
    /// Nothing in a directory that was never locked and that nothing is written to.
    lock: Option<File>,
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
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = locked(dir, &path, open.map_err(|why| Error::io("open", &path, why))?)?;
        write_pid(&mut file).map_err(|why| Error::io("write", &path, why))?;
        Ok(DataDir { dir: dir.into(), lock: Some(file) })
    }

    /// Keeps others out of a directory that is there, and changes nothing in it.
    pub(crate) fn at_rest(dir: &Path) -> Result<DataDir, Error> {
        let path = dir.join(LOCK);
        let lock = match File::open(&path) {
            Ok(file) => Some(locked(dir, &path, file)?),
            Err(why) if why.kind() == io::ErrorKind::NotFound => None,
            Err(why) => return Err(Error::io("open", &path, why)),
        };
        Ok(DataDir { dir: dir.into(), lock })
    }

    /// The two files of the journal.
    pub(crate) fn journal(&self) -> [PathBuf; 2] {
        JOURNAL.map(|name| self.dir.join(name))
    }

    /// The journal of an earlier version.
    pub(crate) fn journal_before(&self) -> PathBuf {
        self.dir.join(JOURNAL_BEFORE)
    }

    pub(crate) fn tables(&self) -> PathBuf {
        self.dir.join(TABLES)
    }

    /// The files, as they are now.
    pub(crate) fn files(&self) -> Result<Files, Error> {
        let id = |path: PathBuf| match id_of(&path) {
            Ok(id) => Ok((path, id)),
            Err(why) => Err(Error::io("look at", path, why)),
        };
        let [one, other] = self.journal();
        Ok(Files([id(one)?, id(other)?, id(self.tables())?]))
    }
}

/// The files that were opened. One that is removed lives on for who has it open, and takes commits that nobody will find.
#[derive(Debug, Clone)]
pub(crate) struct Files([(PathBuf, FileId); 3]);

impl Files {
    /// Whether they are still those that the next start would open.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.0.iter().find(|(path, id)| is_other(path, *id)) {
            Some((path, _)) => Err(Error::Removed { path: path.clone() }),
            None => Ok(()),
        }
    }

    /// What to say of a failure: that a file was removed explains all others.
    pub(crate) fn explain(&self, why: Error) -> Error {
        self.check().err().unwrap_or(why)
    }
}

/// A disk that does not answer is not a file that is gone: commits tell.
fn is_other(path: &Path, id: FileId) -> bool {
    match id_of(path) {
        Ok(found) => found != id,
        Err(why) => matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

/// Device and inode.
type FileId = (u64, u64);

#[cfg(unix)]
fn id_of(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Where files have no such numbers, only their absence is seen.
#[cfg(not(unix))]
fn id_of(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|_| FileId::default())
}

impl Drop for DataDir {
    /// Closing is not enough: a process that is being started elsewhere in this one shares the file until it runs.
    fn drop(&mut self) {
        let _ = self.lock.as_ref().map(File::unlock);
    }
}

fn locked(dir: &Path, path: &Path, mut file: File) -> Result<File, Error> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { dir: dir.into(), pid: read_pid(&mut file) }),
        Err(TryLockError::Error(why)) => Err(Error::io("lock", path, why)),
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

/// The bytes of a database and its write-ahead log.
pub(crate) fn bytes_of(path: &Path) -> u64 {
    [path, &wal_of(path)].iter().filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum()
}

/// Makes what was done to the names in the directory of a file durable.
pub(crate) fn sync_directory(of: &Path) -> Result<(), Error> {
    let directory = match of.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|why| Error::io("write", directory, why))
}

/// The write-ahead log of a database.
pub(crate) fn wal_of(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}
