//! Owns nothing but the call: what one decision costs is measured by an example of `tenure-core`.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::report::Section;

pub fn run() -> Result<Section> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "tenure-core", "--example", "apply_cost"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the example apply_cost failed");
    let text = String::from_utf8(output.stdout)?;
    let notes = vec![
        "The decision alone, in memory, by the example `apply_cost` of `tenure-core`.".to_owned(),
        format!("```text\n{}\n```", text.trim_end()),
    ];
    Ok(Section { title: "The ledger alone", notes, ..Section::default() })
}
