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

    /// Processor time the server has used so far.
    fn cpu(&self) -> Result<Duration>;
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
    spent: Spent,
}

/// Time: on the clock, on processors by the load, on processors by the server.
#[derive(Debug, Clone, Copy)]
struct Spent {
    elapsed: Duration,
    load_cpu: Duration,
    server_cpu: Duration,
}

impl Measured {
    /// Operations a second, of all kinds.
    pub fn rate(&self) -> f64 {
        self.count() / self.spent.elapsed.as_secs_f64()
    }

    fn count(&self) -> f64 {
        self.latency.iter().map(Histogram::len).sum::<u64>() as f64
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
        self.spent.load_cpu.as_secs_f64() / self.spent.elapsed.as_secs_f64()
    }

    /// Microseconds of processor time the server used for each operation.
    pub fn server_micros(&self) -> f64 {
        self.spent.server_cpu.as_secs_f64() * 1e6 / self.count()
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

/// The longest time a histogram of nanoseconds can hold; a longer one counts as this.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// A histogram of nanoseconds, to three digits.
pub fn new_histogram() -> Histogram<u64> {
    let max = LATENCY_MAX.as_nanos() as u64;
    Histogram::new_with_bounds(1, max, 3).unwrap_or_else(|_| unreachable!("the bounds are valid"))
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
        let spent = tokio::select! {
            spent = time(target, &shared, pace) => spent?,
            Some(ended) = tasks.join_next() => return Err(ended?.err().context("a client ended early")?),
        };
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let latency = shared.latency.replace(std::array::from_fn(|_| new_histogram()));
        Ok(Measured { latency, spent })
    })
}

async fn time(target: &impl Target, shared: &Shared, pace: Pace) -> Result<Spent> {
    shared.started.wait().await;
    tokio::time::sleep(pace.warm_up).await;
    let (server_cpu, load_cpu, from) = (target.cpu()?, own_cpu()?, Instant::now());
    shared.phase.set(Phase::Measuring);
    tokio::time::sleep(pace.measure).await;
    shared.phase.set(Phase::Done);
    let elapsed = from.elapsed();
    let load_cpu = own_cpu()?.saturating_sub(load_cpu);
    let server_cpu = target.cpu()?.saturating_sub(server_cpu);
    Ok(Spent { elapsed, load_cpu, server_cpu })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_holds_times_from_a_microsecond_to_a_minute() {
        let mut histogram = new_histogram();
        for duration in [Duration::from_micros(1), Duration::from_millis(3), Duration::from_secs(59)] {
            histogram.saturating_record(duration.as_nanos() as u64);
            let held = Duration::from_nanos(histogram.max()).as_secs_f64();
            assert!((held / duration.as_secs_f64() - 1.0).abs() < 0.01, "{duration:?} became {held} s");
        }
    }
}
