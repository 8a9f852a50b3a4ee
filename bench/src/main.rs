//! Measures Tenure on this machine: what a lease costs over HTTP itself, beside the servers people would use instead, with a
//! million leases, with expiries and with thousands of subscribers. Ratios are taken in one run; an aim that is missed is
//! reported, a wrong answer fails the run.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod fill;
mod http;
mod load;
mod machine;
mod parts;
mod process;
mod report;
mod sse;
mod targets;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::load::Pace;
use crate::parts::Setup;
use crate::report::{Section, document, progress};

/// Measure Tenure on this machine.
#[derive(Parser)]
struct Args {
    /// What to measure; everything if not given.
    #[arg(value_enum)]
    what: Vec<Part>,
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The server's binary [default: beside this program].
    #[arg(long, value_name = "FILE")]
    tenure: Option<PathBuf>,
    /// Where the data of all servers goes; must be on a real disk.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// How often each measurement is repeated; the median counts.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// How long one turn is measured.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A share of the leases and subscribers, to try the bench itself.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Everything.
    All,
    /// Acquire, release and renew beside a ping.
    Http,
    /// Redis, PostgreSQL and etcd doing the same.
    Compare,
    /// A million live leases.
    Memory,
    /// How late expiries are.
    Expiry,
    /// Thousands of subscribers.
    Events,
    /// The cost of one decision in memory.
    Ledger,
    /// Locks that live in git.
    Git,
    /// Tasks of the Conductor door.
    Conductor,
    /// The OpenIntent door beside that project's own server.
    Openintent,
    /// The SDKs beside what people would use without them.
    Sdk,
}

const PARTS: [Part; 10] = [
    Part::Http,
    Part::Compare,
    Part::Memory,
    Part::Expiry,
    Part::Events,
    Part::Ledger,
    Part::Git,
    Part::Openintent,
    Part::Conductor,
    Part::Sdk,
];

fn main() -> Result<()> {
    let args = Args::parse();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // The servers inherit it.
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let scratch = tempfile::Builder::new().prefix("tenure-bench-").tempdir_in(&args.scratch)?;
    // PostgreSQL runs as another user, who must be able to enter.
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let setup = Setup {
        tenure: args.tenure.clone().map_or_else(targets::tenure::default_binary, Ok)?,
        scratch: scratch.path().to_owned(),
        turns: args.turns.max(1),
        pace: Pace {
            warm_up: Duration::try_from_secs_f64(args.seconds / 4.0)?,
            measure: Duration::try_from_secs_f64(args.seconds)?,
        },
        scale: args.scale.clamp(0.0, 1.0),
    };
    let machine = machine::describe(&setup.scratch)?;
    let is_all = args.what.is_empty() || args.what.contains(&Part::All);
    let mut sections = Vec::new();
    for part in PARTS.into_iter().filter(|part| is_all || args.what.contains(part)) {
        let section = run(part, &setup)?;
        show(&section);
        sections.push(section);
    }
    if let Some(file) = &args.markdown {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("cargo xtask bench {}", words.join(" "));
        std::fs::write(file, document(&machine, command.trim_end(), &sections))
            .with_context(|| format!("cannot write {}", file.display()))?;
        progress(format!("written to {}", file.display()));
    }
    Ok(())
}

fn run(part: Part, setup: &Setup) -> Result<Section> {
    match part {
        Part::Http => parts::http::run(setup),
        Part::Compare => parts::compare::run(setup),
        Part::Memory => parts::memory::run(setup),
        Part::Expiry => parts::expiry::run(setup),
        Part::Events => parts::events::run(setup),
        Part::Ledger => parts::ledger::run(),
        Part::Git => parts::git::run(setup),
        Part::Conductor => parts::conductor::run(setup),
        Part::Openintent => parts::openintent::run(setup),
        Part::Sdk => parts::sdk::run(setup),
        Part::All => unreachable!("it stands for the others"),
    }
}

#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
fn show(section: &Section) {
    println!("{section}");
}
