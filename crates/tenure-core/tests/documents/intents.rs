use serde_json::json;
use tenure_core::access::{Permission, Policy};
use tenure_core::change::{Record, RecordKind};
use tenure_core::command::{Acquire, Acquired, Release, Revoke};
use tenure_core::document::Refusal;
use tenure_core::event::EventKind;
use tenure_core::intent::Status;
use tenure_core::lease::End;
use tenure_core::ledger::access::{AccessChange, ChangeAccess, NewEntry};
use tenure_core::ledger::assign::{Assign, Told, Unassign, Untold};
use tenure_core::ledger::intents::{CreateIntent, Kin, Relatives};
use tenure_core::ledger::writes::{Expected, PatchState, SetDependency, SetStatus};
use tenure_core::limits::LOST_PER_HOLDER_MAX;
use tenure_core::serial::IntentId;
use tenure_core::{Resource, Ttl};

use crate::bench::{Bench, caller, draft, holder};

fn status(bench: &mut Bench, id: IntentId, status: Status) -> Result<u64, Refusal> {
    let set = SetStatus { id, caller: caller("a"), expected: Expected::Any, status, reason: None };
    bench.apply(set).map(|intent| intent.version)
}

#[test]
fn d1_a_stale_write_is_refused_with_the_current_version_and_changes_nothing() {
    let mut bench = Bench::new();
    let id = bench.intent();
    assert_eq!(bench.set(id, "x", "a", Expected::Version(1)).unwrap(), 2);
    let refused = bench.set(id, "x", "b", Expected::Version(1));
    assert!(matches!(refused, Err(Refusal::Stale { current: 2 })), "{refused:?}");
    assert_eq!(bench.get(id).state["x"], json!("a"));
    assert_eq!(bench.set(id, "x", "b", Expected::Any).unwrap(), 3);
}

#[test]
fn d2_a_part_that_someone_holds_is_closed_to_everyone_else_whatever_version_they_name() {
    let mut bench = Bench::new();
    let id = bench.intent();
    bench.take(id, "research", "a", 60).unwrap();
    for path in ["research", "/research/deep"] {
        let refused = bench.set(id, path, "b", Expected::Version(1));
        assert!(matches!(&refused, Err(Refusal::Guarded { lease, .. }) if lease.holder == holder("a")), "{refused:?}");
    }
    assert!(bench.set(id, "elsewhere", "b", Expected::Any).is_ok(), "other parts are open");
    assert!(bench.set(id, "research", "a", Expected::Any).is_ok(), "the holder writes");
}

#[test]
fn d2_a_lease_on_everything_guards_every_part_also_one_that_could_not_be_a_scope() {
    let mut bench = Bench::new();
    let id = bench.intent();
    bench.take(id, "*", "a", 60).unwrap();
    for path in ["x", " blank ", "y/z"] {
        assert!(matches!(bench.set(id, path, "b", Expected::Any), Err(Refusal::Guarded { .. })), "{path}");
        assert!(bench.set(id, path, "a", Expected::Any).is_ok(), "{path}");
    }
}

#[test]
fn d2_a_late_write_after_the_writers_lease_expired_is_refused_until_it_holds_the_part_again() {
    let mut bench = Bench::new();
    let id = bench.intent();
    bench.take(id, "x", "a", 10).unwrap();
    bench.pass(10_000);
    assert!(matches!(bench.set(id, "x", "a", Expected::Any), Err(Refusal::Late { .. })));
    assert!(bench.set(id, "y", "a", Expected::Any).is_ok());
    bench.reopen();
    assert!(matches!(bench.set(id, "x", "a", Expected::Any), Err(Refusal::Late { .. })), "also after a restart");
    let lease = bench.take(id, "x", "a", 10).unwrap();
    assert!(bench.set(id, "x", "a", Expected::Any).is_ok());
    bench.apply(Release { token: lease.token, holder: holder("a") });
    assert!(bench.set(id, "x", "a", Expected::Any).is_ok(), "its own release does not close the part to it");
}

#[test]
fn d2_every_part_of_a_lost_lease_is_closed_to_its_late_writer_until_it_holds_that_part_again() {
    let mut bench = Bench::new();
    let id = bench.intent();
    bench.take_both(id, ["x", "y"], "a", 1).unwrap();
    bench.pass(1_000);
    for _ in 0..2 {
        for part in ["x", "y"] {
            assert!(matches!(bench.set(id, part, "a", Expected::Any), Err(Refusal::Late { .. })), "{part}");
        }
        bench.reopen();
    }
    let lease = bench.take(id, "x", "a", 10).unwrap();
    bench.apply(Release { token: lease.token, holder: holder("a") });
    for _ in 0..2 {
        assert!(bench.set(id, "x", "a", Expected::Any).is_ok(), "it has held x again");
        assert!(matches!(bench.set(id, "y", "a", Expected::Any), Err(Refusal::Late { .. })), "and y not");
        bench.reopen();
    }
    bench.pass(24 * 3_600 * 1_000 + 1);
    assert!(bench.set(id, "y", "a", Expected::Any).is_ok());
    assert!(bench.records.keys().all(|(kind, _)| kind.as_str() != "lost"));
}

#[test]
fn d2_of_what_one_holder_has_lost_the_latest_is_remembered_counted_by_part() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let leases = LOST_PER_HOLDER_MAX / 2 + 1;
    for number in 0..leases {
        bench.take_both(id, [&format!("x{number}"), &format!("y{number}")], "a", 1).unwrap();
        bench.pass(1_000);
    }
    for part in ["x", "y"] {
        assert!(bench.set(id, &format!("{part}0"), "a", Expected::Any).is_ok(), "the first is forgotten");
        for number in [1, leases - 1] {
            let late = bench.set(id, &format!("{part}{number}"), "a", Expected::Any);
            assert!(matches!(late, Err(Refusal::Late { .. })), "{part}{number}: {late:?}");
        }
    }
}

#[test]
fn a_mark_of_one_lost_part_as_it_was_written_before_is_read() {
    let text = r#"{"token":7,"holder":"a","resource":"intent:i/x","until":5}"#;
    let read = Record::decode(RecordKind::Lost, text).unwrap().to_json().unwrap();
    assert_eq!(read, r#"{"token":7,"holder":"a","resources":["intent:i/x"],"until":5}"#);
}

#[test]
fn d2_a_revoked_holder_writes_late_too_and_is_forgotten_after_a_day() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let lease = bench.take(id, "*", "a", 3_600).unwrap();
    bench.apply(Revoke { token: lease.token, by: holder("admin"), reason: "enough".into() });
    assert!(matches!(bench.set(id, "anything", "a", Expected::Any), Err(Refusal::Late { .. })));
    bench.pass(24 * 3_600 * 1_000 + 1);
    assert!(bench.set(id, "anything", "a", Expected::Any).is_ok());
    assert!(bench.records.keys().all(|(kind, _)| kind.as_str() != "lost"));
}

#[test]
fn d2_a_write_that_relies_on_a_lease_is_refused_when_it_is_over() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let lease = bench.take(id, "x", "a", 10).unwrap();
    let patch = |token| PatchState {
        id,
        caller: caller("a"),
        expected: Expected::Any,
        patches: Vec::new(),
        told: json!([]),
        lease: Some(token),
    };
    assert!(bench.apply(patch(lease.token)).is_ok());
    bench.apply(Release { token: lease.token, holder: holder("a") });
    assert!(matches!(bench.apply(patch(lease.token)), Err(Refusal::Late { .. })));
}

#[test]
fn the_holder_of_everything_gets_a_scope_within_it_and_the_same_scope_twice_nobody_gets() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let all = bench.take(id, "*", "a", 60).unwrap();
    let part = bench.take(id, "x", "a", 60).unwrap();
    assert_eq!(part.within, Some(all.token));
    assert!(bench.take(id, "x", "a", 60).is_err());
    assert!(bench.take(id, "*", "a", 60).is_err());
    assert!(bench.take(id, "y", "b", 60).is_err());
    bench.apply(Release { token: all.token, holder: holder("a") });
    assert!(bench.take(id, "x", "b", 60).is_ok(), "the narrower one ended with the wider one");
}

#[test]
fn a_finished_intent_takes_no_lease_through_any_door_and_does_not_come_back() {
    let mut bench = Bench::new();
    let id = bench.intent();
    status(&mut bench, id, Status::Active).unwrap();
    status(&mut bench, id, Status::Completed).unwrap();
    assert!(matches!(bench.take(id, "x", "a", 60), Err(Refusal::Finished(Status::Completed))));
    let resource = Resource::parse(&format!("intent:{id}/x")).unwrap();
    let native = bench.apply(Acquire::new([resource], holder("a"), Ttl::from_ms(1_000).unwrap()));
    assert!(matches!(native, Acquired::Refused(tenure_core::refusal::Refusal::IntentFinished { .. })));
    assert!(matches!(status(&mut bench, id, Status::Active), Err(Refusal::Transition { .. })));
}

#[test]
fn every_write_is_one_record_and_one_event() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let before = bench.events.len();
    bench.set(id, "x", "a", Expected::Any).unwrap();
    bench.set(id, "x", "a", Expected::Version(99)).unwrap_err();
    assert_eq!(bench.events.len(), before + 1);
    let event = bench.events.last().unwrap();
    assert_eq!(event.kind, EventKind::IntentPatched);
    assert_eq!(event.resources[0].to_string(), format!("intent:{id}/*"));
}

#[test]
fn dependencies_do_not_go_in_circles() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.intent(), bench.intent(), bench.intent());
    let mut depend = |id, first, present| {
        let set = SetDependency { id, caller: caller("a"), expected: Expected::Any, first, present };
        bench.apply(set).map(|intent| intent.depends_on.len())
    };
    assert_eq!(depend(b, a, true).unwrap(), 1);
    assert_eq!(depend(c, b, true).unwrap(), 1);
    assert!(matches!(depend(a, c, true), Err(Refusal::Senseless(_))));
    assert!(matches!(depend(a, a, true), Err(Refusal::Senseless(_))));
    assert_eq!(depend(c, b, false).unwrap(), 0);
    assert!(matches!(depend(c, b, false), Err(Refusal::Unknown { .. })));
    assert_eq!(depend(a, c, true).unwrap(), 1);
}

#[test]
fn relatives_are_found_and_ready_means_that_nothing_stands_before() {
    let mut bench = Bench::new();
    let parent = bench.intent();
    let first = bench.apply(CreateIntent { parent: Some(parent), ..draft("first") }).unwrap().id;
    let then = bench.apply(CreateIntent { parent: Some(parent), depends_on: vec![first], ..draft("then") }).unwrap().id;
    let below = bench.apply(CreateIntent { parent: Some(then), ..draft("below") }).unwrap().id;
    let mut kin = |id, kin| -> Vec<IntentId> {
        bench.apply(Relatives { id, kin, caller: caller("a") }).unwrap().iter().map(|intent| intent.id).collect()
    };
    assert_eq!(kin(parent, Kin::Children), [first, then]);
    assert_eq!(kin(parent, Kin::Descendants), [first, then, below]);
    assert_eq!(kin(below, Kin::Ancestors), [then, parent]);
    assert_eq!(kin(then, Kin::Dependencies), [first]);
    assert_eq!(kin(first, Kin::Dependents), [then]);
    assert_eq!(kin(parent, Kin::Ready), [first]);
    assert_eq!(kin(parent, Kin::Blocked), [then]);
    status(&mut bench, first, Status::Completed).unwrap();
    let ready = bench.apply(Relatives { id: parent, kin: Kin::Ready, caller: caller("a") }).unwrap();
    assert_eq!(ready.iter().map(|intent| intent.id).collect::<Vec<_>>(), [then]);
}

#[test]
fn an_assignment_is_kept_until_its_agent_was_told_and_a_new_one_counts_again() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let assign =
        || Assign { id, caller: caller("maker"), agent: holder("w"), role: "worker".into(), delegated_by: None };
    let untold = || Untold { agent: holder("w") };
    bench.apply(assign()).unwrap();
    bench.reopen();
    let waiting = bench.apply(untold());
    assert_eq!(waiting.intents.len(), 1);
    let told = Told { agent: holder("w"), intents: vec![id], cursor: waiting.cursor };
    bench.apply(assign()).unwrap();
    bench.apply(told.clone());
    assert_eq!(bench.apply(untold()).intents.len(), 1, "what was sent before does not cover what came after");
    bench.apply(Told { cursor: bench.events.last().unwrap().cursor, ..told });
    assert!(bench.apply(untold()).intents.is_empty());
    bench.apply(Unassign { id, caller: caller("maker"), agent: holder("w") }).unwrap();
    assert!(matches!(
        bench.apply(Unassign { id, caller: caller("maker"), agent: holder("w") }),
        Err(Refusal::Unknown { .. })
    ));
}

#[test]
fn a_closed_intent_is_closed_and_only_those_who_may_decide_open_it() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let change = |who: &str, change| ChangeAccess { id, caller: caller(who), change };
    let entry = |who: &str, permission| NewEntry {
        principal: holder(who),
        principal_type: "agent".into(),
        permission,
        expires_at: None,
        reason: None,
    };
    let close =
        AccessChange::Replace(Policy::Closed, vec![entry("r", Permission::Read), entry("w", Permission::Write)]);
    assert!(matches!(bench.apply(change("stranger", close.clone())), Err(Refusal::NotAllowed { .. })));
    let list = bench.apply(change("maker", close)).unwrap().access;
    assert_ne!(list.entries[0].id, list.entries[1].id);
    assert!(matches!(bench.set(id, "x", "r", Expected::Any), Err(Refusal::NotAllowed { .. })));
    assert!(matches!(bench.take(id, "x", "stranger", 60), Err(Refusal::NotAllowed { .. })));
    assert!(bench.set(id, "x", "w", Expected::Any).is_ok());
    let asked =
        bench.apply(change("stranger", AccessChange::Request(entry("stranger", Permission::Write), vec![]))).unwrap();
    let request = asked.id.unwrap();
    assert!(bench.apply(change("stranger", AccessChange::Approve(request, None, None, None))).is_err());
    bench.apply(change("maker", AccessChange::Approve(request, None, None, None))).unwrap();
    assert!(bench.set(id, "x", "stranger", Expected::Any).is_ok());
    assert!(bench.apply(change("maker", AccessChange::Deny(request, None))).is_err(), "it has been decided");
}

#[test]
fn the_end_of_a_lease_and_its_event_are_in_one_turn() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let lease = bench.take(id, "x", "a", 10).unwrap();
    bench.pass(10_000);
    let end = bench.events.iter().find(|event| event.kind.end() == Some(End::Expired)).unwrap();
    assert_eq!(end.token, Some(lease.token));
    assert!(bench.records.keys().all(|(kind, _)| kind.as_str() != "lease"));
}
