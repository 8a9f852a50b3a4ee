//! `tenure run`: what runs under a lease ends with it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::rig::{Rig, pids, runs, wait_until};

/// Writes the ids of a whole tree into `tree` and waits: the shell, a child, and a grandchild that ignores TERM.
const TREE: &str = "sleep 600 & a=$!; sh -c 'trap \"\" TERM; sleep 600 & echo $$ $! > inner; wait; wait' & \
    while [ ! -s inner ]; do sleep 0.01; done; echo $$ $a $(cat inner) > tree; wait";

#[test]
fn the_command_runs_while_the_lease_is_held_and_its_code_is_passed_on() {
    let rig = Rig::new();
    let server = rig.serve();
    let script = "echo $TENURE_LEASE_ID $TENURE_TOKEN; echo \"$TENURE_RESOURCES\"; exit 7";
    let done = server.run(&["run", "--resource", "x:a", "--resource", "x:b", "--", "sh", "-c", script]).expect(7);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("lease-") && lines[1..] == ["x:a", "x:b"], "{done:?}");
    assert!(server.leases("x:a").is_empty(), "it was given back at once");
    server.run(&["run", "--resource", "x:a", "--", "true"]).expect(0);
    server.run(&["run", "--resource", "x:a", "--", "sh", "-c", "kill -TERM $$"]).expect(143);
    server.run(&["run", "--resource", "x:a", "--", "/no/such/command"]).expect(127);
    server.run(&["run", "--resource", "x:a", "--", "/"]).expect(126);
    assert!(server.leases("x:a").is_empty());
}

#[test]
fn a_command_that_outlives_many_ttls_keeps_its_lease() {
    let rig = Rig::new();
    let server = rig.serve();
    let mut run = server.start(&["run", "--resource", "x:a", "--ttl", "1s", "--", "sleep", "600"]);
    let id = server.wait_for_lease("x:a")["id"].clone();
    let start = Instant::now();
    wait_until("five ttls have passed", || {
        assert_eq!(server.leases("x:a")[0]["id"], id, "after {:?}", start.elapsed());
        start.elapsed() > Duration::from_secs(5)
    });
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end(), 143, "the signal went to the command");
    server.wait_until_free("x:a");
}

#[test]
fn refused_lost_and_timed_out_have_their_codes() {
    let rig = Rig::new();
    let server = rig.serve();
    server.run(&["lease", "acquire", "x:a", "--holder", "ann"]).expect(0);
    let held = server.run(&["run", "--resource", "x:a", "--json", "--", "touch", "ran"]).expect(4);
    assert_eq!(held.envelope()["error"]["code"], "held");
    server.run(&["run", "--resource", "x:a", "--wait", "200ms", "--", "touch", "ran"]).expect(124);
    assert!(!rig.home().join("ran").exists());
    server.run(&["run", "--resource", "bad", "--", "true"]).expect(2);
}

#[test]
fn two_runs_take_turns() {
    let rig = Rig::new();
    let server = rig.serve();
    let script = "echo in >> log; [ $(grep -c in log) = $(( $(grep -c out log) + 1 )) ] || echo BOTH >> log; \
        sleep 0.1; echo out >> log";
    let words = ["run", "--resource", "x:a", "--wait", "1m", "--", "sh", "-c", script];
    let mut all: Vec<_> = (0..6).map(|_| server.start(&words)).collect();
    for run in &mut all {
        assert_eq!(run.end(), 0);
    }
    let log = std::fs::read_to_string(rig.home().join("log")).unwrap();
    assert_eq!(log, "in\nout\n".repeat(6));
}

#[test]
fn when_the_lease_is_taken_away_the_whole_tree_is_stopped() {
    let rig = Rig::new();
    let server = rig.serve();
    let mut run = server.start(&["run", "--resource", "x:a", "--ttl", "3s", "--", "sh", "-c", TREE]);
    let tree = pids(&rig.home().join("tree"), 4);
    assert!(tree.iter().all(|pid| runs(*pid)));
    let id = server.wait_for_lease("x:a")["id"].clone();
    server.run(&["lease", "revoke", id.as_str().unwrap(), "--reason", "maintenance"]).expect(0);
    assert_eq!(run.end(), 75);
    assert!(tree.iter().all(|pid| !runs(*pid)), "{tree:?}");
    let mut said = String::new();
    std::io::Read::read_to_string(run.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(said.contains("it was revoked (maintenance)"), "{said}");
}

#[test]
fn when_the_server_is_gone_the_whole_tree_is_stopped_before_the_lease_can_be_anothers() {
    let rig = Rig::new();
    let server = rig.serve();
    let ttl = Duration::from_secs(4);
    let mut run = server.start(&["run", "--resource", "x:a", "--ttl", "4s", "--", "sh", "-c", TREE]);
    let tree = pids(&rig.home().join("tree"), 4);
    // A server that hangs is worse than one that is gone: nothing tells the client.
    server.child.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    wait_until("the tree is stopped", || tree.iter().all(|pid| !runs(*pid)));
    // The last accepted renewal was sent before the server stopped.
    assert!(stopped.elapsed() < ttl, "{:?}", stopped.elapsed());
    assert_eq!(run.end(), 75);
    server.child.signal(Signal::SIGCONT);
    server.wait_until_free("x:a");
}

#[test]
fn a_restart_of_the_server_inside_the_ttl_is_not_noticed() {
    let rig = Rig::new();
    let mut server = rig.serve();
    let mut run = server.start(&["run", "--resource", "x:a", "--ttl", "6s", "--", "sleep", "600"]);
    let id = server.wait_for_lease("x:a")["id"].clone();
    let address = server.address().to_owned();
    server.child.signal(Signal::SIGKILL);
    server.child.end();
    let server = rig.serve_with(&address, &[]);
    let start = Instant::now();
    wait_until("more than a ttl has passed", || {
        assert_eq!(server.wait_for_lease("x:a")["id"], id);
        start.elapsed() > Duration::from_secs(7)
    });
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end(), 143);
}

#[test]
fn a_run_that_is_killed_frees_the_resource_after_the_ttl() {
    let rig = Rig::new();
    let server = rig.serve();
    let run =
        server.start(&["run", "--resource", "x:a", "--ttl", "2s", "--", "sh", "-c", "echo $$ > tree; exec sleep 600"]);
    let tree = pids(&rig.home().join("tree"), 1);
    run.signal(Signal::SIGKILL);
    server.run(&["lease", "acquire", "x:a", "--holder", "bob", "--wait", "1m"]).expect(0);
    let ends = server.run(&["lease", "ls", "--status", "expired", "--json"]).expect(0).data();
    assert_eq!(ends["leases"][0]["resources"][0], "x:a");
    // Nobody is left to stop the command: that is what the token is for.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(tree[0]), Signal::SIGKILL).unwrap();
}

#[test]
fn a_run_that_was_stopped_longer_than_the_ttl_ends_its_command_and_changes_nothing() {
    let rig = Rig::new();
    let server = rig.serve();
    let mut run = server.start(&["run", "--resource", "x:a", "--ttl", "2s", "--", "sh", "-c", TREE]);
    let tree = pids(&rig.home().join("tree"), 4);
    let first = server.wait_for_lease("x:a")["id"].clone();
    run.signal(Signal::SIGSTOP);
    let second = server.run(&["lease", "acquire", "x:a", "--holder", "bob", "--wait", "1m", "--json"]).expect(0).data();
    assert_ne!(first, second["id"]);
    run.signal(Signal::SIGCONT);
    assert_eq!(run.end(), 75, "it is told");
    assert!(tree.iter().all(|pid| !runs(*pid)), "{tree:?}");
    assert_eq!(server.wait_for_lease("x:a")["id"], second["id"], "its late renew and release changed nothing");
}

#[test]
fn signals_go_to_the_command_and_not_only_to_the_supervisor() {
    let rig = Rig::new();
    let server = rig.serve();
    let script = "trap 'echo usr1 >> got' USR1; trap 'echo int >> got; exit 3' INT; echo $$ > tree; while :; do sleep 0.05; done";
    let mut run = server.start(&["run", "--resource", "x:a", "--", "sh", "-c", script]);
    pids(&rig.home().join("tree"), 1);
    let got = || std::fs::read_to_string(rig.home().join("got")).unwrap_or_default();
    run.signal(Signal::SIGUSR1);
    wait_until("the command got USR1", || got() == "usr1\n");
    run.signal(Signal::SIGINT);
    assert_eq!(run.end(), 3);
    assert_eq!(got(), "usr1\nint\n");
    assert!(server.leases("x:a").is_empty());
}
