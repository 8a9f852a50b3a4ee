//! Owns putting hooks in place beside those that are there, and taking them away again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::lock::{Door, explain};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

const ALL: [&str; 3] = ["pre-commit", "pre-push", "pre-receive"];
/// Tells our hooks from others.
const MARK: &str = "# tenure hooks: written by 'tenure hooks install'";
/// Where a hook that was there before goes.
const CHAINED: &str = "before-tenure";

pub(super) fn install(door: &Door, hooks: &[&str], output: Output) -> Result<(), Failure> {
    let folder = hooks_folder(door)?;
    fs::create_dir_all(&folder).map_err(anyhow::Error::from)?;
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    for hook in hooks {
        let file = folder.join(hook);
        let chained = folder.join(format!("{hook}.{CHAINED}"));
        if file.exists() && !is_ours(&file) {
            if chained.exists() {
                return Err(Failure::usage(format!(
                    "{} is in the way: chain it into {hook} by hand",
                    chained.display()
                )));
            }
            fs::rename(&file, &chained).map_err(anyhow::Error::from)?;
        }
        fs::write(&file, script(hook, &program)).map_err(anyhow::Error::from)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).map_err(anyhow::Error::from)?;
    }
    let policy = door.repo.policy().map_err(explain)?.as_str();
    let data = json!({ "hooks": hooks, "folder": folder.display().to_string(), "policy": policy });
    door.result(output, &data, || format!("Hooks installed: {}\n  Policy: {policy}", hooks.join(", ")));
    Ok(())
}

pub(super) fn uninstall(door: &Door, output: Output) -> Outcome {
    let folder = hooks_folder(door)?;
    let mut removed = Vec::new();
    for hook in ALL {
        let file = folder.join(hook);
        if !is_ours(&file) {
            continue;
        }
        fs::remove_file(&file).map_err(anyhow::Error::from)?;
        let chained = folder.join(format!("{hook}.{CHAINED}"));
        if chained.exists() {
            fs::rename(&chained, &file).map_err(anyhow::Error::from)?;
        }
        removed.push(hook);
    }
    door.result(output, &json!({ "removed": removed }), || match removed.is_empty() {
        true => "No hooks of tenure here".to_owned(),
        false => format!("Hooks removed: {}", removed.join(", ")),
    });
    Ok(Exit::OK)
}

/// Where git looks for hooks. A folder outside of the repository serves other repositories, too: not ours to fill.
fn hooks_folder(door: &Door) -> Result<PathBuf, Failure> {
    let asked = ["rev-parse", "--path-format=absolute", "--git-path", "hooks"];
    let folder = PathBuf::from(door.repo.git.done(&asked, b"").map_err(explain)?.text().trim_end_matches('\n'));
    let top = door.repo.git.run(&["rev-parse", "--show-toplevel"], b"").map_err(explain)?.text();
    let top = Path::new(top.trim_end_matches('\n'));
    let inside = folder.starts_with(&door.repo.common_dir) || (!top.as_os_str().is_empty() && folder.starts_with(top));
    if inside {
        return Ok(folder);
    }
    let message = format!("core.hooksPath is {}, which is outside of this repository", folder.display());
    Err(Failure::usage(message)
        .hint("call 'tenure hooks run pre-commit' and 'tenure hooks run pre-push' from your own hooks"))
}

fn is_ours(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains(MARK))
}

/// The earlier hook runs first and its no stands. What git says on standard input is for both.
fn script(hook: &str, program: &Path) -> String {
    let program = program.display().to_string().replace('\'', r"'\''");
    format!(
        r#"#!/bin/sh
{MARK}
input=
case {hook} in pre-push|pre-receive) input=$(cat) ;; esac
before="$0.{CHAINED}"
if [ -x "$before" ]; then
    printf '%s\n' "$input" | "$before" "$@" || exit $?
fi
printf '%s\n' "$input" | '{program}' hooks run {hook} -- "$@"
"#
    )
}
