//! Owns what the SDKs cost: the Rust SDK beside the HTTP library it is built on, the Python package beside the package
//! `openintent`, each against the same server with the same number of connections.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Setup, Turns};
use crate::load::{self, Workload};
use crate::report::{Aim, Section, Table, Unit, median, progress, short, thousands};
use crate::targets::library::{Raw, Sdk};
use crate::targets::tenure::Tenure;

const RUST_CONNECTIONS: [usize; 3] = [1, 32, 256];
/// Threads of Python share one interpreter: more of them only wait longer.
const PYTHON_CONNECTIONS: [usize; 3] = [1, 2, 8];
const PYTHON_LOAD: &str = include_str!("sdk.py");

pub fn run(setup: &Setup) -> Result<Section> {
    let server = Tenure::start(&setup.tenure, &setup.directory("sdk")?)?;
    let mut section = Section { title: "The SDKs", ..Section::default() };
    rust(setup, &server, &mut section)?;
    match interpreter() {
        Some(python) => python_packages(setup, &server, &python, &mut section)?,
        None => {
            let message =
                "The Python packages are not installed under target/venv (`cargo xtask wheel` does) and were skipped.";
            progress(message);
            section.notes.push(message.to_owned());
        }
    }
    Ok(section)
}

fn rust(setup: &Setup, server: &Tenure, section: &mut Section) -> Result<()> {
    section.notes.push(
        "Rust, *acquire + release*: *HTTP library* is reqwest sending the same requests and looking only for the id; *SDK* is \
         `tenure` on the same library, with a guard and its heartbeat for every lease."
            .to_owned(),
    );
    let mut table = Table::new(&["connections", "client", "requests/s", "p50", "p99", "of the library", "load cores"]);
    for connections in RUST_CONNECTIONS {
        let (mut raw, mut sdk) = (Turns::default(), Turns::default());
        for _ in 0..setup.turns {
            raw.push(load::run(&Raw::new(server), connections, &Workload::TAKE, setup.pace)?);
            server.server.settle()?;
            sdk.push(load::run(&Sdk::new(server), connections, &Workload::TAKE, setup.pace)?);
            server.server.settle()?;
        }
        for (name, turns) in [("HTTP library", &raw), ("SDK", &sdk)] {
            progress(format!("{name} with {connections} connections: {:.0} a second", turns.rate()));
            table.row(&[
                &connections,
                &name,
                &thousands(turns.rate()),
                &short(turns.quantile_of_all(0.5)),
                &short(turns.quantile_of_all(0.99)),
                &format!("{:.0} %", turns.rate_over(&raw) * 100.0),
                &format!("{:.2}", turns.load_cores()),
            ]);
        }
        let what = format!("Rust, {connections} connections: SDK / HTTP library");
        section.aims.push(Aim::at_least(what, sdk.rate_over(&raw), Unit::Percent, 0.9));
    }
    section.tables.push(table);
    Ok(())
}

/// The interpreter of the Python tests, if both packages are there.
fn interpreter() -> Option<PathBuf> {
    let target = std::env::current_exe().ok()?.parent()?.parent()?.to_owned();
    let python = target.join("venv/bin/python");
    let imported = Command::new(&python).args(["-c", "import tenure, openintent"]).output().ok()?;
    imported.status.success().then_some(python)
}

const PACKAGES: [&str; 3] = ["openintent", "tenure-intents", "tenure"];

fn python_packages(setup: &Setup, server: &Tenure, python: &Path, section: &mut Section) -> Result<()> {
    section.notes.push(
        "Python, *acquire + release*, a thread for every connection: *openintent* is `OpenIntentClient` of that package, \
         *tenure-intents* the same calls of `tenure.OpenIntentClient`, *tenure* a guard of `tenure.Client` in a `with` block. \
         *no Python* is the smallest client this bench has, in Rust: what the server and its disk leave to any package."
            .to_owned(),
    );
    let mut table = Table::new(&["connections", "package", "requests/s", "of openintent"]);
    for connections in PYTHON_CONNECTIONS {
        let mut rates: [Vec<f64>; PACKAGES.len()] = Default::default();
        let mut bound = Vec::new();
        for _ in 0..setup.turns {
            for (package, rates) in PACKAGES.iter().zip(&mut rates) {
                rates.push(python_rate(setup, server, python, package, connections)?);
                server.server.settle()?;
            }
            bound.push(load::run(server, connections, &Workload::TAKE, setup.pace)?.rate());
            server.server.settle()?;
        }
        let [reference, ..] = &rates;
        let over = |own: &[f64]| median(own.iter().zip(reference).map(|(own, reference)| own / reference));
        for (package, own) in PACKAGES.iter().zip(&rates) {
            let over = over(own);
            table.row(&[&connections, package, &thousands(median(own.iter().copied())), &format!("{over:.1}×")]);
            if *package != "openintent" {
                let what = format!("Python, {connections} connections: {package} / openintent");
                section.aims.push(Aim::at_least(what, over, Unit::Times, 3.0));
            }
        }
        let most = thousands(median(bound.iter().copied()));
        table.row(&[&connections, &"no Python", &most, &format!("{:.1}×", over(&bound))]);
    }
    section.tables.push(table);
    Ok(())
}

/// Requests a second of one package.
fn python_rate(setup: &Setup, server: &Tenure, python: &Path, package: &str, connections: usize) -> Result<f64> {
    let seconds = |duration: std::time::Duration| duration.as_secs_f64().to_string();
    let mut command = Command::new(python);
    command.args(["-c", PYTHON_LOAD, package, &format!("http://{}", server.address), &connections.to_string()]);
    command.args([seconds(setup.pace.warm_up), seconds(setup.pace.measure)]);
    let said = command.output().context("python")?;
    ensure!(said.status.success(), "{package}: {}", String::from_utf8_lossy(&said.stderr));
    let rate: f64 = String::from_utf8(said.stdout)?.trim().parse().context("a rate")?;
    progress(format!("{package} with {connections} connections: {rate:.0} a second"));
    Ok(rate)
}
