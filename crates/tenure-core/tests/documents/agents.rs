use serde_json::Map;
use tenure_core::agent::{AgentStatus, Pulse};
use tenure_core::command::{Acquire, Acquired};
use tenure_core::document::Refusal;
use tenure_core::event::EventKind;
use tenure_core::ledger::agents::{Beat, GetAgent, MoveAgent, Register, Speaker};
use tenure_core::{Resource, Ttl};

use crate::bench::{Bench, holder};

const PULSE: Pulse = Pulse { interval_ms: 1_000, unhealthy_after_ms: 3_000, dead_after_ms: 10_000 };

fn speaker(key: &str) -> Speaker {
    Speaker { name: holder("w"), credential: Some(key.into()), is_admin: false }
}

fn register(bench: &mut Bench) -> Result<AgentStatus, Refusal> {
    register_with(bench, None)
}

fn register_with(bench: &mut Bench, drain_ms: Option<u64>) -> Result<AgentStatus, Refusal> {
    let command = Register { speaker: speaker("k"), profile: Map::new(), pulse: PULSE, drain_ms };
    bench.apply(command).map(|agent| agent.status)
}

fn status(bench: &mut Bench) -> AgentStatus {
    bench.apply(GetAgent(holder("w"))).unwrap().status
}

fn take(bench: &mut Bench) -> Acquired {
    let resource = Resource::parse("path:x").unwrap();
    bench.apply(Acquire::new([resource], holder("w"), Ttl::from_ms(600_000).unwrap()))
}

#[test]
fn silence_makes_an_agent_unhealthy_then_dead_and_death_ends_its_leases() {
    let mut bench = Bench::new();
    register(&mut bench).unwrap();
    assert!(matches!(take(&mut bench), Acquired::Granted(_)));
    bench.pass(2_999);
    assert_eq!(status(&mut bench), AgentStatus::Active);
    bench.pass(1);
    assert_eq!(status(&mut bench), AgentStatus::Unhealthy);
    assert_eq!(bench.count(EventKind::LeaseExpired), 0);
    bench.pass(7_000);
    assert_eq!(status(&mut bench), AgentStatus::Dead);
    assert_eq!(bench.count(EventKind::LeaseExpired), 1);
    assert_eq!(bench.count(EventKind::AgentStatusChanged), 2);
    assert!(matches!(take(&mut bench), Acquired::Refused(tenure_core::refusal::Refusal::AgentLeaving { .. })));
    assert!(matches!(bench.apply(Beat { speaker: speaker("k") }), Err(Refusal::Gone { .. })));
    assert_eq!(register(&mut bench).unwrap(), AgentStatus::Active, "it comes back by registering");
    assert!(matches!(take(&mut bench), Acquired::Granted(_)));
}

#[test]
fn a_heartbeat_keeps_an_agent_alive_and_brings_it_back_to_health() {
    let mut bench = Bench::new();
    register(&mut bench).unwrap();
    for _ in 0..10 {
        bench.pass(2_500);
        bench.apply(Beat { speaker: speaker("k") }).unwrap();
        assert_eq!(status(&mut bench), AgentStatus::Active);
    }
    bench.pass(5_000);
    assert_eq!(status(&mut bench), AgentStatus::Unhealthy);
    assert_eq!(bench.apply(Beat { speaker: speaker("k") }).unwrap().status, AgentStatus::Active);
    bench.pass(2_999);
    assert_eq!(status(&mut bench), AgentStatus::Active);
}

#[test]
fn a_live_agent_is_not_registered_twice_and_nobody_else_speaks_for_it() {
    let mut bench = Bench::new();
    register(&mut bench).unwrap();
    assert!(matches!(register(&mut bench), Err(Refusal::Registered(_))));
    assert!(matches!(bench.apply(Beat { speaker: speaker("other") }), Err(Refusal::OtherCredential(_))));
    let foreign = MoveAgent { speaker: speaker("other"), status: AgentStatus::Dead };
    assert!(matches!(bench.apply(foreign), Err(Refusal::OtherCredential(_))));
    let admin = Speaker { is_admin: true, ..speaker("other") };
    assert!(bench.apply(MoveAgent { speaker: admin, status: AgentStatus::Draining }).is_ok());
}

#[test]
fn a_draining_agent_keeps_what_it_has_and_gets_nothing_new() {
    let mut bench = Bench::new();
    register(&mut bench).unwrap();
    assert!(matches!(take(&mut bench), Acquired::Granted(_)));
    bench.apply(MoveAgent { speaker: speaker("k"), status: AgentStatus::Draining }).unwrap();
    assert_eq!(bench.count(EventKind::LeaseExpired), 0);
    let other =
        bench.apply(Acquire::new([Resource::parse("path:y").unwrap()], holder("w"), Ttl::from_ms(1_000).unwrap()));
    assert!(matches!(other, Acquired::Refused(tenure_core::refusal::Refusal::AgentLeaving { .. })));
    bench.pass(9_999);
    assert_eq!(status(&mut bench), AgentStatus::Draining, "it is not made healthy or unhealthy");
    bench.pass(1);
    assert_eq!(status(&mut bench), AgentStatus::Dead);
}

#[test]
fn an_agent_whose_time_to_drain_is_over_is_deregistered_although_it_beats_and_its_leases_end() {
    let mut bench = Bench::new();
    register_with(&mut bench, Some(5_000)).unwrap();
    assert!(matches!(take(&mut bench), Acquired::Granted(_)));
    let drain = || MoveAgent { speaker: speaker("k"), status: AgentStatus::Draining };
    bench.apply(drain()).unwrap();
    bench.pass(2_500);
    bench.apply(Beat { speaker: speaker("k") }).unwrap();
    bench.apply(drain()).unwrap();
    bench.pass(2_499);
    assert_eq!((status(&mut bench), bench.count(EventKind::LeaseExpired)), (AgentStatus::Draining, 0));
    bench.pass(1);
    assert_eq!((status(&mut bench), bench.count(EventKind::LeaseExpired)), (AgentStatus::Deregistered, 1));
    assert_eq!(register(&mut bench).unwrap(), AgentStatus::Active);
}

#[test]
fn an_agent_that_takes_its_draining_back_is_not_timed_and_an_outage_takes_no_time_to_drain() {
    let mut bench = Bench::new();
    register_with(&mut bench, Some(5_000)).unwrap();
    let to = |status| MoveAgent { speaker: speaker("k"), status };
    bench.apply(to(AgentStatus::Draining)).unwrap();
    bench.apply(to(AgentStatus::Active)).unwrap();
    bench.pass(2_999);
    bench.apply(Beat { speaker: speaker("k") }).unwrap();
    bench.pass(2_500);
    assert_eq!(status(&mut bench), AgentStatus::Active);
    bench.apply(to(AgentStatus::Draining)).unwrap();
    bench.now += 3_600_000;
    bench.reopen();
    bench.pass(4_999);
    assert_eq!(status(&mut bench), AgentStatus::Draining);
    bench.pass(1);
    assert_eq!(status(&mut bench), AgentStatus::Deregistered);
}

#[test]
fn an_outage_of_the_ledger_kills_no_agent() {
    let mut bench = Bench::new();
    register(&mut bench).unwrap();
    bench.now += 3_600_000;
    bench.reopen();
    bench.pass(2_999);
    assert_eq!(status(&mut bench), AgentStatus::Active);
    bench.pass(1);
    assert_eq!(status(&mut bench), AgentStatus::Unhealthy);
}
