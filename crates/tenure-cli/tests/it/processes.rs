//! Several processes and one server: waiting, crashing, being stopped, late renewals.

use nix::sys::signal::Signal;

use crate::rig::{Rig, wait_until};

#[test]
fn the_second_process_waits_and_gets_it_when_the_first_gives_it_back() {
    let rig = Rig::new();
    let server = rig.serve();
    let first = server.run(&["lease", "acquire", "x:a", "--holder", "ann", "--json"]).expect(0).data();
    let mut second = server.start(&["lease", "acquire", "x:a", "--holder", "bob", "--wait", "1m", "--json"]);
    let check = ["lease", "check", "x:a", "--json"];
    wait_until("bob waits", || {
        let check: serde_json::Value = serde_json::from_str(&server.run(&check).stdout).unwrap();
        check["data"]["conflicts"][0]["waiting"] == 1
    });
    assert!(second.0.try_wait().unwrap().is_none());
    server.run(&["lease", "release", first["id"].as_str().unwrap(), "--holder", "ann"]).expect(0);
    assert_eq!(second.end(), 0);
    let held = server.wait_for_lease("x:a");
    assert_eq!(held["holder"], "bob");
    assert!(held["token"].as_u64() > first["token"].as_u64());
}

#[test]
fn a_waiter_that_is_killed_leaves_the_line() {
    let rig = Rig::new();
    let server = rig.serve();
    let first = server.run(&["lease", "acquire", "x:a", "--holder", "ann", "--json"]).expect(0).data();
    let waiting = |server: &crate::rig::Server| {
        let check: serde_json::Value =
            serde_json::from_str(&server.run(&["lease", "check", "x:a", "--json"]).stdout).unwrap();
        check["data"]["conflicts"][0]["waiting"].as_u64()
    };
    let second = server.start(&["lease", "acquire", "x:a", "--holder", "bob", "--wait", "1m"]);
    wait_until("bob waits", || waiting(&server) == Some(1));
    second.signal(Signal::SIGKILL);
    wait_until("bob is gone", || waiting(&server) == Some(0));
    server.run(&["lease", "release", first["id"].as_str().unwrap(), "--holder", "ann"]).expect(0);
    server.run(&["lease", "acquire", "x:a", "--holder", "carl"]).expect(0);
}

#[test]
fn a_late_renew_and_a_late_release_change_nothing_and_are_told() {
    let rig = Rig::new();
    let server = rig.serve();
    let first =
        server.run(&["lease", "acquire", "x:a", "--ttl", "500ms", "--holder", "ann", "--json"]).expect(0).data();
    let second = server.run(&["lease", "acquire", "x:a", "--holder", "bob", "--wait", "1m", "--json"]).expect(0).data();
    let id = first["id"].as_str().unwrap();
    for verb in ["renew", "release"] {
        let late = server.run(&["lease", verb, id, "--holder", "ann", "--json"]).expect(75);
        let error = &late.envelope()["error"];
        assert_eq!((&error["code"], &error["details"]["reason"]), (&"lost".into(), &"expired".into()), "{verb}");
        assert!(verb == "release" || error["details"]["current"]["holder"] == "bob", "{late:?}");
    }
    assert_eq!(server.wait_for_lease("x:a")["id"], second["id"]);
}

#[test]
fn a_restart_of_the_server_keeps_leases_and_tokens_grow() {
    let rig = Rig::new();
    let mut server = rig.serve();
    let first = server.run(&["lease", "acquire", "x:a", "--holder", "ann", "--json"]).expect(0).data();
    let address = server.address().to_owned();
    server.child.signal(Signal::SIGKILL);
    assert_eq!(server.child.end(), 137);
    let server = rig.serve_with(&address, &[]);
    assert_eq!(server.wait_for_lease("x:a")["id"], first["id"]);
    let second = server.run(&["lease", "acquire", "x:b", "--holder", "ann", "--json"]).expect(0).data();
    assert!(second["token"].as_u64() > first["token"].as_u64());
}
