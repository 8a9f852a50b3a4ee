//! The program `tenure`: the server, and everything a person or a script does with leases.

mod args;
mod commands;
mod connect;
mod exit;
mod failure;
mod grite;
mod logging;
mod output;
mod refused;
mod span;
mod supervise;
mod table;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// What one thread allocates and another frees, as requests and batches are, costs the system's allocator twice as much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match grite::parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error).into(),
    };
    cli.global.color.apply();
    let output = Output { json: cli.global.json };
    let exit = run(&cli, output).unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit
    });
    output.end(exit).into()
}

fn run(cli: &Cli, output: Output) -> Outcome {
    let quiet = !matches!(cli.command, Command::Serve(_));
    // What the TLS library has to say about a failed call, the call's own failure says.
    logging::start(cli.global.log_format, if quiet { "warn,rustls=off,rustls_platform_verifier=off" } else { "info" })?;
    match &cli.command {
        Command::Serve(args) => commands::serve::run(args, output),
        Command::Run(args) => block_on(commands::run::run(args, output)),
        Command::Task(args) => block_on(commands::task::run(args, output)),
        Command::Wf(args) => block_on(commands::wf::run(args, output)),
        Command::Workflow(args) => block_on(commands::workflow::run(args, output)),
        Command::Lease(args) => block_on(commands::lease::run(args, output)),
        Command::Lock(args) => commands::lock::run(args, output),
        Command::Actor(args) => commands::actor::run(args, output),
        Command::Hooks(args) => commands::hooks::run(args, output),
        Command::Issue(args) => commands::issue::run(args, output),
        Command::Key(args) => commands::key::run(args, output),
        Command::AnswerQuery => commands::answer_query::run(),
        Command::Backup(args) => block_on(commands::backup::run(args, output)),
        Command::Check(args) => commands::check::run(args, output),
        Command::Completions(args) => commands::completions::run(args, output),
        Command::Help(args) => commands::help::run(args, output),
    }
}

/// One thread is enough for one command.
fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::from(anyhow::Error::from(error)))?.block_on(command)
}

/// Help and version are no errors. With `--json` a wrong usage is an envelope, too: a script that reads an empty
/// output could take it for success.
fn wrong_usage(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        let _ = error.print();
        return Exit::OK;
    }
    let json = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if json {
        let text = error.to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
        let message = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let message = message.trim_start_matches("error: ");
        Output { json }.failure(&Failure::usage(message).hint("'tenure help' lists the commands"));
    } else {
        let _ = error.print();
    }
    Exit::USAGE
}
