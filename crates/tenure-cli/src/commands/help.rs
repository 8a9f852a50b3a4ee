//! `tenure help`: the help page of a command, or a topic.

use clap::CommandFactory;

use crate::args::Cli;
use crate::exit::{self, Exit};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};

/// Print help.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A command such as 'lease acquire', or one of the topics 'exit-codes' and 'json'
    topic: Vec<String>,
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let topic = match args.topic.as_slice() {
        [name] if name == "exit-codes" => Some(exit::TOPIC),
        [name] if name == "json" => Some(output::TOPIC),
        _ => None,
    };
    if let Some(text) = topic {
        output.plain(text);
        return Ok(Exit::OK);
    }
    let mut command = Cli::command();
    // Otherwise the usage line of a command would not name the commands above it.
    command.build();
    for name in &args.topic {
        command = command.find_subcommand(name).cloned().ok_or_else(|| {
            let topic = args.topic.join(" ");
            Failure::usage(format!("there is no command or topic {topic:?}")).hint("'tenure help' lists the commands")
        })?;
    }
    output.plain(&command.render_long_help().ansi().to_string());
    Ok(Exit::OK)
}
