//! Owns when the journal forgets: the rows that the tables have safely on the disk, a stretch at a time.
//!
//! Every deletion rewrites pages beside the one that a commit must write anyway, so rows go many at once while they are small.
//! A large row is a chain of pages that is read to be freed, so of those only a few go with one commit.

use std::collections::VecDeque;

/// So many rows are worth a deletion …
const STRETCH_ROWS: usize = 64;
/// … or so much text, whichever comes first. More than most commits add, so that trimming keeps up.
const STRETCH_BYTES: usize = 256 * 1024;

/// The rows of the journal, oldest first.
#[derive(Debug)]
pub(super) struct Trim {
    first_seq: u64,
    /// Their sizes; those of an earlier life count as empty.
    sizes: VecDeque<usize>,
}

impl Trim {
    /// A journal with the rows from `first_seq` to `last_seq`.
    pub(super) fn new(first_seq: u64, last_seq: u64) -> Trim {
        let rows = (last_seq + 1).saturating_sub(first_seq) as usize;
        Trim { first_seq, sizes: std::iter::repeat_n(0, rows).collect() }
    }

    /// Up to which row to delete now, given that the tables have everything up to `checkpointed`.
    pub(super) fn due(&self, checkpointed: u64) -> Option<u64> {
        let ready = (checkpointed + 1).saturating_sub(self.first_seq) as usize;
        let mut bytes = 0;
        let enough = self.sizes.iter().take(ready).position(|size| {
            bytes += size;
            bytes >= STRETCH_BYTES
        });
        let rows = enough.map_or(ready, |at| at + 1).min(STRETCH_ROWS);
        (enough.is_some() || rows == STRETCH_ROWS).then(|| self.first_seq + rows as u64 - 1)
    }

    /// A row was added, and what was due is gone.
    pub(super) fn appended(&mut self, bytes: usize, trimmed: Option<u64>) {
        if let Some(last) = trimmed {
            let gone = (last + 1).saturating_sub(self.first_seq) as usize;
            self.sizes.drain(..gone.min(self.sizes.len()));
            self.first_seq = last + 1;
        }
        self.sizes.push_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal_of(rows: usize, bytes: usize) -> Trim {
        let mut trim = Trim::new(1, 0);
        (0..rows).for_each(|_| trim.appended(bytes, None));
        trim
    }

    #[test]
    fn small_rows_go_many_at_once_and_never_past_the_checkpoint() {
        let trim = journal_of(500, 700);
        assert_eq!(trim.due(0), None);
        assert_eq!(trim.due(63), None, "too few to be worth it");
        assert_eq!(trim.due(64), Some(64));
        assert_eq!(trim.due(500), Some(64), "no more than a stretch");
    }

    #[test]
    fn large_rows_go_as_soon_as_they_are_a_stretch() {
        let trim = journal_of(50, STRETCH_BYTES / 2);
        assert_eq!(trim.due(1), None);
        assert_eq!(trim.due(2), Some(2));
        assert_eq!(trim.due(50), Some(2));
    }

    #[test]
    fn it_goes_on_after_what_was_trimmed_and_after_an_earlier_life() {
        let mut trim = Trim::new(10, 109);
        assert_eq!(trim.due(109), Some(73));
        trim.appended(1, Some(73));
        assert_eq!(trim.due(110), None, "36 old rows and a new one are left");
        assert_eq!(trim.sizes.len(), 37);
        assert_eq!(trim.first_seq, 74);
    }
}
