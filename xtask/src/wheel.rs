//! Owns the Python package as a wheel: built by maturin from the venv of the tests, installed into that venv, and
//! proved by importing it there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{run, tools};

/// Builds the wheel and installs it beside the packages of the tests; gives back the wheel.
pub fn run() -> Result<PathBuf> {
    let python = tools::venv()?;
    let wheels = run::target().join("wheels");
    let mut build = Command::new(&python);
    build.args(["-m", "maturin", "build", "--release", "--quiet", "--interpreter"]).arg(&python);
    build.arg("--out").arg(&wheels).current_dir(run::root().join("crates/tenure-py"));
    run::step("build the wheel", &mut build)?;
    let wheel = newest(&wheels)?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps"]);
    run::step(&format!("install {}", wheel.display()), install.arg(&wheel))?;
    let mut import = Command::new(&python);
    run::step("import it", import.args(["-c", "import tenure; print('tenure', tenure.__version__)"]))?;
    Ok(wheel)
}

/// The wheel that was just written: others are from earlier versions.
fn newest(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let wheels =
        entries.filter_map(Result::ok).filter(|entry| entry.path().extension().is_some_and(|end| end == "whl"));
    let newest = wheels.max_by_key(|entry| entry.metadata().and_then(|about| about.modified()).ok());
    newest.map(|entry| entry.path()).context("maturin wrote no wheel")
}
