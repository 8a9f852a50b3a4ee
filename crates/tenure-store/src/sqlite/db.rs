//! Owns how a database file is opened, versioned and complained about.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::dir::wal_of;
use crate::Error;

/// A reader of the tables meets a lock only while another one recovers the log after a crash.
const BUSY: Duration = Duration::from_secs(10);

/// SQLite's way to files without locks, which need the right to write.
const WITHOUT_LOCKS: &str = if cfg!(windows) { "win32-none" } else { "unix-none" };

/// A connection that knows its file, so that its errors can say where.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
}

impl Db {
    /// Opens a file for writing; makes it if it is not there.
    pub(crate) fn create(path: &Path) -> Result<Db, Error> {
        // The system's own answer is clearer than SQLite's «unable to open». Nothing has the file open yet.
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        open.map_err(|why| Error::io("open", path, why))?;
        Db::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    /// Opens a file that another connection of this process may have open. Only SQLite opens it: who closes a file by hand drops every
    /// lock that the process has on it, and the next reader from outside would take away the log.
    pub(crate) fn again(path: &Path) -> Result<Db, Error> {
        Db::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    /// Opens a file for reading only.
    pub(crate) fn read_only(path: &Path) -> Result<Db, Error> {
        Db::open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    /// Opens a file that nobody else uses, for reading, and changes nothing: its log stays as it is, and there are no new files
    /// beside it.
    pub(crate) fn at_rest(path: &Path) -> Result<Db, Error> {
        let fail = |why| explain(path, why);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if !wal_of(path).exists() || std::fs::metadata(path).is_ok_and(|found| found.len() == 0) {
            // To be read, a missing log would be made otherwise, and that of an empty file removed.
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            let connection = Connection::open_with_flags(immutable(path), flags).map_err(fail)?;
            return Ok(Db::of(connection, path));
        }
        let connection = Connection::open_with_flags_and_vfs(path, flags, WITHOUT_LOCKS).map_err(fail)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
        // The log's index is kept in memory so, and not in a file.
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE").map_err(fail)?;
        Ok(Db::of(connection, path))
    }

    /// A new database in memory that complains in the name of a file.
    pub(crate) fn in_memory(path: &Path) -> Result<Db, Error> {
        Ok(Db::of(Connection::open_in_memory().map_err(|why| explain(path, why))?, path))
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Db, Error> {
        let fail = |why| explain(path, why);
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fail)?;
        connection.busy_timeout(BUSY).map_err(fail)?;
        Ok(Db::of(connection, path))
    }

    fn of(connection: Connection, path: &Path) -> Db {
        connection.set_prepared_statement_cache_capacity(64);
        Db { connection, path: path.into() }
    }

    /// Puts an error of this database into words.
    pub(crate) fn fail(&self) -> impl Fn(rusqlite::Error) -> Error + Copy + '_ {
        |why| explain(&self.path, why)
    }

    pub(crate) fn execute_batch(&self, sql: &str) -> Result<(), Error> {
        self.connection.execute_batch(sql).map_err(self.fail())
    }

    /// Brings the schema up to this version: step n makes version n out of version n - 1.
    pub(crate) fn migrate(&self, steps: &[&str]) -> Result<(), Error> {
        let found = self.version()?;
        self.check_version(found, steps.len())?;
        for (at, step) in steps.iter().enumerate().skip(found) {
            let (file, version) = (self.path.display(), at + 1);
            if found > 0 {
                tracing::info!(%file, version, "bringing the tables forward; a long history takes a while");
            }
            self.execute_batch(&format!("BEGIN IMMEDIATE; {step}; PRAGMA user_version = {version}; COMMIT;"))?;
            if found > 0 {
                // A step may have written everything anew, and the log would keep the room of it.
                self.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
            }
        }
        Ok(())
    }

    /// The version of the schema; 0 for a new file.
    pub(crate) fn version(&self) -> Result<usize, Error> {
        let fail = self.fail();
        let version =
            self.connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).map_err(fail)?;
        let tables: i64 =
            self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fail)?;
        if version == 0 && tables > 0 {
            let detail = "it is a database, but not one of tenure".to_owned();
            return Err(Error::Corrupt { path: self.path.clone(), detail });
        }
        Ok(version as usize)
    }

    /// Refuses a schema that a newer program made.
    pub(crate) fn check_version(&self, found: usize, known: usize) -> Result<(), Error> {
        if found <= known {
            return Ok(());
        }
        let detail = format!("its schema is version {found}, this one knows up to {known}");
        Err(Error::Newer { path: self.path.clone(), detail })
    }
}

/// The address of a file that does not change, as SQLite wants to be told so.
fn immutable(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.:".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    let path: String =
        bytes.map(|byte| if is_plain(*byte) { char::from(*byte).into() } else { format!("%{byte:02X}") }).collect();
    format!("file:{path}?immutable=1")
}

/// Sorts a database's refusal by what a person can do about it.
pub(crate) fn explain(path: &Path, why: rusqlite::Error) -> Error {
    let path = path.to_owned();
    let detail = why.to_string();
    match why.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::Denied { doing: "write", path },
        Some(ErrorCode::CannotOpen) if !path.exists() => {
            Error::Io { doing: "open", path, source: io::ErrorKind::NotFound.into() }
        }
        Some(ErrorCode::CannotOpen) => Error::Denied { doing: "open", path },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt { path, detail },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked { path },
        _ => Error::Database { path, detail },
    }
}

/// A value that does not read: unknown words come from a newer program, anything else from damage.
pub(crate) fn unreadable(path: &Path, what: &str, why: serde_json::Error) -> Error {
    let (path, detail) = (path.to_owned(), format!("{what}: {why}"));
    if why.is_data() { Error::Newer { path, detail } } else { Error::Corrupt { path, detail } }
}
