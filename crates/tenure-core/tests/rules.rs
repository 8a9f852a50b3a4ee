//! The rules of leases, one by one, each with the number it has in the design.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

use tenure_core::change::{Change, Head, Record, in_full};
use tenure_core::command::{
    Acquire, Acquired, Check, Command, Count, Ending, Get, Got, Grant, Leave, List, Release, Renew, Renewal, Revoke,
    Tick, WaiterId,
};
use tenure_core::event::{Event, EventKind};
use tenure_core::lease::{End, Lease, Mode};
use tenure_core::limits;
use tenure_core::refusal::{Blocker, Refusal};
use tenure_core::{Epoch, Holder, Ledger, Resource, Timestamp, Token, Ttl, Turn};

/// A ledger with a clock of its own and everything it has said.
struct Desk {
    ledger: Ledger,
    now: u64,
    changes: Vec<Change>,
    events: Vec<Event>,
    settled: Vec<(WaiterId, Result<Grant, Refusal>)>,
    gone: Vec<WaiterId>,
}

impl Desk {
    fn new() -> Desk {
        Desk::opened(Head::default(), 1, 1_000_000)
    }

    fn opened(head: Head, epoch: u32, now: u64) -> Desk {
        let ledger = Ledger::open(head, Epoch(epoch));
        Desk { ledger, now, changes: vec![], events: vec![], settled: vec![], gone: vec![] }
    }

    fn apply<C: Command>(&mut self, command: C) -> C::Reply {
        self.turn(|ledger, turn| ledger.apply(turn, command))
    }

    fn turn<T>(&mut self, act: impl FnOnce(&mut Ledger, &mut Turn<'_>) -> T) -> T {
        let gone = self.gone.clone();
        let is_waiting = |waiter| !gone.contains(&waiter);
        let mut turn = Turn::new(Timestamp::from_unix_ms(self.now), &is_waiting);
        let reply = act(&mut self.ledger, &mut turn);
        self.changes.append(&mut turn.changes);
        self.events.append(&mut turn.events);
        self.settled.append(&mut turn.settled);
        reply
    }

    fn after(&mut self, ms: u64) -> &mut Desk {
        self.now += ms;
        self.apply(Tick);
        self
    }

    fn take(&mut self, resource: &str, name: &str) -> Lease {
        self.granted(acquire(resource, name))
    }

    fn granted(&mut self, request: Acquire) -> Lease {
        match self.apply(request) {
            Acquired::Granted(grant) => grant.lease,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, request: Acquire) -> Refusal {
        match self.apply(request) {
            Acquired::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn queued(&mut self, request: Acquire) -> WaiterId {
        match self.apply(request) {
            Acquired::Queued(waiter) => waiter,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, lease: &Lease) -> Ending {
        self.apply(Release { token: lease.token, holder: lease.holder.clone() })
    }

    fn renew(&mut self, lease: &Lease) -> Renewal {
        self.renew_as(lease, lease.holder.as_str(), None)
    }

    fn renew_as(&mut self, lease: &Lease, name: &str, ttl: Option<Ttl>) -> Renewal {
        let renew = Renew { tokens: vec![lease.token], holder: holder(name), ttl };
        self.apply(renew).remove(0)
    }

    /// Who was answered with a grant, in the order of the answers.
    fn served(&mut self) -> Vec<WaiterId> {
        let settled = std::mem::take(&mut self.settled);
        settled.into_iter().filter(|(_, answer)| answer.is_ok()).map(|(id, _)| id).collect()
    }

    fn ends(&self) -> Vec<(EventKind, Token)> {
        self.events.iter().filter(|e| e.kind.end().is_some()).map(|e| (e.kind, e.token.unwrap())).collect()
    }

    fn is_active(&mut self, lease: &Lease) -> bool {
        matches!(self.apply(Get(lease.token)), Got::Active(_))
    }
}

fn holder(name: &str) -> Holder {
    Holder::parse(name).unwrap()
}

fn resource(text: &str) -> Resource {
    Resource::parse(text).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms).unwrap()
}

/// Ten seconds of it.
fn acquire(text: &str, name: &str) -> Acquire {
    Acquire::new([resource(text)], holder(name), ttl(10_000))
}

fn wait(text: &str, name: &str) -> Acquire {
    Acquire { wait_ms: Some(60_000), ..acquire(text, name) }
}

fn shared(request: Acquire) -> Acquire {
    Acquire { mode: Mode::Shared, ..request }
}

#[test]
fn l1_an_exclusive_lease_excludes_everyone_also_its_own_holder() {
    let mut desk = Desk::new();
    desk.take("path:src", "ann");
    for (text, name) in [("path:src", "bob"), ("path:src/a.rs", "bob"), ("path:**", "bob"), ("path:src", "ann")] {
        assert_eq!(desk.refused(acquire(text, name)).code(), "held", "{text} {name}");
        assert_eq!(desk.refused(shared(acquire(text, name))).code(), "held", "{text} {name}");
    }
    desk.take("path:lib", "bob");
}

#[test]
fn l1_shared_leases_stand_together_and_keep_exclusive_ones_out() {
    let mut desk = Desk::new();
    let ann = desk.granted(shared(acquire("path:src", "ann")));
    desk.granted(shared(acquire("path:src/a.rs", "bob")));
    assert_eq!(desk.refused(acquire("path:src/a.rs", "cid")).code(), "held");
    desk.release(&ann);
    assert_eq!(desk.refused(acquire("path:src", "cid")).code(), "held");
    desk.take("path:src/b.rs", "cid");
}

#[test]
fn l1_a_lease_within_another_of_the_same_holder_does_not_conflict_with_it_and_ends_with_it() {
    let mut desk = Desk::new();
    let whole = desk.take("intent:x/*", "ann");
    let within = |name| Acquire { within: Some(whole.token), ..acquire("intent:x/research", name) };
    assert!(matches!(desk.refused(within("bob")), Refusal::NotHolder { holder } if holder.as_str() == "ann"));
    let scope = desk.granted(within("ann"));
    assert_eq!(desk.refused(within("ann")).code(), "held", "siblings exclude each other");
    desk.release(&whole);
    assert_eq!(desk.ends(), [(EventKind::LeaseReleased, scope.token), (EventKind::LeaseReleased, whole.token)]);
    assert_eq!(desk.events[2].ended_with, Some(whole.token));
    assert_eq!(desk.refused(within("ann")), Refusal::WithinOver);
}

#[test]
fn l1_a_wait_for_the_parent_does_not_stop_what_lives_within_it() {
    let mut desk = Desk::new();
    let whole = desk.take("intent:x/*", "ann");
    desk.queued(wait("intent:x/research", "bob"));
    desk.granted(Acquire { within: Some(whole.token), ..acquire("intent:x/research", "ann") });
}

#[test]
fn l2_every_grant_has_a_larger_token_also_after_a_restart_that_lost_the_last_ones() {
    let mut desk = Desk::new();
    let first = desk.take("task:1", "ann");
    let durable = desk.ledger.head();
    let lost = desk.take("task:2", "ann");
    assert!(lost.token > first.token);
    let mut desk = Desk::opened(durable, 2, desk.now);
    assert!(desk.take("task:3", "ann").token > lost.token);
}

#[test]
fn l4_a_lease_is_held_until_its_last_millisecond_and_not_longer() {
    let mut desk = Desk::new();
    desk.take("task:1", "ann");
    desk.now += 9_999;
    assert_eq!(desk.refused(acquire("task:1", "bob")).code(), "held");
    desk.now += 1;
    // No tick came in between: the decision itself looks at the time.
    desk.take("task:1", "bob");
    assert_eq!(desk.ends().len(), 1);
}

#[test]
fn l5_a_renewal_counts_from_now_and_never_revives() {
    let mut desk = Desk::new();
    let lease = desk.take("task:1", "ann");
    desk.now += 4_000;
    let Renewal::Renewed { expires_at, .. } = desk.renew(&lease) else { panic!() };
    assert_eq!(expires_at.unix_ms(), desk.now + 10_000);
    assert!(matches!(desk.renew_as(&lease, "bob", None), Renewal::NotHolder { .. }));
    desk.now += 10_000;
    assert!(matches!(desk.renew(&lease), Renewal::Over));
    let bob = desk.take("task:1", "bob");
    assert!(matches!(desk.renew(&lease), Renewal::Over));
    assert!(desk.is_active(&bob));
    let unknown = Renew { tokens: vec![Token::from_u64(u64::MAX >> 12)], holder: holder("ann"), ttl: None };
    assert!(matches!(desk.apply(unknown)[..], [Renewal::Unknown]));
}

#[test]
fn l5_a_renewal_with_a_shorter_ttl_ends_sooner() {
    let mut desk = Desk::new();
    let lease = desk.take("task:1", "ann");
    desk.renew_as(&lease, "ann", Some(ttl(1_000)));
    desk.after(1_000);
    assert!(!desk.is_active(&lease));
}

#[test]
fn l6_releasing_is_for_the_holder_and_can_be_said_twice() {
    let mut desk = Desk::new();
    let lease = desk.take("task:1", "ann");
    let other = desk.apply(Release { token: lease.token, holder: holder("bob") });
    assert!(matches!(other, Ending::NotHolder { holder } if holder.as_str() == "ann"));
    assert!(matches!(desk.release(&lease), Ending::Ended(..)));
    assert!(matches!(desk.release(&lease), Ending::Over));
    assert_eq!(desk.ends().len(), 1);
}

#[test]
fn l7_a_retry_under_the_same_key_gets_the_same_grant_and_another_request_does_not() {
    let mut desk = Desk::new();
    let keyed = |text| Acquire { key: Some("k".into()), ..acquire(text, "ann") };
    let first = desk.granted(keyed("task:1"));
    assert_eq!(desk.granted(keyed("task:1")).token, first.token);
    assert_eq!(desk.refused(keyed("task:2")), Refusal::KeyReused);
    assert_ne!(desk.granted(Acquire { key: Some("k".into()), ..acquire("task:2", "bob") }).token, first.token);
    desk.release(&first);
    let Acquired::Granted(again) = desk.apply(keyed("task:1")) else { panic!() };
    assert_eq!((again.lease.token, again.ended), (first.token, Some(End::Released)));
    desk.now += limits::IDEMPOTENCY_KEEP_MS;
    let is_durable = desk.turn(|ledger, turn| {
        ledger.apply(turn, Tick);
        turn.is_durable()
    });
    assert!(is_durable, "a key that is forgotten in memory only would be back after a restart");
    assert_ne!(desk.granted(keyed("task:1")).token, first.token);
}

#[test]
fn l7_a_retry_while_the_first_request_waits_takes_its_place_in_line() {
    let mut desk = Desk::new();
    desk.take("task:1", "ann");
    let keyed = Acquire { key: Some("k".into()), ..wait("task:1", "bob") };
    let waiter = desk.queued(keyed.clone());
    assert_eq!(desk.queued(keyed), waiter);
}

#[test]
fn l7_two_names_are_another_request_than_one_name_that_reads_like_both() {
    let keyed = |names: &[&str]| {
        let resources = names.iter().map(|name| resource(name));
        Acquire { wait_ms: Some(60_000), key: Some("k".into()), ..Acquire::new(resources, holder("bob"), ttl(10_000)) }
    };
    let (two, one) = (["job:a", "job:b"], ["job:a, job:b"]);
    for (first, other) in [(&two[..], &one[..]), (&one, &two)] {
        let mut desk = Desk::new();
        let lease = desk.granted(keyed(first));
        assert_eq!(desk.refused(keyed(other)), Refusal::KeyReused, "while the lease is active");
        assert_eq!(desk.granted(keyed(first)).token, lease.token);
        desk.release(&lease);
        assert_eq!(desk.refused(keyed(other)), Refusal::KeyReused, "after it");
        assert_eq!(desk.granted(keyed(first)).token, lease.token);
    }
    let mut desk = Desk::new();
    desk.take("job:a", "ann");
    let waiter = desk.queued(keyed(&two));
    assert_eq!(desk.refused(keyed(&one)), Refusal::KeyReused, "while it waits");
    assert_eq!(desk.queued(keyed(&two)), waiter);
}

#[test]
fn l7_a_key_that_an_earlier_version_stored_still_knows_its_request() {
    let mut desk = Desk::new();
    let request = || Acquire {
        grace_ms: 5,
        metadata: serde_json::from_str(r#"{"why":"x"}"#).unwrap(),
        key: Some("k".into()),
        ..Acquire::new([resource("job:a"), resource("job:b")], holder("ann"), ttl(10_000))
    };
    let lease = desk.granted(request());
    let fingerprint = desk.changes.iter().find_map(|change| match change {
        Change::Put(Record::Key(keyed)) => Some(keyed.fingerprint),
        _ => None,
    });
    // As version 0.1 wrote it for this request; a retry across an update must find it.
    assert_eq!(fingerprint, Some(0xee45_d1a3_9cd6_88ca));
    assert_eq!(desk.granted(request()).token, lease.token);
}

#[test]
fn l8_several_resources_are_taken_together_or_not_at_all() {
    let mut desk = Desk::new();
    desk.take("path:b", "ann");
    let both =
        || Acquire::new([resource("path:a"), resource("path:b"), resource("path:a")], holder("bob"), ttl(10_000));
    assert_eq!(desk.refused(both()).code(), "held");
    desk.take("path:a", "cid");
    desk.after(10_000);
    let lease = desk.granted(both());
    assert_eq!(lease.resources.to_vec(), [resource("path:a"), resource("path:b")], "a repeated name counts once");
    desk.release(&lease);
    desk.take("path:a", "ann");
    desk.take("path:b", "ann");
}

#[test]
fn l9_waits_are_served_in_their_order_and_the_ttl_counts_from_the_grant() {
    let mut desk = Desk::new();
    let ann = desk.take("path:src", "ann");
    let bob = desk.queued(wait("path:src/a.rs", "bob"));
    let cid = desk.queued(wait("path:src", "cid"));
    let dan = desk.queued(wait("path:src/b.rs", "dan"));
    desk.now += 3_000;
    desk.release(&ann);
    // dan's file is free, but cid was first and wants all of it.
    assert_eq!(desk.settled.len(), 1);
    let (id, grant) = desk.settled.remove(0);
    let grant = grant.unwrap();
    assert_eq!((id, grant.lease.expires_at.unix_ms()), (bob, desk.now + 10_000));
    desk.after(10_000);
    assert_eq!(desk.served(), [cid]);
    desk.after(10_000);
    assert_eq!(desk.served(), [dan]);
}

#[test]
fn l9_a_newcomer_does_not_pass_those_in_line() {
    let mut desk = Desk::new();
    desk.take("path:a", "ann");
    let both = [resource("path:a"), resource("path:b")];
    desk.queued(Acquire { wait_ms: Some(60_000), ..Acquire::new(both, holder("bob"), ttl(10_000)) });
    let Refusal::Held(conflict) = desk.refused(acquire("path:b", "cid")) else { panic!() };
    assert!(matches!(conflict.blocker, Blocker::Waiter { ref holder } if holder.as_str() == "bob"));
    assert_eq!(conflict.waiting, 1);
}

#[test]
fn l9_the_oldest_wait_is_named_not_the_one_for_the_largest_thing() {
    let mut desk = Desk::new();
    desk.granted(shared(acquire("path:f", "ann")));
    desk.queued(wait("path:f", "first"));
    desk.queued(wait("repo:*", "second"));
    let Refusal::Held(conflict) = desk.refused(shared(acquire("path:f", "cid"))) else { panic!() };
    assert_eq!((conflict.blocker.holder(), conflict.overlap), (&holder("first"), resource("path:f")));
    let check = Check { resources: [resource("path:f")].into_iter().collect(), mode: Mode::Shared, holder: None };
    assert_eq!(desk.apply(check).conflicts[0].blocker.holder(), &holder("first"));
}

#[test]
fn l9_an_exclusive_wait_is_not_starved_by_shared_ones() {
    let mut desk = Desk::new();
    let reader = desk.granted(shared(acquire("path:src", "ann")));
    let writer = desk.queued(wait("path:src", "bob"));
    assert_eq!(desk.refused(shared(acquire("path:src", "cid"))).code(), "held");
    let late = desk.queued(shared(wait("path:src", "cid")));
    desk.release(&reader);
    assert_eq!(desk.served(), [writer]);
    desk.after(10_000);
    assert_eq!(desk.served(), [late]);
}

#[test]
fn l9_a_wait_has_its_own_deadline() {
    let mut desk = Desk::new();
    desk.granted(Acquire { ttl: ttl(60_000), ..acquire("task:1", "ann") });
    let waiter = desk.queued(Acquire { wait_ms: Some(500), ..acquire("task:1", "bob") });
    desk.after(499);
    assert!(desk.settled.is_empty());
    desk.after(1);
    let (id, answer) = desk.settled.remove(0);
    let Err(Refusal::WaitTimedOut(conflict)) = answer else { panic!() };
    assert_eq!((id, conflict.waiting), (waiter, 0), "who gave up does not wait for it any more");
    assert_eq!(desk.apply(Count).waiters, 0);
}

#[test]
fn l9_a_wait_that_a_retry_joins_lasts_until_the_later_deadline_of_the_two() {
    for (first, retry) in [(2_000, Some(9_000)), (10_000, Some(1_000)), (10_000, None)] {
        let mut desk = Desk::new();
        desk.granted(Acquire { ttl: ttl(60_000), ..acquire("task:1", "ann") });
        let keyed = |wait_ms| Acquire { wait_ms, key: Some("k".into()), ..acquire("task:1", "bob") };
        let waiter = desk.queued(keyed(Some(first)));
        desk.after(1_000);
        assert_eq!(desk.queued(keyed(retry)), waiter);
        desk.after(8_999);
        assert!(desk.settled.is_empty(), "{first} {retry:?}: {:?}", desk.settled);
        desk.after(1);
        assert!(matches!(desk.settled[..], [(id, Err(Refusal::WaitTimedOut(_)))] if id == waiter), "{first} {retry:?}");
    }
}

#[test]
fn l9_a_lease_that_expires_before_the_deadline_of_a_wait_serves_it_also_if_both_are_seen_late() {
    let mut desk = Desk::new();
    desk.take("task:1", "ann");
    let waiter = desk.queued(Acquire { wait_ms: Some(10_001), ..acquire("task:1", "bob") });
    desk.after(60_000);
    assert_eq!(desk.served(), [waiter]);
}

#[test]
fn l9_a_wait_that_would_close_a_cycle_is_refused_and_the_cycle_is_named() {
    let mut desk = Desk::new();
    desk.take("path:a", "ann");
    desk.take("path:b", "bob");
    desk.take("path:c", "cid");
    desk.queued(wait("path:b", "ann"));
    desk.queued(wait("path:c", "bob"));
    let Refusal::WouldDeadlock { cycle } = desk.refused(wait("path:a", "cid")) else { panic!() };
    assert_eq!(cycle, [holder("cid"), holder("ann"), holder("bob")]);
    assert!(matches!(desk.refused(wait("path:c", "cid")), Refusal::WouldDeadlock { .. }), "waiting for oneself");
}

#[test]
fn l9_standing_behind_someone_who_waits_for_me_is_a_cycle_too() {
    let mut desk = Desk::new();
    desk.take("path:a", "ann");
    let both = [resource("path:a"), resource("path:b")];
    desk.queued(Acquire { wait_ms: Some(60_000), ..Acquire::new(both, holder("bob"), ttl(10_000)) });
    let Refusal::WouldDeadlock { cycle } = desk.refused(wait("path:b", "ann")) else { panic!() };
    assert_eq!(cycle, [holder("ann"), holder("bob")]);
}

#[test]
fn l9_a_client_that_went_away_is_passed_over_and_one_that_leaves_makes_room() {
    let mut desk = Desk::new();
    let ann = desk.take("path:src", "ann");
    let bob = desk.queued(wait("path:src", "bob"));
    let cid = desk.queued(wait("path:src", "cid"));
    let dan = desk.queued(wait("path:src", "dan"));
    desk.gone.push(bob);
    desk.apply(Leave(cid));
    desk.release(&ann);
    assert_eq!(desk.served(), [dan]);
    assert_eq!(desk.apply(Count).waiters, 0);
}

#[test]
fn l10_a_revoke_ends_the_lease_and_says_who_did_it_and_why() {
    let mut desk = Desk::new();
    let lease = desk.take("task:1", "ann");
    desk.apply(Revoke { token: lease.token, by: holder("root"), reason: "maintenance".into() });
    let event = desk.events.last().unwrap();
    assert_eq!((event.kind, event.by.as_ref().unwrap().as_str()), (EventKind::LeaseRevoked, "root"));
    assert_eq!(event.reason.as_deref(), Some("maintenance"));
    assert!(matches!(desk.renew(&lease), Renewal::Over));
}

#[test]
fn l11_grace_keeps_a_resource_closed_after_a_loss_and_not_after_a_release() {
    let mut desk = Desk::new();
    let graceful = |name| Acquire { grace_ms: 5_000, ..acquire("path:src", name) };
    let lease = desk.granted(graceful("ann"));
    desk.release(&lease);
    desk.granted(graceful("bob"));
    desk.after(10_000);
    let Refusal::Held(conflict) = desk.refused(acquire("path:src/a.rs", "cid")) else { panic!() };
    let until = Timestamp::from_unix_ms(desk.now + 5_000);
    assert!(matches!(conflict.blocker, Blocker::Closure { until: u, .. } if u == until));
    let waiter = desk.queued(wait("path:src", "cid"));
    desk.after(4_999);
    assert!(desk.served().is_empty());
    desk.after(1);
    assert_eq!(desk.served(), [waiter]);
}

#[test]
fn l12_every_end_is_one_event_and_the_next_in_line_is_granted_in_the_same_turn() {
    let mut desk = Desk::new();
    let ann = desk.take("task:1", "ann");
    desk.queued(wait("task:1", "bob"));
    desk.release(&ann);
    let kinds: Vec<_> = desk.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::LeaseGranted, EventKind::LeaseReleased, EventKind::LeaseGranted]);
    let released = &desk.events[1];
    assert_eq!(released.resources.to_vec(), [resource("task:1")]);
    assert_eq!((released.holder.clone(), released.token), (Some(holder("ann")), Some(ann.token)));
}

#[test]
fn l13_a_renewal_that_keeps_its_ttl_needs_no_disk_and_one_that_changes_it_does() {
    let mut desk = Desk::new();
    let lease = desk.take("task:1", "ann");
    let durable = |desk: &mut Desk, ttl| {
        desk.turn(|ledger, turn| {
            ledger.apply(turn, Renew { tokens: vec![lease.token], holder: holder("ann"), ttl });
            turn.is_durable()
        })
    };
    assert!(!durable(&mut desk, None));
    assert!(!durable(&mut desk, Some(ttl(10_000))));
    assert!(durable(&mut desk, Some(ttl(20_000))));
}

#[test]
fn l13_after_an_outage_every_active_lease_runs_at_least_its_ttl_and_none_is_cut_short() {
    let mut desk = Desk::new();
    let short = desk.granted(Acquire { ttl: ttl(1_000), ..acquire("task:1", "ann") });
    let long = desk.granted(Acquire { ttl: ttl(3_600_000), ..acquire("task:2", "ann") });
    let mut again = Desk::opened(desk.ledger.head(), 2, desk.now + 60_000);
    for change in in_full(desk.changes, &desk.events) {
        if let Change::Put(record @ Record::Lease(_)) = change {
            again.ledger.restore(record);
        }
    }
    again.turn(|ledger, turn| ledger.start(turn));
    again.after(999);
    let Got::Active(short) = again.apply(Get(short.token)) else { panic!() };
    assert_eq!(short.expires_at.unix_ms(), again.now + 1);
    let Got::Active(long) = again.apply(Get(long.token)) else { panic!() };
    assert_eq!(long.expires_at.unix_ms(), again.now - 999 + 3_600_000);
    again.after(1);
    assert!(!again.is_active(&short));
}

#[test]
fn l14_a_refusal_names_what_stands_in_the_way() {
    let mut desk = Desk::new();
    let lease = desk.take("path:src", "ann");
    desk.queued(wait("path:src", "bob"));
    let Refusal::Held(conflict) = desk.refused(acquire("path:src/a.rs", "cid")) else { panic!() };
    assert_eq!((conflict.resource, conflict.overlap), (resource("path:src/a.rs"), resource("path:src")));
    assert_eq!((conflict.waiting, conflict.is_own), (1, false));
    let Refusal::Held(own) = desk.refused(acquire("path:src/a.rs", "ann")) else { panic!() };
    assert!(own.is_own, "waiting for oneself would never end");
    let expected = Blocker::Lease {
        token: lease.token,
        holder: holder("ann"),
        mode: Mode::Exclusive,
        acquired_at: lease.acquired_at,
        expires_at: lease.expires_at,
    };
    assert_eq!(conflict.blocker, expected);
}

#[test]
fn l14_a_check_takes_nothing_and_lists_what_an_acquire_would_meet() {
    let mut desk = Desk::new();
    desk.take("path:src/a.rs", "ann");
    desk.granted(shared(acquire("path:src/b.rs", "bob")));
    let check = |mode, name: Option<&str>| Check {
        resources: [resource("path:src")].into_iter().collect(),
        mode,
        holder: name.map(holder),
    };
    assert_eq!(desk.apply(check(Mode::Exclusive, None)).conflicts.len(), 2);
    assert_eq!(desk.apply(check(Mode::Shared, None)).conflicts.len(), 1);
    assert_eq!(desk.apply(check(Mode::Shared, Some("ann"))).conflicts.len(), 0);
    assert_eq!(desk.apply(Count).leases, 2);
}

/// Metadata so deep.
fn nested(depth: usize) -> Box<serde_json::value::RawValue> {
    let text = format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    serde_json::value::RawValue::from_string(text).unwrap()
}

#[test]
fn l15_what_is_too_much_is_refused_and_the_bound_is_said() {
    let mut desk = Desk::new();
    assert_eq!(desk.refused(Acquire::new([], holder("ann"), ttl(10_000))), Refusal::NoResources);
    let many = (0..=limits::RESOURCES_PER_ACQUIRE_MAX).map(|n| resource(&format!("task:{n}")));
    let note = serde_json::value::to_raw_value(&"x".repeat(limits::METADATA_BYTES_MAX)).unwrap();
    for (request, max) in [
        (Acquire::new(many, holder("ann"), ttl(10_000)), limits::RESOURCES_PER_ACQUIRE_MAX),
        (Acquire { metadata: Some(note), ..acquire("task:1", "ann") }, limits::METADATA_BYTES_MAX),
        (
            Acquire { metadata: Some(nested(limits::METADATA_DEPTH_MAX + 1)), ..acquire("task:1", "ann") },
            limits::METADATA_DEPTH_MAX,
        ),
        (Acquire { wait_ms: Some(limits::WAIT_MS_MAX + 1), ..acquire("task:1", "ann") }, limits::WAIT_MS_MAX as usize),
        (Acquire { grace_ms: u32::MAX, ..acquire("task:1", "ann") }, limits::GRACE_MS_MAX as usize),
        (
            Acquire { key: Some("k".repeat(limits::IDEMPOTENCY_KEY_BYTES_MAX + 1).into()), ..acquire("task:1", "ann") },
            limits::IDEMPOTENCY_KEY_BYTES_MAX,
        ),
    ] {
        let Refusal::LimitReached { max: said, .. } = desk.refused(request) else { panic!() };
        assert_eq!(said, max);
    }
}

#[test]
fn l15_what_is_exactly_at_a_bound_is_allowed() {
    let mut desk = Desk::new();
    let many = (0..limits::RESOURCES_PER_ACQUIRE_MAX).map(|n| resource(&format!("task:{n}")));
    let note = serde_json::value::to_raw_value(&"x".repeat(limits::METADATA_BYTES_MAX - 2)).unwrap();
    desk.granted(Acquire { metadata: Some(nested(limits::METADATA_DEPTH_MAX)), ..acquire("task:deep", "ann") });
    desk.granted(Acquire {
        metadata: Some(note),
        wait_ms: Some(limits::WAIT_MS_MAX),
        grace_ms: limits::GRACE_MS_MAX as u32,
        key: Some("k".repeat(limits::IDEMPOTENCY_KEY_BYTES_MAX).into()),
        ..Acquire::new(many, holder("ann"), ttl(limits::TTL_MS_MAX))
    });
}

#[test]
fn l15_a_wait_among_too_many_to_be_sure_of_is_refused_not_granted_unseen() {
    let mut desk = Desk::new();
    desk.take("task:cold", "bob");
    desk.take("task:hot", "ann");
    // Everyone alone is waited for by all behind that would share.
    for n in 0..500 {
        desk.queued(wait("task:hot", &format!("cid-{n}")));
        desk.queued(Acquire { mode: Mode::Shared, ..wait("task:hot", &format!("dan-{n}")) });
    }
    let Refusal::LimitReached { max, .. } = desk.refused(wait("task:cold", "ann")) else { panic!() };
    assert_eq!(max, limits::DEADLOCK_EDGES_MAX);
}

#[test]
fn l15_leases_and_waits_of_one_holder_and_waits_for_one_resource_are_bounded() {
    let mut desk = Desk::new();
    for n in 0..limits::LEASES_PER_HOLDER_MAX {
        desk.take(&format!("task:{n}"), "ann");
    }
    assert_eq!(desk.refused(acquire("task:more", "ann")).code(), "limit_reached");
    for n in 0..limits::WAITERS_PER_HOLDER_MAX {
        desk.queued(wait(&format!("task:{n}"), "bob"));
    }
    assert_eq!(desk.refused(wait("task:5000", "bob")).code(), "limit_reached");
    for n in 1..limits::WAITERS_PER_RESOURCE_MAX {
        desk.queued(wait("task:0", &format!("cid-{n}")));
    }
    assert_eq!(desk.refused(wait("task:0", "dan")).code(), "limit_reached");
}

#[test]
fn l15_leases_within_leases_have_a_depth() {
    let mut desk = Desk::new();
    let mut lease = desk.take("intent:x/*", "ann");
    for _ in 0..limits::WITHIN_DEPTH_MAX {
        lease = desk.granted(Acquire { within: Some(lease.token), ..acquire("intent:x/*", "ann") });
    }
    let deeper = Acquire { within: Some(lease.token), ..acquire("intent:x/*", "ann") };
    assert_eq!(desk.refused(deeper).code(), "limit_reached");
}

#[test]
fn a_listing_is_paged_by_token_and_filtered_by_overlap_holder_and_kind() {
    let mut desk = Desk::new();
    for n in 0..5 {
        desk.take(&format!("path:src/{n}"), "ann");
        desk.take(&format!("task:{n}"), "bob");
    }
    let mut list = |query: List| desk.apply(query);
    let all = || List { limit: 4, ..List::default() };
    let first = list(all());
    let rest = list(List { after: first.next, limit: 100, ..List::default() });
    assert_eq!((first.leases.len(), rest.leases.len(), rest.next), (4, 6, None));
    assert!(rest.leases[0].token > first.leases[3].token);
    assert_eq!(list(List { resource: Some(resource("path:src")), limit: 100, ..List::default() }).leases.len(), 5);
    assert_eq!(list(List { resource: Some(resource("path:src/1")), ..all() }).leases.len(), 1);
    assert_eq!(list(List { holder: Some(holder("bob")), limit: 100, ..List::default() }).leases.len(), 5);
    assert_eq!(list(List { kind: Some("task".into()), limit: 100, ..List::default() }).leases.len(), 5);
    assert_eq!(list(List { kind: Some("issue".into()), limit: 100, ..List::default() }).leases.len(), 0);
}

#[test]
fn deadlines_of_leases_long_gone_do_not_pile_up() {
    let mut desk = Desk::new();
    let kept = desk.granted(Acquire { ttl: ttl(limits::TTL_MS_MAX), ..acquire("task:kept", "ann") });
    for n in 0..20_000u64 {
        let lease = desk.granted(Acquire { ttl: ttl(1_000_000 - n), ..acquire("task:1", "ann") });
        desk.release(&lease);
        // Shorter and longer in turn: each shortening leaves an entry behind.
        desk.renew_as(&kept, "ann", Some(ttl(if n % 2 == 0 { 2_000_000 } else { 3_000_000 })));
        desk.ledger.next_deadline();
    }
    assert!(desk.apply(Count).deadlines < 6_000, "{:?}", desk.apply(Count));
    let next = desk.ledger.next_deadline().unwrap();
    assert_eq!(next.unix_ms(), desk.now + 3_000_000, "the one lease that is left decides");
}
