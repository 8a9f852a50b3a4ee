//! Owns one of the two files of the journal: frames one after the other, from the start of the file.
//!
//! A book that is taken up again is written over in place: the file keeps its blocks, so that a sync has nothing to write but the
//! frame. What stands behind the last frame is zeros, or frames of an earlier turn.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tenure_core::change::Head;

use super::super::codec::Row;
use super::frame::{ALIGNMENT, Frame, HEAD_BYTES, Kind, MAGIC};
use crate::Error;

/// A file that grows does so by this much at once: a sync of a longer file writes more than its bytes.
const GROWTH_BYTES: u64 = 256 * 1024;
/// A book that is larger when it is taken up again gives its room back.
const KEPT_BYTES: u64 = 16 * 1024 * 1024;
/// Frames up to this size are put together before they are written: one call of the system.
const JOINED_BYTES: usize = 256 * 1024;
/// How much is read at once where a text is only looked at.
const LOOK_BYTES: usize = 64 * 1024;

/// One file of the journal.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) path: PathBuf,
    file: File,
    /// How often the journal had changed to another book when this one was begun. 0: never.
    pub(super) turn: u64,
    /// Its last frame.
    pub(super) last: Option<Frame>,
    first_seq: u64,
    /// Where its rows begin.
    rows: Vec<u64>,
    /// Where the next frame goes.
    pub(super) end: u64,
    /// The size of the file.
    size: u64,
    joined: Vec<u8>,
}

impl Book {
    /// Opens a book for writing; makes it if it is not there.
    pub(super) fn open(path: &Path) -> Result<Book, Error> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        Book::read(path, file)
    }

    /// Opens a book for reading only.
    pub(super) fn at_rest(path: &Path) -> Result<Book, Error> {
        Book::read(path, File::open(path))
    }

    fn read(path: &Path, file: io::Result<File>) -> Result<Book, Error> {
        let fail = |why| Error::io("open", path, why);
        let file = file.map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        let (path, rows) = (path.to_owned(), Vec::new());
        let mut book = Book { path, file, turn: 0, last: None, first_seq: 0, rows, end: 0, size, joined: Vec::new() };
        book.refuse_what_is_none()?;
        while let Some(frame) = book.frame_at(book.end)?.filter(|frame| book.goes_on_with(frame)) {
            book.turn = frame.turn;
            book.take_in(frame);
        }
        Ok(book)
    }

    /// A book that was begun has a magic at its start; one that was torn then may have zeros for it.
    fn refuse_what_is_none(&mut self) -> Result<(), Error> {
        let mut start = Vec::new();
        let read = (&self.file).take(MAGIC.len() as u64).read_to_end(&mut start);
        read.map_err(|why| Error::io("read", &self.path, why))?;
        if start.iter().zip(MAGIC).all(|(found, magic)| *found == magic || *found == 0) {
            return Ok(());
        }
        Err(Error::Corrupt { path: self.path.clone(), detail: "it does not begin as a journal does".to_owned() })
    }

    /// Whether a frame that stands behind the last one belongs there, and not to an earlier turn.
    fn goes_on_with(&self, frame: &Frame) -> bool {
        let follows = |last: &Frame| {
            let seq = last.head.seq + u64::from(frame.kind == Kind::Row && !self.rows.is_empty());
            frame.turn == last.turn && (frame.head.seq == seq || self.rows.is_empty())
        };
        self.last.as_ref().is_none_or(follows)
    }

    fn take_in(&mut self, frame: Frame) {
        if frame.kind == Kind::Row {
            if self.rows.is_empty() {
                self.first_seq = frame.head.seq;
            }
            self.rows.push(self.end);
        }
        self.end += frame.bytes().unwrap_or_default();
        self.last = Some(frame);
    }

    /// Whether it has rows.
    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// The position of its last row.
    pub(super) fn head(&self) -> Option<Head> {
        self.last.filter(|_| self.has_rows()).map(|frame| frame.head)
    }

    /// Begins it anew. Nothing is written yet: until then it is what it was.
    pub(super) fn begin(&mut self, turn: u64) -> Result<(), Error> {
        if self.size > KEPT_BYTES {
            self.file.set_len(0).map_err(|why| Error::io("write", &self.path, why))?;
            self.size = 0;
        }
        self.turn = turn;
        self.forget();
        Ok(())
    }

    /// Makes one more frame durable.
    pub(super) fn append(&mut self, frame: Frame, row: &Row) -> Result<(), Error> {
        self.write(&frame, row).map_err(|why| Error::io("write", &self.path, why))?;
        self.take_in(frame);
        Ok(())
    }

    fn write(&mut self, frame: &Frame, row: &Row) -> io::Result<()> {
        let head = frame.encode(row);
        let parts = [&head, row.changes.as_bytes(), row.events.as_bytes()];
        let bytes = frame.bytes().unwrap_or(u64::MAX);
        let end = self.end.saturating_add(bytes);
        let grown = if end > self.size { end.next_multiple_of(GROWTH_BYTES) } else { self.size };
        self.file.seek(SeekFrom::Start(self.end))?;
        if row.bytes() <= JOINED_BYTES {
            self.joined.clear();
            parts.iter().for_each(|part| self.joined.extend_from_slice(part));
            // What a longer file has behind the frame is written with it.
            let filled = if grown > self.size { grown - self.end } else { bytes };
            self.joined.resize(filled as usize, 0);
            self.file.write_all(&self.joined)?;
        } else {
            parts.iter().try_for_each(|part| self.file.write_all(part))?;
            self.file.set_len(grown)?;
        }
        self.file.sync_data()?;
        self.size = grown;
        Ok(())
    }

    /// The numbers of its rows.
    pub(super) fn seqs(&self) -> std::ops::Range<u64> {
        self.first_seq..self.first_seq + self.rows.len() as u64
    }

    /// Reads a row.
    pub(super) fn row(&mut self, seq: u64) -> Result<(Head, Row), Error> {
        let place = seq.checked_sub(self.first_seq).and_then(|at| self.rows.get(usize::try_from(at).ok()?)).copied();
        let damaged = || Error::Corrupt { path: self.path.clone(), detail: format!("batch {seq} is not whole") };
        let read = place.map_or(Ok(None), |place| read_row(&mut self.file, place, self.size));
        read.map_err(|why| Error::io("read", &self.path, why))?.ok_or_else(damaged)
    }

    /// The whole frame that stands there, if one does.
    fn frame_at(&mut self, place: u64) -> Result<Option<Frame>, Error> {
        look_at(&mut self.file, place, self.size).map_err(|why| Error::io("read", &self.path, why))
    }

    /// A commit is answered only after its frame is on the disk, and the next one is written only then: so of the frames of a turn
    /// just the last can be torn. One that stands behind something torn says that more than that was lost. `turn` is the last turn of
    /// the other book: what is not newer in a book without a beginning was to be written over.
    pub(super) fn damage(&mut self, turn: u64) -> Result<Option<Error>, Error> {
        let is_missed = |found: &Frame| match self.last {
            Some(last) => found.turn == last.turn,
            None => found.turn > turn,
        };
        let stray = stray_after(&mut self.file, self.end, self.size, is_missed);
        let stray = stray.map_err(|why| Error::io("read", &self.path, why))?;
        Ok(stray.map(|stray| {
            let detail = format!("byte {} begins no frame, and batch {} stands behind it", self.end, stray.head.seq);
            Error::Corrupt { path: self.path.clone(), detail }
        }))
    }

    /// Lets go of everything in it.
    pub(super) fn forget(&mut self) {
        (self.last, self.end) = (None, 0);
        self.rows.clear();
    }

    /// Writes the last frame once more. Whoever wrote it may have ended before it was on the disk, or been told that it is not: then
    /// the system takes it for written, and no later sync would write it.
    pub(super) fn write_last_again(&mut self) -> Result<(), Error> {
        let Some(bytes) = self.last.and_then(|frame| frame.bytes()) else { return Ok(()) };
        let place = SeekFrom::Start(self.end - bytes);
        let mut frame = vec![0; bytes as usize];
        let read = self.file.seek(place).and_then(|_| self.file.read_exact(&mut frame));
        read.map_err(|why| Error::io("read", &self.path, why))?;
        let written =
            self.file.seek(place).and_then(|_| self.file.write_all(&frame)).and_then(|()| self.file.sync_data());
        written.map_err(|why| Error::io("write", &self.path, why))
    }
}

/// Reads the head of a frame, if the file is long enough for all of it.
fn head_at(file: &mut File, place: u64, size: u64) -> io::Result<Option<(Frame, super::frame::Checksum)>> {
    let mut bytes = [0; HEAD_BYTES];
    if place.saturating_add(HEAD_BYTES as u64) > size {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut bytes)?;
    let fits = |frame: &Frame| frame.bytes().and_then(|bytes| place.checked_add(bytes)).is_some_and(|end| end <= size);
    Ok(Frame::decode(&bytes).filter(|(frame, _)| fits(frame)))
}

/// Looks whether a whole frame stands there, without keeping its texts.
fn look_at(file: &mut File, place: u64, size: u64) -> io::Result<Option<Frame>> {
    let Some((frame, mut checksum)) = head_at(file, place, size)? else { return Ok(None) };
    let mut left = frame.text_bytes().unwrap_or_default();
    let mut buffer = vec![0; LOOK_BYTES.min(left as usize)];
    while left > 0 {
        let wanted = buffer.len().min(left as usize);
        let text = buffer.get_mut(..wanted).unwrap_or_default();
        file.read_exact(text)?;
        checksum.update(text);
        left -= wanted as u64;
    }
    Ok(checksum.fits().then_some(frame))
}

fn read_row(file: &mut File, place: u64, size: u64) -> io::Result<Option<(Head, Row)>> {
    let Some((frame, mut checksum)) = head_at(file, place, size)? else { return Ok(None) };
    let mut text = |bytes: u64| {
        let mut text = vec![0; bytes as usize];
        file.read_exact(&mut text)?;
        checksum.update(&text);
        Ok::<_, io::Error>(String::from_utf8(text).ok())
    };
    let texts = (text(frame.changes)?, text(frame.events)?);
    let (Some(changes), Some(events)) = texts else { return Ok(None) };
    Ok(checksum.fits().then_some((frame.head, Row { changes, events })))
}

/// The first whole frame behind `from` that `is_missed`.
fn stray_after(file: &mut File, from: u64, size: u64, is_missed: impl Fn(&Frame) -> bool) -> io::Result<Option<Frame>> {
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(LOOK_BYTES, file.try_clone()?);
    let (mut place, mut places) = (from, Vec::new());
    let mut bytes = [0; ALIGNMENT];
    while place + (ALIGNMENT as u64) <= size {
        reader.read_exact(&mut bytes)?;
        if bytes.starts_with(&MAGIC) {
            places.push(place);
        }
        place += ALIGNMENT as u64;
    }
    for place in places {
        if head_at(file, place, size)?.is_some_and(|(frame, _)| is_missed(&frame))
            && let Some(frame) = look_at(file, place, size)?
        {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}
