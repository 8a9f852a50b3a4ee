//! The client without a runtime of the program's own.

use std::time::{Duration, Instant};

use tenure::{Acquire, LeaseQuery, Mode, Refusal, State, blocking};

use crate::rig::{PATIENCE, Rig, Server, wait_until};

fn client(server: &Server, holder: &str) -> blocking::Client {
    blocking::Client::new(tenure::Client::builder().url(&server.url).holder(holder)).unwrap()
}

#[test]
fn a_thread_that_never_yields_keeps_its_lease() {
    let rig = Rig::new();
    let server = rig.serve();
    let ann = client(&server, "ann");
    let lease = ann.acquire(Acquire::one("x:a").ttl(Duration::from_millis(600))).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert_ne!(lease.state(), State::Lost);
        std::hint::spin_loop();
    }
    lease.release().unwrap();
    assert!(server.leases("x:a").is_empty());
}

#[test]
fn every_call_says_what_the_server_said() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, bob) = (client(&server, "ann"), client(&server, "bob"));
    let lease = ann.acquire(Acquire::one("path:src")).unwrap();
    assert!(ann.renew(lease.id(), Some(Duration::from_secs(60))).unwrap().ttl_ms == 60_000);
    let check = bob.check(["path:src/a.rs"], Mode::Exclusive).unwrap();
    assert!(!check.free && check.conflicts[0].holder.as_ref().unwrap().as_str() == "ann", "{check:?}");
    assert_eq!(bob.leases(&LeaseQuery::default().holder("ann")).unwrap().leases.len(), 1);
    let error = bob.release(lease.id()).unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::NotHolder { .. })), "{error:?}");
    ann.release(lease.id()).unwrap();
    assert!(bob.check(["path:src/a.rs"], Mode::Exclusive).unwrap().free);
}

#[test]
fn a_thread_can_wait_for_the_loss() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, admin) = (client(&server, "ann"), client(&server, "admin"));
    let lease = ann.acquire(Acquire::one("x:a").ttl(Duration::from_millis(900))).unwrap();
    let id = lease.id();
    let waiting = std::thread::spawn(move || lease.wait_lost().to_string());
    admin.wait_for(admin.asynchronous().revoke(id, "maintenance")).unwrap();
    wait_until("the thread is told", || waiting.is_finished());
    assert_eq!(waiting.join().unwrap(), "it was revoked (maintenance)");
}

#[test]
fn a_wait_in_line_ends_with_the_grant() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, bob) = (client(&server, "ann"), client(&server, "bob"));
    let held = ann.acquire(Acquire::one("x:a")).unwrap();
    let waiting =
        std::thread::spawn(move || bob.acquire(Acquire::one("x:a").wait(PATIENCE)).map(|lease| lease.token()));
    wait_until("bob stands in line", || {
        let check = ann.check(["x:a"], Mode::Exclusive).unwrap();
        check.conflicts.first().is_some_and(|conflict| conflict.waiting == 1)
    });
    let token = held.token();
    held.release().unwrap();
    assert!(waiting.join().unwrap().unwrap() > token);
}
