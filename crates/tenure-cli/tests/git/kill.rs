//! Killed with SIGKILL at any point: nothing is left that blocks others past the ttl.

use std::process::Stdio;
use std::time::Duration;

use crate::support::*;

/// Acquires are killed after ever longer times, so that every phase of them is hit.
fn killed_anywhere(victim: &Place, other: &Place, rounds: u64) {
    for round in 0..rounds {
        let mut command = victim.command(env!("CARGO_BIN_EXE_tenure"));
        command.args(["lock", "acquire", "path:x", "--ttl", "1s"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        std::thread::sleep(Duration::from_millis(round * 60 / rounds));
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
    // Its git may still be at work for a moment, and the last lock may have been granted.
    let got = other.tenure(&["lock", "acquire", "path:x", "--ttl", "1m", "--wait", "20s", "--json"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    assert!(other.git(&["fsck", "--no-dangling"]).code == Some(0));
}

#[test]
fn a_killed_acquire_blocks_nobody_past_its_ttl() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    for place in [&a, &b] {
        place.git(&["config", "tenure.skew", "0"]).ok();
    }
    killed_anywhere(&a, &b, 20);
    b.tenure(&["lock", "release", "path:x"]).ok();
    a.acquire("path:x", "1m").ok();
}

#[test]
fn a_killed_acquire_in_a_clone_without_a_remote_blocks_nobody_past_its_ttl() {
    let world = World::new();
    let a = world.alone("a");
    a.git(&["config", "tenure.skew", "0"]).ok();
    a.tenure(&["actor", "init", "--label", "victim"]).ok();
    a.tenure(&["actor", "init", "--label", "other"]).ok();
    killed_anywhere(&a.acting_as("victim"), &a.acting_as("other"), 20);
}
