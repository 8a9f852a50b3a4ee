//! What a push may change, as the server's hook and the clone's see it.

use crate::support::*;

/// A world whose server requires locks, with clones that have no hooks.
fn required() -> (World, Place, Place) {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    let server = world.place("remote.git");
    server.git(&["symbolic-ref", "HEAD", "refs/heads/main"]).ok();
    server.git(&["config", "receive.advertisePushOptions", "true"]).ok();
    server.tenure(&["hooks", "server", "--policy", "require"]).ok();
    (world, a, b)
}

fn push(place: &Place, actor: &str, what: &str) -> Ran {
    place.git(&["push", "-q", "-f", "-o", &format!("tenure-actor={actor}"), "origin", what])
}

#[track_caller]
fn refused(ran: &Ran, why: &str) {
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains(why), "{ran:?}");
}

/// Takes a lock and gives who holds it.
fn hold(place: &Place, resource: &str) -> String {
    place.acquire(resource, "1h").ok().json()["data"]["owner"].as_str().expect("a text").to_owned()
}

#[test]
fn the_server_refuses_what_skipped_the_local_hooks() {
    let (_world, a, b) = required();
    let me = hold(&a, "path:src");
    a.write("src/a.rs", "1");
    a.commit().ok();
    refused(&a.git(&["push", "origin", "main"]), "git push -o tenure-actor=ID");
    push(&a, &me, "main").ok();
    b.git(&["pull", "-q", "origin", "main"]).ok();
    b.write("src/b.rs", "1");
    b.commit().ok();
    refused(&push(&b, "b", "main"), &format!("path:src is locked by {me}"));
    // Taking back somebody's commit touches its files, too.
    refused(&push(&b, "b", "HEAD~2:main"), "path:src is locked by");
    // Locks themselves are not work on files.
    b.acquire("path:docs", "1h").ok();
}

#[test]
fn what_the_server_knows_from_another_ref_still_needs_a_lock() {
    let (_world, a, b) = required();
    a.write("src/a.rs", "1");
    a.commit().ok();
    for smuggled in ["refs/tenure/smuggle", "refs/grite/smuggle", "refs/grite/locks/0123456789abcdef"] {
        refused(&push(&a, "a", &format!("HEAD:{smuggled}")), smuggled);
    }
    // A tag changes no branch.
    push(&a, "a", "HEAD:refs/tags/v1").ok();
    refused(&push(&a, "a", "main"), "you hold no lock that covers path:src/a.rs");
    let me = hold(&a, "path:src");
    push(&a, &me, "HEAD:feature").ok();
    a.tenure(&["lock", "release", "path:src"]).ok();
    let other = hold(&b, "path:src");
    for branch in ["main", "copy"] {
        refused(&push(&a, &me, &format!("HEAD:refs/heads/{branch}")), &format!("path:src is locked by {other}"));
    }
}

#[test]
fn notes_and_tags_need_no_lock_on_a_path() {
    let (_world, a, b) = required();
    a.git(&["notes", "add", "-m", "seen"]).ok();
    push(&a, "a", "refs/notes/commits").ok();
    a.write("src/a.rs", "1");
    a.commit().ok();
    push(&a, "a", "HEAD:refs/tags/v1").ok();
    hold(&b, "repo:release");
    refused(&push(&a, "a", "HEAD:refs/tags/v2"), "repo:release is locked by");
}

#[test]
fn bringing_the_default_branch_into_another_needs_no_lock_and_changing_it_does() {
    let (_world, a, b) = required();
    let (mine, other) = (hold(&a, "path:docs"), hold(&b, "path:src"));
    a.git(&["switch", "-qc", "feature"]).ok();
    a.write("docs/a.md", "1");
    a.commit().ok();
    push(&a, &mine, "feature").ok();
    b.write("src/b.rs", "1");
    b.commit().ok();
    push(&b, &other, "main").ok();
    a.git(&["fetch", "-q"]).ok();
    a.git(&["merge", "-q", "--no-ff", "-m", "merge", "origin/main"]).ok();
    push(&a, &mine, "feature").ok();
    // The same on top of it, rewritten.
    a.git(&["reset", "-q", "--hard", "HEAD^1"]).ok();
    a.git(&["rebase", "-q", "origin/main"]).ok();
    push(&a, &mine, "feature").ok();
    // A merge that puts an old state of src back into the default branch.
    let tree = a.git(&["rev-parse", "origin/main~1^{tree}"]).ok().out;
    let parents = ["commit-tree", tree.trim(), "-p", "origin/main", "-p", "origin/main~1", "-m", "merge"];
    let merge = a.git(&parents).ok().out;
    refused(&push(&a, &mine, &format!("{}:refs/heads/main", merge.trim())), "path:src is locked by");
}

#[test]
fn a_server_without_a_default_branch_compares_a_new_one_with_the_others() {
    let (world, a, b) = required();
    let mine = hold(&a, "path:src");
    a.write("src/a.rs", "1");
    a.commit().ok();
    push(&a, &mine, "main").ok();
    world.place("remote.git").git(&["symbolic-ref", "HEAD", "refs/heads/none"]).ok();
    b.git(&["pull", "-q", "origin", "main"]).ok();
    push(&b, "b", "HEAD:refs/heads/same").ok();
    b.write("src/b.rs", "1");
    b.commit().ok();
    refused(&push(&b, "b", "HEAD:refs/heads/new"), "path:src is locked by");
    refused(&push(&b, "b", "HEAD~2:refs/heads/same"), "path:src is locked by");
}

#[test]
fn an_object_that_stands_in_for_another_hides_nothing() {
    let (_world, a, b) = required();
    let empty = a.git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "empty"]).ok().out;
    hold(&b, "path:src");
    a.write("src/a.rs", "1");
    a.commit().ok();
    let replaced = a.git(&["rev-parse", "HEAD"]).ok().out;
    push(&a, "a", &format!("{}:refs/replace/{}", empty.trim(), replaced.trim())).ok();
    refused(&push(&a, "a", "main"), "path:src is locked by");
}

#[test]
fn a_clone_that_requires_locks_sees_at_the_push_what_git_committed_without_asking() {
    let world = World::new();
    let a = world.clone("a");
    a.write("src/a.rs", "1");
    a.commit().ok();
    a.git(&["switch", "-qc", "side", "HEAD^"]).ok();
    a.write("src/b.rs", "1");
    a.commit().ok();
    a.git(&["switch", "-q", "main"]).ok();
    a.git(&["push", "-q", "origin", "main"]).ok();
    a.tenure(&["hooks", "install", "--policy", "require"]).ok();
    let refuses = |act: &[&str]| {
        a.git(act).ok();
        refused(&a.git(&["push", "-q", "origin", "main"]), "you hold no lock that covers path:src/");
        a.git(&["push", "-q", "origin", "HEAD:new"]).exits(1);
        a.git(&["reset", "-q", "--hard", "origin/main"]).ok();
    };
    refuses(&["cherry-pick", "side"]);
    refuses(&["revert", "--no-edit", "HEAD"]);
    refuses(&["merge", "-q", "--no-verify", "--no-ff", "-m", "merge", "side"]);
    // A new branch is judged by what the remote does not have.
    a.git(&["push", "-q", "origin", "main:same"]).ok();
    a.git(&["cherry-pick", "side"]).ok();
    hold(&a, "path:src");
    a.git(&["push", "-q", "origin", "main"]).ok();
}
