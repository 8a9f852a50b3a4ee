//! Owns what a durable lease costs over what HTTP itself costs: every workload beside a ping of the same size.

use std::time::Duration;

use anyhow::Result;

use super::{Setup, Turns};
use crate::load::{Op, Workload};
use crate::machine::measure_sync;
use crate::report::{Aim, Section, Table, Unit, median, progress, short, thousands};
use crate::targets::tenure::Tenure;

const CONNECTIONS: [usize; 3] = [1, 32, 256];
const WORKLOADS: [Workload; 3] = [Workload::PING, Workload::TAKE, Workload::RENEW];
/// How long the disk is measured in each turn.
const SYNC_TIME: Duration = Duration::from_millis(500);

pub fn run(setup: &Setup) -> Result<Section> {
    let tenure = Tenure::start(&setup.tenure, &setup.directory("http")?)?;
    let mut table = Table::new(&[
        "connections",
        "workload",
        "requests/s",
        "p50",
        "p99",
        "of ping",
        "server cpu each",
        "load cores",
    ]);
    let mut aims = Vec::new();
    for connections in CONNECTIONS {
        let mut sync = Vec::new();
        let mut turns: [Turns; 3] = Default::default();
        for _ in 0..setup.turns {
            if connections == 1 {
                sync.push(sync_p50(setup)?);
            }
            for (turns, workload) in turns.iter_mut().zip(&WORKLOADS) {
                turns.take(&tenure, connections, workload, setup.pace)?;
            }
        }
        let [ping, take, renew] = &turns;
        for (turns, workload) in turns.iter().zip(&WORKLOADS) {
            table.row(&[
                &connections,
                &workload.name,
                &thousands(turns.rate()),
                &short(turns.quantile_of_all(0.5)),
                &short(turns.quantile_of_all(0.99)),
                &format!("{:.0} %", turns.rate_over(ping) * 100.0),
                &format!("{:.1} µs", turns.server_micros()),
                &format!("{:.2}", turns.load_cores()),
            ]);
        }
        if connections == 1 {
            aims.push(beside_the_disk(&mut table, median(sync), ping, take));
        }
        if connections == 256 {
            let of_ping = |turns: &Turns| turns.rate_over(ping);
            aims.push(
                Aim::at_least("256 connections: acquire + release / ping", of_ping(take), Unit::Percent, 0.7)
                    .goal(0.85),
            );
            aims.push(Aim::at_least("256 connections: renew / ping", of_ping(renew), Unit::Percent, 0.9).goal(0.95));
        }
    }
    let notes = vec![
        "`ping` is `POST /v1/ping` with the body of an acquire. `acquire + release` is on the disk before it is answered."
            .to_owned(),
    ];
    Ok(Section { title: "Over HTTP", notes, tables: vec![table], aims })
}

fn sync_p50(setup: &Setup) -> Result<f64> {
    let p50 = measure_sync(&setup.scratch, SYNC_TIME)?.value_at_quantile(0.5) as f64;
    progress(format!("fdatasync: {:.0} µs", p50 / 1_000.0));
    Ok(p50)
}

fn beside_the_disk(table: &mut Table, sync_ns: f64, ping: &Turns, take: &Turns) -> Aim {
    let floor = Duration::from_nanos(sync_ns as u64) + ping.quantile(Op::Ping, 0.5);
    let acquire = take.quantile(Op::Acquire, 0.5);
    let p99 = short(take.quantile(Op::Acquire, 0.99));
    table.row(&[&1, &"the acquires alone", &"", &short(acquire), &p99, &"", &"", &""]);
    table.row(&[
        &1,
        &"write + fdatasync, without a server",
        &"",
        &short(Duration::from_nanos(sync_ns as u64)),
        &"",
        &"",
        &"",
    ]);
    let ratio = acquire.as_secs_f64() / floor.as_secs_f64();
    Aim::at_most("1 connection: durable acquire / (fdatasync + ping), p50", ratio, Unit::Times, 1.5)
}
