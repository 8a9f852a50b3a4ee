//! The real `grite` in one clone and this program in another, both directions.
//!
//! `TENURE_TEST_GRITE` names the binary of version 0.5.3; without it the tests say that they were skipped.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::*;

/// The real program, if it is here.
fn real() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let default = cache.map(|cache| cache.join("tenure-test-tools/grite-0.5.3/bin/grite"));
    let named = std::env::var_os("TENURE_TEST_GRITE").map(PathBuf::from).or(default)?;
    if named.is_file() {
        return Some(named);
    }
    println!("skipped: no grite at {}; set TENURE_TEST_GRITE", named.display());
    None
}

/// A clone with this program and one with the other.
struct Pair {
    ours: Place,
    theirs: Place,
    program: PathBuf,
    world: World,
}

impl Pair {
    fn new() -> Option<Pair> {
        let program = real()?;
        let world = World::new();
        let (ours, theirs) = (world.clone("ours"), world.clone("theirs"));
        ours.git(&["config", "tenure.skew", "0"]).ok();
        Some(Pair { ours, theirs, program, world })
    }

    fn grite(&self, args: &[&str]) -> Ran {
        self.theirs.run(&self.program, &[args, &["--json", "--no-daemon"]].concat())
    }

    /// The state of a lock as the other program sees it after it synchronised.
    fn seen(&self, resource: &str) -> Value {
        let status = self.grite(&["lock", "status"]).ok().json();
        let locks = status["data"]["locks"].as_array().expect("a list").clone();
        locks.into_iter().find(|lock| lock["resource"] == resource).unwrap_or_default()
    }

    fn remote_payload(&self, hash: &str) -> Value {
        let blob = format!("refs/grite/locks/{hash}:lock.json");
        let text = self.world.place("remote.git").git(&["cat-file", "-p", &blob]).ok().out;
        serde_json::from_str(&text).expect("json")
    }
}

#[test]
fn what_is_acquired_renewed_and_released_here_is_seen_there_and_stays_released() {
    let Some(pair) = Pair::new() else { return };
    let owner = pair.ours.acquire("path:x", "1h").ok().json()["data"]["owner"].clone();
    pair.grite(&["sync"]).ok();
    assert_eq!((&pair.seen("path:x")["owner"], &pair.seen("path:x")["expired"]), (&owner, &false.into()));
    pair.grite(&["lock", "acquire", "path:x"]).exits(4);
    let renewed = pair.ours.tenure(&["lock", "renew", "path:x", "--ttl", "2h", "--json"]).ok().json();
    pair.grite(&["sync"]).ok();
    assert_eq!(pair.seen("path:x")["expires_unix_ms"], renewed["data"]["expires_unix_ms"]);
    pair.ours.tenure(&["lock", "release", "path:x"]).ok();
    // It knows the live lock and has not seen the release: its sync must not bring the lock back.
    pair.grite(&["sync"]).ok();
    assert_eq!(pair.seen("path:x")["expired"], true);
    assert_eq!(pair.ours.live(), []);
    // Collecting at once would let an old copy come back; so the release stays.
    let collected = pair.ours.tenure(&["lock", "gc", "--json"]).ok().json();
    assert_eq!((&collected["data"]["removed"], &collected["data"]["waiting"]), (&0.into(), &1.into()));
    pair.ours.acquire("path:x", "1h").ok();
}

#[test]
fn what_is_acquired_there_holds_here_also_for_what_overlaps_it() {
    let Some(pair) = Pair::new() else { return };
    pair.ours.acquire("path:warm", "1h").ok();
    let owner = pair.grite(&["lock", "acquire", "path:src", "--ttl", "600"]).ok().json()["data"]["owner"].clone();
    pair.grite(&["sync"]).ok();
    for resource in ["path:src", "path:src/a.rs", "repo:global"] {
        let refused = pair.ours.acquire(resource, "1h").exits(4).json();
        assert_eq!(refused["error"]["details"]["owner"], owner, "{resource}");
    }
    pair.ours.tenure(&["lock", "release", "path:src"]).exits(4);
    pair.ours.acquire("path:docs", "1h").ok();
    pair.grite(&["lock", "renew", "path:src", "--ttl", "900"]).ok();
    pair.grite(&["sync"]).ok();
    let listed = pair.ours.tenure(&["lock", "status", "--json"]).ok().json();
    assert!(listed["data"]["locks"].as_array().expect("a list").iter().any(|lock| lock["owner"] == owner));
}

#[test]
fn a_spelling_that_is_not_normal_is_seen_to_overlap() {
    let Some(pair) = Pair::new() else { return };
    pair.grite(&["lock", "acquire", "path:./src/", "--ttl", "600"]).ok();
    pair.grite(&["sync"]).ok();
    pair.ours.acquire("path:src/a.rs", "1h").exits(4);
}

#[test]
fn a_takeover_of_its_expired_lock_reaches_the_other_program_and_its_late_renewal_does_not_reach_the_remote() {
    let Some(pair) = Pair::new() else { return };
    pair.grite(&["lock", "acquire", "path:x", "--ttl", "1"]).ok();
    pair.grite(&["sync"]).ok();
    until("it runs out", || pair.ours.acquire("path:x", "1h").code == Some(0));
    let ours = pair.remote_payload("7d2dc4acb62b9ee9")["owner"].clone();
    // It renews what it lost, believes in it, and cannot publish it.
    pair.grite(&["lock", "renew", "path:x", "--ttl", "600"]).ok();
    assert_ne!(pair.grite(&["sync"]).code, Some(0));
    assert_eq!(pair.remote_payload("7d2dc4acb62b9ee9")["owner"], ours);
    pair.ours.tenure(&["lock", "renew", "path:x"]).ok();
}

#[test]
fn a_takeover_seen_in_time_fast_forwards_there() {
    let Some(pair) = Pair::new() else { return };
    pair.grite(&["lock", "acquire", "path:x", "--ttl", "1"]).ok();
    pair.grite(&["sync"]).ok();
    until("it runs out", || pair.ours.acquire("path:x", "1h").code == Some(0));
    pair.grite(&["sync"]).ok();
    pair.grite(&["lock", "acquire", "path:x"]).exits(4);
    assert_eq!(pair.seen("path:x")["expired"], false);
}

#[test]
fn actors_are_shared_in_one_clone_and_a_lock_that_was_never_published_is_respected() {
    let Some(pair) = Pair::new() else { return };
    let theirs = pair.grite(&["lock", "acquire", "path:first", "--ttl", "600"]).ok().json()["data"]["owner"].clone();
    let same = pair.theirs.tenure(&["actor", "show", "--json"]).ok().json();
    assert_eq!(same["data"]["actor_id"], theirs);
    // The same agent publishes it by acquiring it; another agent in the clone is refused.
    pair.theirs.tenure(&["actor", "init", "--label", "another"]).ok();
    let refused = pair.theirs.acting_as("another").acquire("path:first", "1h").exits(4).json();
    assert_eq!(refused["error"]["details"]["why"], "local_only");
    pair.theirs.acquire("path:first", "1h").ok();
    assert_eq!(pair.ours.live().len(), 1);
    pair.grite(&["sync"]).ok();
    assert_eq!(pair.seen("path:first")["owner"], theirs);
}

#[test]
fn its_issues_and_ours_do_not_touch_each_other() {
    let Some(pair) = Pair::new() else { return };
    pair.grite(&["issue", "create", "--title", "theirs"]).ok();
    pair.grite(&["sync"]).ok();
    let wal = pair.world.place("remote.git").git(&["rev-parse", "refs/grite/wal"]).ok().out;
    pair.ours.tenure(&["issue", "create", "--title", "ours"]).ok();
    pair.ours.acquire("path:x", "1h").ok();
    pair.ours.tenure(&["lock", "gc"]).ok();
    assert_eq!(pair.world.place("remote.git").git(&["rev-parse", "refs/grite/wal"]).ok().out, wal);
    pair.grite(&["sync"]).ok();
    assert_eq!(pair.grite(&["issue", "list"]).ok().json()["data"]["total"], 1);
}
