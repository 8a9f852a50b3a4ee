//! Owns backups: one file that is a `tables.db` of its own, with what a new journal must start from.
//!
//! To restore, put the file as `tables.db` into an empty data directory and start. The first epoch of a restored store is
//! [`RESTORE_EPOCHS`] later than it would be otherwise: the server that it was taken from may have granted tokens of later
//! epochs since, and a token must never be granted twice (docs/decisions/0002).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tenure_core::Epoch;

use super::db::{Db, explain};
use super::dir::sync_directory;
use super::journal::Journal;
use super::tables::{head, meta, set_meta};
use crate::Error;

/// Safe as long as the server was started no more often than this between a backup and its restore.
pub(super) const RESTORE_EPOCHS: u32 = 1_024;

/// In the tables of a backup: the epoch that was claimed when it was made.
const BACKUP_EPOCH: &str = "backup_epoch";

/// Copies the tables at one moment into a new file. Commits and folding go on meanwhile.
pub(super) fn write(tables: &Path, journal: &Journal, to: &Path) -> Result<(), Error> {
    // Taken before anything is written, so that two backups cannot share a name.
    File::create_new(to).map_err(|why| Error::io("make", to, why))?;
    let partial = partial_name(to);
    let result = copy(tables, journal.epoch()?, &partial).and_then(|()| {
        fs::rename(&partial, to).map_err(|why| Error::io("rename the finished backup to", to, why))?;
        sync_directory(to)
    });
    if result.is_err() {
        // Nothing that looks like a backup may be left.
        let _ = fs::remove_file(&partial);
        let _ = fs::remove_file(to);
    }
    result
}

fn copy(tables: &Path, epoch: Epoch, partial: &Path) -> Result<(), Error> {
    let _ = fs::remove_file(partial);
    let source = Db::read_only(tables)?;
    let target = partial.to_str().ok_or_else(|| Error::Io {
        doing: "back up to",
        path: partial.into(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidInput, "the name is not UTF-8"),
    })?;
    source.connection.execute("VACUUM INTO ?1", [target]).map_err(|why| explain(partial, why))?;
    let connection = Connection::open(partial).map_err(|why| explain(partial, why))?;
    let copy = Db { connection, path: partial.into() };
    copy.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;")?;
    set_meta(&copy, BACKUP_EPOCH, &epoch.0.to_string())?;
    drop(copy);
    let file = File::open(partial).and_then(|file| file.sync_all());
    file.map_err(|why| Error::io("write", partial, why))
}

/// What a backup is called until it is whole: one that was broken off must not look like one.
pub fn partial_name(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Turns tables that came from a backup into a store of their own: gives them a journal that goes on from them. Says whether
/// they did.
pub(super) fn adopt(tables: &Db, journal: &Journal) -> Result<bool, Error> {
    let Some(epoch) = origin(tables)? else { return Ok(false) };
    if journal.extent()?.is_none() {
        journal.claim(epoch, 0)?;
        journal.seed(head(tables)?)?;
    }
    Ok(true)
}

/// The epoch in which these tables were backed up; nothing if they are no backup, or one that has claimed an epoch since.
pub(super) fn origin(tables: &Db) -> Result<Option<Epoch>, Error> {
    let Some(epoch) = meta(tables, BACKUP_EPOCH)? else { return Ok(None) };
    let bad = |_| Error::Corrupt { path: tables.path.clone(), detail: format!("its backup epoch is {epoch:?}") };
    epoch.parse().map(Epoch).map(Some).map_err(bad)
}

/// From here on the tables are those of a store like any other.
pub(super) fn forget_origin(tables: &Path) -> Result<(), Error> {
    let tables = Db::again(tables)?;
    let forget = tables.connection.execute("DELETE FROM meta WHERE key = ?1", [BACKUP_EPOCH]);
    forget.map(drop).map_err(tables.fail())
}
