//! Owns Tenure beside what people would use instead: the same operations, the same durability, the same machine.

use anyhow::Result;

use super::{Setup, Turns};
use crate::load::Workload;
use crate::report::{Aim, Section, Table, Unit, progress, short, thousands};
use crate::targets::Contender;
use crate::targets::etcd::Etcd;
use crate::targets::postgres::Postgres;
use crate::targets::redis::Redis;
use crate::targets::tenure::Tenure;

const CONNECTIONS: [usize; 2] = [32, 256];
const WORKLOADS: [Workload; 2] = [Workload::CHURN, Workload::FLEET];
/// What counts as level: the turns of one server differ by more than this.
const LEVEL: f64 = 0.95;

/// How many times as fast as another Tenure should be.
fn needed(name: &str, workload: &Workload) -> f64 {
    match (name, workload.name) {
        ("etcd", _) => 6.0,
        ("PostgreSQL", _) => 3.0,
        (_, "fleet") => 1.0,
        _ => LEVEL,
    }
}

pub fn run(setup: &Setup) -> Result<Section> {
    let scratch = setup.directory("compare")?;
    let mut section = Section { title: "Beside Redis, PostgreSQL and etcd", ..Section::default() };
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Tenure::start(&setup.tenure, &setup.directory("compare/tenure")?)?)];
    let mut absent = |name: &str| {
        let message = format!("{name} is not installed here and was skipped.");
        progress(&message);
        section.notes.push(message);
    };
    match Redis::start(&scratch)? {
        Some(redis) => contenders.push(Box::new(redis)),
        None => absent("Redis"),
    }
    match Postgres::start(&scratch)? {
        Some(postgres) => contenders.push(Box::new(postgres)),
        None => absent("PostgreSQL"),
    }
    match Etcd::start(&scratch)? {
        Some(etcd) => contenders.push(Box::new(etcd)),
        None => absent("etcd"),
    }
    section.notes.push("*churn*: acquire, renew, release. *fleet*: acquire, eight renewals, release. Operations of all kinds are counted.".to_owned());
    let notes: Vec<String> = contenders.iter().map(|contender| format!("- {}", contender.note())).collect();
    section.notes.push(notes.join("\n"));
    let mut table = Table::new(&[
        "workload",
        "connections",
        "server",
        "operations/s",
        "p50",
        "p99",
        "Tenure is",
        "server cpu each",
        "load cores",
    ]);
    for workload in &WORKLOADS {
        for connections in CONNECTIONS {
            let results = take_turns(setup, &contenders, workload, connections)?;
            section.aims.extend(rows(&mut table, &contenders, &results, workload, connections));
        }
    }
    section.tables.push(table);
    Ok(section)
}

fn take_turns(
    setup: &Setup,
    contenders: &[Box<dyn Contender>],
    workload: &Workload,
    connections: usize,
) -> Result<Vec<Turns>> {
    let mut results: Vec<Turns> = contenders.iter().map(|_| Turns::default()).collect();
    for _ in 0..setup.turns {
        for (contender, turns) in contenders.iter().zip(&mut results) {
            turns.take(&**contender, connections, workload, setup.pace)?;
        }
    }
    Ok(results)
}

fn rows(
    table: &mut Table,
    contenders: &[Box<dyn Contender>],
    results: &[Turns],
    workload: &Workload,
    connections: usize,
) -> Vec<Aim> {
    let Some(tenure) = results.first() else { return Vec::new() };
    let mut aims = Vec::new();
    for (n, (contender, turns)) in contenders.iter().zip(results).enumerate() {
        let ratio = tenure.rate_over(turns);
        table.row(&[
            &workload.name,
            &connections,
            &contender.name(),
            &thousands(turns.rate()),
            &short(turns.quantile_of_all(0.5)),
            &short(turns.quantile_of_all(0.99)),
            &if n == 0 { String::new() } else { format!("{ratio:.2}×") },
            &format!("{:.1} µs", turns.server_micros()),
            &format!("{:.2}", turns.load_cores()),
        ]);
        if n > 0 {
            let what = format!("{}, {connections} connections: Tenure / {}", workload.name, contender.name());
            aims.push(Aim::at_least(what, ratio, Unit::Times, needed(contender.name(), workload)));
        }
    }
    aims
}
