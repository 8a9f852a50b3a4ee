//! The project's own commands: `cargo xtask test`, `cargo xtask bench`, `cargo xtask tidy`.
//!
//! Owns what a fresh machine needs beside Rust, git and Python, and the order in which things are proved.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people at a terminal")]

mod run;
mod tests;
mod tidy;
mod tools;
mod wheel;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test [rust|python|tidy|FILTER…]   install what the tests need and run them (all, or the named parts)
cargo xtask bench [WHAT…]                     measure; `cargo xtask bench help` lists the parts
cargo xtask tidy                              check the borders between the crates and the shape of the code
cargo xtask wheel                             build the Python package and install it where the Python tests run";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    let outcome = match command.as_str() {
        "test" => tests::run(&rest),
        "bench" => run::bench(&rest),
        "tidy" => tidy::run(),
        "wheel" => wheel::run().map(drop),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why:#}");
            ExitCode::FAILURE
        }
    }
}
