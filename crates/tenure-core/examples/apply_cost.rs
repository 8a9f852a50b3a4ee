//! What one decision costs, in a small ledger and in one with a million live leases, and with ten thousand waits on one
//! resource. Prints nanoseconds for each command and the growth between the two; run it with `--release`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people")]

use std::hint::black_box;
use std::time::Instant;

use tenure_core::change::Head;
use tenure_core::command::{Acquire, Acquired, Check, Command, Release, Renew};
use tenure_core::lease::Mode;
use tenure_core::{Epoch, Holder, Ledger, Resource, Timestamp, Token, Ttl, Turn};

const ROUNDS: u32 = 20_000;

struct Bench {
    ledger: Ledger,
    now: u64,
}

impl Bench {
    fn with_leases(count: usize) -> Bench {
        let mut bench = Bench { ledger: Ledger::open(Head::default(), Epoch(1)), now: 1_000_000_000 };
        for n in 0..count {
            bench.acquire(
                &format!("path:src/{}/{}/file{n}.rs", n % 100, n % 7_919),
                &format!("agent-{}", n % 10_000),
                None,
            );
        }
        bench
    }

    fn apply<C: Command>(&mut self, command: C) -> C::Reply {
        self.now += 1;
        let mut turn = Turn::new(Timestamp::from_unix_ms(self.now), &|_| true);
        let reply = self.ledger.apply(&mut turn, command);
        black_box((turn.changes, turn.events));
        reply
    }

    fn acquire(&mut self, resource: &str, holder: &str, wait_ms: Option<u64>) -> Option<Token> {
        let resource = Resource::parse(resource).unwrap();
        let ttl = Ttl::from_ms(3_600_000).unwrap();
        let request = Acquire::new([resource], Holder::parse(holder).unwrap(), ttl);
        match self.apply(Acquire { wait_ms, ..request }) {
            Acquired::Granted(grant) => Some(grant.lease.token),
            _ => None,
        }
    }

    fn time(&mut self, mut act: impl FnMut(&mut Bench, u32)) -> f64 {
        let started = Instant::now();
        for round in 0..ROUNDS {
            act(self, round);
        }
        started.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    }

    fn costs(&mut self) -> Vec<(&'static str, f64)> {
        let holder = Holder::parse("bench").unwrap();
        let cycle = self.time(|bench, round| {
            let token = bench.acquire(&format!("path:other/{round}.rs"), "bench", None).unwrap();
            bench.apply(Release { token, holder: Holder::parse("bench").unwrap() });
        });
        let kept = self.acquire("path:other/kept.rs", "bench", None).unwrap();
        let renew = self.time(|bench, _| {
            bench.apply(Renew { tokens: vec![kept], holder: holder.clone(), ttl: None });
        });
        let refused = self.time(|bench, _| assert_eq!(bench.acquire("path:src", "bench", None), None));
        let check = self.time(|bench, _| {
            let resources = [Resource::parse("path:src/1").unwrap()].into_iter().collect();
            black_box(bench.apply(Check { resources, mode: Mode::Exclusive, holder: None }));
        });
        vec![("acquire + release", cycle), ("renew", renew), ("refused, covering", refused), ("check, covering", check)]
    }
}

fn main() {
    let small = Bench::with_leases(1_000).costs();
    let large = Bench::with_leases(1_000_000).costs();
    println!("{:24}{:>12}{:>12}{:>8}", "ns per command", "1,000", "1,000,000", "growth");
    for ((name, few), (_, many)) in small.into_iter().zip(large) {
        println!("{name:24}{few:12.0}{many:12.0}{:8.1}", many / few);
    }
    let mut queue = Bench::with_leases(0);
    let mut token = queue.acquire("task:hot", "agent-0", None).unwrap();
    for n in 1..=10_000 {
        queue.acquire("task:hot", &format!("agent-{n}"), Some(3_600_000));
    }
    let started = Instant::now();
    for n in 0..10_000 {
        queue.apply(Release { token, holder: Holder::parse(&format!("agent-{n}")).unwrap() });
        token = token.next();
    }
    let each = started.elapsed().as_nanos() as f64 / 10_000.0;
    println!("{:24}{each:12.0} ns each, 10,000 waits on one resource", "release, grant the next");
}
