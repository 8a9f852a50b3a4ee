//! `tenure hooks`: the lock policy where work happens, as hooks of git. Owns the arguments; what the hooks do is in
//! the files beside.

mod install;
mod pushed;
mod serve;

use tenure_git::policy::Policy;

use super::lock::{Door, Where, explain};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// The hooks of a clone.
const CLONE: [&str; 3] = ["pre-commit", "pre-merge-commit", "pre-push"];

/// Enforce the lock policy when somebody commits or pushes.
///
/// The policy is lock_policy in grite/config.toml of the git directory: off, warn (say who holds what you touch) or
/// require (only touch what you hold).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Where,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Install pre-commit, pre-merge-commit and pre-push hooks in this clone; hooks that are there still run first
    Install {
        /// Also set the policy
        #[arg(long, value_parser = policy)]
        policy: Option<Policy>,
    },
    /// Install a pre-receive hook in a repository that others push to
    Server {
        /// Also set the policy
        #[arg(long, value_parser = policy)]
        policy: Option<Policy>,
    },
    /// Remove the hooks and put back what was there before
    Uninstall,
    /// What the installed hooks call
    #[command(hide = true)]
    Run {
        /// Which hook
        hook: String,
        /// What git gives it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text).ok_or_else(|| "write off, warn or require".to_owned())
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let door = Door::open(&args.place)?;
    match &args.command {
        Command::Install { policy } => put(&door, &CLONE, *policy, output),
        Command::Server { policy } => put(&door, &["pre-receive"], *policy, output),
        Command::Uninstall => install::uninstall(&door, output),
        Command::Run { hook, arguments } => match hook.as_str() {
            "pre-commit" => serve::pre_commit(&door, output),
            "pre-merge-commit" => serve::pre_merge_commit(&door, output),
            // Without what git gives it: the remote that git pushes to by itself.
            "pre-push" => serve::pre_push(&door, arguments.first().map_or("origin", String::as_str), output),
            "pre-receive" => serve::pre_receive(&door, output),
            other => Err(Failure::usage(format!("there is no hook {other:?}"))),
        },
    }
}

fn put(door: &Door, hooks: &[&str], policy: Option<Policy>, output: Output) -> Outcome {
    if let Some(policy) = policy {
        door.repo.set_policy(policy).map_err(explain)?;
    }
    install::install(door, hooks, output)?;
    Ok(Exit::OK)
}
