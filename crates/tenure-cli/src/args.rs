//! Owns the command line: what can be typed, and what it is called. What it does is in `commands`.

use clap::{Parser, Subcommand};

use crate::commands::{
    actor, backup, check, completions, help, hooks, issue, key, lease, lock, run, serve, task, wf, workflow,
};
use crate::logging::LogFormat;
use crate::output::Color;

/// Who holds what, until when, and what happens when they stop answering.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, disable_help_subcommand = true, arg_required_else_help = true)]
#[command(
    after_help = "'tenure help exit-codes' lists what every command exits with, 'tenure help json' what --json prints."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Print one JSON envelope on standard output, also for errors
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Color,

    /// How to write log lines, which go to standard error; TENURE_LOG is their filter
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, env = "TENURE_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(serve::Args),
    /// Run a command while holding a lease
    Run(run::Args),
    /// Acquire, renew, release and look at leases of a server
    Lease(lease::Args),
    /// Acquire, renew, release and look at locks that live in a git repository
    Lock(lock::Args),
    /// Make and choose the names under which agents hold locks in a clone
    Actor(actor::Args),
    /// Enforce the lock policy when somebody commits or pushes
    Hooks(hooks::Args),
    /// Make, list and work on issues that live in a git repository
    Issue(issue::Args),
    /// Look at tasks that workers poll: who runs what, for how long
    Task(task::Args),
    /// Start, list, look at and terminate runs of registered workflows
    Wf(wf::Args),
    /// Check, run and look at workflow files
    Workflow(workflow::Args),
    /// Make API keys for a server that can be reached from elsewhere
    Key(key::Args),
    /// Write everything a server has into one file
    Backup(backup::Args),
    /// Check a data directory that no server uses, or a backup file
    Check(check::Args),
    /// Answer one query of a workflow; the server starts this by itself
    #[command(hide = true)]
    AnswerQuery,
    /// Print completions for a shell
    Completions(completions::Args),
    /// Print help for a command, or one of the topics: exit-codes, json
    Help(help::Args),
}
