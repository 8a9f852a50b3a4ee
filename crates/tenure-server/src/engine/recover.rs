//! Owns the start: a new epoch, durable before anyone is served, the records, and the extension of every active lease (L13),
//! which is not written because the next start makes it again.

use std::sync::Arc;

use tenure_core::change::{Batch, Head};
use tenure_core::{Epoch, Ledger, Timestamp, Turn};
use tenure_store::{CommitError, Store};

use super::clock::{Clock, LedgerTime};

/// 2020-01-01 UTC, from where epochs count hours.
const EPOCH_ZERO: Timestamp = Timestamp::from_unix_ms(1_577_836_800_000);
const HOUR_MS: u64 = 3_600_000;

/// Why the ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] tenure_store::Error),
    /// The start could not be written.
    #[error("the start of the ledger could not be written: {0}")]
    Commit(#[from] CommitError),
    /// The epochs are used up: tokens would no longer be exact in JSON.
    #[error("epoch {} is the last one, so no larger token can be granted", Epoch::MAX.0)]
    EpochsUsedUp,
    /// The system gave no thread.
    #[error("the engine's threads could not be started: {0}")]
    Thread(std::io::Error),
}

pub(super) struct Recovered {
    pub(super) ledger: Ledger,
    pub(super) time: LedgerTime,
    pub(super) seq: u64,
}

pub(super) fn recover(store: &mut dyn Store, clock: Arc<dyn Clock>) -> Result<Recovered, OpenError> {
    let claimed = store.claim()?;
    let head = store.reader().stats().head;
    let epoch = next_epoch(claimed, head, clock.now()).ok_or(OpenError::EpochsUsedUp)?;
    let mut ledger = Ledger::open(head, epoch);
    let loaded = store.load(&mut |record| ledger.restore(record))?;
    debug_assert_eq!(loaded, head, "nobody commits between a claim and a load");
    let mut time = LedgerTime::resume(clock, head.at);
    let mut turn = Turn::new(time.stamp(), &|_| false);
    ledger.start(&mut turn);
    let head = Head { seq: head.seq + 1, ..ledger.head() };
    store.commit(&Arc::new(Batch { head, changes: turn.changes, events: turn.events }))?;
    Ok(Recovered { ledger, time, seq: head.seq })
}

/// Larger than every epoch before, also when an old backup was restored and the store no longer knows of the epochs since: the
/// hours since 2020 are larger than an epoch that was one of the hours before, as long as starts are rarer than hours on the whole.
fn next_epoch(claimed: Epoch, head: Head, now: Timestamp) -> Option<Epoch> {
    let hours = u32::try_from(now.ms_since(EPOCH_ZERO) / HOUR_MS).unwrap_or(u32::MAX);
    let last = head.token.map_or(head.epoch, |token| token.epoch().max(head.epoch));
    let epoch = claimed.max(Epoch(last.0.checked_add(1)?)).max(Epoch(hours));
    (epoch <= Epoch::MAX).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Token;

    #[test]
    fn l2_an_epoch_is_larger_than_all_before_it_whatever_the_store_still_knows() {
        let now = EPOCH_ZERO.plus_ms(60_000 * HOUR_MS + 5);
        let head = |epoch, token| Head { epoch: Epoch(epoch), token, ..Head::default() };
        assert_eq!(next_epoch(Epoch(1), Head::default(), now), Some(Epoch(60_000)), "an empty store");
        assert_eq!(next_epoch(Epoch(3), head(60_000, None), now), Some(Epoch(60_001)), "twice in an hour");
        let token = Some(Token::start_of(Epoch(70_000)));
        assert_eq!(next_epoch(Epoch(3), head(60_000, token), now), Some(Epoch(70_001)), "a counter ran over");
        assert_eq!(next_epoch(Epoch(80_000), head(60_000, token), now), Some(Epoch(80_000)), "another writer claimed");
        assert_eq!(next_epoch(Epoch(1), head(Epoch::MAX.0, None), now), None, "the end");
    }
}
