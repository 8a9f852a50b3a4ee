//! Owns the order of proof: borders first, then rules and rust tests, then the clients nobody here wrote.

use std::path::Path;

use anyhow::Result;

use crate::{run, tidy, tools, wheel};

/// Runs everything, or the named parts; words that name no part filter the rust tests.
pub fn run(words: &[String]) -> Result<()> {
    let asks_for = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let filters: Vec<&String> =
        words.iter().filter(|word| !matches!(word.as_str(), "rust" | "python" | "tidy")).collect();
    if asks_for("tidy") {
        tidy::run()?;
    }
    if asks_for("rust") || !filters.is_empty() {
        rust(&filters)?;
    }
    if asks_for("python") {
        python()?;
    }
    Ok(())
}

fn rust(filters: &[&String]) -> Result<()> {
    tools::debian(&[("git", "git"), ("jq", "jq"), ("curl", "curl")])?;
    let grite = tools::grite()?;
    let mut tests = run::cargo(&["test", "--workspace"]);
    tests.env("TENURE_TEST_GRITE", grite).args(filters);
    if let Some(seeds) = seeds() {
        tests.env("TENURE_SEEDS", seeds);
    }
    run::step("rust tests", &mut tests)
}

/// The documents whose every statement must be true, where they lie beside the checkout.
fn seeds() -> Option<std::path::PathBuf> {
    let given = std::env::var_os("TENURE_SEEDS").map(std::path::PathBuf::from);
    given.or_else(|| run::root().parent().map(|beside| beside.join("shared/seeds"))).filter(|dir| dir.is_dir())
}

/// The real clients from the package index, over real sockets, against the release build of the server.
fn python() -> Result<()> {
    let folder = run::root().join("tests");
    if !folder.join("requirements.txt").is_file() {
        return Ok(());
    }
    // Node for the JavaScript client, whose packages are pinned beside its test; a certificate for the README's commands.
    tools::debian(&[("node", "nodejs"), ("npm", "npm"), ("openssl", "openssl")])?;
    let python = tools::venv()?;
    let wheel = wheel::run()?;
    run::step("build the server", &mut run::cargo(&["build", "--release", "--package", "tenure-cli"]))?;
    let mut pytest = std::process::Command::new(python);
    pytest.args(["-m", "pytest", "-q"]).arg(&folder).current_dir(run::root());
    pytest
        .env("TENURE_BIN", run::target().join("release/tenure"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TENURE_WHEEL", wheel);
    if let Some(seeds) = seeds() {
        pytest.env("TENURE_SEEDS", seeds);
    }
    run::step("real clients", pytest.arg("-p").arg("no:cacheprovider").arg(rootdir(&folder)))
}

fn rootdir(folder: &Path) -> String {
    format!("--rootdir={}", folder.display())
}
