//! Owns renewals that were answered but are not yet written (L13).

use tenure_core::change::Change;
use tenure_core::{Timestamp, Token};

/// How long a renewal may stay unwritten. Half of what L13 allows, so that the commit itself fits into the rest.
pub const RENEWALS_KEPT_MS_MAX: u64 = 500;

#[derive(Default)]
pub(super) struct Renewals {
    kept: Vec<(Token, Timestamp)>,
    due: Option<Timestamp>,
}

impl Renewals {
    /// Keeps the renewals of decisions that have nothing else to write.
    pub(super) fn keep(&mut self, changes: &mut Vec<Change>, now: Timestamp) {
        self.kept.extend(changes.drain(..).filter_map(|change| match change {
            Change::Renewed(token, expires_at) => Some((token, expires_at)),
            Change::Put(_) | Change::Delete(..) | Change::Granted(_) | Change::Ended(_) => None,
        }));
        if !self.kept.is_empty() {
            self.due.get_or_insert(now.plus_ms(RENEWALS_KEPT_MS_MAX));
        }
    }

    /// When they have to be written.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Puts them in front of later changes, the latest of each lease.
    pub(super) fn write_before(&mut self, changes: Vec<Change>) -> Vec<Change> {
        self.due = None;
        if self.kept.is_empty() {
            return changes;
        }
        // A later renewal of a lease reaches further, or its ttl was changed and that is in `changes`.
        self.kept.sort_unstable_by(|one, other| other.cmp(one));
        self.kept.dedup_by_key(|(token, _)| *token);
        let kept = self.kept.drain(..).map(|(token, expires_at)| Change::Renewed(token, expires_at));
        kept.chain(changes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l13_only_the_latest_renewal_of_a_lease_is_written_and_before_what_follows() {
        let at = Timestamp::from_unix_ms;
        let renewed = |token, ms| Change::Renewed(Token::from_u64(token), at(ms));
        let mut renewals = Renewals::default();
        renewals.keep(&mut vec![renewed(1, 10), renewed(2, 11)], at(0));
        renewals.keep(&mut vec![renewed(1, 20)], at(5));
        assert_eq!(renewals.due(), Some(at(RENEWALS_KEPT_MS_MAX)));
        let written = renewals.write_before(vec![renewed(1, 30)]);
        let order: Vec<_> = written.iter().map(|change| format!("{change:?}")).collect();
        let expected = [renewed(2, 11), renewed(1, 20), renewed(1, 30)];
        assert_eq!(order, expected.map(|change| format!("{change:?}")));
        assert_eq!(renewals.due(), None);
    }
}
