//! Measures commits: operations a second and the time of one commit, by batch size, with and without folding.
//!
//! ```text
//! cargo run --release -p tenure-store --example commit_bench -- [leases] [seconds] [directory]
//! ```
//!
//! An operation is half of an acquire and release: a lease is granted, and one granted a while ago is released. The store
//! holds `leases` others all the while (default 1,000,000).
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a program to be read by a person")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::change::{Batch, Change, Head};
use tenure_core::event::{Event, EventKind};
use tenure_core::lease::{Lease, Mode};
use tenure_core::{Epoch, Holder, Resource, Timestamp, Token, Ttl};
use tenure_store::{Options, Sqlite, Store};

/// A released lease was granted so many leases ago.
const AGE: u64 = 5_000;

struct Bench {
    store: Sqlite,
    head: Head,
    holders: Vec<Holder>,
    /// The next token to release.
    oldest: Token,
}

impl Bench {
    fn open(dir: &Path, options: Options) -> Bench {
        let mut store = Sqlite::open(dir, options).expect("opens");
        let epoch = store.claim(Epoch(1)).expect("claims");
        let started = Instant::now();
        let mut count = 0u64;
        let head = store.load(&mut |_| count += 1).expect("loads");
        println!("loaded {count} records in {:.2?}", started.elapsed());
        let token = Token::start_of(epoch);
        let holders = (0..1_000).map(|number| Holder::parse(&format!("agent-{number}")).expect("a name")).collect();
        Bench { store, head: Head { epoch, token: Some(token), ..head }, holders, oldest: token.next() }
    }

    fn lease(&self, token: Token) -> Lease {
        let number = token.as_u64();
        let at = Timestamp::from_unix_ms(1_700_000_000_000 + number % 1_000);
        let ttl = Ttl::from_ms(30_000).expect("in range");
        // Spread like names in a real tree: the order of tokens is not the order of names.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        Lease {
            token,
            resources: [Resource::parse(&format!("path:src/{}/{spread}.rs", spread % 997)).expect("a name")].into(),
            holder: self.holders.get(spread as usize % self.holders.len()).expect("one").clone(),
            mode: Mode::Exclusive,
            acquired_at: at,
            expires_at: at.plus_ms(ttl.ms()),
            ttl,
            grace_ms: 0,
            within: None,
            metadata: None,
        }
    }

    fn event(&mut self, kind: EventKind, lease: &Lease) -> Event {
        self.head.cursor = self.head.cursor.next();
        Event {
            cursor: self.head.cursor,
            at: lease.acquired_at,
            kind,
            resources: lease.resources.clone(),
            holder: Some(lease.holder.clone()),
            token: Some(lease.token),
            mode: Some(lease.mode),
            acquired_at: Some(lease.acquired_at),
            expires_at: Some(lease.expires_at),
            ttl: Some(lease.ttl),
            within: None,
            ended_with: None,
            by: None,
            reason: None,
            data: None,
        }
    }

    fn grant(&mut self, batch: &mut Batch) {
        let token = self.head.token.expect("set").next();
        self.head.token = Some(token);
        let lease = self.lease(token);
        batch.events.push(self.event(EventKind::LeaseGranted, &lease));
        batch.changes.push(Change::of_grant(&lease));
    }

    fn release(&mut self, batch: &mut Batch) {
        let lease = self.lease(self.oldest);
        self.oldest = self.oldest.next();
        batch.events.push(self.event(EventKind::LeaseReleased, &lease));
        batch.changes.push(Change::Ended(lease.token));
    }

    fn finish(&mut self, mut batch: Batch) -> Arc<Batch> {
        self.head.seq += 1;
        self.head.at = Timestamp::from_unix_ms(1_700_000_000_000);
        batch.head = self.head;
        Arc::new(batch)
    }

    fn fill(&mut self, leases: u64) {
        let started = Instant::now();
        for _ in 0..leases.div_ceil(1_000) {
            let mut batch = Batch::default();
            (0..1_000).for_each(|_| self.grant(&mut batch));
            let batch = self.finish(batch);
            self.store.commit(&batch).expect("commits");
        }
        let committed = started.elapsed();
        self.store.flush().expect("folds");
        println!("committed {leases} leases in {committed:.2?}, folded after {:.2?}", started.elapsed());
        self.oldest = self.head.token.expect("set").next();
        let mut batch = Batch::default();
        (0..AGE).for_each(|_| self.grant(&mut batch));
        let batch = self.finish(batch);
        self.store.commit(&batch).expect("commits");
    }

    fn churn(&mut self, size: usize, seconds: u64) -> Measured {
        let mut times = Vec::new();
        let mut busy = Duration::ZERO;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(seconds) {
            let mut batch = Batch::default();
            for at in 0..size {
                let grants = if size == 1 { self.head.seq.is_multiple_of(2) } else { at % 2 == 0 };
                if grants { self.grant(&mut batch) } else { self.release(&mut batch) }
            }
            let batch = self.finish(batch);
            let before = Instant::now();
            self.store.commit(&batch).expect("commits");
            times.push(before.elapsed());
            busy += before.elapsed();
        }
        Measured { times, busy, size }
    }
}

struct Measured {
    times: Vec<Duration>,
    busy: Duration,
    size: usize,
}

impl Measured {
    fn print(mut self, name: &str, lag: u64) {
        self.times.sort_unstable();
        let at = |part: f64| self.times.get((self.times.len() as f64 * part) as usize).copied().unwrap_or_default();
        let rate = self.times.len() as f64 / self.busy.as_secs_f64();
        println!(
            "{name:9} batch {:4}: {rate:8.0} commits/s {:9.0} ops/s  p50 {:9.1?} p99 {:9.1?} max {:9.1?}  lag {lag}",
            self.size,
            rate * self.size as f64,
            at(0.5),
            at(0.99),
            at(0.999_999),
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let leases = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("tenure-commit-bench"), PathBuf::from);
    let _ = std::fs::remove_dir_all(&dir);
    Bench::open(&dir, Options::default()).fill(leases);
    for folding in [false, true] {
        let mut bench = Bench::open(&dir, Options { folding, ..Options::default() });
        bench.fill(0);
        for size in [1, 32, 256] {
            let measured = bench.churn(size, seconds);
            let lag = bench.store.reader().stats().lag();
            measured.print(if folding { "folding" } else { "unfolded" }, lag);
        }
        let started = Instant::now();
        drop(bench);
        println!("closed in {:.2?}", started.elapsed());
    }
    let _ = std::fs::remove_dir_all(&dir);
}
