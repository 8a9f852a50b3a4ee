//! The races that lose a lock in other designs, made certain: the other side acts exactly between reading and writing,
//! because that is when the clock is asked.

use std::sync::atomic::{AtomicU32, Ordering};

use tenure_core::Timestamp;
use tenure_git::{Ask, Error, LockName, Locks};

use crate::support::*;

/// Runs an act in which the `nth` look at the clock lets somebody else act first.
fn interrupted<T>(agent: &Agent, nth: u32, interrupt: &dyn Fn(), act: impl FnOnce(&Locks<'_>) -> T) -> T {
    let looks = AtomicU32::new(0);
    let clock = || -> Timestamp {
        let now = agent.clock.now();
        if looks.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            interrupt();
        }
        now
    };
    act(&Locks::open(&agent.repo, &agent.mode, agent.name.clone(), &clock).expect("locks"))
}

/// Two clones of a remote, and two agents in one clone without one; each with its own clock.
fn worlds(story: impl Fn(&Agent, &Agent)) {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    story(&a, &Agent { clock: TestClock::new(), ..b });
    let world = World::on_path();
    story(&world.alone("a"), &Agent { clock: TestClock::new(), ..world.alone("b") });
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("a name")
}

fn ask(name: &LockName) -> Ask<'_> {
    Ask { name, ttl: ttl(MINUTE) }
}

#[test]
fn a_late_renewal_does_not_live_beside_a_lock_that_overlaps_it() {
    worlds(|a, b| {
        let src = name("path:src");
        a.acquire("path:src", MINUTE).expect("free");
        b.clock.advance(MINUTE + 5_000);
        // a judges its lock active; before its change arrives, b finds it lapsed and takes a part of it.
        let take = || assert!(b.acquire("path:src/a.rs", MINUTE).is_ok());
        let late = interrupted(a, 2, &take, |locks| locks.renew(ask(&src)));
        assert!(matches!(late, Err(Error::NotHeld(_))), "{late:?}");
        assert_eq!(b.live(), [("path:src/a.rs".to_owned(), "b".to_owned())]);
    });
}

#[test]
fn a_grant_over_a_lapsed_lock_fails_if_that_lock_was_renewed_meanwhile() {
    worlds(|a, b| {
        let part = name("path:src/a.rs");
        a.acquire("path:src", MINUTE).expect("free");
        b.clock.advance(MINUTE + 5_000);
        // b has read the lapsed lock; before its grant arrives, a renews in time by its own clock.
        let renew = || assert!(a.renew("path:src", 10 * MINUTE).is_ok());
        let judged_with_old = interrupted(b, 1, &renew, |locks| locks.acquire(ask(&part)));
        assert_eq!(refused_by(judged_with_old), "a");
    });
}

#[test]
fn two_creates_of_overlapping_locks_cannot_both_pass() {
    worlds(|a, b| {
        let part = name("path:src/a.rs");
        let take = || assert!(b.acquire("path:src", MINUTE).is_ok());
        let second = interrupted(a, 1, &take, |locks| locks.acquire(ask(&part)));
        assert_eq!(refused_by(second), "b");
    });
}

#[test]
fn two_creates_of_one_lock_cannot_both_pass() {
    worlds(|a, b| {
        let x = name("path:x");
        let take = || assert!(b.acquire("path:x", MINUTE).is_ok());
        assert_eq!(refused_by(interrupted(a, 1, &take, |locks| locks.acquire(ask(&x)))), "b");
    });
}

#[test]
fn of_two_who_find_a_lock_lapsed_one_takes_it() {
    worlds(|a, b| {
        let x = name("path:x");
        let c = Agent { name: "c".into(), ..a.clone() };
        c.acquire("path:x", MINUTE).expect("free");
        a.clock.advance(MINUTE + 5_000);
        b.clock.advance(MINUTE + 5_000);
        let take = || assert!(b.acquire("path:x", MINUTE).is_ok());
        assert_eq!(refused_by(interrupted(a, 1, &take, |locks| locks.acquire(ask(&x)))), "b");
    });
}

#[test]
fn a_late_release_leaves_the_next_holder_alone() {
    worlds(|a, b| {
        let x = name("path:x");
        a.acquire("path:x", MINUTE).expect("free");
        b.clock.advance(MINUTE + 5_000);
        let take = || assert!(b.acquire("path:x", MINUTE).is_ok());
        assert_eq!(refused_by(interrupted(a, 1, &take, |locks| locks.release(&x))), "b");
        assert_eq!(b.live(), [("path:x".to_owned(), "b".to_owned())]);
    });
}

#[test]
fn gc_leaves_a_lock_alone_that_was_taken_after_it_looked() {
    worlds(|a, b| {
        b.acquire("path:x", MINUTE).expect("free");
        a.clock.advance(MINUTE + 5_000);
        b.clock.advance(MINUTE + 5_000);
        let take = || assert!(b.acquire("path:x", MINUTE).is_ok());
        let collected = interrupted(a, 1, &take, |locks| locks.gc()).expect("gc");
        assert_eq!((collected.removed.len(), collected.changed), (0, 1));
        assert_eq!(b.live(), [("path:x".to_owned(), "b".to_owned())]);
    });
}

#[test]
fn a_lock_that_another_program_pushed_without_the_guard_is_seen_before_a_grant_is_reported() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    a.acquire("path:warm", MINUTE).expect("free");
    // Written and pushed as the other program does it: only the lock's ref.
    let foreign = Agent { mode: tenure_git::Mode::Local, ..b.clone() };
    foreign.acquire("path:src", MINUTE).expect("free");
    git(b.dir(), &["push", "-q", "origin", "refs/grite/locks/*:refs/grite/locks/*"]);
    assert_eq!(refused_by(a.acquire("path:src/a.rs", MINUTE)), "b");
    assert_eq!(a.live().len(), 2, "{:?}", a.live());
}

#[test]
fn an_answer_that_takes_longer_than_the_ttl_is_no_grant() {
    worlds(|a, _| {
        let x = name("path:x");
        let looks = AtomicU32::new(0);
        let clock = || {
            if looks.fetch_add(1, Ordering::SeqCst) == 1 {
                a.clock.advance(MINUTE);
            }
            a.clock.now()
        };
        let locks = Locks::open(&a.repo, &a.mode, "a", &clock).expect("locks");
        assert!(matches!(locks.acquire(ask(&x)), Err(Error::TooLate { .. })));
        assert_eq!(a.live(), []);
    });
}

#[test]
fn the_token_is_found_again_after_another_program_rewrote_the_lock() {
    let world = World::on_path();
    let a = world.alone("a");
    a.acquire("path:first", MINUTE).expect("free");
    let granted = a.acquire("path:x", MINUTE).expect("free");
    let reference = name("path:x").ref_name();
    let tree = git(a.dir(), &["rev-parse", &format!("{reference}^{{tree}}")]);
    let rewritten = git(a.dir(), &["commit-tree", &tree, "-p", &reference, "-m", "Lock: path:x"]);
    git(a.dir(), &["update-ref", &reference, &rewritten]);
    assert_eq!(a.renew("path:x", MINUTE).expect("mine").token, granted.token);
    assert_eq!(granted.token, Some(2));
}
