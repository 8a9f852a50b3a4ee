//! `tenure completions`: a script that a shell reads.

use clap::CommandFactory;

use crate::args::Cli;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::output::Output;

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut script);
    output.plain(&String::from_utf8_lossy(&script));
    Ok(Exit::OK)
}
