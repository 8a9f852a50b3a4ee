//! `lock run`: whose lock the command runs under, until when, and who gives it back.

use std::process::Child;

use crate::support::*;

/// A run in the background whose command says that it runs, and ends when it is told to.
fn started(place: &Place, resource: &str, tag: &str) -> Child {
    let script = format!("touch {tag}.runs; until test -e {tag}.end; do sleep 0.05; done");
    let mut command = place.command(env!("CARGO_BIN_EXE_tenure"));
    command.args(["lock", "run", "--resource", resource, "--ttl", "1m", "--", "sh", "-c", &script]);
    let child = command.spawn().expect("it runs");
    until("its command runs", || place.dir.join(format!("{tag}.runs")).exists());
    child
}

fn ended(place: &Place, mut run: Child, tag: &str) {
    place.write(&format!("{tag}.end"), "");
    assert!(run.wait().expect("ended").success());
}

#[test]
fn the_command_is_stopped_before_its_lock_ends_when_the_remote_hangs() {
    let world = World::new();
    let a = world.clone("a");
    // It does not listen to TERM, and says as long as it can when it still ran.
    let script = r#"tenure lock run --resource path:x --ttl 4s -- sh -c '
        trap "" TERM; git config remote.origin.receivepack "sleep 15; git-receive-pack"
        while :; do date +%s%3N >now && mv now last; sleep 0.05; done'"#;
    let began = std::time::Instant::now();
    a.bash(script, &[]).exits(75);
    assert!(began.elapsed() < std::time::Duration::from_secs(14), "{:?}", began.elapsed());
    let last: u64 = std::fs::read_to_string(a.dir.join("last")).expect("it ran").trim().parse().expect("a time");
    let locks = a.tenure(&["lock", "status", "--all", "--json"]).ok().json();
    let ends = locks["data"]["locks"][0]["expires_unix_ms"].as_u64().expect("a time");
    assert!(last < ends, "it ran for {} ms without its lock", last - ends);
}

#[test]
fn a_run_inside_a_run_leaves_the_lock_as_it_found_it() {
    for has_remote in [true, false] {
        let world = World::new();
        let a = if has_remote { world.clone("a") } else { world.alone("a") };
        let script = "tenure lock run --resource path:x --ttl 1h -- sh -c '
            tenure lock run --resource path:x --ttl 2s -- true; tenure lock status --json'";
        let locks = a.bash(script, &[]).ok().json();
        assert_eq!(locks["data"]["total"], 1, "{locks}");
        assert!(locks["data"]["locks"][0]["time_remaining_seconds"].as_u64() > Some(3_000), "{locks}");
        assert_eq!(a.live(), []);
    }
}

#[test]
fn of_two_runs_under_one_lock_the_last_one_gives_it_back() {
    let world = World::new();
    let a = world.clone("a");
    let first = started(&a, "path:x", "first");
    let second = started(&a, "path:x", "second");
    ended(&a, first, "first");
    assert_eq!(a.live().len(), 1);
    ended(&a, second, "second");
    assert_eq!(a.live(), []);
}

#[test]
fn a_lock_that_was_held_before_the_run_is_held_after_it() {
    let world = World::new();
    let a = world.clone("a");
    a.acquire("path:x", "1h").ok();
    a.tenure(&["lock", "run", "--resource", "path:x", "--ttl", "1m", "--", "true"]).ok();
    assert_eq!(a.live().len(), 1);
}

#[test]
fn a_run_goes_on_as_who_began_it() {
    let world = World::new();
    let a = world.clone("a");
    for label in ["one", "two"] {
        a.tenure(&["actor", "init", "--label", label]).ok();
    }
    a.tenure(&["actor", "use", "one"]).ok();
    // Ends when the lock was renewed.
    let script = r#"tenure lock run --resource path:x --ttl 4s -- sh -c '
        tenure actor use two >/dev/null; seen() { git ls-remote origin "refs/grite/*"; }
        was=$(seen); while test "$(seen)" = "$was"; do sleep 0.1; done'"#;
    a.bash(script, &[]).ok();
    assert_eq!(a.tenure(&["actor", "show", "--json"]).ok().json()["data"]["label"], "two");
    assert_eq!(a.live(), []);
}
