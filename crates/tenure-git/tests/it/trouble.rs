//! Remotes that are slow, half there, full of old locks, or of an unusual kind.

use std::path::Path;
use std::time::{Duration, Instant};

use tenure_git::{Ask, Error, LockName};

use crate::support::*;

/// A hook of the remote.
fn hook(world: &World, name: &str, script: &str) {
    let file = world.remote().join("hooks").join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
}

/// How a repository's ref stands.
fn at(dir: &Path, resource: &str) -> String {
    git(dir, &["rev-parse", &LockName::parse(resource).expect("a name").ref_name()])
}

/// A lock on the remote that came without the guard, so that the next grant has to look again.
fn pushed_by_another_program(world: &World) {
    let b = world.clone_for("b");
    Agent { mode: tenure_git::Mode::Local, ..b.clone() }.acquire("path:elsewhere", MINUTE).expect("free");
    git(b.dir(), &["push", "-q", "origin", "refs/grite/locks/*:refs/grite/locks/*"]);
}

#[test]
fn a_grant_that_cannot_be_confirmed_is_given_back() {
    let world = World::on_path();
    let a = world.clone_for("a");
    a.acquire("path:warm", MINUTE).expect("free");
    pushed_by_another_program(&world);
    git(a.dir(), &["config", "remote.origin.uploadpack", "false"]);
    let a = world.agent_in(a.dir(), "a");
    match a.acquire("path:x", MINUTE) {
        Err(Error::RemoteUnavailable { unknown, .. }) => assert!(!unknown),
        other => panic!("{other:?}"),
    }
    world.clone_for("c").acquire("path:x", MINUTE).expect("given back");
}

#[test]
fn a_grant_that_can_neither_be_confirmed_nor_given_back_is_told_as_unknown() {
    let world = World::on_path();
    let a = world.clone_for("a");
    a.acquire("path:warm", MINUTE).expect("free");
    pushed_by_another_program(&world);
    git(a.dir(), &["config", "remote.origin.uploadpack", "false"]);
    hook(&world, "pre-receive", "test ! -e taken");
    hook(&world, "post-receive", "touch taken");
    let a = world.agent_in(a.dir(), "a");
    match a.acquire("path:x", MINUTE) {
        Err(Error::RemoteUnavailable { unknown, .. }) => assert!(unknown),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_remote_that_never_answers_in_time_is_no_lost_race() {
    let world = World::on_path();
    let a = world.clone_for("a");
    a.acquire("path:warm", MINUTE).expect("free");
    hook(&world, "pre-receive", "echo try >>tries; exec sleep 5");
    git(a.dir(), &["config", "tenure.timeout", "1s"]);
    let a = world.agent_in(a.dir(), "a");
    match a.acquire("path:x", MINUTE) {
        Err(Error::RemoteUnavailable { unknown, .. }) => assert!(unknown),
        other => panic!("{other:?}"),
    }
    let tries = std::fs::read_to_string(world.remote().join("tries")).expect("it was asked");
    assert!(tries.lines().count() <= 2, "{tries}");
}

#[test]
fn a_remote_that_nothing_could_be_sent_to_has_no_change_that_may_have_arrived() {
    let world = World::on_path();
    let a = world.clone_for("a");
    a.acquire("path:warm", MINUTE).expect("free");
    std::fs::rename(world.remote(), world.dir.path().join("away.git")).expect("moved");
    for act in [a.acquire("path:x", MINUTE).map(|_| ()), a.release("path:warm").map(|_| ())] {
        assert!(matches!(act, Err(Error::RemoteUnavailable { unknown: false, .. })), "{act:?}");
    }
}

#[test]
fn a_remote_that_takes_no_pushes_refuses_them() {
    let world = World::on_path();
    let a = world.clone_for("a");
    a.acquire("path:warm", MINUTE).expect("free");
    git(a.dir(), &["config", "remote.origin.receivepack", "echo no pushes here >&2; false"]);
    let a = world.agent_in(a.dir(), "a");
    assert!(matches!(a.acquire("path:x", MINUTE), Err(Error::RemoteRefused { .. })));
}

#[test]
fn an_act_with_a_deadline_does_not_wait_for_a_remote_that_hangs() {
    let world = World::on_path();
    let a = world.clone_for("a");
    a.acquire("path:x", MINUTE).expect("free");
    git(a.dir(), &["config", "remote.origin.receivepack", "sleep 20; git-receive-pack"]);
    let name = LockName::parse("path:x").expect("a name");
    let began = Instant::now();
    let late = world
        .agent_in(a.dir(), "a")
        .with(|locks| locks.until(began + Duration::from_secs(1)).renew(Ask { name: &name, ttl: ttl(MINUTE) }));
    assert!(matches!(late, Err(Error::RemoteUnavailable { .. })), "{late:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn however_many_locks_have_lapsed_below_a_path_no_change_names_more_refs_than_fit() {
    for has_remote in [true, false] {
        let world = World::on_path();
        let a = if has_remote { world.clone_for("a") } else { world.alone("a") };
        let judge = if has_remote { world.remote() } else { a.dir().join(".git") };
        a.acquire("path:src/seed", MINUTE).expect("free");
        let oid = at(&judge, "path:src/seed");
        for number in 0..450 {
            let file = judge.join(format!("refs/grite/locks/{number:016x}"));
            std::fs::write(file, format!("{oid}\n")).expect("written");
        }
        // An older state of it has not run out yet, so that it can only be marked.
        a.acquire("path:src/kept", 10 * MINUTE).expect("free");
        a.renew("path:src/kept", MINUTE).expect("mine");
        hook(&world, "pre-receive", "test $(wc -l) -le 250");
        world.clock.advance(MINUTE + 5_000);
        let b = if has_remote { world.clone_for("b") } else { world.alone("b") };
        assert!(b.acquire("path:src", MINUTE).expect("all of them have lapsed").acquired);
        // None is left that a late renewal could find.
        let status = b.with(|locks| locks.status()).expect("status");
        assert_eq!((status.live.len(), status.expired.len()), (1, 0));
        assert!(git(&judge, &["log", "--format=%s", &at(&judge, "path:src/kept")]).lines().count() == 3);
    }
}

#[test]
fn a_late_release_follows_what_the_remote_has_made_of_the_lock() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    a.acquire("path:src", MINUTE).expect("free");
    world.clock.advance(MINUTE + 5_000);
    b.acquire("path:src/a.rs", MINUTE).expect("lapsed");
    world.clock.advance(1_000);
    assert!(!a.release("path:src").expect("nothing of its own is left"));
    assert_eq!(at(a.dir(), "path:src"), at(&world.remote(), "path:src"));
    git(a.dir(), &["fetch", "-q", "origin", "refs/grite/locks/*:refs/grite/locks/*"]);
}

#[test]
fn a_partial_clone_gets_its_locks_whole() {
    let world = World::on_path();
    let a = world.clone_for("a");
    for name in ["path:x", "path:y"] {
        a.acquire(name, MINUTE).expect("free");
    }
    git(&world.remote(), &["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", world.remote().display());
    git(world.dir.path(), &["clone", "-q", "--filter=blob:none", &url, "partial"]);
    let b = world.agent_in(&world.dir.path().join("partial"), "b");
    b.repo.judge(&b.mode).expect("a remote").expect("one").fetch_locks(&b.repo).expect("fetched");
    let objects = git(b.dir(), &["rev-list", "--objects", "--missing=print", "--all"]);
    assert!(!objects.is_empty() && !objects.lines().any(|line| line.starts_with('?')), "{objects}");
}

#[test]
fn a_mirror_is_a_clone_like_any_other() {
    let world = World::on_path();
    let url = world.remote().display().to_string();
    git(world.dir.path(), &["clone", "-q", "--mirror", &url, "mirror"]);
    let a = world.agent_in(&world.dir.path().join("mirror"), "a");
    a.acquire("path:x", MINUTE).expect("free");
    assert_eq!(refused_by(world.clone_for("b").acquire("path:x", MINUTE)), "a");
    assert!(a.release("path:x").expect("mine"));
}

#[test]
fn a_remote_that_cannot_change_several_refs_together_cannot_judge() {
    let world = World::on_path();
    let a = world.clone_for("a");
    git(&world.remote(), &["config", "receive.advertiseAtomic", "false"]);
    match a.acquire("path:x", MINUTE) {
        Err(Error::UnfitRemote { why, .. }) => assert!(why.contains("atomic"), "{why}"),
        other => panic!("{other:?}"),
    }
}
