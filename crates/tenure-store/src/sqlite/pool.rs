//! Owns the reading connections to the tables: a few, opened when needed, given out one reader at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use super::db::Db;
use crate::Error;

/// How many reads of the tables run at once; more wait. Each has a cache of 2 MB.
const CONNECTIONS_MAX: usize = 8;

/// The reading connections.
pub(super) struct Pool {
    path: PathBuf,
    state: Mutex<State>,
    returned: Condvar,
    /// Taken whole by the folder when readers would keep it from ever finishing a checkpoint.
    readers: Arc<RwLock<()>>,
}

#[derive(Default)]
struct State {
    idle: Vec<Db>,
    open: usize,
}

impl Pool {
    pub(super) fn new(path: &Path, readers: Arc<RwLock<()>>) -> Pool {
        Pool { path: path.into(), state: Mutex::default(), returned: Condvar::new(), readers }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `read` in one transaction: all it sees is of one moment.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Db) -> Result<T, Error>) -> Result<T, Error> {
        let db = self.take()?;
        let result = {
            let _reading = self.readers.read().unwrap_or_else(PoisonError::into_inner);
            in_transaction(&db, read)
        };
        self.put(db);
        result
    }

    fn take(&self) -> Result<Db, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.idle.is_empty() && state.open >= CONNECTIONS_MAX {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(db) = state.idle.pop() {
            return Ok(db);
        }
        state.open += 1;
        drop(state);
        Db::read_only(&self.path).inspect_err(|_| self.lose())
    }

    fn put(&self, db: Db) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).idle.push(db);
        self.returned.notify_one();
    }

    /// A connection that did not come to be makes room for another try.
    fn lose(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).open -= 1;
        self.returned.notify_one();
    }
}

fn in_transaction<T>(db: &Db, read: impl FnOnce(&Db) -> Result<T, Error>) -> Result<T, Error> {
    let transaction = db.connection.unchecked_transaction().map_err(db.fail())?;
    let result = read(db)?;
    transaction.finish().map_err(db.fail())?;
    Ok(result)
}
