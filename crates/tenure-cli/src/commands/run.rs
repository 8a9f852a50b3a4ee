//! `tenure run`: hold, heartbeat, run; stop everything that runs under the lease before the lease can run out.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use tenure::{Acquire, Client, Error, Lease, Refusal};
use tokio::process::Command;

use crate::connect::{self, Connect};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::supervise::{self, KILL_RESERVE, Loss};
use crate::{refused, span};

/// How long the server is looked for before the command starts, beside the wait.
const PATIENCE: Duration = Duration::from_secs(2);
/// TERM comes this part of the trusted time before its end, if `--kill-after` does not ask for less: most of it stays
/// for renewals that are tried again.
const STOP_DIVISOR: u32 = 4;
/// Before TERM the server is asked once more, for this part of the time that is left to stop: it may just be back.
const LAST_TRY_DIVISOR: u32 = 4;

/// Run a command while holding a lease.
///
/// The command runs in a process group of its own, with TENURE_LEASE_ID, TENURE_TOKEN and TENURE_RESOURCES in its
/// environment. When no renewal is accepted in time, it and everything that it started gets TERM and then KILL before the
/// lease can have run out. When an administrator takes the lease away, they get TERM at the next renewal, a third of the
/// ttl later at most; --grace keeps others out meanwhile. Stopped with Ctrl-Z, everything stands still and nothing is
/// renewed; continued after the lease has run out, it is ended. Exits with the command's own code; see 'tenure help
/// exit-codes'.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// What to hold, written kind:name; may be repeated: all or none
    #[arg(long = "resource", required = true, value_name = "RESOURCE")]
    resources: Vec<String>,
    /// How long the lease lasts without a renewal; it is renewed three times as often
    #[arg(long, default_value = "30s", value_parser = span::parse)]
    ttl: Duration,
    /// Wait in line this long if it is held [default: do not wait]
    #[arg(long, value_parser = span::parse)]
    wait: Option<Duration>,
    /// Together with other shared leases, but with no exclusive one
    #[arg(long)]
    shared: bool,
    /// Keep it closed this long for others if this run is lost or the lease is taken away
    #[arg(long, value_parser = span::parse)]
    grace: Option<Duration>,
    /// How long the command may take to stop after TERM; less if the lease leaves less
    #[arg(long, default_value = "10s", value_parser = span::parse, value_name = "DURATION")]
    kill_after: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    let client = args.connect.client(connect::this_process(), PATIENCE)?;
    let mut request = Acquire::all(&args.resources).ttl(args.ttl);
    request = if args.shared { request.shared() } else { request };
    request = args.wait.into_iter().fold(request, Acquire::wait);
    request = args.grace.into_iter().fold(request, Acquire::grace);
    let lease = client.acquire(request).await.map_err(|error| refused::explain(&error))?;

    let outcome = supervise::supervise(command(args, &lease), losing(&client, &lease, args.kill_after)).await;
    match outcome {
        Ok(supervise::Outcome::Lost) => Err(lost(lease, &args.command).await),
        Ok(finished) => release(lease, Exit(finished.exit_code()), output).await,
        Err(error) => {
            let failure = supervise::cannot_run(&args.command, &error);
            release(lease, failure.exit, output).await?;
            Err(failure)
        }
    }
}

fn command(args: &Args, lease: &Lease) -> Command {
    let mut words = args.command.iter();
    let mut command = Command::new(words.next().map_or_else(OsString::new, Clone::clone));
    let resources: Vec<String> = lease.resources().iter().map(ToString::to_string).collect();
    command
        .args(words)
        .env("TENURE_LEASE_ID", lease.id().to_string())
        .env("TENURE_TOKEN", lease.token().to_string())
        .env("TENURE_RESOURCES", resources.join("\n"));
    command
}

/// Resolves when the command has to stop: when the lease is lost, or early enough before trust ends that the command
/// gets its time to stop.
async fn losing(client: &Client, lease: &Lease, kill_after: Duration) -> Loss {
    let lost = lease.lost();
    tokio::pin!(lost);
    let wanted = kill_after.saturating_add(KILL_RESERVE);
    let lead = || wanted.min(lease.info().ttl() / STOP_DIVISOR);
    loop {
        let left = lease.trusted_for().saturating_sub(lead());
        tokio::select! {
            _ = &mut lost => break,
            () = tokio::time::sleep(left) => {}
        }
        if lease.trusted_for() <= lead() {
            // The heartbeat has had no answer, and tries again in steps that grow. What is renewed here is trusted again.
            let last_try = client.renew(lease.id(), None);
            let _ = tokio::time::timeout(lead() / LAST_TRY_DIVISOR, last_try).await;
            if lease.trusted_for() <= lead() {
                break;
            }
        }
    }
    Loss { deadline: Instant::now() + lease.stop_within().min(wanted) }
}

async fn lost(lease: Lease, command: &[OsString]) -> Failure {
    let name = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let why = lease.loss().map_or_else(|| "no renewal was accepted in time".to_owned(), ToString::to_string);
    let message = format!("lost {}, {name} was stopped: {why}", lease.id());
    let failure = Failure::new(Exit::LOST, "lost", message).detail("lease_id", lease.id().to_string());
    // It may still be ours; then the next in line need not wait for the ttl. Only a try: the server may be gone.
    let _ = tokio::time::timeout(PATIENCE, lease.release()).await;
    failure
}

/// Gives the lease back and exits with the command's code, unless the lease turns out to have been lost before.
async fn release(lease: Lease, exit: Exit, output: Output) -> Outcome {
    let id = lease.id();
    match lease.release().await {
        Ok(()) => Ok(exit),
        Err(Error::Refused(refused)) if matches!(refused.why, Refusal::Lost(_)) && exit == Exit::OK => {
            let message = format!("{id} had ended before the command did: {refused}");
            Err(Failure::new(Exit::LOST, "lost", message).detail("lease_id", id.to_string()))
        }
        Err(error) => {
            output.note(&format!("Warning: {id} could not be given back and ends after its ttl: {error}"));
            Ok(exit)
        }
    }
}
