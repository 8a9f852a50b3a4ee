//! Owns the folder: the thread that brings the journal into the tables, tells what may be forgotten, and drops what
//! retention no longer keeps. Nothing waits for it but a start, a backup, and who asked.
//!
//! It never reads a clock: it works when there is enough or when its wait runs out, and the ledger's own time says how
//! old an event is.

use std::sync::{Arc, RwLock};

use super::dir::Files;
use super::journal::Journal;
use super::logged::Logged;
use super::retain::{self, Retain};
use super::tables::Tables;
use super::tail::{FOLD_CHANGES, Tail, Work};
use crate::{Error, Order};

/// Checkpoint when the log has so much …
const CHECKPOINT_BYTES: u64 = 1024 * 1024;
/// … or after so many waits of a quarter of a second.
const CHECKPOINT_TURNS: u32 = 4;
/// After so many checkpoints that readers kept from finishing, readers wait for one.
const CHECKPOINTS_UNFINISHED_MAX: u32 = 16;
/// How many turns pass before a full disk or a lock is tried again.
const RETRY_TURNS: u32 = 4;

/// The folder and what it works on.
pub(super) struct Folder {
    pub(super) tables: Tables,
    pub(super) journal: Arc<Journal>,
    pub(super) files: Files,
    pub(super) tail: Arc<Tail>,
    pub(super) retain: Retain,
    /// Readers of the tables hold it shared.
    pub(super) readers: Arc<RwLock<()>>,
    pub(super) turns: Turns,
}

/// What is counted between two checkpoints, or between a failure and the next try.
#[derive(Debug, Default)]
pub(super) struct Turns {
    since_checkpoint: u32,
    unfinished: u32,
    until_retry: u32,
    is_broken: bool,
}

impl Folder {
    /// Works until it is told to stop, then folds what is left.
    pub(super) fn run(mut self) {
        lower_priority();
        loop {
            let work = self.tail.wait_for_work();
            if work == Work::Stop {
                return self.finish();
            }
            if let Err(why) = self.files.check() {
                tracing::error!(error = %why, "the next commit fails");
                // The last thing this thread says, so it stands: every commit and every flush meets it.
                return self.tail.set_error(Some(why));
            }
            if self.turns.is_broken || self.is_resting() {
                continue;
            }
            match self.turn(work) {
                Ok(()) => {}
                Err(why) => self.fail(why),
            }
        }
    }

    fn finish(&mut self) {
        if self.turns.is_broken {
            return;
        }
        if let Err(why) = self.fold_all().and_then(|()| self.checkpoint()) {
            tracing::warn!(error = %why, "the journal was not folded on the way out; the next start does it");
        }
    }

    fn turn(&mut self, work: Work) -> Result<(), Error> {
        self.fold_all()?;
        self.turns.since_checkpoint += 1;
        let is_due = self.turns.since_checkpoint >= CHECKPOINT_TURNS || self.tables.wal_bytes() >= CHECKPOINT_BYTES;
        if matches!(work, Work::Flush(_)) || is_due {
            self.checkpoint()?;
        }
        self.drop_old()?;
        if let Work::Flush(seq) = work {
            self.tail.set_flushed(seq);
        }
        Ok(())
    }

    /// Folds chunk by chunk until nothing is left.
    fn fold_all(&mut self) -> Result<(), Error> {
        loop {
            let chunk = self.next_chunk()?;
            if chunk.is_empty() {
                return Ok(());
            }
            self.tables.fold(&chunk)?;
            self.tail.set_folded(&chunk);
            if self.tables.wal_bytes() >= CHECKPOINT_BYTES {
                self.checkpoint()?;
                self.drop_old()?;
            }
        }
    }

    fn next_chunk(&self) -> Result<Vec<Arc<Logged>>, Error> {
        match self.tail.chunk() {
            Some(chunk) => Ok(chunk),
            None => {
                let after = self.tail.progress().folded.seq;
                read_chunk(&self.journal, after, self.tail.first_seq())
            }
        }
    }

    /// After a finished one, the tables have on disk what was folded, and the journal may forget it.
    fn checkpoint(&mut self) -> Result<(), Error> {
        let folded = self.tail.progress();
        if folded.checkpointed_seq == folded.folded.seq && self.tables.wal_bytes() == 0 {
            self.turns.since_checkpoint = 0;
            return Ok(());
        }
        let alone = self.turns.unfinished >= CHECKPOINTS_UNFINISHED_MAX;
        let guard = alone.then(|| self.readers.write());
        let is_finished = self.tables.checkpoint()?;
        drop(guard);
        self.turns.since_checkpoint = 0;
        self.turns.unfinished = if is_finished { 0 } else { self.turns.unfinished + 1 };
        if is_finished {
            self.tail.set_checkpointed(folded.folded.seq);
        }
        Ok(())
    }

    fn drop_old(&mut self) -> Result<(), Error> {
        let now = self.tail.progress().folded.at;
        if let Some(first) = retain::step(&self.tables.db, self.retain, now)? {
            self.tail.set_first(first);
        }
        Ok(())
    }

    /// A full disk can be emptied and a lock let go. After any other failure, what the disk has is not known until the
    /// next start: a second sync that succeeds says nothing about what the first one lost.
    fn fail(&mut self, why: Error) {
        self.turns.is_broken = !matches!(why, Error::Full { .. } | Error::Locked { .. });
        self.turns.until_retry = RETRY_TURNS;
        let goes_on = !self.turns.is_broken;
        tracing::error!(error = %why, goes_on, "folding the journal failed; commits go on, the journal grows");
        self.tail.set_error(Some(why));
    }

    fn is_resting(&mut self) -> bool {
        if self.turns.until_retry == 0 {
            return false;
        }
        self.turns.until_retry -= 1;
        if self.turns.until_retry == 0 {
            self.tail.set_error(None);
        }
        self.turns.until_retry > 0
    }
}

/// A chunk of the journal, read from its file, of the batches in `(after, before)`.
pub(super) fn read_chunk(journal: &Journal, after: u64, before: u64) -> Result<Vec<Arc<Logged>>, Error> {
    let mut chunk: Vec<Arc<Logged>> = Vec::new();
    let mut changes = 0;
    while changes < FOLD_CHANGES {
        let from = chunk.last().map_or(after, |logged| logged.head.seq);
        let step = journal.read(from, before, Order::OldestFirst)?;
        if step.is_empty() {
            break;
        }
        changes += step.iter().map(Logged::weight).sum::<usize>();
        chunk.extend(step.into_iter().map(Arc::new));
    }
    Ok(chunk)
}

/// The commits come first when there are not enough processors for both.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // On Linux this is the thread's own niceness; who may not even lower it goes on as it is.
    let _ = rustix::process::nice(10);
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::change::{Batch, Head};

    use super::super::dir::DataDir;
    use super::super::tail::{FOLD_WAIT, Progress};
    use super::*;

    fn folder(dir: &std::path::Path) -> Folder {
        Folder {
            tables: Tables::open(&dir.join("tables.db")).expect("tables"),
            journal: Arc::new(
                Journal::open(&["journal.1", "journal.2"].map(|name| dir.join(name))).expect("a journal"),
            ),
            files: DataDir::lock(dir).and_then(|dir| dir.files()).expect("files"),
            tail: Arc::new(Tail::new(Progress::default(), 1_000, true)),
            retain: Retain::default(),
            readers: Arc::default(),
            turns: Turns::default(),
        }
    }

    #[test]
    fn what_was_folded_is_safe_on_the_disk_after_a_second_of_turns() {
        assert_eq!(FOLD_WAIT * CHECKPOINT_TURNS, Duration::from_secs(1));
        let dir = tempfile::tempdir().expect("a directory");
        let mut folder = folder(dir.path());
        for seq in 1..=2 {
            let batch = Batch { head: Head { seq, ..Head::default() }, ..Batch::default() };
            let logged = Logged::encode(&batch, &mut Vec::new()).expect("encodes");
            folder.tail.push(Arc::new(logged)).expect("its file is there");
            let after_a_turn = |_| {
                folder.turn(Work::Fold).expect("folds");
                let progress = folder.tail.progress();
                (progress.folded.seq, progress.checkpointed_seq)
            };
            let turns: Vec<_> = (0..CHECKPOINT_TURNS).map(after_a_turn).collect();
            assert_eq!(turns, [(seq, seq - 1), (seq, seq - 1), (seq, seq - 1), (seq, seq)]);
        }
    }
}
