//! `tenure lock status | gc`.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::Timestamp;
use tenure_git::gc::Collected;
use tenure_git::status::{Listed, Status};

use super::door::Door;
use super::text::{left, visible};
use super::{StatusArgs, explain};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::output::Output;

/// How often `--watch` asks.
const WATCH: Duration = Duration::from_secs(2);
/// How much of an owner's id is enough to know it.
const OWNER_SHORT: usize = 8;

pub(super) fn status(door: &Door, args: &StatusArgs, output: Output) -> Outcome {
    let locks = door.locks_to_look()?;
    let mut last = None;
    loop {
        let status = locks.status().map_err(explain)?;
        for (reference, why) in &status.unreadable {
            output.note(&format!("Warning: {reference} is not a readable lock: {}", visible(why)));
        }
        let shown: Vec<(Listed, bool)> = entries(&status, args.all).map(|(lock, live)| (lock.clone(), live)).collect();
        if last.as_ref() != Some(&shown) {
            let data = listed_json(&status, args.all);
            match args.watch {
                true => output.line(&data, || table(&status, args.all)),
                false => door.result(output, &data, || table(&status, args.all)),
            }
        }
        if !args.watch {
            return Ok(Exit::OK);
        }
        last = Some(shown);
        std::thread::sleep(WATCH);
    }
}

/// What is listed: live ones, and with `all` also expired ones.
fn entries(status: &Status, all: bool) -> impl Iterator<Item = (&Listed, bool)> {
    let expired = if all { status.expired.as_slice() } else { &[] };
    status.live.iter().map(|lock| (lock, true)).chain(expired.iter().map(|lock| (lock, false)))
}

fn listed_json(status: &Status, all: bool) -> Value {
    let locks: Vec<Value> = entries(status, all).map(|(lock, live)| lock_json(lock, live, status.now)).collect();
    let conflict = |lock: &Listed| json!({ "resource": lock.name.as_str(), "owner": lock.owner, "expires_unix_ms": lock.expires_unix_ms });
    let unreadable = |(reference, why): &(String, String)| json!({ "ref": reference, "why": why });
    json!({
        "total": locks.len(),
        "locks": locks,
        "conflicts": status.conflicts.iter().map(conflict).collect::<Vec<_>>(),
        "unreadable": status.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
    })
}

fn lock_json(lock: &Listed, live: bool, now: Timestamp) -> Value {
    json!({
        "resource": lock.name.as_str(),
        "owner": lock.owner,
        "expires_unix_ms": lock.expires_unix_ms,
        "time_remaining_seconds": lock.expires_unix_ms.saturating_sub(now.unix_ms()) / 1_000,
        "expired": !live,
        "token": lock.token,
    })
}

fn table(status: &Status, all: bool) -> String {
    let now = status.now.unix_ms();
    let mut lines = Vec::new();
    match status.live.is_empty() {
        true => lines.push("No active locks".to_owned()),
        false => lines.push("Active Locks:".to_owned()),
    }
    let left = |lock: &Listed| format!("expires in {}", left(lock.expires_unix_ms.saturating_sub(now)));
    lines.extend(rows(&status.live, left));
    if all && !status.expired.is_empty() {
        lines.push("Expired Locks:".to_owned());
        let ago =
            |lock: &Listed| format!("expired {} ago", super::text::left(now.saturating_sub(lock.expires_unix_ms)));
        lines.extend(rows(&status.expired, ago));
    }
    if !status.conflicts.is_empty() {
        lines.push("In conflict with yours:".to_owned());
        lines.extend(rows(&status.conflicts, left));
    }
    lines.join("\n")
}

fn rows<'a>(locks: &'a [Listed], when: impl Fn(&Listed) -> String + 'a) -> impl Iterator<Item = String> + 'a {
    let width = locks.iter().map(|lock| visible(lock.name.as_str()).chars().count()).max().unwrap_or(0);
    locks.iter().map(move |lock| {
        let owner: String = visible(&lock.owner).chars().take(OWNER_SHORT).collect();
        format!("  {:width$} {owner}  {}", visible(lock.name.as_str()), when(lock))
    })
}

pub(super) fn gc(door: &Door, output: Output) -> Outcome {
    let collected = door.locks_to_look()?.gc().map_err(explain)?;
    let paths = |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let data = json!({
        "removed": collected.removed.len(),
        "kept": collected.kept(),
        "expired_pruned": collected.removed.len(),
        "removed_resources": collected.removed,
        "waiting": collected.waiting,
        "unreadable": collected.unreadable,
        "removed_lock_files": paths(&collected.healed),
        "busy_lock_files": paths(&collected.busy),
    });
    door.result(output, &data, || collected_text(&collected));
    Ok(Exit::OK)
}

fn collected_text(collected: &Collected) -> String {
    let mut lines = vec![format!("Removed {}", locks(collected.removed.len()))];
    lines.extend(collected.removed.iter().map(|resource| format!("  {}", visible(resource))));
    lines.push(format!("Kept {}", locks(collected.kept())));
    if collected.waiting > 0 {
        lines.push(format!("  {} released, kept until no older copy could come back to life", collected.waiting));
    }
    lines.extend(collected.unreadable.iter().map(|reference| format!("  {reference} is not a readable lock")));
    lines.extend(collected.healed.iter().map(|path| format!("Removed {}, left by a killed process", path.display())));
    lines.extend(collected.busy.iter().map(|path| format!("{} is younger than a minute, left alone", path.display())));
    lines.join("\n")
}

fn locks(count: usize) -> String {
    if count == 1 { "1 lock".to_owned() } else { format!("{count} locks") }
}
