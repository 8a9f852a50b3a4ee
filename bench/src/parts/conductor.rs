//! Owns what a polled task costs through the Conductor door: workflows of ten tasks, worked through by HTTP workers that take
//! the next task with the answer to the last, as the real ones do.

mod work;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::work::{Bench, Worked};
use super::{Setup, Turns};
use crate::load::Workload;
use crate::report::{Aim, Section, Table, Unit, median, progress, short, thousands};
use crate::targets::tenure::Tenure;

/// Tasks of one workflow.
pub(super) const TASKS: u64 = 10;
const WORKERS: usize = 64;
/// Workflows that are under way at once while the most is asked for.
const AT_ONCE: u64 = 256;
const QUEUED_FEW: u64 = 1_000;
const QUEUED_MANY: u64 = 1_000_000;

const NOTE: &str = "Every completion is durable before it is answered. A worker sends `POST /api/tasks/update-v2`, whose answer is its next \
    task, and polls when there is none. «Half load» starts workflows at half the rate that the full load finished them. \
    Schedule to start is what the server says: in whole milliseconds. Queued tasks are workflows of one task each, so the memory \
    is that of a task and of its workflow.";

pub fn run(setup: &Setup) -> Result<Section> {
    let mut table = Table::new(&["", "tasks/s", "schedule to start p50", "p99", "server cpu each"]);
    let tenure = Tenure::start(&setup.tenure, &setup.directory("conductor")?)?;
    let bench = Bench::new(&tenure)?;
    let mut row = |name: &str, worked: &[Worked]| {
        let rate = median(worked.iter().map(Worked::rate));
        let wait = |share| Duration::from_millis(median(worked.iter().map(|one| one.wait_ms(share) as f64)) as u64);
        let each = median(worked.iter().map(Worked::server_micros));
        let cells = (thousands(rate), short(wait(0.5)), short(wait(0.99)), format!("{each:.1} µs"));
        table.row(&[&name, &cells.0, &cells.1, &cells.2, &cells.3]);
        (rate, wait(0.99), each)
    };
    let full = turns(setup, || bench.work(WORKERS, None, AT_ONCE, setup.pace))?;
    let (rate, _, _) = row("as many as it can", &full);
    let half = turns(setup, || bench.work(WORKERS, Some(rate / 2.0 / TASKS as f64), u64::MAX, setup.pace))?;
    let (_, wait, _) = row("half load", &half);
    let beats = heartbeats(setup, &tenure, &bench)?;
    tenure.server.stop()?;
    let (few, _) = queued(setup, "conductor-few", QUEUED_FEW)?;
    let (_, _, few) = row("beside 1,000 queued tasks", &few);
    let many = setup.scaled(QUEUED_MANY);
    let (crowded, bytes) = queued(setup, "conductor-many", many)?;
    let (_, _, crowded) = row(&format!("beside {} queued tasks", thousands(many as f64)), &crowded);
    let aims = vec![
        Aim::at_least("task completions a second", rate, Unit::Count, 20_000.0),
        Aim::at_most("schedule to start p99 at half load", wait.as_secs_f64() * 1_000.0, Unit::Milliseconds, 10.0),
        Aim::at_least("heartbeats / ping", beats, Unit::Percent, 0.9),
        Aim::at_most("memory of a queued task and its workflow", bytes, Unit::Bytes, 1_536.0),
        Aim::at_most("server cpu of a completion, many queued / few", crowded / few, Unit::Times, 1.5),
    ];
    Ok(Section { title: "Tasks of the Conductor door", notes: vec![NOTE.to_owned()], tables: vec![table], aims })
}

fn turns(setup: &Setup, mut once: impl FnMut() -> Result<Worked>) -> Result<Vec<Worked>> {
    let mut all = Vec::new();
    for _ in 0..setup.turns {
        let worked = once()?;
        progress(format!("tasks: {:.0} a second", worked.rate()));
        all.push(worked);
    }
    Ok(all)
}

/// Heartbeats of held tasks beside pings with the same body, turn by turn.
fn heartbeats(setup: &Setup, tenure: &Tenure, bench: &Bench) -> Result<f64> {
    let mut pings = Turns::default();
    let mut ratios = Vec::new();
    for _ in 0..setup.turns {
        pings.take(tenure, WORKERS, &Workload::PING, setup.pace)?;
        let beats = bench.beat(WORKERS, setup.pace)?;
        let ratio = beats / pings.last_rate().context("no ping")?;
        progress(format!("heartbeats: {beats:.0} a second, {:.0} % of ping", ratio * 100.0));
        ratios.push(ratio);
    }
    Ok(median(ratios))
}

/// A server with so many tasks in another queue: what a task costs beside them, and how much memory one of them takes.
fn queued(setup: &Setup, name: &str, count: u64) -> Result<(Vec<Worked>, f64)> {
    let tenure = Tenure::start(&setup.tenure, &setup.directory(name)?)?;
    let bench = Bench::new(&tenure)?;
    // Buffers that any load needs are not the tasks'.
    bench.work(WORKERS, None, AT_ONCE, setup.pace)?;
    tenure.server.settle()?;
    let before = tenure.server.resident_bytes()?;
    bench.queue(count)?;
    tenure.server.settle()?;
    let after = tenure.server.resident_bytes()?;
    let bytes = after.saturating_sub(before) as f64 / count as f64;
    progress(format!("{count} queued tasks, {bytes:.0} bytes each"));
    let worked = turns(setup, || bench.work(WORKERS, None, AT_ONCE, setup.pace))?;
    let left = bench.queued()?;
    ensure!(left == count, "{left} tasks are queued where {count} are due");
    tenure.server.stop()?;
    Ok((worked, bytes))
}
