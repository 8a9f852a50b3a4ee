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
    let epoch = claim(store, clock.now())?;
    let head = store.reader().stats().head;
    let mut ledger = Ledger::open(head, epoch);
    let loaded = store.load(&mut |record| ledger.restore(record))?;
    debug_assert_eq!(loaded, head, "nobody commits between a claim and a load");
    let mut time = LedgerTime::resume(clock, head.at);
    let mut turn = Turn::new(time.stamp(), &|_| false);
    ledger.start(&mut turn);
    let head = Head { seq: head.seq + 1, ..ledger.head() };
    store.commit(&Batch { head, changes: turn.changes, events: turn.events })?;
    Ok(Recovered { ledger, time, seq: head.seq })
}

/// Larger than every epoch before, also when old files were put back and the store no longer knows of the epochs since: the hours
/// since 2020 are larger than an epoch that was one of the hours before, as long as starts are rarer than hours on the whole.
fn claim(store: &mut dyn Store, now: Timestamp) -> Result<Epoch, OpenError> {
    let hours = u32::try_from(now.ms_since(EPOCH_ZERO) / HOUR_MS).map_or(Epoch(u32::MAX), Epoch);
    // Asked before it is claimed: a claim stays, and a clock can be set right.
    if hours > Epoch::MAX {
        return Err(OpenError::EpochsUsedUp);
    }
    let epoch = store.claim(hours)?;
    if epoch > Epoch::MAX { Err(OpenError::EpochsUsedUp) } else { Ok(epoch) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tenure_core::command::{Acquire, Acquired};
    use tenure_core::{Holder, Resource, Token, Ttl};
    use tenure_store::{Memory, Options, Sqlite};

    use super::*;
    use crate::engine::clock::ManualClock;

    const HOURS: u32 = 60_000;

    fn noon() -> Timestamp {
        EPOCH_ZERO.plus_ms(u64::from(HOURS) * HOUR_MS + 5)
    }

    #[test]
    fn l2_an_epoch_is_the_hour_or_the_next_one_if_the_hour_has_had_its_epoch() {
        let mut store = Memory::new();
        let claimed = |store: &mut Memory, now| claim(store, now).expect("an epoch").0;
        assert_eq!(claimed(&mut store, noon()), HOURS);
        assert_eq!(claimed(&mut store, noon()), HOURS + 1);
        assert_eq!(claimed(&mut store, noon().plus_ms(HOUR_MS)), HOURS + 2);
        assert_eq!(claimed(&mut store, noon().plus_ms(9 * HOUR_MS)), HOURS + 9);
        assert_eq!(claimed(&mut store, noon()), HOURS + 10, "though the clock was set back");
    }

    #[test]
    fn a_clock_beyond_the_last_epoch_takes_none() {
        let mut store = Memory::new();
        let beyond = EPOCH_ZERO.plus_ms((u64::from(Epoch::MAX.0) + 1) * HOUR_MS);
        for now in [beyond, Timestamp::from_unix_ms(u64::MAX)] {
            assert!(matches!(claim(&mut store, now), Err(OpenError::EpochsUsedUp)));
        }
        assert_eq!(claim(&mut store, noon()).expect("the clock is right again"), Epoch(HOURS));
    }

    /// Opens the ledger in `dir` as a server does, and grants a lease.
    fn start_and_grant(dir: &Path, now: Timestamp) -> (Sqlite, Token) {
        let mut store = Sqlite::open(dir, Options::default()).expect("opens");
        let recovered = recover(&mut store, Arc::new(ManualClock::at(now)));
        let mut ledger = recovered.map_err(|why| why.to_string()).expect("a ledger").ledger;
        let resource = Resource::parse("job:1").expect("a name");
        let acquire =
            Acquire::new([resource], Holder::parse("ada").expect("a name"), Ttl::from_ms(1_000).expect("a ttl"));
        match ledger.apply(&mut Turn::new(now, &|_| false), acquire) {
            Acquired::Granted(grant) => (store, grant.lease.token),
            other => panic!("{other:?}"),
        }
    }

    /// The token of the first grant after the backup was put into an empty directory.
    fn restore_and_grant(backup: &Path, now: Timestamp) -> Token {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::copy(backup, dir.path().join("tables.db")).expect("copies");
        let (store, first) = start_and_grant(dir.path(), now);
        drop(store);
        assert!(start_and_grant(dir.path(), now).1 > first, "and it goes on from there");
        first
    }

    #[test]
    fn l2_tokens_grow_though_the_server_was_started_again_between_a_backup_and_its_restore() {
        let dir = tempfile::tempdir().expect("a directory");
        let backup = dir.path().join("backup.db");
        let (store, _) = start_and_grant(dir.path(), noon());
        store.reader().backup(&backup).expect("a backup");
        drop(store);
        let after = start_and_grant(dir.path(), noon()).1;
        assert!(restore_and_grant(&backup, noon()) > after, "all in one hour");
        let last = (0..8).map(|_| start_and_grant(dir.path(), noon()).1).max();
        assert!(Some(restore_and_grant(&backup, noon())) > last, "also after many starts");
        let months_later = noon().plus_ms(2_000 * HOUR_MS);
        let last = start_and_grant(dir.path(), months_later).1;
        assert!(
            restore_and_grant(&backup, months_later) > last,
            "also when the backup is old and the last start is not"
        );
    }
}
