//! D1 and D2 against a naive model: what a reader of the rules would write down, one list each, no index.

use proptest::prelude::*;
use tenure_core::command::{Ending, Release, Revoke};
use tenure_core::document::Refusal;
use tenure_core::lease::Lease;
use tenure_core::ledger::writes::Expected;

use crate::bench::{Bench, holder};

const AGENTS: [&str; 3] = ["a", "b", "c"];
const SCOPES: [&str; 3] = ["x", "y", "*"];
const PATHS: [&str; 3] = ["x", "y/deep", "z"];

#[derive(Debug, Clone)]
enum Act {
    Take { agent: usize, scope: usize, ttl_s: u64 },
    TakeBoth { agent: usize, ttl_s: u64 },
    GiveBack { agent: usize, nth: usize },
    Revoke { nth: usize },
    Pass { ms: u64 },
    Write { agent: usize, path: usize, behind: u64 },
    WriteAny { agent: usize, path: usize },
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3usize, 0..3usize, 1..20u64).prop_map(|(agent, scope, ttl_s)| Act::Take { agent, scope, ttl_s }),
        2 => (0..3usize, 1..20u64).prop_map(|(agent, ttl_s)| Act::TakeBoth { agent, ttl_s }),
        2 => (0..3usize, 0..5usize).prop_map(|(agent, nth)| Act::GiveBack { agent, nth }),
        1 => (0..5usize).prop_map(|nth| Act::Revoke { nth }),
        3 => (0..8_000u64).prop_map(|ms| Act::Pass { ms }),
        5 => (0..3usize, 0..3usize, 0..2u64).prop_map(|(agent, path, behind)| Act::Write { agent, path, behind }),
        2 => (0..3usize, 0..3usize).prop_map(|(agent, path)| Act::WriteAny { agent, path }),
        1 => Just(Act::Reopen),
    ]
}

#[derive(Clone)]
struct Held {
    agent: &'static str,
    scope: &'static str,
    lease: Lease,
    until: u64,
    within_all: bool,
}

#[derive(Default)]
struct Naive {
    version: u64,
    held: Vec<Held>,
    lost: Vec<(&'static str, &'static str)>,
}

fn meet(one: &str, other: &str) -> bool {
    one == other || one == "*" || other == "*"
}

impl Naive {
    /// Everything that is over at `now`; what lives within a lease on everything ends with it.
    fn lapse(&mut self, now: u64) {
        loop {
            let due = self.held.iter().filter(|held| held.until <= now).map(|held| held.until).min();
            let Some(due) = due else { return };
            let gone: Vec<usize> = (0..self.held.len()).filter(|at| self.held[*at].until == due).collect();
            for at in gone.into_iter().rev() {
                if at < self.held.len() && self.held[at].until == due {
                    self.end(at, true);
                }
            }
        }
    }

    fn end(&mut self, at: usize, lost: bool) {
        let over = self.held[at].clone();
        // A lease on two scopes is in the list twice.
        let mut ended: Vec<Held> = self.held.extract_if(.., |held| held.lease.token == over.lease.token).collect();
        if over.scope == "*" {
            while let Some(inner) = self.held.iter().position(|held| held.within_all && held.agent == over.agent) {
                ended.push(self.held.remove(inner));
            }
        }
        if lost {
            self.lost.extend(ended.into_iter().map(|held| (held.agent, held.scope)));
        }
    }

    fn may_take(&self, agent: &str, scope: &str) -> bool {
        let own_all = |held: &&Held| held.agent == agent && held.scope == "*" && scope != "*";
        !self.held.iter().any(|held| meet(held.scope, scope) && !own_all(&held))
    }

    /// Why a write is refused: someone else holds it, or the writer lost it.
    fn verdict(&self, agent: &str, scope: &str) -> &'static str {
        let over: Vec<_> = self.held.iter().filter(|held| meet(held.scope, scope)).collect();
        let is_holder = over.iter().any(|held| held.agent == agent);
        let is_lost = self.lost.iter().any(|(who, what)| *who == agent && meet(what, scope));
        match over.iter().any(|held| held.agent != agent) {
            true => "guarded",
            false if is_lost && !is_holder => "late",
            false => "open",
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d1_d2_writes_and_leases_on_an_intent_do_what_the_naive_model_says(acts in prop::collection::vec(act(), 1..60)) {
        let mut bench = Bench::new();
        let id = bench.intent();
        let mut naive = Naive { version: 1, ..Naive::default() };
        for act in acts {
            naive.lapse(bench.now);
            match act {
                Act::Pass { ms } => {
                    bench.pass(ms);
                    naive.lapse(bench.now);
                }
                Act::Reopen => {
                    bench.reopen();
                    for held in &mut naive.held {
                        held.until = held.until.max(bench.now + held.lease.ttl.ms());
                    }
                }
                Act::Take { agent, scope, ttl_s } => {
                    let (agent, scope) = (AGENTS[agent], SCOPES[scope]);
                    let may = naive.may_take(agent, scope);
                    let taken = bench.take(id, scope, agent, ttl_s);
                    prop_assert_eq!(taken.is_ok(), may, "{} takes {}: {:?}", agent, scope, taken);
                    if let Ok(lease) = taken {
                        let within_all = lease.within.is_some();
                        naive.lost.retain(|(who, what)| *who != agent || !(scope == "*" || scope == *what));
                        naive.held.push(Held { agent, scope, until: bench.now + ttl_s * 1_000, lease, within_all });
                    }
                }
                Act::TakeBoth { agent, ttl_s } => {
                    let agent = AGENTS[agent];
                    let taken = bench.take_both(id, ["x", "y"], agent, ttl_s);
                    prop_assert_eq!(taken.is_some(), naive.held.is_empty(), "{} takes both: {:?}", agent, taken);
                    if let Some(lease) = taken {
                        naive.lost.retain(|(who, what)| *who != agent || *what == "*");
                        let until = bench.now + ttl_s * 1_000;
                        let held = |scope| Held { agent, scope, until, lease: lease.clone(), within_all: false };
                        naive.held.extend(["x", "y"].map(held));
                    }
                }
                Act::GiveBack { agent, nth } => {
                    if let Some(held) = naive.held.get(nth).cloned() {
                        let reply = bench.apply(Release { token: held.lease.token, holder: holder(AGENTS[agent]) });
                        prop_assert_eq!(matches!(reply, Ending::Ended(..)), held.agent == AGENTS[agent]);
                        if held.agent == AGENTS[agent] {
                            naive.end(nth, false);
                        }
                    }
                }
                Act::Revoke { nth } => {
                    if let Some(held) = naive.held.get(nth).cloned() {
                        bench.apply(Revoke { token: held.lease.token, by: holder("admin"), reason: "r".into() });
                        naive.end(nth, true);
                    }
                }
                Act::Write { agent, path, behind } => {
                    let expected = Expected::Version(naive.version - behind.min(naive.version - 1));
                    check_write(&mut bench, &mut naive, id, (AGENTS[agent], PATHS[path]), expected)?;
                }
                Act::WriteAny { agent, path } => {
                    check_write(&mut bench, &mut naive, id, (AGENTS[agent], PATHS[path]), Expected::Any)?;
                }
            }
        }
        prop_assert_eq!(bench.get(id).version, naive.version);
    }
}

fn check_write(
    bench: &mut Bench,
    naive: &mut Naive,
    id: tenure_core::serial::IntentId,
    (agent, path): (&'static str, &'static str),
    expected: Expected,
) -> Result<(), TestCaseError> {
    let scope = path.split('/').next().unwrap_or_default();
    let is_stale = matches!(expected, Expected::Version(version) if version != naive.version);
    let written = bench.set(id, path, agent, expected);
    match naive.verdict(agent, scope) {
        "guarded" => prop_assert!(matches!(written, Err(Refusal::Guarded { .. })), "{:?}", written),
        "late" => prop_assert!(matches!(written, Err(Refusal::Late { .. })), "{:?}", written),
        _ if is_stale => prop_assert!(
            matches!(written, Err(Refusal::Stale { current }) if current == naive.version),
            "{:?}",
            written
        ),
        _ => {
            naive.version += 1;
            prop_assert_eq!(written.ok(), Some(naive.version));
        }
    }
    Ok(())
}
