//! What a decision rests on, where the moment is too short for a real commit.

use tenure_core::Ledger;
use tenure_core::command::Acquired;

use super::super::clock::LedgerTime;
use super::super::decider::Decider;
use super::*;

#[test]
fn l13_a_ttl_that_changed_while_the_grant_was_on_its_way_is_not_taken_for_written_when_the_grant_is() {
    let clock = ManualClock::at(START);
    let ledger = Ledger::open(Head::default(), Epoch(1));
    let mut decider = Decider::new(ledger, LedgerTime::resume(Arc::new(clock), START), 0);
    let Acquired::Granted(grant) = decider.apply(acquire("a", "job:1")).reply else { panic!("it is free") };
    let token = grant.lease.token;
    drop(decider.seal());
    let longer = Renew { ttl: Some(ttl(60_000)), ..renew("a", token) };
    assert!(decider.renew(longer).rests_on.is_some());
    decider.landed();
    assert!(decider.renew(renew("a", token)).rests_on.is_some(), "the disk has the lease with its first ttl");
    drop(decider.seal());
    decider.landed();
    assert!(decider.renew(renew("a", token)).rests_on.is_none(), "now it is there as it is");
}
