//! Owns the driver for one machine: a journal and SQLite tables in a data directory.
//!
//! ```text
//! commit ──► journal.1, journal.2   one row a batch, on the disk when commit returns
//!    │           ▲ written over, up to the last finished checkpoint of the tables
//!    └─► tail ──►│ folder ──► tables.db   records, events; for reading and for the next start
//!         └──────┴── readers: tables, then what only the journal or memory has
//! ```
//!
//! The journal is apart, because SQLite has one write lock for a file and folding must never hold up a commit. What is lost when:
//!
//! - the process dies: nothing that was committed. Both files have what was written to them; the journal has what the
//!   tables do not.
//! - the machine dies: nothing that was committed. The journal was synced by the commit. The tables may fall back to an
//!   earlier position, but not before their last finished checkpoint, and the journal has everything after that.
//! - `tables.db` or a book of the journal is lost or replaced: the store does not open ([`Error::OutOfStep`]). While a server runs the
//!   folder looks four times a second; from then on every commit fails ([`Error::Removed`]).
//!
//! Does not promise anything about a disk that says it has synced and has not.

mod backup;
mod check;
mod codec;
mod db;
mod digest;
mod dir;
mod folder;
mod journal;
mod logged;
mod pool;
mod reader;
mod records;
mod retain;
mod scan;
mod sheets;
mod tables;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::thread::{self, JoinHandle};

use tenure_core::Epoch;
use tenure_core::change::{Batch, Head, Record};

pub use backup::partial_name;
pub use check::{CheckReport, check};
pub use retain::Retain;

use db::Db;
use dir::{DataDir, Files};
use folder::{Folder, Turns, read_chunk};
use journal::{Before, Extent, Journal};
use logged::Logged;
use pool::Pool;
use reader::SqliteReader;
use tables::Tables;
use tail::{Progress, Tail};

use crate::{CommitError, Error, Reader, Store};

/// The room for drafts that is kept from one batch to the next, at most.
const DRAFT_BYTES_MAX: usize = 1 << 20;

/// How a store is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long events are kept.
    pub retain: Retain,
    /// How many unfolded changes are kept in memory; beyond it they are read back from the journal.
    pub tail_changes_max: usize,
    /// Whether folding goes on by itself. Off, it happens on [`Sqlite::flush`] only: for tests and measurements.
    pub folding: bool,
}

impl Default for Options {
    fn default() -> Options {
        // Two seconds of 50,000 operations each, some 100 MB at most.
        Options { retain: Retain::default(), tail_changes_max: 100_000, folding: true }
    }
}

/// A store in a data directory.
pub struct Sqlite {
    journal: Arc<Journal>,
    files: Files,
    tail: Arc<Tail>,
    reader: Arc<SqliteReader>,
    folder: Option<JoinHandle<()>>,
    tables_path: PathBuf,
    epoch: Epoch,
    head: Head,
    /// Where the text of a batch is made.
    draft: Vec<u8>,
    /// Up to which row the journal may forget.
    checkpointed_seq: u64,
    /// Whether it came from a backup and has not claimed an epoch since.
    is_restored: bool,
    is_poisoned: bool,
    /// Last, so that the directory is ours until everything above is closed.
    _dir: DataDir,
}

impl Sqlite {
    /// Opens the store in `dir`, which is made if it is not there, and folds what its last life left unfolded.
    pub fn open(dir: &Path, options: Options) -> Result<Sqlite, Error> {
        let dir = DataDir::create(dir)?;
        let tables_path = dir.tables();
        bring_forward(&dir)?;
        let journal = Arc::new(Journal::open(&dir.journal())?);
        let mut tables = Tables::open(&tables_path)?;
        dir::sync_directory(&tables_path)?;
        let files = dir.files()?;
        let is_restored = backup::adopt(&tables.db, &journal)?;
        let head = check_step(journal.extent()?, &tables.db)?;
        let folded = catch_up(&journal, &mut tables)?;
        let first = sheets::first_event(&tables.db)?.unwrap_or_else(|| folded.cursor.next());
        let progress = Progress { head, folded, checkpointed_seq: 0, first };
        let tail = Arc::new(Tail::new(progress, options.tail_changes_max, options.folding));
        let readers = Arc::new(RwLock::new(()));
        let reader = SqliteReader {
            tail: Arc::clone(&tail),
            journal: Arc::clone(&journal),
            pool: Pool::new(&tables_path, Arc::clone(&readers)),
            journal_paths: dir.journal(),
        };
        let folder = Folder {
            tables,
            journal: Arc::clone(&journal),
            files: files.clone(),
            tail: Arc::clone(&tail),
            retain: options.retain,
            readers,
            turns: Turns::default(),
        };
        let spawned = thread::Builder::new().name("tenure-folder".into()).spawn(move || folder.run());
        Ok(Sqlite {
            epoch: journal.epoch()?,
            journal,
            files,
            tail,
            reader: Arc::new(reader),
            folder: Some(spawned.map_err(|why| Error::io("start the folder of", &tables_path, why))?),
            tables_path,
            head,
            draft: Vec::new(),
            checkpointed_seq: 0,
            is_restored,
            is_poisoned: false,
            _dir: dir,
        })
    }

    /// Waits until the tables have everything committed so far, and tries a checkpoint of them.
    pub fn flush(&self) -> Result<(), Error> {
        self.tail.flush()
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        let logged = Logged::encode(batch, &mut self.draft)?;
        self.draft.clear();
        self.draft.shrink_to(DRAFT_BYTES_MAX);
        self.is_poisoned = true;
        let appended = self.journal.append(batch.head, &logged.row, self.checkpointed_seq);
        appended.map_err(|why| self.files.explain(why))?;
        self.checkpointed_seq = self.tail.push(Arc::new(logged))?;
        self.is_poisoned = false;
        self.head = batch.head;
        Ok(())
    }
}

impl Store for Sqlite {
    fn claim(&mut self, at_least: Epoch) -> Result<Epoch, Error> {
        let at_least = at_least.max(self.head.last_epoch().next());
        let leap = if self.is_restored { backup::RESTORE_EPOCHS } else { 0 };
        self.epoch = self.journal.claim(at_least, leap)?;
        if self.is_restored {
            // After the claim: if this start is cut short, the next one leaps once more.
            backup::forget_origin(&self.tables_path)?;
            self.is_restored = false;
        }
        Ok(self.epoch)
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, Error> {
        self.tail.flush()?;
        records::load(&Db::read_only(&self.tables_path)?, each)?;
        Ok(self.head)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        if self.is_poisoned {
            return Err(Error::Poisoned.into());
        }
        if batch.head.epoch < self.epoch {
            return Err(CommitError::Fenced { ours: batch.head.epoch, now: self.epoch });
        }
        let expected = self.head.seq + 1;
        if batch.head.seq != expected {
            return Err(Error::Sequence { expected, got: batch.head.seq }.into());
        }
        Ok(self.append(batch)?)
    }

    fn verify(&self) -> Result<(), Error> {
        self.files.check()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.reader) as Arc<dyn Reader>
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.tail.stop();
        if let Some(folder) = self.folder.take() {
            let _ = folder.join();
        }
        // Readers may live on; the file must not, or the next one to open it would be refused.
        self.journal.close();
    }
}

/// Whether journal and tables belong together: the head if so. A journal always has its last row, so an empty one has never had
/// any: the tables are new too, or a backup that [`backup::adopt`] has not seen yet.
fn check_step(journal: Option<Extent>, tables: &Db) -> Result<Head, Error> {
    let head = tables::head(tables)?;
    let folded = head.seq;
    let out_of_step = |detail| Err(Error::OutOfStep { path: tables.path.clone(), detail });
    match journal {
        None if folded == 0 || backup::origin(tables)?.is_some() => Ok(head),
        None => out_of_step(format!("it has batch {folded}, the journal has none")),
        Some(found) if folded > found.last.seq => {
            out_of_step(format!("it has batch {folded}, the journal ends at {}", found.last.seq))
        }
        Some(found) if folded + 1 < found.first => {
            out_of_step(format!("it ends at batch {folded}, the journal starts at {}", found.first))
        }
        Some(found) => Ok(found.last),
    }
}

/// Takes over from the journal of an earlier version. If that is cut short it begins again: no batch is committed before the old
/// journal is gone, so what a first try made of the new one may be thrown away.
fn bring_forward(dir: &DataDir) -> Result<(), Error> {
    let Some(before) = Before::open(&dir.journal_before())? else { return Ok(()) };
    if is_left_by_an_older_program(dir, &before)? {
        return before.remove();
    }
    let mut tables = Tables::open(&dir.tables())?;
    let head = check_step(before.extent()?, &tables.db)?;
    let mut folded = tables::head(&tables.db)?;
    loop {
        let chunk: Vec<Arc<Logged>> = before.read(folded.seq)?.into_iter().map(Arc::new).collect();
        if chunk.is_empty() {
            break;
        }
        folded = tables.fold(&chunk)?;
    }
    if !tables.checkpoint()? {
        return Err(Error::Locked { path: tables.db.path.clone() });
    }
    for book in dir.journal().iter().filter(|book| book.exists()) {
        std::fs::remove_file(book).map_err(|why| Error::io("remove", book, why))?;
    }
    let journal = Journal::open(&dir.journal())?;
    // The next claim is one later.
    journal.claim(before.epoch()?, 0)?;
    // A restored backup has its journal made by `backup::adopt`.
    if before.extent()?.is_some() {
        journal.seed(head)?;
    }
    dir::sync_directory(&dir.tables())?;
    before.remove()
}

/// A program from before that is started on a journal of books makes an empty one of its own, and then refuses the tables. One
/// that has less than the books was put there by somebody.
fn is_left_by_an_older_program(dir: &DataDir, before: &Before) -> Result<bool, Error> {
    let books = dir.journal();
    if !Journal::is_begun(&books) {
        return Ok(false);
    }
    match (Journal::at_rest(&books)?.extent()?, before.extent()?) {
        (Some(_), None) => Ok(true),
        (Some(found), Some(old)) if found.last.seq > old.last.seq => {
            let detail = format!(
                "it ends at batch {}, {} at {}",
                old.last.seq,
                books.map(|path| path.display().to_string()).join(" and "),
                found.last.seq
            );
            Err(Error::OutOfStep { path: dir.journal_before(), detail })
        }
        _ => Ok(false),
    }
}

/// Folds everything that is only in the journal.
fn catch_up(journal: &Journal, tables: &mut Tables) -> Result<Head, Error> {
    let mut folded = tables::head(&tables.db)?;
    loop {
        let chunk = read_chunk(journal, folded.seq, u64::MAX)?;
        if chunk.is_empty() {
            return Ok(folded);
        }
        folded = tables.fold(&chunk)?;
    }
}
