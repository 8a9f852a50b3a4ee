//! Owns the borders that the compiler does not check: which crate may know what, and how large things get.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// A file longer than this has more than one subject.
const FILE_LINES_MAX: usize = 700;

/// What must not be named where (A1, A3): the folder, the words, and why.
const BORDERS: &[(&str, &[&str], &str)] = &[
    (
        "crates/tenure-core/src/",
        &["SystemTime::now", "Instant::now", "std::fs", "std::net", "std::env", "std::thread", "rand::", "tokio"],
        "the ledger reads no clock, file, socket, environment or randomness (A1)",
    ),
    (
        "crates/tenure-core/src/",
        &["duration_seconds", "responseTimeoutSeconds", "workerId", "agent_id", "expires_unix_ms"],
        "foreign words stay inside their door (A3)",
    ),
    ("crates/tenure-store/src/", &["tokio", "axum"], "the store is synchronous; the engine decides on threads"),
    ("crates/tenure-server/src/http/", &["Ledger::", "rusqlite"], "a door decides nothing and stores nothing"),
    ("crates/tenure-git/src/", &["reqwest", "tokio", "hyper"], "the git door needs no server and no HTTP"),
];

/// Where a foreign word is allowed all the same: templates ask for fields by the words that workflows are written with.
const WORDS_OF_TEMPLATES: &str = "crates/tenure-core/src/ledger/flow/scope.rs";

/// Checks the tree; says every finding, then fails if there was one.
pub fn run() -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(run::root()).output();
    let listed = String::from_utf8(listed.context("git ls-files")?.stdout)?;
    let mut findings = String::new();
    for file in listed.lines().filter(|file| run::root().join(file).is_file()) {
        let text = std::fs::read_to_string(run::root().join(file))?;
        borders(file, &text, &mut findings)?;
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX && !is_test(file) {
            writeln!(findings, "{file}: {lines} lines; the limit is {FILE_LINES_MAX}")?;
        }
    }
    codes(&listed, &mut findings)?;
    if !findings.is_empty() {
        bail!("tidy found something:\n{findings}");
    }
    println!("tidy: the borders hold");
    Ok(())
}

fn borders(file: &str, text: &str, findings: &mut String) -> Result<()> {
    for (folder, words, why) in BORDERS.iter().filter(|(folder, ..)| file.starts_with(folder)) {
        if file == WORDS_OF_TEMPLATES && why.contains("A3") {
            continue;
        }
        let code = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
        for (at, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in words.iter().filter(|word| line.contains(**word)) {
                writeln!(findings, "{file}:{}: {word} below {folder}: {why}", at + 1)?;
            }
        }
    }
    Ok(())
}

/// Every code with which a command of the program fails has its row in `docs/errors.md`.
fn codes(listed: &str, findings: &mut String) -> Result<()> {
    let page = std::fs::read_to_string(run::root().join("docs/errors.md"))?;
    for file in listed.lines().filter(|file| file.starts_with("crates/tenure-cli/src/")) {
        let text = std::fs::read_to_string(run::root().join(file))?;
        let places = text.split("Failure::new(").skip(1).chain(text.split("failure.code) = (").skip(1));
        for code in places.filter_map(code_in) {
            if !page.contains(&format!("| `{code}` |")) {
                writeln!(findings, "{file}: docs/errors.md lacks a row for `{code}`")?;
            }
        }
    }
    Ok(())
}

/// The code among the words behind a failure's exit code; none if it is not written there.
fn code_in(arguments: &str) -> Option<&str> {
    let second = arguments.split_once(',')?.1.trim_start();
    let code = second.strip_prefix('"')?.split_once('"')?.0;
    code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(code)
}

fn is_test(file: &str) -> bool {
    Path::new(file).components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "benches" | "examples")))
}
