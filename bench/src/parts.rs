//! Owns what is measured, one part a module, and how a number is made from turns.

pub mod compare;
pub mod conductor;
pub mod events;
pub mod expiry;
pub mod git;
pub mod http;
pub mod ledger;
pub mod memory;
pub mod openintent;
pub mod sdk;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::load::{Measured, Op, Pace, Workload};
use crate::report::{median, progress};
use crate::targets::Contender;

/// What every part needs to know.
pub struct Setup {
    /// The server's binary.
    pub tenure: PathBuf,
    /// Where the data of all servers goes: one directory, so one disk.
    pub scratch: PathBuf,
    /// How often each measurement is repeated.
    pub turns: usize,
    pub pace: Pace,
    /// Shares of the full counts, to try the bench itself: 1 in a real run.
    pub scale: f64,
}

impl Setup {
    /// A fresh directory for data.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// A count, smaller when the bench itself is tried.
    pub fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(1)
    }
}

/// One measurement, repeated.
#[derive(Default)]
pub struct Turns(Vec<Measured>);

impl Turns {
    /// Measures once more, and waits until the server has nothing left to do.
    pub fn take(
        &mut self,
        contender: &dyn Contender,
        connections: usize,
        workload: &Workload,
        pace: Pace,
    ) -> Result<()> {
        let failed = || format!("{} with {connections} connections, {}", contender.name(), workload.name);
        let measured = contender.run(connections, workload, pace).with_context(failed)?;
        progress(format!("{}: {:.0} a second", failed(), measured.rate()));
        self.0.push(measured);
        contender.server().settle()
    }

    /// The rate of the latest turn.
    pub fn last_rate(&self) -> Option<f64> {
        self.0.last().map(Measured::rate)
    }

    /// Takes in what was measured elsewhere.
    pub fn push(&mut self, measured: Measured) {
        self.0.push(measured);
    }

    pub fn rate(&self) -> f64 {
        median(self.0.iter().map(Measured::rate))
    }

    pub fn quantile(&self, op: Op, share: f64) -> Duration {
        self.duration(|measured| measured.quantile(op, share))
    }

    pub fn quantile_of_all(&self, share: f64) -> Duration {
        self.duration(|measured| measured.quantile_of_all(share))
    }

    fn duration(&self, of: impl Fn(&Measured) -> Duration) -> Duration {
        Duration::from_secs_f64(median(self.0.iter().map(|turn| of(turn).as_secs_f64())).max(0.0))
    }

    /// Microseconds of processor time the server used for each operation.
    pub fn server_micros(&self) -> f64 {
        median(self.0.iter().map(Measured::server_micros))
    }

    /// How much of a core the load itself used.
    pub fn load_cores(&self) -> f64 {
        median(self.0.iter().map(Measured::load_cores))
    }

    /// This rate divided by another, turn by turn: turns are next to each other, so the machine's moods cancel out.
    pub fn rate_over(&self, other: &Turns) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        median(pairs.map(|(own, other)| own.rate() / other.rate()))
    }
}
