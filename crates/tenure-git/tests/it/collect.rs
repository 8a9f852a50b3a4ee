//! What may be removed, and what a program that knows an older state could bring back.

use crate::support::*;

#[test]
fn what_is_over_is_removed_on_the_remote_and_what_is_held_stays() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    a.acquire("path:old", MINUTE).expect("free");
    a.acquire("path:held", 10 * MINUTE).expect("free");
    world.clock.advance(MINUTE + 5_000);
    let collected = b.with(|locks| locks.gc()).expect("gc");
    assert_eq!(collected.removed, ["path:old"]);
    assert_eq!(collected.kept(), 1);
    assert_eq!(git(&world.remote(), &["for-each-ref", "--format=%(refname)", "refs/grite"]).lines().count(), 1);
    assert_eq!(b.acquire("path:old", MINUTE).expect("free").token, Some(3));
}

#[test]
fn a_release_stays_until_no_older_state_could_come_back_to_life() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    a.acquire("path:x", 10 * MINUTE).expect("free");
    a.release("path:x").expect("mine");
    let collected = b.with(|locks| locks.gc()).expect("gc");
    assert_eq!((collected.removed.len(), collected.waiting), (0, 1));
    world.clock.advance(10 * MINUTE + 5_000);
    assert_eq!(b.with(|locks| locks.gc()).expect("gc").removed, ["path:x"]);
    // The clone that held it has a copy; the rule is the same there.
    a.with(|locks| locks.gc()).expect("gc");
    assert_eq!(git(a.dir(), &["for-each-ref", "refs/grite"]), "");
}

#[test]
fn a_malformed_ref_harms_only_itself() {
    {
        let world = World::on_path();
        let (a, b) = (world.clone_for("a"), world.alone("b"));
        for agent in [&a, &b] {
            let blob = git(agent.dir(), &["hash-object", "-w", "--stdin"]);
            let tree = git(agent.dir(), &["mktree"]);
            let commit = git(agent.dir(), &["commit-tree", &tree, "-m", "no lock"]);
            let refs = ["refs/grite/locks/72a608022eede1e9", "refs/grite/locks/nonsense", "refs/grite/locks/blob"];
            for (reference, oid) in refs.iter().zip([&commit, &commit, &blob]) {
                git(agent.dir(), &["update-ref", reference, oid]);
            }
            if agent.name == "a" {
                git(agent.dir(), &["push", "-q", "origin", "refs/grite/*:refs/grite/*"]);
            }
            agent.acquire("path:x", MINUTE).expect("not concerned");
            assert_eq!(refused_by(agent.acquire("path:f", MINUTE)), "unknown");
            let status = agent.with(|locks| locks.status()).expect("status");
            assert_eq!((status.live.len(), status.unreadable.len()), (1, 3));
            assert_eq!(agent.with(|locks| locks.gc()).expect("gc").unreadable.len(), 3);
        }
    }
}

#[test]
fn a_lock_with_a_torn_history_harms_only_itself() {
    let world = World::on_path();
    let a = world.alone("a");
    for name in ["path:a", "path:b", "path:c", "path:torn"] {
        a.acquire(name, MINUTE).expect("free");
    }
    let torn = tenure_git::LockName::parse("path:torn").expect("a name").ref_name();
    let first = git(a.dir(), &["rev-parse", &torn]);
    a.renew("path:torn", MINUTE).expect("active");
    let (folder, file) = first.split_at(2);
    std::fs::remove_file(a.dir().join(".git/objects").join(folder).join(file)).expect("removed");
    world.clock.advance(MINUTE + 5_000);
    let collected = a.with(|locks| locks.gc()).expect("gc");
    assert_eq!((collected.removed.len(), collected.unreadable), (3, vec![torn]));
}

#[test]
fn thousands_of_locks_are_removed_together_loose_or_packed() {
    let world = World::on_path();
    let a = world.alone("a");
    a.acquire("path:seed", MINUTE).expect("free");
    let oid = git(a.dir(), &["for-each-ref", "--format=%(objectname)", "refs/grite/locks"]);
    for number in 0..500 {
        let file = a.dir().join(format!(".git/refs/grite/locks/{number:016x}"));
        std::fs::write(file, format!("{oid}\n")).expect("written");
    }
    git(a.dir(), &["pack-refs", "--all"]);
    world.clock.advance(MINUTE + 5_000);
    let collected = a.with(|locks| locks.gc()).expect("gc");
    assert_eq!((collected.removed.len(), collected.kept()), (501, 0));
    assert_eq!(git(a.dir(), &["for-each-ref", "refs/grite"]), "");
}

#[test]
fn a_lock_file_of_a_killed_git_is_named_and_an_old_one_is_removed() {
    let world = World::on_path();
    let a = world.alone("a");
    let file = a.dir().join(".git/refs/grite/locks/72a608022eede1e9.lock");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    let handle = std::fs::File::create(&file).expect("made");
    match a.acquire("path:f", MINUTE) {
        Err(tenure_git::Error::RefLockFile { path, .. }) => assert!(path.ends_with("72a608022eede1e9.lock")),
        other => panic!("{other:?}"),
    }
    assert_eq!(a.with(|locks| locks.gc()).expect("gc").busy.len(), 1);
    handle.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(61)).expect("aged");
    a.acquire("path:f", MINUTE).expect("healed");
    assert!(!file.exists());
}
