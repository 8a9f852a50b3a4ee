//! `tenure lock check`: may these files be touched? For editors and the tool hooks of agents.

use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use tenure_core::resource::ResourceError;
use tenure_git::policy::{Touched, line, touched};
use tenure_git::status::Status;
use tenure_git::{Error, LockName, Repo};

use super::door::Door;
use super::{CheckArgs, explain, visible};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

pub(super) fn check(door: &Door, args: &CheckArgs, output: Output) -> Outcome {
    let names = args.paths.iter().map(|path| name_of(&door.repo, path)).collect::<Result<Vec<_>, _>>()?;
    let policy = door.repo.policy().map_err(explain)?;
    let me = door.looker()?.map(|(actor, _)| actor.id);
    let status = door.locks_to_look()?.status().map_err(explain)?;
    let looked = touched(&status, me.as_deref(), &names);
    // Asked for expressly, a lock of somebody else is a no under every policy.
    let is_fine = |touched: &Touched| touched.held_by.is_empty() && touched.is_fine(policy);
    let lines: Vec<String> =
        looked.iter().filter(|touched| !is_fine(touched)).flat_map(|t| why_not(t, &status)).collect();
    let rows: Vec<Value> = looked.iter().map(|touched| row(touched, is_fine(touched))).collect();
    let data = json!({ "policy": policy.as_str(), "checked": rows });
    if lines.is_empty() {
        door.result(output, &data, || format!("{} may be touched", if looked.len() == 1 { "It" } else { "All" }));
        return Ok(Exit::OK);
    }
    let failure = Failure::new(Exit::CONFLICT, "conflict", format!("conflict: {}", lines.join(", ")));
    Err(failure
        .human(format!("Error: {}", lines.join("\nError: ")))
        .detail("checked", rows)
        .detail("policy", policy.as_str()))
}

fn row(touched: &Touched, is_fine: bool) -> Value {
    let held = touched.held_by.iter().map(
        |lock| json!({ "resource": lock.name.as_str(), "owner": lock.owner, "expires_unix_ms": lock.expires_unix_ms }),
    );
    json!({
        "resource": touched.name.as_str(),
        "ok": is_fine,
        "covered_by": touched.covered_by.as_ref().map(|lock| lock.name.as_str()),
        "held_by": held.collect::<Vec<_>>(),
    })
}

/// Why something may not be touched, one line for each reason.
pub(crate) fn why_not(touched: &Touched, status: &Status) -> Vec<String> {
    let mut lines: Vec<String> = touched.held_by.iter().map(|lock| visible(&line(lock, status.now))).collect();
    if lines.is_empty() && touched.covered_by.is_none() {
        lines.push(format!("you hold no lock that covers {}", visible(touched.name.as_str())));
    }
    lines
}

/// A resource as typed, or a path from here as the repository names it.
fn name_of(repo: &Repo, typed: &str) -> Result<LockName, Failure> {
    if typed.split_once(':').is_some_and(|(kind, _)| is_kind(kind)) {
        return LockName::parse(typed).map_err(explain);
    }
    let top = repo.git.done(&["rev-parse", "--show-toplevel"], b"").map_err(explain)?;
    let top = PathBuf::from(top.text().trim_end_matches('\n'));
    let whole = plain(&repo.git.dir().join(typed));
    let inside = whole.strip_prefix(&top).map(Path::to_owned).or_else(|_| {
        // The same place by another way, for example through a symbolic link above the repository.
        let parent = whole.parent().and_then(|parent| parent.canonicalize().ok()).unwrap_or_default();
        parent.join(whole.file_name().unwrap_or_default()).strip_prefix(&top).map(Path::to_owned)
    });
    let inside = inside.map_err(|_| Failure::from(Error::BadInput(format!("{typed:?} is not in this repository"))))?;
    Ok(path_name(&inside.to_string_lossy()))
}

/// What may stand before the colon of a resource (R1); `./a:b` is a file.
fn is_kind(text: &str) -> bool {
    !matches!(LockName::parse(&format!("{text}:x")), Err(Error::BadName { why: ResourceError::BadKind, .. }))
}

/// The lock name of a path in the repository. One that cannot be locked itself is covered through its folder.
pub(crate) fn path_name(path: &str) -> LockName {
    let mut path = path;
    loop {
        let typed = if path.is_empty() { "path:**".to_owned() } else { format!("path:{path}") };
        match LockName::parse(&typed) {
            Ok(name) => return name,
            Err(_) if path.is_empty() => return LockName::found("path:**"),
            Err(_) => path = path.rsplit_once('/').map_or("", |(folder, _)| folder),
        }
    }
}

/// Without `.` and `..`, by name alone: the file need not exist.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}
