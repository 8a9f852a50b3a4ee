//! Owns the OpenIntent door beside the server of that project's package: the same requests, the same disk, one run.

use anyhow::Result;

use super::{Setup, Turns};
use crate::load::{Op, Workload};
use crate::report::{Aim, Section, Table, Unit, progress, short, thousands};
use crate::targets::Contender;
use crate::targets::openintent::{Door, Reference};
use crate::targets::tenure::Tenure;

/// Connections, and how many times as fast as the package's server Tenure should be.
const CONNECTIONS: [(usize, f64); 2] = [(1, 10.0), (32, 100.0)];
const PATCH: Workload = Workload { name: "state patch", before: &[], cycle: &[Op::Ping], after: &[] };
const WORKLOADS: [Workload; 2] = [Workload::CHURN, PATCH];

pub fn run(setup: &Setup) -> Result<Section> {
    let mut section = Section { title: "The OpenIntent door", ..Section::default() };
    let door = Door(Tenure::start(&setup.tenure, &setup.directory("openintent/tenure")?)?);
    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(door)];
    match Reference::start(&setup.directory("openintent")?)? {
        Some(reference) => contenders.push(Box::new(reference)),
        None => {
            let message = "The package openintent is not installed under target/venv (`cargo xtask test python` does) and was skipped.";
            progress(message);
            section.notes.push(message.to_owned());
        }
    }
    section
        .notes
        .push("*churn*: acquire, renew, release of a scope. Each connection has an intent of its own.".to_owned());
    section.notes.extend(contenders.iter().map(|contender| format!("- {}", contender.note())));
    let mut table =
        Table::new(&["workload", "connections", "server", "requests/s", "p50", "p99", "Tenure is", "server cpu each"]);
    for workload in &WORKLOADS {
        for (connections, needed) in CONNECTIONS {
            let mut results: Vec<Turns> = contenders.iter().map(|_| Turns::default()).collect();
            for _ in 0..setup.turns {
                for (contender, turns) in contenders.iter().zip(&mut results) {
                    turns.take(&**contender, connections, workload, setup.pace)?;
                }
            }
            let Some(tenure) = results.first() else { continue };
            for (contender, turns) in contenders.iter().zip(&results) {
                table.row(&[
                    &workload.name,
                    &connections,
                    &contender.name(),
                    &thousands(turns.rate()),
                    &short(turns.quantile_of_all(0.5)),
                    &short(turns.quantile_of_all(0.99)),
                    &format!("{:.0}×", tenure.rate_over(turns)),
                    &format!("{:.1} µs", turns.server_micros()),
                ]);
            }
            if let Some(reference) = results.get(1) {
                let what = format!("{}, {connections} connections: Tenure / openintent-server", workload.name);
                section.aims.push(Aim::at_least(what, tenure.rate_over(reference), Unit::Times, needed));
            }
        }
    }
    section.tables.push(table);
    Ok(section)
}
