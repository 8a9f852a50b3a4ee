//! Owns the bytes of one frame of the journal: a row, or a claim of an epoch.
//!
//! ```text
//! magic 4 · checksum 4 · turn 8 · claimed 4 · kind 4 · seq 8 · at 8 · token 8 · cursor 8 · epoch 4 · 0 4 · lengths 8 8 · texts · zeros
//! ```
//!
//! Numbers are little-endian. The checksum (CRC-32) is over everything behind it. A frame begins at a multiple of eight bytes, and its
//! magic is no UTF-8, so that no text can be taken for a frame. The turn tells the frames of a book from those it is written over.

use crc32fast::Hasher;
use tenure_core::change::Head;
use tenure_core::event::Cursor;
use tenure_core::{Epoch, Timestamp, Token};

use super::super::codec::Row;

/// Changes with the format.
pub(super) const MAGIC: [u8; 4] = [0xff, b't', b'j', 1];
/// The part before the texts.
pub(super) const HEAD_BYTES: usize = 80;
/// Where a frame may begin.
pub(super) const ALIGNMENT: usize = 8;
/// No token was granted yet. Tokens have 53 bits.
const NO_TOKEN: u64 = u64::MAX;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A batch.
    Row = 1,
    /// An epoch was claimed.
    Claim = 2,
}

/// All of a frame but its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) turn: u64,
    /// The epoch claimed last.
    pub(super) claimed: Epoch,
    /// That of its batch, or of the last batch before a claim.
    pub(super) head: Head,
    pub(super) changes: u64,
    pub(super) events: u64,
}

impl Frame {
    /// Writes the head of a frame with these texts.
    pub(super) fn encode(&self, row: &Row) -> [u8; HEAD_BYTES] {
        let head = &self.head;
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(self.turn.to_le_bytes());
        bytes.extend(self.claimed.0.to_le_bytes());
        bytes.extend((self.kind as u32).to_le_bytes());
        for number in [head.seq, head.at.unix_ms(), head.token.map_or(NO_TOKEN, Token::as_u64), head.cursor.0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(head.epoch.0.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.changes.to_le_bytes());
        bytes.extend(self.events.to_le_bytes());
        let mut hasher = Hasher::new();
        [bytes.as_slice(), row.changes.as_bytes(), row.events.as_bytes()].iter().for_each(|part| hasher.update(part));
        let parts = [&MAGIC, &hasher.finalize().to_le_bytes(), bytes.as_slice()];
        let mut whole = [0; HEAD_BYTES];
        whole.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        whole
    }

    /// Reads the head of a frame, with the checksum that is to be compared; nothing if there is none.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<(Frame, Checksum)> {
        let mut rest = Numbers(bytes.strip_prefix(&MAGIC)?);
        let expected = rest.u32()?;
        let mut hasher = Hasher::new();
        hasher.update(rest.0);
        let (turn, claimed) = (rest.u64()?, Epoch(rest.u32()?));
        let kind = match rest.u32()? {
            1 => Kind::Row,
            2 => Kind::Claim,
            _ => return None,
        };
        let (seq, at) = (rest.u64()?, Timestamp::from_unix_ms(rest.u64()?));
        let token = Some(rest.u64()?).filter(|token| *token != NO_TOKEN).map(Token::from_u64);
        let (cursor, epoch) = (Cursor(rest.u64()?), Epoch(rest.u32()?));
        rest.u32()?;
        let (changes, events) = (rest.u64()?, rest.u64()?);
        let head = Head { seq, epoch, at, token, cursor };
        Some((Frame { kind, turn, claimed, head, changes, events }, Checksum { hasher, expected }))
    }

    /// How many bytes of text follow its head.
    pub(super) fn text_bytes(&self) -> Option<u64> {
        self.changes.checked_add(self.events)
    }

    /// How many bytes it takes in its book; nothing if no book is as large.
    pub(super) fn bytes(&self) -> Option<u64> {
        (HEAD_BYTES as u64).checked_add(self.text_bytes()?)?.checked_next_multiple_of(ALIGNMENT as u64)
    }
}

/// A checksum in the making.
pub(super) struct Checksum {
    hasher: Hasher,
    expected: u32,
}

impl Checksum {
    pub(super) fn update(&mut self, text: &[u8]) {
        self.hasher.update(text);
    }

    pub(super) fn fits(self) -> bool {
        self.hasher.finalize() == self.expected
    }
}

/// Numbers, one after the other.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(token: Option<Token>) -> (Frame, Row) {
        let row = Row { changes: "[1]".to_owned(), events: "[2, 3]".to_owned() };
        let at = Timestamp::from_unix_ms(1_700_000_000_123);
        let head = Head { seq: 7, epoch: Epoch(60_000), at, token, cursor: Cursor(9) };
        (Frame { kind: Kind::Row, turn: 3, claimed: Epoch(60_001), head, changes: 3, events: 6 }, row)
    }

    fn is_whole(bytes: &[u8; HEAD_BYTES], row: &Row) -> bool {
        let Some((_, mut checksum)) = Frame::decode(bytes) else { return false };
        checksum.update(row.changes.as_bytes());
        checksum.update(row.events.as_bytes());
        checksum.fits()
    }

    #[test]
    fn a_frame_reads_back_as_it_was() {
        for token in [None, Some(Token::from_u64(0)), Some(Token::from_u64((1 << 53) - 1))] {
            let (frame, row) = frame(token);
            let bytes = frame.encode(&row);
            assert_eq!(Frame::decode(&bytes).expect("a frame").0, frame);
            assert!(is_whole(&bytes, &row));
            assert_eq!(frame.bytes(), Some(96));
        }
    }

    #[test]
    fn every_bit_counts() {
        let (frame, row) = frame(None);
        let bytes = frame.encode(&row);
        for bit in 0..HEAD_BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(&other, &row), "bit {bit}");
        }
        assert!(!is_whole(&bytes, &Row { events: "[2, 4]".to_owned(), ..row }));
    }

    #[test]
    fn the_format_stays() {
        let (frame, row) = frame(None);
        assert_eq!(crc32fast::hash(&frame.encode(&row)), 0xadcc_d6e7, "a change needs another magic");
    }
}
