//! Owns a server with a million live leases: what they cost in memory, in start time and in speed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Setup, Turns};
use crate::fill::{Wanted, fill};
use crate::load::{self, Op, Pace, Workload, block_on};
use crate::report::{Aim, Section, Table, Unit, progress, short, thousands};
use crate::targets::tenure::Tenure;

const LEASES: u64 = 1_000_000;
const HOLDERS: u64 = 10_000;
/// Longer than the whole run.
const TTL_SECONDS: f64 = 6.0 * 3_600.0;
const CONNECTIONS: [usize; 2] = [32, 256];
/// How long the latency of single commits is measured, with and without folding.
const COMMIT_TIME: Duration = Duration::from_secs(4);
/// How much slower the slowest commits may be while the journal is folded: less than one run differs from the next.
const MOVED: f64 = 1.25;

const NOTE: &str = "10,000 holders with 100 paths each. Memory is resident memory of the process, with everything in it. A start is from \
    the launch to the first answer of `/readyz`. Commits beside folding are measured by one connection right after the \
    leases were taken, while their journal is folded into tables; those without, once that is done.";

pub fn run(setup: &Setup) -> Result<Section> {
    let leases = setup.scaled(LEASES);
    let data = setup.directory("memory-full")?;
    let empty = Tenure::start(&setup.tenure, &setup.directory("memory-empty")?)?;
    let full = Tenure::start(&setup.tenure, &data)?;
    let mut facts = Table::new(&["", "value"]);
    let before = take_leases(&full, leases, setup.pace, &mut facts)?;
    let folding = commits(&full, &mut facts)?;
    let after = full.server.resident_bytes()?;
    facts.row(&[&"resident with them, all folded", &mebibytes(after)]);
    let each = (after as f64 - before as f64) / leases as f64;
    let mut aims = vec![Aim::at_most("resident memory for each lease", each, Unit::Bytes, 600.0)];
    let (table, throughput) = speed(setup, &empty, &full)?;
    empty.server.stop()?;
    aims.push(starts(setup, full, &data, leases, &mut facts)?);
    aims.extend(throughput);
    aims.push(folding);
    Ok(Section { title: "A million live leases", notes: vec![NOTE.to_owned()], tables: vec![facts, table], aims })
}

/// Takes them all; returns the memory before.
fn take_leases(full: &Tenure, leases: u64, pace: Pace, facts: &mut Table) -> Result<u64> {
    // Buffers and caches that any load needs are not the leases'.
    load::run(full, CONNECTIONS[1], &Workload::CHURN, pace)?;
    full.server.settle()?;
    let before = full.server.resident_bytes()?;
    let started = Instant::now();
    let wanted = |n| Wanted {
        resource: format!("path:src/{}/{}/file{n}.rs", n % 100, n % 7_919),
        holder: format!("agent-{}", n % HOLDERS),
        ttl_seconds: TTL_SECONDS,
    };
    block_on(fill(full.address, leases, wanted))?;
    let rate = leases as f64 / started.elapsed().as_secs_f64();
    let after = full.server.resident_bytes()?;
    facts.row(&[&"live leases", &thousands(leases as f64)]);
    facts.row(&[&"acquired, a second", &thousands(rate)]);
    facts.row(&[&"resident before", &mebibytes(before)]);
    facts.row(&[&"resident right after", &mebibytes(after)]);
    progress(format!("{leases} leases at {rate:.0} a second, {}", mebibytes(after)));
    Ok(before)
}

/// The slowest commits while the journal is folded and when there is nothing to fold but their own.
fn commits(full: &Tenure, facts: &mut Table) -> Result<Aim> {
    let pace = Pace { warm_up: Duration::ZERO, measure: COMMIT_TIME };
    let lag = |facts: &mut Table, when: &str| -> Result<()> {
        let batches = full.metric("tenure_fold_lag_batches")?;
        facts.row(&[&format!("batches to fold {when}"), &batches.map_or("unknown".to_owned(), thousands)]);
        Ok(())
    };
    lag(facts, "before")?;
    let beside = load::run(full, 1, &Workload::TAKE, pace)?.quantile(Op::Acquire, 0.99);
    lag(facts, "after")?;
    full.server.settle()?;
    let without = load::run(full, 1, &Workload::TAKE, pace)?.quantile(Op::Acquire, 0.99);
    facts.row(&[&"durable acquire p99 beside folding", &short(beside)]);
    facts.row(&[&"durable acquire p99 without", &short(without)]);
    let ratio = beside.as_secs_f64() / without.as_secs_f64();
    Ok(Aim::at_most("durable acquire p99 beside folding / without", ratio, Unit::Times, MOVED))
}

fn speed(setup: &Setup, empty: &Tenure, full: &Tenure) -> Result<(Table, Vec<Aim>)> {
    let mut table = Table::new(&["churn, connections", "server", "operations/s", "p50", "p99", "of empty"]);
    let mut aims = Vec::new();
    for connections in CONNECTIONS {
        let (mut with, mut without) = (Turns::default(), Turns::default());
        for _ in 0..setup.turns {
            without.take(empty, connections, &Workload::CHURN, setup.pace)?;
            with.take(full, connections, &Workload::CHURN, setup.pace)?;
        }
        let ratio = with.rate_over(&without);
        for (name, turns, ratio) in [("empty", &without, 1.0), ("full", &with, ratio)] {
            table.row(&[
                &connections,
                &name,
                &thousands(turns.rate()),
                &short(turns.quantile_of_all(0.5)),
                &short(turns.quantile_of_all(0.99)),
                &format!("{:.0} %", ratio * 100.0),
            ]);
        }
        aims.push(Aim::at_least(format!("churn, {connections} connections: full / empty"), ratio, Unit::Percent, 0.8));
    }
    Ok((table, aims))
}

/// Starts again, once after it was killed and once after it was stopped; all leases must be there.
fn starts(setup: &Setup, full: Tenure, data: &Path, leases: u64, facts: &mut Table) -> Result<Aim> {
    full.server.kill()?;
    let killed = restart(setup, data, leases)?;
    facts.row(&[&"start after SIGKILL", &short(killed.start_time)]);
    facts.row(&[&"processor time of that start", &short(killed.server.cpu()?)]);
    killed.server.stop()?;
    let stopped = restart(setup, data, leases)?;
    facts.row(&[&"start after SIGTERM", &short(stopped.start_time)]);
    facts.row(&[&"resident after that start", &mebibytes(stopped.server.resident_bytes()?)]);
    stopped.server.stop()?;
    let slowest = killed.start_time.max(stopped.start_time);
    Ok(Aim::at_most("start with them", slowest.as_secs_f64(), Unit::Seconds, 10.0))
}

fn restart(setup: &Setup, data: &Path, leases: u64) -> Result<Tenure> {
    let tenure = Tenure::start(&setup.tenure, data)?;
    progress(format!("started in {}", short(tenure.start_time)));
    let live = tenure.metric("tenure_live_leases")?;
    ensure!(live == Some(leases as f64), "{live:?} live leases after a start where {leases} are due");
    Ok(tenure)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
