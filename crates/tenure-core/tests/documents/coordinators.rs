use serde_json::{Map, json};
use tenure_core::access::Caller;
use tenure_core::change::{Record, RecordId, RecordKind};
use tenure_core::coordinator::{Led, TermStatus};
use tenure_core::document::Refusal;
use tenure_core::event::EventKind;
use tenure_core::ledger::coordinators::{ChangeTerm, Coordinate, GetTerm, ListTerms, TermChange};
use tenure_core::limits::{ENDED_TERMS_KEPT_MAX, PAGE_MAX};
use tenure_core::serial::{CoordinatorId, IntentId};
use tenure_core::{Timestamp, Ttl};

use crate::bench::{Bench, caller, holder};

pub fn coordinate(id: IntentId, who: &str) -> Coordinate {
    Coordinate {
        led: Led::Intent(id),
        caller: caller(who),
        agent: holder(who),
        supervisor: holder("boss"),
        role: "coordinator".into(),
        kind: "llm".into(),
        ttl: Ttl::from_ms(600_000).unwrap(),
        interval_ms: 10_000,
        until: None,
        guardrails: None,
        metadata: Map::new(),
    }
}

fn change(bench: &mut Bench, id: CoordinatorId, who: &str, change: TermChange) -> Result<TermStatus, Refusal> {
    bench.apply(ChangeTerm { id, caller: caller(who), change, reason: None }).map(|view| view.term.status)
}

fn status(bench: &mut Bench, id: CoordinatorId) -> TermStatus {
    bench.apply(GetTerm { id, caller: caller("boss") }).unwrap().term.status
}

#[test]
fn one_coordinator_at_a_time_and_the_refusal_names_it() {
    let mut bench = Bench::new();
    let id = bench.intent();
    bench.apply(coordinate(id, "a")).unwrap();
    let Err(Refusal::Lease(refused)) = bench.apply(coordinate(id, "b")) else { panic!("two coordinators") };
    assert!(refused.to_string().contains('a'), "{refused}");
    let other = bench.intent();
    assert!(bench.apply(coordinate(other, "b")).is_ok());
    assert!(bench.take(id, "*", "w", 60).is_ok(), "to coordinate is not to hold the work");
}

#[test]
fn silence_makes_a_coordinator_unresponsive_after_two_beats_and_lost_after_three_more() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let term = bench.apply(coordinate(id, "a")).unwrap().term.id;
    bench.pass(19_999);
    assert_eq!(status(&mut bench, term), TermStatus::Active);
    bench.pass(1);
    assert_eq!(status(&mut bench, term), TermStatus::Unresponsive);
    assert!(bench.apply(coordinate(id, "b")).is_err(), "the grace is not over");
    bench.pass(30_000);
    assert_eq!(status(&mut bench, term), TermStatus::FailedOver);
    assert_eq!(bench.count(EventKind::CoordinatorFailedOver), 1);
    assert!(bench.apply(coordinate(id, "b")).is_ok());
    assert!(matches!(change(&mut bench, term, "a", TermChange::Beat), Err(Refusal::Over { .. })));
}

#[test]
fn a_beat_by_the_holder_keeps_the_term_and_by_nobody_else() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let term = bench.apply(coordinate(id, "a")).unwrap().term.id;
    for _ in 0..100 {
        bench.pass(15_000);
        assert!(matches!(change(&mut bench, term, "b", TermChange::Beat), Err(Refusal::NotYours { .. })));
        assert_eq!(change(&mut bench, term, "a", TermChange::Beat).unwrap(), TermStatus::Active);
    }
    bench.pass(25_000);
    assert_eq!(status(&mut bench, term), TermStatus::Unresponsive);
    assert_eq!(change(&mut bench, term, "a", TermChange::Beat).unwrap(), TermStatus::Active, "it came back in time");
}

#[test]
fn the_ttl_ends_a_term_that_is_never_renewed_and_so_does_a_fixed_end_however_often_it_beats() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let short = Coordinate { ttl: Ttl::from_ms(5_000).unwrap(), ..coordinate(id, "a") };
    let term = bench.apply(short).unwrap().term.id;
    bench.pass(5_000);
    assert_eq!(status(&mut bench, term), TermStatus::FailedOver);
    let until = Some(Timestamp::from_unix_ms(bench.now + 7_000));
    let term = bench.apply(Coordinate { until, ..coordinate(id, "a") }).unwrap().term.id;
    bench.pass(6_000);
    change(&mut bench, term, "a", TermChange::Beat).unwrap();
    bench.pass(1_000);
    assert_eq!(status(&mut bench, term), TermStatus::FailedOver);
    let past = Coordinate { until: Some(Timestamp::from_unix_ms(1)), ..coordinate(id, "a") };
    assert!(matches!(bench.apply(past), Err(Refusal::Senseless(_))));
}

#[test]
fn a_term_is_paused_resumed_handed_off_replaced_and_revoked_by_those_who_may() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let term = bench.apply(coordinate(id, "a")).unwrap().term.id;
    assert_eq!(change(&mut bench, term, "boss", TermChange::Pause).unwrap(), TermStatus::Paused);
    assert_eq!(change(&mut bench, term, "boss", TermChange::Resume).unwrap(), TermStatus::Active);
    assert!(change(&mut bench, term, "stranger", TermChange::Pause).is_err());
    assert!(change(&mut bench, term, "a", TermChange::Guardrails(Some(json!({"max": 1})))).is_err(), "not by itself");
    change(&mut bench, term, "boss", TermChange::Guardrails(Some(json!({"max": 1})))).unwrap();
    let next = bench.apply(ChangeTerm {
        id: term,
        caller: caller("a"),
        change: TermChange::HandOff(holder("b")),
        reason: None,
    });
    let next = next.unwrap().term;
    assert_eq!((next.agent.as_str(), next.status), ("b", TermStatus::Active));
    assert_eq!(next.guardrails, Some(json!({"max": 1})), "what it may not do goes with it");
    assert_eq!(status(&mut bench, term), TermStatus::Completed);
    let replaced =
        ChangeTerm { id: next.id, caller: caller("boss"), change: TermChange::Replace(holder("c")), reason: None };
    let third = bench.apply(replaced).unwrap().term;
    let admin = Caller { is_admin: true, ..caller("root") };
    bench.apply(ChangeTerm { id: third.id, caller: admin, change: TermChange::Revoke, reason: None }).unwrap();
    assert!(bench.apply(coordinate(id, "d")).is_ok(), "it is free again");
}

#[test]
fn unknown_things_have_no_coordinator_and_an_outage_loses_none() {
    let mut bench = Bench::new();
    let id = bench.intent();
    assert!(matches!(bench.apply(coordinate("intent-9-9".parse().unwrap(), "a")), Err(Refusal::Unknown { .. })));
    let term = bench.apply(coordinate(id, "a")).unwrap().term.id;
    bench.now += 3_600_000;
    bench.reopen();
    assert_eq!(status(&mut bench, term), TermStatus::Active);
    assert!(bench.apply(coordinate(id, "b")).is_err());
    bench.pass(50_000);
    assert_eq!(status(&mut bench, term), TermStatus::FailedOver);
}

/// The terms that are listed, and that there are as many records of them.
fn listed(bench: &mut Bench, id: IntentId) -> Vec<CoordinatorId> {
    let listed: Vec<_> =
        bench.apply(ListTerms { id, caller: caller("boss") }).unwrap().into_iter().map(|view| view.term.id).collect();
    let records = bench.records.keys().filter(|(kind, _)| *kind == RecordKind::Coordinator).count();
    assert_eq!(records, listed.len(), "what is forgotten is deleted");
    listed
}

#[test]
fn l15_of_terms_that_are_over_the_latest_are_kept_and_the_present_one_is_always_listed() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let mut ended = Vec::new();
    for _ in 0..PAGE_MAX {
        let term = bench.apply(coordinate(id, "a")).unwrap().term.id;
        change(&mut bench, term, "a", TermChange::Release).unwrap();
        ended.push(term);
    }
    let present = bench.apply(coordinate(id, "a")).unwrap().term.id;
    let mut expected = ended.split_off(ended.len() - ENDED_TERMS_KEPT_MAX);
    expected.push(present);
    assert_eq!(listed(&mut bench, id), expected);
    assert!(matches!(bench.apply(GetTerm { id: ended[0], caller: caller("boss") }), Err(Refusal::Unknown { .. })));
    bench.reopen();
    assert_eq!(listed(&mut bench, id), expected);
    change(&mut bench, present, "boss", TermChange::Revoke).unwrap();
    assert_eq!(listed(&mut bench, id), expected[1..], "the oldest goes first");
    assert_eq!(status(&mut bench, present), TermStatus::Completed);
}

#[test]
fn l15_terms_that_an_older_version_kept_are_forgotten_at_the_start() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let mut kept = Vec::new();
    for _ in 0..=ENDED_TERMS_KEPT_MAX {
        let term = bench.apply(coordinate(id, "a")).unwrap().term.id;
        change(&mut bench, term, "a", TermChange::Release).unwrap();
        kept.extend(bench.records.iter().filter(|((kind, _), _)| *kind == RecordKind::Coordinator).map(own));
    }
    bench.records.extend(kept);
    bench.reopen();
    assert_eq!(listed(&mut bench, id).len(), ENDED_TERMS_KEPT_MAX);
}

fn own((key, record): (&(RecordKind, RecordId), &Record)) -> ((RecordKind, RecordId), Record) {
    (key.clone(), record.clone())
}
