//! Refs that are changed without a git process: as git would, or left to git.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tenure_git::LockName;

use crate::support::*;

/// The ref of `path:x`.
fn lock() -> String {
    LockName::parse("path:x").expect("a name").ref_name()
}

/// What a process leaves that is killed while it holds a ref's `.lock`.
fn killed_while_holding(git_dir: &Path, reference: &str) {
    fs::create_dir_all(git_dir.join("tenure")).expect("made");
    let linked = git_dir.join("tenure").join(format!("ref.{}", reference.replace('/', "%2f")));
    let lock = git_dir.join(format!("{reference}.lock"));
    fs::create_dir_all(lock.parent().expect("a folder")).expect("made");
    fs::write(&linked, "1b15da5d0a47610dcc01eaa082c6d33e470177ec\n").expect("written");
    fs::hard_link(&linked, &lock).expect("linked");
}

fn files_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

#[test]
fn what_a_killed_process_left_beside_a_ref_stops_nobody() {
    let world = World::on_path();
    let (a, b) = (world.alone("a"), world.alone("b"));
    a.acquire("path:x", MINUTE).expect("free");
    assert!(a.dir().join(".git").join(lock()).is_file(), "the name below is the lock's");
    for reference in [lock(), "refs/tenure/guard".to_owned()] {
        killed_while_holding(&a.dir().join(".git"), &reference);
    }
    a.release("path:x").expect("its own");
    b.acquire("path:x", MINUTE).expect("free");
    b.acquire("path:y", MINUTE).expect("free");
    assert_eq!(files_in(&a.dir().join(".git/tenure")), ["refs.lock"]);
}

#[test]
fn gc_removes_what_a_killed_process_left_beside_a_ref() {
    let world = World::on_path();
    let a = world.alone("a");
    a.acquire("path:y", MINUTE).expect("free");
    killed_while_holding(&a.dir().join(".git"), &lock());
    let collected = a.with(|locks| locks.gc()).expect("gc");
    assert_eq!(collected.healed, [a.repo.common_dir.join(format!("{}.lock", lock()))]);
    assert!(collected.busy.is_empty());
    assert_eq!(files_in(&a.dir().join(".git/tenure")), ["refs.lock"]);
}

#[test]
fn a_hook_and_a_log_that_git_keeps_see_every_change() {
    let world = World::on_path();
    let a = world.alone("a");
    let seen = a.dir().join("seen");
    let hook = a.dir().join(".git/hooks/reference-transaction");
    fs::create_dir_all(hook.parent().expect("a folder")).expect("made");
    fs::write(&hook, format!("#!/bin/sh\n[ $1 = committed ] && cat >>'{}'\nexit 0\n", seen.display()))
        .expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    a.acquire("path:x", MINUTE).expect("free");
    assert!(fs::read_to_string(&seen).expect("it ran").contains(&lock()));
    fs::remove_file(&hook).expect("removed");
    git(a.dir(), &["config", "core.logAllRefUpdates", "always"]);
    let a = world.alone("a");
    a.renew("path:x", MINUTE).expect("mine");
    assert_eq!(fs::read_to_string(a.dir().join(".git/logs").join(lock())).expect("logged").lines().count(), 1);
    git(a.dir(), &["config", "core.logAllRefUpdates", "false"]);
    // A log that is there is kept, whatever the setting.
    let a = world.alone("a");
    a.renew("path:x", MINUTE).expect("mine");
    assert_eq!(fs::read_to_string(a.dir().join(".git/logs").join(lock())).expect("logged").lines().count(), 2);
}

#[test]
fn a_ref_that_is_only_packed_is_compared_too() {
    let world = World::on_path();
    let (a, b) = (world.alone("a"), world.alone("b"));
    a.acquire("path:x", MINUTE).expect("free");
    git(a.dir(), &["pack-refs", "--all", "--prune"]);
    assert!(!a.dir().join(".git").join(lock()).exists());
    assert_eq!(refused_by(b.acquire("path:x", MINUTE)), "a");
    assert!(a.renew("path:x", MINUTE).expect("mine").token.is_some());
    assert!(a.dir().join(".git").join(lock()).is_file());
    assert!(a.release("path:x").expect("mine"));
    assert_eq!(b.acquire("path:x", MINUTE).expect("free").token, Some(2));
}

#[test]
fn a_lock_that_was_granted_before_a_kill_reached_the_guard_keeps_its_token_to_itself() {
    let world = World::on_path();
    let (a, b) = (world.alone("a"), world.alone("b"));
    a.acquire("path:x", MINUTE).expect("free");
    let guard = git(a.dir(), &["rev-parse", "refs/tenure/guard"]);
    let second = a.acquire("path:y", MINUTE).expect("free").token;
    git(a.dir(), &["update-ref", "refs/tenure/guard", &guard]);
    assert!(b.acquire("path:z", MINUTE).expect("free").token > second);
}
