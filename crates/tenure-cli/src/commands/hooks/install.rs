//! Owns putting hooks in place beside those that are there, and taking them away again.
//!
//! A hook that was there keeps its name and goes into a folder beside the hooks folder, among links to everything else
//! in there. So it finds what it looks for by its own name, in its own folder and above it: dispatchers do all three.
//!
//! ```text
//! .husky/_/pre-commit                   ours
//! .husky/_/h
//! .husky/_.before-tenure/pre-commit     the one that was there
//! .husky/_.before-tenure/h              -> ../_/h
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::lock::{Door, explain};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

const ALL: [&str; 4] = ["pre-commit", "pre-merge-commit", "pre-push", "pre-receive"];
/// Tells our hooks from others.
const MARK: &str = "# tenure hooks: written by 'tenure hooks install'";
/// Ends the name of the folder for hooks that were there before; earlier versions gave it to the hook itself.
const BEFORE: &str = "before-tenure";

pub(super) fn install(door: &Door, hooks: &[&str], output: Output) -> Result<(), Failure> {
    let folder = hooks_folder(door)?;
    fs::create_dir_all(&folder).map_err(anyhow::Error::from)?;
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    for hook in hooks {
        keep(&folder, hook)?;
        let file = folder.join(hook);
        fs::write(&file, script(hook, &program)).map_err(anyhow::Error::from)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).map_err(anyhow::Error::from)?;
    }
    if before(&folder).is_dir() {
        link_neighbours(&folder).map_err(anyhow::Error::from)?;
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
        if let Some(kept) = [before(&folder).join(hook), kept_by_name(&folder, hook)].iter().find(|kept| exists(kept)) {
            fs::rename(kept, &file).map_err(anyhow::Error::from)?;
        }
        removed.push(hook);
    }
    clear(&before(&folder)).map_err(anyhow::Error::from)?;
    door.result(output, &json!({ "removed": removed }), || match removed.is_empty() {
        true => "No hooks of tenure here".to_owned(),
        false => format!("Hooks removed: {}", removed.join(", ")),
    });
    Ok(Exit::OK)
}

/// Where hooks that were there before are: beside the hooks folder, so that links and paths from there stay true.
fn before(folder: &Path) -> PathBuf {
    beside(folder, BEFORE)
}

/// Where an earlier version kept a hook.
fn kept_by_name(folder: &Path, hook: &str) -> PathBuf {
    beside(&folder.join(hook), BEFORE)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// Moves a hook of somebody else out of the way, be it a file or a link, even one that leads nowhere.
fn keep(folder: &Path, hook: &str) -> Result<(), Failure> {
    let (file, kept) = (folder.join(hook), before(folder).join(hook));
    let found = match is_ours(&file) {
        true => kept_by_name(folder, hook),
        false => file,
    };
    if !exists(&found) {
        return Ok(());
    }
    if exists(&kept) && !is_same(&found, &kept) {
        let message = format!("{} is in the way: chain it into {hook} by hand", kept.display());
        return Err(Failure::usage(message));
    }
    fs::create_dir_all(before(folder)).map_err(anyhow::Error::from)?;
    fs::rename(&found, &kept).map_err(anyhow::Error::from)?;
    Ok(())
}

/// Makes what lies beside our hooks reachable from where the earlier hooks are.
fn link_neighbours(folder: &Path) -> io::Result<()> {
    let there = before(folder);
    // The folder may be in the work tree.
    fs::write(there.join(".gitignore"), "*\n")?;
    let home = Path::new("..").join(folder.file_name().unwrap_or_default());
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let link = there.join(&name);
        if !exists(&link) && ALL.iter().all(|hook| name != *hook) {
            symlink(home.join(&name), link)?;
        }
    }
    Ok(())
}

/// Removes the links and the folder; a hook that could not go back stays.
fn clear(there: &Path) -> io::Result<()> {
    if !there.is_dir() || ALL.iter().any(|hook| exists(&there.join(hook))) {
        return Ok(());
    }
    fs::remove_dir_all(there)
}

/// Where git looks for hooks. A folder outside of the repository serves other repositories, too: not ours to fill.
fn hooks_folder(door: &Door) -> Result<PathBuf, Failure> {
    let asked = ["rev-parse", "--path-format=absolute", "--git-path", "hooks"];
    let folder = PathBuf::from(door.repo.git.done(&asked, b"").map_err(explain)?.text().trim_end_matches('\n'));
    let top = door.repo.git.run(&["rev-parse", "--show-toplevel"], b"").map_err(explain)?.text();
    let top = Path::new(top.trim_end_matches('\n'));
    let below = |root: &Path| !root.as_os_str().is_empty() && folder != root && folder.starts_with(root);
    if below(&door.repo.common_dir) || below(top) {
        return Ok(folder);
    }
    let message = format!("core.hooksPath is {}, which is not a folder inside this repository", folder.display());
    let hint = "call 'tenure hooks run NAME -- \"$@\"' from your own pre-commit, pre-merge-commit and pre-push hooks";
    Err(Failure::usage(message).hint(hint))
}

/// A link is somebody else's, wherever it leads.
fn is_ours(file: &Path) -> bool {
    !file.is_symlink() && fs::read_to_string(file).is_ok_and(|text| text.contains(MARK))
}

/// Whether there is something of that name, be it a link that leads nowhere.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A tool that writes its hook anew, over ours, does not make two of it.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((fs::read(one), fs::read(other)), (Ok(one), Ok(other)) if one == other)
}

/// The earlier hook runs first and its no stands. What git says on standard input is for both. The folder is found without
/// links, as git names it to the installation.
fn script(hook: &str, program: &Path) -> String {
    let program = program.display().to_string().replace('\'', r"'\''");
    format!(
        r#"#!/bin/sh
{MARK}
input=
case {hook} in pre-push|pre-receive) input=$(cat) ;; esac
said() {{ [ -z "$input" ] || printf '%s\n' "$input"; }}
here=$(CDPATH= cd -- "$(dirname "$0")" && pwd -P) || exit 1
before="$here.{BEFORE}/{hook}"
if [ -x "$before" ]; then
    said | "$before" "$@" || exit $?
fi
said | '{program}' hooks run {hook} -- "$@"
"#
    )
}
