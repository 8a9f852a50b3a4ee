//! `tenure lock`: locks that live in git. Owns the arguments of its commands; what they do is in the files beside.
//!
//! Both dialects are read: `--resource R --ttl 30m`, and `R --ttl 1800` as the program `grite` has it.

mod acquire;
mod check;
pub(crate) mod door;
mod refused;
mod run;
mod runs;
mod status;
mod text;

use std::ffi::OsString;
use std::time::Duration;

use tenure_core::Ttl;
use tenure_git::LockName;
use tenure_git::repo::parse_span_ms;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::span;

pub(crate) use check::{path_name, why_not};
pub(crate) use door::{Door, Where};
pub(crate) use refused::explain;
pub(crate) use text::visible;

/// Acquire, renew, release and look at locks that live in a git repository.
///
/// With a remote the remote's ref is the lock, and nothing is granted before the remote took it. Without one, this
/// repository's refs are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Where,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Take a lock; one that you hold already is renewed
    Acquire(AcquireArgs),
    /// Keep a lock that you hold
    Renew(RenewArgs),
    /// Give a lock back
    Release(Named),
    /// List the locks that are held
    Status(StatusArgs),
    /// Remove locks that are over
    Gc,
    /// Say whether files may be touched; the exit code tells
    Check(CheckArgs),
    /// Run a command while holding a lock
    Run(RunArgs),
}

/// The resource, in either dialect.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Named {
    /// What to lock: issue:<id>, path:<path>, repo:<name>, or any name
    #[arg(value_name = "RESOURCE")]
    positional: Option<String>,
    /// The same as a flag
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
}

impl Named {
    fn name(&self) -> Result<LockName, Failure> {
        let typed = self.resource.as_deref().or(self.positional.as_deref()).unwrap_or_default();
        LockName::parse(typed).map_err(explain)
    }
}

#[derive(Debug, clap::Args)]
struct AcquireArgs {
    #[command(flatten)]
    named: Named,
    /// How long it lasts: seconds, or 30s, 15m, 1h, 2h30m
    #[arg(long, default_value = "300", value_parser = ttl)]
    ttl: Ttl,
    /// Wait this long for it if it is held [default: do not wait]
    #[arg(long, value_parser = span::parse)]
    wait: Option<Duration>,
}

#[derive(Debug, clap::Args)]
struct RenewArgs {
    #[command(flatten)]
    named: Named,
    /// How long it lasts from now: seconds, or 30s, 15m, 1h, 2h30m
    #[arg(long, default_value = "300", value_parser = ttl)]
    ttl: Ttl,
}

#[derive(Debug, clap::Args)]
struct StatusArgs {
    /// Also those that ran out and were not removed yet
    #[arg(long)]
    all: bool,
    /// Print again whenever something changes, until interrupted
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Files or folders, or resources written kind:name
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// What to lock
    #[arg(long, value_name = "RESOURCE")]
    resource: String,
    /// How long the lock lasts without a renewal; it is renewed after half of it
    #[arg(long, default_value = "300", value_parser = ttl)]
    ttl: Ttl,
    /// Wait this long for it if it is held [default: do not wait]
    #[arg(long, value_parser = span::parse)]
    wait: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let door = Door::open(&args.place)?;
    match &args.command {
        Command::Acquire(args) => acquire::acquire(&door, args, output),
        Command::Renew(args) => acquire::renew(&door, args, output),
        Command::Release(named) => acquire::release(&door, named, output),
        Command::Status(args) => status::status(&door, args, output),
        Command::Gc => status::gc(&door, output),
        Command::Check(args) => check::check(&door, args, output),
        Command::Run(args) => run::run(&door, args, output),
    }
}

/// Integer seconds or a span with units, within the bounds of a lease.
fn ttl(text: &str) -> Result<Ttl, String> {
    let ms = parse_span_ms(text).ok_or("write seconds, or for example 30s, 15m, 1h or 2h30m")?;
    Ttl::from_ms(ms).map_err(|_| "a ttl is 1s to 30d".to_owned())
}
