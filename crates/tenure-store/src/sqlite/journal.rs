//! Owns the journal: one row a batch, the durable truth until the tables have it.
//!
//! ```text
//! journal.1   turn 7   │ row 31 │ row 32 │ claim │ row 33 │ (turn 5)
//! journal.2   turn 8   │ row 34 │ row 35 │ zeros            ◄── the next row
//! ```
//!
//! Two books, written by turns: one that is full rests until the tables have safely everything that is in it, and is then written
//! over from its start. While folding is behind, the other one grows. A row is one write and one sync (docs/decisions/0006).
//!
//! Writer, folder and readers share the books. [`Gate`] lets them in by turns, so that neither a stream of commits starves a reader
//! nor a reader holds a commit up for more than one step.

mod before;
mod book;
mod frame;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_core::Epoch;
use tenure_core::change::Head;

use self::book::Book;
use self::frame::{Frame, Kind};
use super::codec::Row;
use super::logged::Logged;
use crate::{Error, Order};

pub(super) use self::before::Before;

/// How much text one step reads before it lets commits in again: about 0.1 ms.
const STEP_BYTES: usize = 128 * 1024;
/// A book of this size is full. Small, so that it stays in the caches of the processor and of the disk.
const BOOK_BYTES: u64 = 4 * 1024 * 1024;

/// A lock that lets its takers in by turns: who waits is next, also against one that comes back at once.
struct Gate<T> {
    next: Mutex<()>,
    inside: Mutex<T>,
}

impl<T> Gate<T> {
    fn new(value: T) -> Gate<T> {
        Gate { next: Mutex::new(()), inside: Mutex::new(value) }
    }

    fn enter(&self) -> MutexGuard<'_, T> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal.
pub(super) struct Journal(Gate<Option<Books>>);

/// What is in the journal: its first and last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) last: Head,
}

/// Both books.
struct Books {
    resting: Book,
    /// The one that is being written.
    open: Book,
    claimed: Epoch,
    book_bytes: u64,
}

impl Journal {
    /// Opens it; makes it if it is not there.
    pub(super) fn open(paths: &[PathBuf; 2]) -> Result<Journal, Error> {
        let journal = Journal::of(paths, Book::open)?;
        journal.with(|books| books.open.write_last_again())?;
        Ok(journal)
    }

    /// Opens one that is there, and changes nothing.
    pub(super) fn at_rest(paths: &[PathBuf; 2]) -> Result<Journal, Error> {
        Journal::of(paths, Book::at_rest)
    }

    fn of(paths: &[PathBuf; 2], open: fn(&Path) -> Result<Book, Error>) -> Result<Journal, Error> {
        let [one, other] = paths;
        if let Some(path) = paths.iter().find(|path| !path.exists())
            && Journal::is_begun(paths)
        {
            return Err(Error::OutOfStep {
                path: path.clone(),
                detail: "it is missing, the other book is not".to_owned(),
            });
        }
        let books = Books::of(open(one)?, open(other)?)?;
        Ok(Journal(Gate::new(Some(books))))
    }

    /// Whether anything was ever written to it. Both files are made before that.
    pub(super) fn is_begun(paths: &[PathBuf; 2]) -> bool {
        paths.iter().any(|path| path.metadata().is_ok_and(|found| found.len() > 0))
    }

    /// Takes the next epoch, not smaller than `at_least`, or the one that comes `leap` later; durably.
    pub(super) fn claim(&self, at_least: Epoch, leap: u32) -> Result<Epoch, Error> {
        self.with(|books| {
            books.claimed = Epoch(books.claimed.next().max(at_least).0 + leap);
            let head = books.head().unwrap_or_default();
            books.append(Kind::Claim, head, &Row::default())?;
            Ok(books.claimed)
        })
    }

    /// Starts a journal at a head that the tables brought along, as after a restore.
    pub(super) fn seed(&self, head: Head) -> Result<(), Error> {
        if head.seq == 0 {
            return Ok(());
        }
        self.append(head, &Row { changes: "[]".to_owned(), events: "[]".to_owned() }, 0)
    }

    /// Makes one row durable. What the tables have safely, up to `safe_seq`, may be forgotten.
    pub(super) fn append(&self, head: Head, row: &Row, safe_seq: u64) -> Result<(), Error> {
        self.with(|books| {
            books.change_over_if_full(safe_seq)?;
            books.append(Kind::Row, head, row)
        })
    }

    /// Its first and last row, if it has any.
    pub(super) fn extent(&self) -> Result<Option<Extent>, Error> {
        self.with(|books| {
            let first = [&books.resting, &books.open].into_iter().find(|book| book.has_rows());
            Ok(first.zip(books.head()).map(|(book, last)| Extent { first: book.seqs().start, last }))
        })
    }

    /// The first batches within `(after, before)`, or the last for the newest first: one step, at least one batch if
    /// there is any.
    pub(super) fn read(&self, after: u64, before: u64, order: Order) -> Result<Vec<Logged>, Error> {
        let mut rows = Vec::new();
        let path = self.with(|books| {
            rows = books.read(after, before, order)?;
            Ok(books.open.path.clone())
        })?;
        // Outside the gate: decoding is most of the work.
        rows.into_iter().map(|(head, row)| Logged::decode(&path, head, row)).collect()
    }

    /// The epoch claimed last.
    pub(super) fn epoch(&self) -> Result<Epoch, Error> {
        self.with(|books| Ok(books.claimed))
    }

    /// Closes the files for everyone.
    pub(super) fn close(&self) {
        self.0.enter().take();
    }

    fn with<T>(&self, run: impl FnOnce(&mut Books) -> Result<T, Error>) -> Result<T, Error> {
        run(self.0.enter().as_mut().ok_or(Error::Closed)?)
    }
}

impl Books {
    fn of(one: Book, other: Book) -> Result<Books, Error> {
        let (mut resting, mut open) = if other.turn > one.turn { (one, other) } else { (other, one) };
        if let Some(damage) = open.damage(resting.turn)? {
            return Err(damage);
        }
        let goes_on = match (resting.head(), open.has_rows()) {
            (Some(last), true) => open.seqs().start == last.seq + 1,
            _ => true,
        };
        match resting.damage(open.turn)? {
            None if goes_on => {}
            // A book that was just taken up again may be torn in its middle, and what it had is safe in the tables then. If it is
            // not, they end before the first row, and that is refused. Without a beginning it could be the newer one.
            _ if open.has_rows() && resting.last.is_some() => resting.forget(),
            damage => damage.map_or(Ok(()), Err)?,
        }
        let claimed = open.last.or(resting.last).map_or(Epoch::default(), |frame| frame.claimed);
        Ok(Books { resting, open, claimed, book_bytes: BOOK_BYTES })
    }

    fn head(&self) -> Option<Head> {
        self.open.head().or_else(|| self.resting.head())
    }

    fn append(&mut self, kind: Kind, head: Head, row: &Row) -> Result<(), Error> {
        if self.open.turn == 0 {
            self.open.begin(1)?;
        }
        let (changes, events) = (row.changes.len() as u64, row.events.len() as u64);
        let frame = Frame { kind, turn: self.open.turn, claimed: self.claimed, head, changes, events };
        self.open.append(frame, row)
    }

    fn change_over_if_full(&mut self, safe_seq: u64) -> Result<(), Error> {
        let is_free = self.resting.head().is_none_or(|last| last.seq <= safe_seq);
        if self.open.end < self.book_bytes || !is_free {
            return Ok(());
        }
        std::mem::swap(&mut self.resting, &mut self.open);
        self.open.begin(self.resting.turn + 1)
    }

    fn read(&mut self, after: u64, before: u64, order: Order) -> Result<Vec<(Head, Row)>, Error> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        let mut books = [&mut self.resting, &mut self.open];
        if order == Order::NewestFirst {
            books.reverse();
        }
        for book in books {
            let seqs = book.seqs();
            let mut wanted = seqs.start.max(after.saturating_add(1))..seqs.end.min(before);
            let next = |wanted: &mut std::ops::Range<u64>| match order {
                Order::OldestFirst => wanted.next(),
                Order::NewestFirst => wanted.next_back(),
            };
            while let Some(seq) = next(&mut wanted).filter(|_| bytes < STEP_BYTES) {
                let row = book.row(seq)?;
                bytes += row.1.bytes();
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn paths(dir: &Path) -> [PathBuf; 2] {
        ["journal.1", "journal.2"].map(|name| dir.join(name))
    }

    /// With books that are soon full.
    fn narrow(dir: &Path) -> Journal {
        let journal = Journal::open(&paths(dir)).expect("a journal");
        let narrow = |books: &mut Books| {
            books.book_bytes = 1_000;
            Ok(())
        };
        journal.with(narrow).expect("open");
        journal
    }

    fn head(seq: u64) -> Head {
        Head { seq, ..Head::default() }
    }

    fn row(seq: u64) -> Row {
        Row { changes: format!("[{seq}]"), events: format!("[{}]", "x".repeat(seq as usize % 150)) }
    }

    fn append(journal: &Journal, seq: u64, safe_seq: u64) {
        journal.append(head(seq), &row(seq), safe_seq).expect("written");
    }

    /// The rows, after having compared their texts.
    fn seqs(journal: &Journal) -> Vec<u64> {
        let read = |order| journal.with(|books| books.read(0, u64::MAX, order)).expect("read");
        let mut rows = read(Order::OldestFirst);
        for (found, texts) in &rows {
            let expected = row(found.seq);
            assert_eq!((&texts.changes, &texts.events), (&expected.changes, &expected.events));
        }
        rows.reverse();
        let newest = read(Order::NewestFirst).into_iter().map(|(head, _)| head.seq);
        assert_eq!(rows.iter().map(|(head, _)| head.seq).collect::<Vec<_>>(), newest.collect::<Vec<_>>());
        rows.iter().rev().map(|(head, _)| head.seq).collect()
    }

    #[test]
    fn rows_and_epochs_are_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = narrow(dir.path());
        assert_eq!((journal.extent().expect("read"), journal.epoch().expect("read")), (None, Epoch(0)));
        assert_eq!(journal.claim(Epoch(7), 0).expect("claimed"), Epoch(7));
        (1..=3).for_each(|seq| append(&journal, seq, 0));
        assert_eq!(journal.claim(Epoch(7), 10).expect("claimed"), Epoch(18));
        append(&journal, 4, 0);
        drop(journal);
        let journal = narrow(dir.path());
        assert_eq!((seqs(&journal), journal.epoch().expect("read")), (vec![1, 2, 3, 4], Epoch(18)));
        assert_eq!(journal.extent().expect("read"), Some(Extent { first: 1, last: head(4) }));
        append(&journal, 5, 0);
        assert_eq!(seqs(&journal), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn nothing_is_written_over_that_the_tables_do_not_have_safely() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = narrow(dir.path());
        (1..=40).for_each(|seq| append(&journal, seq, 0));
        assert_eq!(seqs(&journal), (1..=40).collect::<Vec<_>>());
        let first = journal.with(|books| Ok(books.open.seqs().start)).expect("open");
        assert!(first > 1, "it has changed over once, to a book that was free");
        append(&journal, 41, first - 2);
        assert_eq!(seqs(&journal).first(), Some(&1), "one row of the resting book is not safe");
        append(&journal, 42, first - 1);
        assert_eq!(seqs(&journal), (first..=42).collect::<Vec<_>>());
        drop(journal);
        assert_eq!(seqs(&narrow(dir.path())), (first..=42).collect::<Vec<_>>());
    }

    #[test]
    fn the_epoch_outlives_the_book_it_was_claimed_in() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = narrow(dir.path());
        journal.claim(Epoch(9), 0).expect("claimed");
        (1..=200).for_each(|seq| append(&journal, seq, seq - 1));
        assert!(!seqs(&journal).contains(&1), "both books were written over");
        drop(journal);
        assert_eq!(narrow(dir.path()).epoch().expect("read"), Epoch(9));
    }

    #[test]
    fn a_book_that_had_to_grow_gives_its_room_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = narrow(dir.path());
        let large = Row { changes: "[]".to_owned(), events: "x".repeat(20 << 20) };
        journal.append(head(1), &large, 0).expect("written");
        let [one, other] = paths(dir.path());
        let sizes = || [&one, &other].map(|path| fs::metadata(path).expect("a file").len());
        assert!(sizes().contains(&((20 << 20) + 256 * 1024)), "{:?}", sizes());
        (2..=60).for_each(|seq| append(&journal, seq, seq - 1));
        assert_eq!(sizes(), [256 * 1024; 2]);
    }

    /// The bytes of both books with some rows in each, and where the last row begins and ends in the open one.
    fn written(dir: &Path) -> (PathBuf, Vec<u8>, std::ops::Range<usize>) {
        let journal = narrow(dir);
        (1..=30).for_each(|seq| append(&journal, seq, seq - 1));
        let (path, start) = journal.with(|books| Ok((books.open.path.clone(), books.open.end))).expect("open");
        append(&journal, 31, 0);
        let end = journal.with(|books| Ok(books.open.end)).expect("open");
        assert!(end > start, "in the same book");
        (path.clone(), fs::read(&path).expect("read"), start as usize..end as usize)
    }

    #[test]
    fn a_row_torn_anywhere_is_there_whole_or_not_at_all_and_the_next_takes_its_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, bytes, last) = written(dir.path());
        let text_end = last.start + 80 + row(31).bytes();
        for cut in last.clone() {
            for rest in [0, 0xa5] {
                let mut torn = bytes.clone();
                torn[cut..].fill(rest);
                fs::write(&path, &torn).expect("written");
                let journal = narrow(dir.path());
                let expected = if cut >= text_end { 31 } else { 30 };
                let found = *seqs(&journal).last().expect("rows");
                assert!(found == expected || (found == 31 && torn[..text_end] == bytes[..text_end]), "cut at {cut}");
                append(&journal, found + 1, 0);
                drop(journal);
                assert_eq!(seqs(&narrow(dir.path())).last(), Some(&(found + 1)));
            }
            fs::write(&path, &bytes[..cut]).expect("written");
            assert!(*seqs(&narrow(dir.path())).last().expect("rows") >= 30, "cut off at {cut}");
        }
    }

    #[test]
    fn a_row_torn_while_the_books_change_leaves_the_resting_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = narrow(dir.path());
        let mut seq = 0;
        let turn = |journal: &Journal| journal.with(|books| Ok(books.open.turn)).expect("open");
        while turn(&journal) < 4 {
            seq += 1;
            append(&journal, seq, seq - 1);
        }
        let path = journal.with(|books| Ok(books.open.path.clone())).expect("open");
        drop(journal);
        let bytes = fs::read(&path).expect("read");
        for cut in 0..80 + row(seq).bytes() {
            let mut torn = bytes.clone();
            torn[cut..200].fill(0);
            fs::write(&path, &torn).expect("written");
            let journal = narrow(dir.path());
            let found = *seqs(&journal).last().expect("rows");
            assert!(
                found == seq - 1 || torn[..80 + row(seq).bytes()] == bytes[..80 + row(seq).bytes()],
                "cut at {cut}"
            );
            append(&journal, found + 1, found);
            assert_eq!(seqs(&journal).last(), Some(&(found + 1)));
        }
    }

    #[test]
    fn a_book_torn_in_its_middle_while_it_is_taken_up_again_is_let_go_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = narrow(dir.path());
        (1..=100).for_each(|seq| append(&journal, seq, seq - 1));
        let (path, open) = journal.with(|books| Ok((books.resting.path.clone(), books.open.seqs()))).expect("open");
        // The start of the file was not written any more, what follows was: the first frame is the old one, whole.
        for torn in (200..600).step_by(8) {
            let copy = tempfile::tempdir().expect("a directory");
            for (from, to) in paths(dir.path()).iter().zip(paths(copy.path())) {
                let mut bytes = fs::read(from).expect("read");
                if *from == path {
                    bytes[torn..torn + 16].fill(0xa5);
                }
                fs::write(to, bytes).expect("written");
            }
            let journal = narrow(copy.path());
            assert_eq!(seqs(&journal), open.clone().collect::<Vec<_>>(), "torn at {torn}");
            append(&journal, 101, 100);
            drop(journal);
            assert_eq!(seqs(&narrow(copy.path())).last(), Some(&101));
        }
    }

    #[test]
    fn damage_before_a_row_that_was_answered_is_refused_and_not_taken_for_a_torn_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, bytes, last) = written(dir.path());
        for byte in (0..last.start).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 0x10;
            fs::write(&path, &damaged).expect("written");
            match Journal::open(&paths(dir.path())) {
                Err(why) => assert!(matches!(&why, Error::Corrupt { path: found, .. } if *found == path), "{why}"),
                Ok(journal) => assert_eq!(*seqs(&journal).last().expect("rows"), 31, "byte {byte} is only padding"),
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_appended_claimed_and_opened_again_nothing_unsafe_is_missing(
            steps in prop::collection::vec((0_u8..8, 0_u64..40), 1..120)
        ) {
            let dir = tempfile::tempdir().expect("a directory");
            let mut journal = narrow(dir.path());
            let (mut last, mut safe, mut epoch) = (0, 0, Epoch(0));
            for (kind, number) in steps {
                match kind {
                    0 => {
                        drop(journal);
                        journal = narrow(dir.path());
                    }
                    1 => epoch = journal.claim(Epoch(number as u32), 0).expect("claimed"),
                    2 => safe = last.min(safe + number),
                    _ => {
                        last += 1;
                        append(&journal, last, safe);
                    }
                }
                prop_assert_eq!(journal.epoch().expect("read"), epoch);
                let found = seqs(&journal);
                prop_assert_eq!(found.last().copied().unwrap_or_default(), last);
                prop_assert!(last == 0 || found.first().is_some_and(|first| *first <= safe + 1));
                prop_assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1));
            }
        }
    }
}
