//! Every shape of repository that git knows.

use std::path::Path;

use crate::support::*;

/// Two agents exclude each other here, before and after the refs were packed.
fn works_in(world: &World, dir: &Path) {
    let (a, b) = (world.agent_in(dir, "a"), world.agent_in(dir, "b"));
    a.acquire("path:x", MINUTE).unwrap_or_else(|why| panic!("{}: {why}", dir.display()));
    assert_eq!(refused_by(b.acquire("path:x", MINUTE)), "a");
    git(dir, &["pack-refs", "--all"]);
    assert_eq!(refused_by(b.acquire("path:x", MINUTE)), "a");
    a.renew("path:x", MINUTE).expect("mine");
    a.release("path:x").expect("mine");
    b.acquire("path:x", MINUTE).expect("free");
    git(dir, &["gc", "-q", "--prune=now"]);
    assert_eq!(b.live(), [("path:x".to_owned(), "b".to_owned())]);
    git(dir, &["fsck", "--strict", "--no-dangling"]);
    b.release("path:x").expect("mine");
}

#[test]
fn plain_bare_and_separate_git_directories_work() {
    let world = World::on_path();
    let base = world.dir.path();
    git(base, &["init", "-q", "plain"]);
    git(base, &["init", "-q", "--bare", "bare.git"]);
    git(base, &["init", "-q", "--separate-git-dir", "elsewhere.git", "separate"]);
    git(base, &["init", "-q", "--shared=group", "shared"]);
    std::fs::create_dir_all(base.join("plain/deep/er")).expect("made");
    for place in ["plain", "plain/deep/er", "bare.git", "separate", "shared"] {
        works_in(&world, &base.join(place));
    }
}

#[test]
fn reftable_and_sha256_work() {
    let world = World::on_path();
    let base = world.dir.path();
    git(base, &["init", "-q", "--object-format=sha256", "long"]);
    works_in(&world, &base.join("long"));
    if let Some(reftable) = reftable() {
        git(base, &["init", "-q", reftable, "tables"]);
        works_in(&world, &base.join("tables"));
    }
}

#[test]
fn a_bare_repository_inside_another_work_tree_keeps_its_own_locks() {
    let world = World::on_path();
    git(world.dir.path(), &["init", "-q", "outer"]);
    let outer = world.dir.path().join("outer");
    git(&outer, &["init", "-q", "--bare", "inner.git"]);
    world.agent_in(&outer.join("inner.git"), "a").acquire("path:x", MINUTE).expect("free");
    assert_eq!(git(&outer, &["for-each-ref"]), "");
}

#[test]
fn worktrees_share_their_locks_and_submodules_do_not() {
    let world = World::on_path();
    let base = world.dir.path();
    git(base, &["init", "-q", "main"]);
    let main = base.join("main");
    git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&main, &["worktree", "add", "-q", "../linked"]);
    world.agent_in(&main, "a").acquire("path:x", MINUTE).expect("free");
    let linked = world.agent_in(&base.join("linked"), "b");
    assert_eq!(refused_by(linked.acquire("path:x", MINUTE)), "a");
    git(base, &["init", "-q", "parent"]);
    git(&base.join("parent"), &["-c", "protocol.file.allow=always", "submodule", "-q", "add", "../main", "sub"]);
    git(&base.join("parent/sub"), &["remote", "remove", "origin"]);
    works_in(&world, &base.join("parent/sub"));
}

#[test]
fn what_is_read_without_git_is_what_git_reads() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    for (agent, resource) in [(&a, "path:one"), (&b, "path:two"), (&a, "issue:3"), (&b, "...")] {
        agent.acquire(resource, MINUTE).expect("free");
    }
    b.release("path:two").expect("mine");
    let listing = |agent: &Agent| format!("{:?}", agent.with(|locks| locks.status()).expect("status"));
    let plain = listing(&a);
    git(a.dir(), &["pack-refs", "--all"]);
    assert_eq!(listing(&a), plain, "refs packed, objects loose");
    // Packed objects are read by git itself.
    git(a.dir(), &["repack", "-qad"]);
    git(a.dir(), &["prune-packed", "-q"]);
    assert_eq!(listing(&a), plain, "everything packed");
    assert!(plain.contains("token: Some(3)"), "{plain}");
}

#[test]
fn what_is_found_without_git_is_what_git_finds() {
    let world = World::on_path();
    let base = world.dir.path().canonicalize().expect("a path");
    git(&base, &["init", "-q", "plain"]);
    let plain = base.join("plain");
    git(&plain, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&plain, &["worktree", "add", "-q", "../linked"]);
    let long: Vec<&str> = ["init", "-q", "--object-format=sha256", "long"].into_iter().chain(reftable()).collect();
    git(&base, &long);
    git(&base, &["init", "-q", "--bare", "bare.git"]);
    git(&base, &["init", "-q", "--separate-git-dir", "elsewhere.git", "separate"]);
    git(&base, &["init", "-q", "--shared=group", "shared"]);
    git(&plain, &["remote", "add", "origin", "/some where"]);
    git(&plain, &["config", "tenure.skew", "7s"]);
    std::fs::create_dir_all(plain.join("deep/er")).expect("made");
    for place in ["plain", "plain/deep/er", "linked", "long", "bare.git", "separate", "shared", "plain/.git"] {
        let dir = base.join(place);
        let (found, asked) =
            (tenure_git::Repo::discover(&dir).expect(place), tenure_git::Repo::ask_git(&dir).expect(place));
        assert_eq!((&found.git_dir, &found.common_dir), (&asked.git_dir, &asked.common_dir), "{place}");
        assert_eq!(format!("{:?}", found.objects), format!("{:?}", asked.objects), "{place}");
        assert_eq!(found.skew_ms().ok(), asked.skew_ms().ok(), "{place}");
        let judges = |repo: &tenure_git::Repo| {
            repo.judge(&tenure_git::Mode::Auto).expect(place).map(|judge| judge.name().to_owned())
        };
        assert_eq!(judges(&found), judges(&asked), "{place}");
    }
    git(&plain, &["config", "include.path", "more"]);
    std::fs::write(plain.join(".git/more"), "[tenure]\nskew = 9s\n").expect("written");
    assert_eq!(tenure_git::Repo::discover(&plain).expect("found").skew_ms().ok(), Some(9_000));
    assert!(tenure_git::Repo::discover(world.dir.path()).is_err());
}
