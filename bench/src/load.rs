//! Owns the load: so many connections, each asking again as soon as it is answered, and what that came to.
//!
//! One thread drives all connections: it costs the server the least. Its share of a core is reported beside the numbers; a
//! share near one would mean that the load, not the server, is what was measured.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio::sync::Barrier;
use tokio::task::{JoinSet, LocalSet};

/// What a client can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// An answer without any work.
    Ping,
    /// Take a fresh lock and remember it.
    Acquire,
    /// Extend it.
    Renew,
    /// Give it back.
    Release,
}

const OPS: usize = 4;

/// What each connection does: once before, over and over, once after.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub before: &'static [Op],
    pub cycle: &'static [Op],
    pub after: &'static [Op],
}

impl Workload {
    pub const PING: Workload = Workload { name: "ping", before: &[], cycle: &[Op::Ping], after: &[] };
    pub const TAKE: Workload =
        Workload { name: "acquire + release", before: &[], cycle: &[Op::Acquire, Op::Release], after: &[] };
    pub const RENEW: Workload =
        Workload { name: "renew", before: &[Op::Acquire], cycle: &[Op::Renew], after: &[Op::Release] };
    pub const CHURN: Workload =
        Workload { name: "churn", before: &[], cycle: &[Op::Acquire, Op::Renew, Op::Release], after: &[] };
    pub const FLEET: Workload = Workload { name: "fleet", before: &[], cycle: &FLEET_CYCLE, after: &[] };
}

const FLEET_CYCLE: [Op; 10] = {
    let mut cycle = [Op::Renew; 10];
    cycle[0] = Op::Acquire;
    cycle[9] = Op::Release;
    cycle
};

/// One connection of a server under test.
pub trait Client {
    /// Does it, and fails if the answer is not the one that is due.
    async fn perform(&mut self, op: Op) -> Result<()>;
}

/// A server under test.
pub trait Target {
    type Client: Client + 'static;

    /// Opens connection number `n`.
    async fn connect(&self, n: usize) -> Result<Self::Client>;
}

/// How long to load.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub warm_up: Duration,
    pub measure: Duration,
}

/// What a run came to.
pub struct Measured {
    /// Operations answered in the measured time, by kind, in nanoseconds.
    latency: [Histogram<u64>; OPS],
    elapsed: Duration,
    cpu: Duration,
}

impl Measured {
    /// Operations a second, of all kinds.
    pub fn rate(&self) -> f64 {
        self.latency.iter().map(Histogram::len).sum::<u64>() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency below which this share of one kind of operation was answered.
    pub fn quantile(&self, op: Op, share: f64) -> Duration {
        let [ping, acquire, renew, release] = &self.latency;
        let histogram = match op {
            Op::Ping => ping,
            Op::Acquire => acquire,
            Op::Renew => renew,
            Op::Release => release,
        };
        Duration::from_nanos(histogram.value_at_quantile(share))
    }

    /// The same over all kinds.
    pub fn quantile_of_all(&self, share: f64) -> Duration {
        let mut all = new_histogram();
        for one in &self.latency {
            // Equal bounds: adding cannot fail.
            let _ = all.add(one);
        }
        Duration::from_nanos(all.value_at_quantile(share))
    }

    /// How much of a core the load itself used.
    pub fn load_cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmingUp,
    Measuring,
    Done,
}

struct Shared {
    phase: Cell<Phase>,
    latency: RefCell<[Histogram<u64>; OPS]>,
    started: Barrier,
}

/// A histogram of nanoseconds up to a minute, to three digits.
pub fn new_histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are valid"));
    histogram.auto(true);
    histogram
}

/// Runs a future on this thread alone.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, future)
}

/// Loads a server with so many connections at once.
pub fn run<T: Target>(target: &T, connections: usize, workload: &Workload, pace: Pace) -> Result<Measured> {
    block_on(async {
        let shared = Rc::new(Shared {
            phase: Cell::new(Phase::WarmingUp),
            latency: RefCell::new(std::array::from_fn(|_| new_histogram())),
            started: Barrier::new(connections + 1),
        });
        let mut tasks = JoinSet::new();
        for n in 0..connections {
            let client = target.connect(n).await.with_context(|| format!("connection {n}"))?;
            tasks.spawn_local(drive(client, *workload, Rc::clone(&shared)));
        }
        // A client that fails before the start would leave the others waiting at the barrier.
        let timing = tokio::select! {
            timing = time(&shared, pace) => timing?,
            Some(ended) = tasks.join_next() => return Err(ended?.err().context("a client ended early")?),
        };
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let (elapsed, cpu) = timing;
        let latency = shared.latency.replace(std::array::from_fn(|_| new_histogram()));
        Ok(Measured { latency, elapsed, cpu })
    })
}

async fn time(shared: &Shared, pace: Pace) -> Result<(Duration, Duration)> {
    shared.started.wait().await;
    tokio::time::sleep(pace.warm_up).await;
    let (from, cpu_from) = (Instant::now(), own_cpu()?);
    shared.phase.set(Phase::Measuring);
    tokio::time::sleep(pace.measure).await;
    shared.phase.set(Phase::Done);
    Ok((from.elapsed(), own_cpu()?.saturating_sub(cpu_from)))
}

async fn drive(mut client: impl Client, workload: Workload, shared: Rc<Shared>) -> Result<()> {
    for op in workload.before {
        client.perform(*op).await.with_context(|| format!("{op:?}"))?;
    }
    shared.started.wait().await;
    while shared.phase.get() != Phase::Done {
        for op in workload.cycle {
            let sent = Instant::now();
            client.perform(*op).await.with_context(|| format!("{op:?}"))?;
            if shared.phase.get() == Phase::Measuring
                && let Some(histogram) = shared.latency.borrow_mut().get_mut(*op as usize)
            {
                histogram.saturating_record(sent.elapsed().as_nanos() as u64);
            }
        }
    }
    for op in workload.after {
        client.perform(*op).await.with_context(|| format!("{op:?}"))?;
    }
    Ok(())
}

fn own_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}
