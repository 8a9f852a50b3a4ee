//! Owns what tests need from outside: Debian packages, Python packages in a venv under `target/`, tools built by cargo.
//!
//! Everything is pinned or a stable Debian package, installed once and found again. Never relies on what happens to be
//! there, except that a program that is already on the PATH is not installed a second time.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// The tool whose locks Tenure must share a repository with.
const GRITE: &str = "0.5.3";

/// Installs the Debian packages of the programs that are missing.
pub fn debian(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !is_on_path(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn install(packages: &[&str]) -> Result<()> {
    run::step("apt-get update", Command::new("apt-get").args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "-y", "-qq"]).args(packages);
    run::step(&format!("install {}", packages.join(", ")), &mut install)
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A venv with the pinned Python packages of the tests; gives back its interpreter. Made anew when the list changes.
pub fn venv() -> Result<PathBuf> {
    let requirements = run::root().join("tests/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).context("tests/requirements.txt")?;
    let venv = run::target().join("venv");
    let python = venv.join("bin/python");
    let stamp = venv.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|has| has == wanted) && python.is_file() {
        return Ok(python);
    }
    if Command::new("python3").args(["-c", "import ensurepip"]).output().map_or(true, |out| !out.status.success()) {
        install(&["python3-venv"])?;
    }
    run::step("make the venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&requirements);
    run::step("install the Python packages of the tests", &mut pip)?;
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}

/// The real grite, built once by cargo and kept outside the checkout: it takes minutes.
pub fn grite() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let tool = cache.join("tenure-test-tools").join(format!("grite-{GRITE}"));
    let program = tool.join("bin/grite");
    if !program.is_file() {
        let version = format!("={GRITE}");
        let mut install = run::cargo(&["install", "grite", "--locked", "--quiet", "--version", &version, "--root"]);
        // Out of the workspace: its settings are not that tool's.
        install.arg(&tool).current_dir(Path::new("/")).env_remove("CARGO_TARGET_DIR");
        run::step(&format!("build grite {GRITE} (once; takes minutes)"), &mut install)?;
    }
    Ok(program)
}
