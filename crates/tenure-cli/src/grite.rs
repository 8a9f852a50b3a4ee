//! Owns the second name of the program: called as `grite` (a link), it is that command line and nothing else, with the
//! flags of every command also in front of the command.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::args::Cli;

/// The commands that this name has.
const COMMANDS: [&str; 4] = ["lock", "actor", "hooks", "issue"];
/// Flags of every command, and whether a value follows.
const FLAGS: [(&str, bool); 7] = [
    ("--actor", true),
    ("--data-dir", true),
    ("--remote", true),
    ("--local", false),
    ("--quiet", false),
    ("-q", false),
    ("--no-daemon", false),
];

/// Reads the command line, under either name.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().map(|word| Path::new(word).file_name().unwrap_or(word).to_owned());
    if called.as_deref() != Some(OsStr::new("grite")) {
        return Cli::from_arg_matches(&Cli::command().try_get_matches_from(words)?);
    }
    let command = Cli::command().name("grite").bin_name("grite");
    let mut command = command.mut_subcommands(|sub| {
        let known = COMMANDS.contains(&sub.get_name());
        sub.hide(!known)
    });
    let matches = command.try_get_matches_from_mut(flags_behind(words))?;
    match matches.subcommand_name() {
        Some(name) if !COMMANDS.contains(&name) => {
            Err(command.error(ErrorKind::InvalidSubcommand, format!("unrecognized subcommand '{name}'")))
        }
        _ => Cli::from_arg_matches(&matches),
    }
}

/// Moves the flags in front of the command behind its name: that is where this program knows them.
fn flags_behind(words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut first: Vec<OsString> = words.next().into_iter().collect();
    let mut flags = Vec::new();
    let mut rest: Vec<OsString> = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let flag = FLAGS.iter().find(|(name, _)| text == *name || text.starts_with(&format!("{name}=")));
        match flag {
            Some((name, valued)) => {
                flags.push(word);
                if *valued && text == *name {
                    flags.extend(words.next());
                }
            }
            None if text.starts_with('-') => first.push(word),
            None => {
                rest.push(word);
                break;
            }
        }
    }
    first.extend(rest);
    first.extend(flags);
    first.extend(words);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_front_of_a_command_go_behind_its_name() {
        let moved = |line: &str| {
            let words = flags_behind(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(moved("grite --actor a --json --local lock status"), "grite --json lock --actor a --local status");
        assert_eq!(moved("grite --actor=a lock run -- x --local"), "grite lock --actor=a run -- x --local");
        assert_eq!(moved("grite lock acquire --actor a"), "grite lock acquire --actor a");
        assert_eq!(moved("grite -q lock status"), "grite lock -q status");
        assert_eq!(moved("grite -V"), "grite -V");
    }
}
