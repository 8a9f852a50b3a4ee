//! The auditor finds every kind of wrong in a history, and nothing in a right one.

use super::common::{at, event, lease, resource};
use tenure_core::Token;
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::lease::{Lease, Mode};
use tenure_store::audit::{Auditor, Violation};

/// Numbers the events from `first` and returns the first violation.
fn audit_from(first: u64, events: Vec<Event>) -> Result<(), Violation> {
    let mut auditor = Auditor::starting_at(Cursor(first));
    for (event, cursor) in events.into_iter().zip(first..) {
        auditor.push(&Event { cursor: Cursor(cursor), ..event })?;
    }
    auditor.finish()
}

fn audit(events: Vec<Event>) -> Result<(), Violation> {
    audit_from(1, events)
}

fn granted(lease: &Lease) -> Event {
    event(EventKind::LeaseGranted, lease)
}

fn released(lease: &Lease) -> Event {
    event(EventKind::LeaseReleased, lease)
}

fn within(lease: Lease, parent: u64) -> Lease {
    Lease { within: Some(Token::from_u64(parent)), ..lease }
}

#[test]
fn leases_one_after_the_other_or_side_by_side_are_right() {
    let (a, b, c) =
        (lease(1, "ada", &["path:src"]), lease(2, "bob", &["path:src/a.rs"]), lease(3, "cyd", &["path:doc"]));
    assert_eq!(audit(vec![granted(&a), released(&a), granted(&b), granted(&c), released(&c)]), Ok(()));
}

#[test]
fn an_overlap_above_below_or_at_the_same_place_is_found() {
    for (one, two) in
        [("path:src", "path:src/a.rs"), ("path:src/a.rs", "path:src"), ("task:1", "task:1"), ("repo:*", "issue:7")]
    {
        let (a, b) = (lease(1, "ada", &["gpu:0", one]), lease(2, "bob", &[two]));
        let Err(Violation::HeldTwice { first, second }) = audit(vec![granted(&a), granted(&b)]) else {
            panic!("{one} and {two} were both held")
        };
        assert_eq!((first.resource, second.resource), (resource(one), resource(two)));
        assert_eq!((first.token, second.token), (a.token, b.token));
    }
}

#[test]
fn one_holder_may_not_have_the_same_thing_twice_unless_it_lives_within() {
    let parent = lease(1, "ada", &["intent:X/*"]);
    let child = lease(2, "ada", &["intent:X/research"]);
    assert!(matches!(audit(vec![granted(&parent), granted(&child)]), Err(Violation::HeldTwice { .. })));
    let child = within(child, 1);
    assert_eq!(audit(vec![granted(&parent), granted(&child), released(&child), released(&parent)]), Ok(()));
    let sibling = within(lease(3, "ada", &["intent:X/research"]), 1);
    let siblings = audit(vec![granted(&parent), granted(&child), granted(&sibling)]);
    assert!(matches!(siblings, Err(Violation::HeldTwice { .. })));
    let grandchild = within(lease(3, "ada", &["intent:X/research"]), 2);
    let all = [&parent, &child, &grandchild].map(granted).into_iter();
    assert_eq!(audit(all.chain([&grandchild, &child, &parent].map(released)).collect()), Ok(()));
}

#[test]
fn a_lease_ends_with_the_one_it_lives_within() {
    let (parent, child) = (lease(1, "ada", &["path:a"]), within(lease(2, "ada", &["path:a/b"]), 1));
    let both = vec![granted(&parent), granted(&child), released(&parent), released(&child)];
    assert_eq!(audit(both), Ok(()), "in one batch the order does not matter");
    let orphan = vec![granted(&parent), granted(&child), released(&parent)];
    assert_eq!(audit(orphan.clone()), Err(Violation::Orphan { token: child.token }));
    let late = orphan.into_iter().chain([Event { at: at(1), ..released(&child) }]).collect();
    assert_eq!(audit(late), Err(Violation::Orphan { token: child.token }));
}

#[test]
fn a_parent_must_be_active_and_of_the_same_holder() {
    let (parent, child) = (lease(1, "ada", &["path:a"]), within(lease(2, "bob", &["path:a/b"]), 1));
    assert!(matches!(audit(vec![granted(&parent), granted(&child)]), Err(Violation::BadParent { .. })));
    let child = within(lease(2, "ada", &["path:a/b"]), 1);
    assert!(matches!(audit(vec![granted(&child)]), Err(Violation::BadParent { .. })));
}

#[test]
fn shared_leases_overlap_each_other_but_no_exclusive_one() {
    let shared = |token, name| Lease { mode: Mode::Shared, ..lease(token, name, &["path:src"]) };
    let (a, b) = (shared(1, "ada"), shared(2, "bob"));
    assert_eq!(audit(vec![granted(&a), granted(&b)]), Ok(()));
    let exclusive = lease(3, "cyd", &["path:src/x"]);
    let all = vec![granted(&a), granted(&b), released(&b), granted(&exclusive)];
    assert!(matches!(audit(all), Err(Violation::HeldTwice { first, .. }) if first.token == a.token));
}

#[test]
fn tokens_grow_in_the_order_of_grants() {
    let (a, b) = (lease(2, "ada", &["task:1"]), lease(1, "bob", &["task:2"]));
    let expected = Violation::TokenOrder { token: b.token, last: a.token };
    assert_eq!(audit(vec![granted(&a), granted(&b)]), Err(expected));
    let again = audit(vec![granted(&a), released(&a), granted(&a)]);
    assert_eq!(again, Err(Violation::TokenOrder { token: a.token, last: a.token }));
}

#[test]
fn an_end_needs_its_grant_unless_retention_dropped_it() {
    let (old, new) = (lease(1, "ada", &["task:1"]), lease(5, "bob", &["task:2"]));
    assert!(matches!(audit(vec![released(&old)]), Err(Violation::NotActive { .. })));
    assert!(matches!(audit(vec![granted(&new), released(&new), released(&new)]), Err(Violation::NotActive { .. })));
    assert_eq!(audit_from(100, vec![granted(&new), released(&old)]), Ok(()));
    let later = lease(7, "cyd", &["task:3"]);
    let unseen = audit_from(100, vec![granted(&new), released(&later)]);
    assert!(matches!(unseen, Err(Violation::NotActive { .. })), "granted after the history began, yet not in it");
}

#[test]
fn a_lease_from_before_the_history_still_excludes_others() {
    let (old, new) = (lease(1, "ada", &["task:1"]), lease(5, "bob", &["task:1"]));
    let verdict = audit_from(100, vec![granted(&new), released(&old)]);
    assert!(matches!(verdict, Err(Violation::HeldTwice { .. })));
}

#[test]
fn expiry_before_its_time_is_found() {
    let a = lease(1, "ada", &["task:1"]);
    let expired = |ms| Event { at: at(ms), ..event(EventKind::LeaseExpired, &a) };
    assert_eq!(audit(vec![granted(&a), expired(30_000)]), Ok(()));
    assert!(matches!(audit(vec![granted(&a), expired(29_999)]), Err(Violation::ExpiredEarly { .. })));
    let with_parent = Event { ended_with: Some(Token::from_u64(9)), ..expired(29_999) };
    assert_eq!(audit(vec![granted(&a), with_parent]), Ok(()));
}

#[test]
fn missing_events_and_a_clock_that_runs_back_are_found() {
    let (a, b) = (lease(1, "ada", &["task:1"]), lease(2, "bob", &["task:2"]));
    let mut auditor = Auditor::new();
    assert_eq!(auditor.push(&Event { cursor: Cursor(1), at: at(5), ..granted(&a) }), Ok(()));
    let gap = auditor.push(&Event { cursor: Cursor(3), at: at(5), ..granted(&b) });
    assert_eq!(gap, Err(Violation::Order { expected: Cursor(2), got: Cursor(3) }));
    let back = auditor.push(&Event { cursor: Cursor(4), at: at(4), ..released(&b) });
    assert_eq!(back, Err(Violation::TimeWentBack { cursor: Cursor(4), at: at(4) }));
    assert_eq!(auditor.active().collect::<Vec<_>>(), [a.token], "the audit goes on after a violation");
}
