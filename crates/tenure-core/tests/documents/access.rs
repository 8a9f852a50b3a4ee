use tenure_core::access::{Caller, Permission, Policy};
use tenure_core::command::{Acquire, Acquired, Release};
use tenure_core::coordinator::Led;
use tenure_core::document::Refusal;
use tenure_core::ledger::access::{AccessChange, ChangeAccess, Look, NewEntry};
use tenure_core::ledger::assign::Audience;
use tenure_core::ledger::coordinators::{ChangeTerm, Coordinate, GetTerm, ListTerms, TermChange};
use tenure_core::ledger::portfolios::{ChangePortfolio, CreatePortfolio, PortfolioChange};
use tenure_core::ledger::subscriptions::{ListSubscriptions, SubjectOf, Subscribe};
use tenure_core::portfolio::Role;
use tenure_core::refusal::Refusal as LeaseRefusal;
use tenure_core::serial::IntentId;
use tenure_core::{Resource, Timestamp, Ttl};

use crate::bench::{Bench, caller, holder};
use crate::coordinators::coordinate;

fn admin() -> Caller {
    Caller { is_admin: true, ..caller("root") }
}

/// Only its maker and these may do anything with it.
fn close(bench: &mut Bench, id: IntentId, writers: &[(&str, Option<u64>)]) {
    let entries = writers.iter().map(|(name, until)| NewEntry {
        principal: holder(name),
        principal_type: "agent".into(),
        permission: Permission::Write,
        expires_at: until.map(Timestamp::from_unix_ms),
        reason: None,
    });
    let change = AccessChange::Replace(Policy::Closed, entries.collect());
    bench.apply(ChangeAccess { id, caller: caller("maker"), change }).unwrap();
}

fn acquire(text: &str, who: &str, wait_ms: Option<u64>) -> Acquire {
    let resource = Resource::parse(text).unwrap();
    Acquire { wait_ms, heeds_lists: true, ..Acquire::new([resource], holder(who), Ttl::from_ms(600_000).unwrap()) }
}

fn is_refused(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Refused(LeaseRefusal::NotAllowed { needs: Permission::Write, .. }))
}

#[test]
fn a_lease_on_a_closed_intent_is_for_those_whom_its_list_lets_write() {
    let mut bench = Bench::new();
    let (id, open) = (bench.intent(), bench.intent());
    let until = bench.now + 1_000;
    close(&mut bench, id, &[("w", Some(until))]);
    for text in [format!("intent:{id}/*"), format!("intent:{id}/x"), format!("coordinator:{id}")] {
        assert!(is_refused(&bench.apply(acquire(&text, "stranger", None))), "{text}");
        let unbound = Acquire { heeds_lists: false, ..acquire(&text, "stranger", None) };
        let Acquired::Granted(grant) = bench.apply(unbound) else { panic!("who is not bound is not asked") };
        assert!(is_refused(&bench.apply(acquire(&text, "stranger", None))), "and is not told who holds it");
        bench.apply(Release { token: grant.lease.token, holder: holder("stranger") });
    }
    for text in [format!("intent:{open}/x"), "intent:no-id/x".to_owned(), "job:1".to_owned()] {
        assert!(matches!(bench.apply(acquire(&text, "stranger", None)), Acquired::Granted(_)), "{text}");
    }
    assert!(matches!(bench.apply(acquire(&format!("intent:{id}/x"), "w", None)), Acquired::Granted(_)));
    bench.pass(1_000);
    assert!(is_refused(&bench.apply(acquire(&format!("intent:{id}/y"), "w", None))), "the entry is over");
}

#[test]
fn one_that_waits_is_asked_again_when_its_turn_comes() {
    let mut bench = Bench::new();
    let id = bench.intent();
    let held = bench.take(id, "x", "maker", 600).unwrap();
    let waiting = bench.apply(acquire(&format!("intent:{id}/x"), "w", Some(60_000)));
    assert!(matches!(waiting, Acquired::Queued(_)));
    close(&mut bench, id, &[]);
    bench.apply(Release { token: held.token, holder: holder("maker") });
    let taken = bench.take(id, "x", "maker", 600);
    assert!(taken.is_ok(), "it was not granted to the one who waited: {taken:?}");
}

#[test]
fn a_closed_intent_is_coordinated_by_those_who_may_write_it_or_whom_an_administrator_names() {
    let mut bench = Bench::new();
    let id = bench.intent();
    close(&mut bench, id, &[("w", None)]);
    let not_allowed = |refused: Option<Refusal>| matches!(refused, Some(Refusal::NotAllowed { .. }));
    assert!(not_allowed(bench.apply(coordinate(id, "stranger")).err()));
    let term = bench.apply(coordinate(id, "w")).unwrap().term;
    assert_eq!(term.led, Led::Intent(id));
    assert!(not_allowed(bench.apply(GetTerm { id: term.id, caller: caller("stranger") }).err()));
    assert!(not_allowed(bench.apply(ListTerms { id, caller: caller("stranger") }).err()));
    for who in ["w", "boss", "maker"] {
        assert!(bench.apply(GetTerm { id: term.id, caller: caller(who) }).is_ok(), "{who}");
    }
    let hand = |by: Caller, change| ChangeTerm { id: term.id, caller: by, change, reason: None };
    assert!(not_allowed(bench.apply(hand(caller("w"), TermChange::HandOff(holder("stranger")))).err()));
    assert!(not_allowed(bench.apply(hand(caller("boss"), TermChange::Replace(holder("stranger")))).err()));
    let next = bench.apply(hand(admin(), TermChange::Replace(holder("stranger")))).unwrap().term;
    close(&mut bench, id, &[]);
    let end = ChangeTerm { id: next.id, caller: caller("stranger"), change: TermChange::Release, reason: None };
    assert!(bench.apply(end).is_ok(), "whoever has a term can give it back");
    let named = Coordinate { caller: admin(), ..coordinate(id, "stranger") };
    assert!(bench.apply(named).is_ok());
}

#[test]
fn who_may_not_read_an_intent_sees_of_it_only_its_own_leases() {
    let mut bench = Bench::new();
    let (id, open) = (bench.intent(), bench.intent());
    bench.take(id, "x", "w", 60).unwrap();
    close(&mut bench, id, &[]);
    let mut look = |who: Caller| bench.apply(Look { caller: who, intents: vec![id, open] });
    let resource = |text: String| [Resource::parse(&text).unwrap()];
    let [scope, term] = [format!("intent:{id}/x"), format!("coordinator:{id}")].map(resource);
    let sight = look(caller("w"));
    assert!(!sight.shows(&scope, None) && !sight.shows(&term, Some(&holder("maker"))));
    assert!(sight.shows(&scope, Some(&holder("w"))) && sight.shows(&resource(format!("intent:{open}/x")), None));
    assert!(matches!(sight.check(&scope, None), Err(LeaseRefusal::NotAllowed { intent, .. }) if intent == id));
    assert!(look(caller("maker")).shows(&scope, None) && look(admin()).shows(&scope, None));
}

#[test]
fn who_follows_a_portfolio_hears_of_its_intents_only_what_it_may_read() {
    let mut bench = Bench::new();
    let (id, open) = (bench.intent(), bench.intent());
    let new = CreatePortfolio {
        name: "p".into(),
        description: None,
        created_by: holder("maker"),
        governance: Default::default(),
        metadata: Default::default(),
    };
    let portfolio = bench.apply(new).unwrap().id;
    for intent in [id, open] {
        let change = PortfolioChange::Add(intent, Role::Member, 0);
        bench.apply(ChangePortfolio { id: portfolio, caller: caller("maker"), change }).unwrap();
    }
    let subscribe = |intent, who: Caller| Subscribe {
        intent,
        portfolio: Some(portfolio),
        caller: who,
        event_types: Vec::new(),
        url: Some("http://example.test/".into()),
        expires_at: None,
    };
    let mine = bench.apply(subscribe(Some(id), caller("w"))).unwrap().id;
    let all = bench.apply(subscribe(None, admin())).unwrap().id;
    close(&mut bench, id, &[]);
    bench.reopen();
    assert_eq!(bench.apply(SubjectOf(mine)), [open]);
    assert_eq!(bench.apply(SubjectOf(all)), [id, open]);
    let hearers = bench.apply(Audience(vec![id, open]));
    let heard = |who: Caller| hearers.iter().map(|one| one.include(&who)).collect::<Vec<_>>();
    assert_eq!((heard(caller("w")), heard(admin())), (vec![false, true], vec![true, true]));
    let listed = |who: &str| ListSubscriptions { caller: Some(caller(who)), intent: Some(id), ..Default::default() };
    assert_eq!(bench.apply(listed("stranger")).len(), 0);
    assert_eq!(bench.apply(listed("w")).len(), 1, "its own");
}
