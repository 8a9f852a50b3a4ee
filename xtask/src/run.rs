//! Owns running other programs: what is run is said, how long it took is said, and a failure stops everything.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where everything that is built or installed for tests goes.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this, from the root of the workspace.
pub fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// Runs a step and says how long it took.
pub fn step(name: &str, command: &mut Command) -> Result<()> {
    println!("==> {name}");
    let started = Instant::now();
    let status = command.status().with_context(|| format!("{name}: cannot run {:?}", command.get_program()))?;
    let seconds = started.elapsed().as_secs_f32();
    if !status.success() {
        bail!("{name}: failed after {seconds:.0} s ({status})");
    }
    println!("==> {name}: {seconds:.0} s");
    Ok(())
}

/// Measures with the release build of everything.
pub fn bench(words: &[String]) -> Result<()> {
    step("build the server", &mut cargo(&["build", "--release", "--package", "tenure-cli"]))?;
    let mut command = cargo(&["run", "--release", "--quiet", "--package", "tenure-bench", "--"]);
    step("bench", command.args(words))
}
