//! The policy, with real commits and pushes.

use crate::support::*;

fn policy(place: &Place, policy: &str) {
    place.tenure(&["hooks", "install", "--policy", policy]).ok();
}

#[test]
fn require_refuses_a_commit_without_a_covering_lock_and_takes_one_with_it() {
    let world = World::new();
    let a = world.clone("a");
    policy(&a, "require");
    a.write("src/a.rs", "1");
    let refused = a.commit();
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("you hold no lock that covers path:src/a.rs"), "{refused:?}");
    assert!(refused.err.contains("Hint: take the lock first"), "{refused:?}");
    a.acquire("path:src", "1h").ok();
    a.commit().ok();
    a.write("docs/b.md", "1");
    assert_ne!(a.commit().code, Some(0));
    a.tenure(&["lock", "acquire", "repo:*"]).ok();
    a.commit().ok();
    // Without the remote, what this clone last saw proves its own lock.
    a.git(&["remote", "set-url", "origin", "/nowhere.git"]).ok();
    a.write("src/a.rs", "2");
    a.commit().ok();
}

#[test]
fn warn_says_who_holds_what_is_touched_and_off_says_nothing() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    let owner = a.acquire("path:src", "1h").ok().json()["data"]["owner"].as_str().expect("a text").to_owned();
    policy(&b, "warn");
    b.write("src/a.rs", "1");
    let warned = b.commit().ok();
    assert!(warned.err.contains(&format!("Warning: path:src is locked by {owner} (expires in ")), "{warned:?}");
    policy(&b, "off");
    b.write("src/a.rs", "2");
    assert_eq!(b.commit().ok().err, "");
}

#[test]
fn require_refuses_a_push_while_the_repository_is_anothers() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    policy(&b, "require");
    b.git(&["commit", "-q", "--allow-empty", "-m", "empty"]).ok();
    a.acquire("repo:deploy", "1h").ok();
    let refused = b.git(&["push", "-q", "origin", "main"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("repo:deploy is locked by"), "{refused:?}");
    let (owner, hint) = (a.live()[0].1.clone(), "holds repo:deploy: push again when it is given back");
    assert!(refused.err.contains(&format!("Hint: {owner} {hint}")), "{refused:?}");
    assert!(!refused.err.contains("lock acquire"), "no lock would help: {refused:?}");
    a.tenure(&["lock", "release", "repo:deploy"]).ok();
    b.git(&["push", "-q", "origin", "main"]).ok();
}

#[test]
fn require_wants_a_lock_for_what_a_merge_brings_but_not_for_the_default_branch() {
    let world = World::new();
    let a = world.clone("a");
    let commit_on = |branch: &str, from: &str, file: &str| {
        a.git(&["switch", "-qc", branch, from]).ok();
        a.write(file, "1");
        a.commit().ok();
    };
    commit_on("side", "main", "src/a.rs");
    commit_on("next", "main", "lib/b.rs");
    a.git(&["push", "-q", "origin", "next:main"]).ok();
    a.git(&["fetch", "-q"]).ok();
    a.git(&["remote", "set-head", "origin", "main"]).ok();
    commit_on("work", "main", "docs/c.md");
    policy(&a, "require");
    let refused = a.git(&["merge", "-q", "--no-ff", "-m", "merge", "side"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.err.contains("you hold no lock that covers path:src/a.rs"), "{refused:?}");
    a.git(&["reset", "-q", "--hard"]).ok();
    a.git(&["merge", "-q", "--no-ff", "-m", "merge", "origin/main"]).ok();
    a.acquire("path:src", "1h").ok();
    a.git(&["merge", "-q", "--no-ff", "-m", "merge", "side"]).ok();
}

#[test]
fn no_setting_hides_a_submodule_from_require() {
    let world = World::new();
    let a = world.clone("a");
    let other = world.alone("other");
    other.git(&["commit", "-q", "--allow-empty", "-m", "one"]).ok();
    let url = other.dir.display().to_string();
    a.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &url, "sm"]).ok();
    a.commit().ok();
    policy(&a, "require");
    a.git(&["config", "diff.ignoreSubmodules", "all"]).ok();
    a.git(&["config", "submodule.sm.ignore", "all"]).ok();
    a.below("sm").git(&["commit", "-q", "--allow-empty", "-m", "two"]).ok();
    a.git(&["update-index", "sm"]).ok();
    let refused = a.git(&["commit", "-q", "-m", "bump"]);
    assert!(refused.err.contains("you hold no lock that covers path:sm"), "{refused:?}");
}

#[test]
fn an_actor_of_another_repository_is_not_taken_for_one_of_this() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.alone("b"));
    b.acquire("path:src", "1h").ok();
    policy(&b, "require");
    b.write("src/a.rs", "1");
    b.git(&["add", "-A"]).ok();
    let inside = format!("git -C {} commit -q -m change", b.dir.display());
    let committed = a.tenure(&["lock", "run", "--resource", "path:x", "--", "sh", "-c", &inside]).ok();
    assert!(committed.err.contains("judged as the default actor of this worktree"), "{committed:?}");
    // Warn refuses nothing, whatever is wrong.
    policy(&b, "warn");
    b.write(".git/grite/config.toml", "default_actor = \"gone\"\n");
    b.write("src/a.rs", "2");
    let committed = b.commit().ok();
    assert!(committed.err.contains("Warning: nobody looked at the locks"), "{committed:?}");
}

#[test]
fn a_data_directory_is_found_from_the_folder_of_the_commit() {
    let world = World::new();
    let a = world.alone("a");
    policy(&a, "require");
    let below = a.below("src");
    a.write("src/home/config.toml", "actor_id = \"agent-7\"\n");
    a.write(".git/info/exclude", "home\n");
    a.write("src/a.rs", "1");
    let env = [("GRITE_HOME", "home")];
    below.bash("tenure lock acquire path:src; git add -A; git commit -q -m change", &env).ok();
    // What a command below gets does not depend on where it goes.
    a.write("src/a.rs", "2");
    let held = "tenure lock run --resource path:src -- sh -c 'cd ..; tenure actor show --json'";
    assert_eq!(below.bash(held, &env).ok().json()["data"]["actor_id"], "agent-7");
}

#[test]
fn require_wants_an_issues_lock_by_its_id_or_a_prefix_of_it() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    let made = a.tenure(&["issue", "create", "--title", "Process batch", "--label", "todo", "--json"]).ok().json();
    let id = made["data"]["issue_id"].as_str().expect("an id").to_owned();
    b.write(".git/grite/config.toml", "lock_policy = \"require\"\n");
    b.tenure(&["issue", "comment", &id, "--body", "x"]).exits(4);
    let prefix = id.split_at(8).0;
    b.acquire(&format!("issue:{prefix}"), "1h").ok();
    b.tenure(&["issue", "comment", &id, "--body", "x"]).ok();
    let closed = b.tenure(&["issue", "close", prefix, "--json"]).ok().json();
    assert_eq!((&closed["data"]["state"], &closed["data"]["issue_id"]), (&"closed".into(), &id.as_str().into()));
    // The other way round: the other's prefix lock stands against the full id.
    let warned = a.tenure(&["issue", "comment", &id, "--body", "y"]).ok();
    assert!(warned.err.contains("is locked by"), "{warned:?}");
    a.acquire("path:unrelated", "1h").ok();
    b.tenure(&["issue", "create", "--title", "unrelated locks do not matter"]).ok();
    a.tenure(&["lock", "release", "path:unrelated"]).ok();
    b.tenure(&["lock", "release", &format!("issue:{prefix}")]).ok();
    a.acquire("repo:global", "1h").ok();
    b.tenure(&["issue", "create", "--title", "the whole repository does"]).exits(4);
}

#[test]
fn issues_have_the_shapes_that_scripts_read() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    let made =
        a.tenure(&["issue", "create", "--title", "One", "--label", "todo", "--body", "text", "--json"]).ok().json();
    let id = made["data"]["issue_id"].as_str().expect("an id").to_owned();
    assert_eq!(made["data"]["event_id"].as_str().map(str::len), Some(64));
    assert_eq!(made["data"]["wal_head"].as_str().map(str::len), Some(40));
    b.tenure(&["issue", "comment", &id, "--body", "hello"]).ok();
    let list = b.tenure(&["issue", "list", "--label", "todo", "--json"]).ok().json();
    let first = &list["data"]["issues"][0];
    assert_eq!(
        (&first["issue_id"], &first["comment_count"], &list["data"]["total"]),
        (&id.as_str().into(), &1.into(), &1.into())
    );
    for (key, wanted) in [("title", "One"), ("state", "open")] {
        assert_eq!(first[key], wanted);
    }
    assert_eq!(b.tenure(&["issue", "list", "--label", "none", "--json"]).ok().json()["data"]["total"], 0);
    let shown = a.tenure(&["issue", "show", id.split_at(6).0, "--json"]).ok().json();
    assert_eq!(shown["data"]["events"][1]["kind"]["CommentAdded"]["body"], "hello");
    assert_eq!(shown["data"]["events"][1]["parent"], shown["data"]["events"][0]["event_id"]);
    a.tenure(&["issue", "close", &id]).ok();
    assert_eq!(b.tenure(&["issue", "list", "--json"]).ok().json()["data"]["total"], 0);
    assert_eq!(b.tenure(&["issue", "list", "--state", "closed", "--json"]).ok().json()["data"]["total"], 1);
    a.tenure(&["issue", "show", "abcd", "--json"]).exits(3);
    a.tenure(&["issue", "show", "xyz", "--json"]).exits(2);
}
