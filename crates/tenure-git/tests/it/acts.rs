//! What one agent after another can do, with and without a remote.

use tenure_git::{Ask, Error, LockName, NotHeld, Why};

use crate::support::*;

/// The same story is told on every kind of judge.
fn two_agents(story: impl Fn(&World, &Agent, &Agent)) {
    let world = World::on_path();
    story(&world, &world.clone_for("a"), &world.clone_for("b"));
    let world = World::on_path();
    story(&world, &world.alone("a"), &world.alone("b"));
}

#[test]
fn a_lock_is_granted_once_and_the_refusal_names_the_holder() {
    two_agents(|_, a, b| {
        let granted = a.acquire("issue:8057324b", 30 * MINUTE).expect("free");
        assert!(granted.acquired && granted.token == Some(1));
        assert_eq!(granted.payload.expires_unix_ms, a.clock.now().unix_ms() + 30 * MINUTE);
        assert_eq!(refused_by(b.acquire("issue:8057324b", MINUTE)), "a");
        assert_eq!(b.live(), [("issue:8057324b".to_owned(), "a".to_owned())]);
    });
}

#[test]
fn released_is_free_at_once_and_the_token_grows() {
    two_agents(|_, a, b| {
        a.acquire("repo:deploy", MINUTE).expect("free");
        assert!(a.release("repo:deploy").expect("mine"));
        assert!(!a.release("repo:deploy").expect("again is fine"));
        assert_eq!(a.live(), []);
        let second = b.acquire("repo:deploy", MINUTE).expect("free");
        assert_eq!(second.token, Some(2));
        assert_eq!(refused_by(a.release("repo:deploy")), "b");
        assert_eq!(refused_by(a.renew("repo:deploy", MINUTE)), "b");
    });
}

#[test]
fn acquiring_what_one_holds_renews_it_with_the_same_nonce_and_token() {
    two_agents(|world, a, _| {
        let first = a.acquire("path:src", MINUTE).expect("free");
        world.clock.advance(10_000);
        let again = a.acquire("path:src", 2 * MINUTE).expect("mine");
        assert!(!again.acquired);
        assert_eq!((again.token, &again.payload.nonce), (first.token, &first.payload.nonce));
        assert_eq!(again.payload.expires_unix_ms, a.clock.now().unix_ms() + 2 * MINUTE);
    });
}

#[test]
fn a_renewal_extends_while_active_and_never_revives() {
    two_agents(|world, a, b| {
        assert!(matches!(a.renew("path:x", MINUTE), Err(Error::NotHeld(NotHeld::Absent(_)))));
        let first = a.acquire("path:x", MINUTE).expect("free");
        world.clock.advance(MINUTE - 1);
        let renewed = a.renew("path:x", MINUTE).expect("active");
        assert_eq!(renewed.payload.nonce, first.payload.nonce);
        assert_eq!(renewed.token, first.token);
        world.clock.advance(MINUTE);
        assert!(matches!(a.renew("path:x", MINUTE), Err(Error::NotHeld(NotHeld::Expired { .. }))));
        assert_eq!(refused_by(b.renew("path:x", MINUTE)), "a");
    });
}

#[test]
fn a_takeover_waits_for_the_margin_and_the_holder_itself_does_not() {
    two_agents(|world, a, b| {
        a.acquire("path:x", MINUTE).expect("free");
        world.clock.advance(MINUTE + 4_999);
        assert_eq!(a.live(), []);
        match b.acquire("path:x", MINUTE) {
            Err(Error::Conflict(conflict)) => assert_eq!((conflict.why, conflict.owner.as_str()), (Why::Lapsing, "a")),
            other => panic!("{other:?}"),
        }
        world.clock.advance(1);
        let taken = b.acquire("path:x", MINUTE).expect("lapsed");
        assert!(taken.acquired && taken.token == Some(2));
        world.clock.advance(MINUTE);
        assert_eq!(b.acquire("path:x", MINUTE).expect("its own").token, Some(3));
        assert_eq!(refused_by(a.release("path:x")), "b");
    });
}

#[test]
fn overlapping_resources_exclude_each_other_and_others_do_not() {
    two_agents(|_, a, b| {
        a.acquire("path:src", MINUTE).expect("free");
        for taken in [
            "path:src/a.rs",
            "path:src",
            "path:src/",
            "path:./src",
            "path:src//a.rs",
            "path:.",
            "repo:global",
            "repo:*",
        ] {
            assert_eq!(refused_by(b.acquire(taken, MINUTE)), "a", "{taken}");
        }
        for free in ["path:src2", "issue:1", "repo:deploy", "...", "src"] {
            b.acquire(free, MINUTE).expect(free);
        }
        a.acquire("path:src/a.rs", MINUTE).expect("one's own locks may overlap");
    });
}

#[test]
fn the_whole_repository_excludes_everything_in_it() {
    two_agents(|_, a, b| {
        a.acquire("repo:global", MINUTE).expect("free");
        for taken in ["path:x", "issue:1", "repo:deploy", "repo:*"] {
            assert_eq!(refused_by(b.acquire(taken, MINUTE)), "a", "{taken}");
        }
        b.acquire("task:1", MINUTE).expect("not of the repository");
    });
}

#[test]
fn a_refusal_writes_no_objects() {
    two_agents(|_, a, b| {
        a.acquire("path:x", MINUTE).expect("free");
        let _ = b.acquire("path:x", MINUTE);
        let before = git(b.dir(), &["count-objects"]);
        for _ in 0..5 {
            refused_by(b.acquire("path:x", MINUTE));
        }
        assert_eq!(git(b.dir(), &["count-objects"]), before);
    });
}

#[test]
fn the_remote_has_the_ref_before_the_caller_hears_of_it_and_history_only_moves_forward() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    let reference = "refs/grite/locks/41204ff05d5ee206";
    let at = |agent: &Agent| git(agent.dir(), &["rev-parse", reference]);
    let mut last = String::new();
    let mut moved_forward = |what: &str| {
        let now = git(&world.remote(), &["rev-parse", reference]);
        if !last.is_empty() {
            git(&world.remote(), &["merge-base", "--is-ancestor", &last, &now]);
            assert_ne!(last, now, "{what}");
        }
        last.clone_from(&now);
        now
    };
    a.acquire("repo:deploy", MINUTE).expect("free");
    assert_eq!(moved_forward("acquire"), at(&a));
    a.renew("repo:deploy", MINUTE).expect("mine");
    assert_eq!(moved_forward("renew"), at(&a));
    a.release("repo:deploy").expect("mine");
    assert_eq!(moved_forward("release"), at(&a));
    b.acquire("repo:deploy", MINUTE).expect("free");
    assert_eq!(moved_forward("acquire over a release"), at(&b));
    world.clock.advance(MINUTE + 5_000);
    a.acquire("repo:deploy", MINUTE).expect("lapsed");
    assert_eq!(moved_forward("takeover"), at(&a));
}

#[test]
fn without_an_answer_from_the_remote_nothing_is_granted() {
    let world = World::on_path();
    let a = world.clone_for("a");
    std::fs::rename(world.remote(), world.dir.path().join("away.git")).expect("moved");
    assert!(matches!(a.acquire("path:x", MINUTE), Err(Error::RemoteUnavailable { unknown: false, .. })));
    assert_eq!(git(a.dir(), &["for-each-ref", "refs/grite", "refs/tenure"]), "");
    let local = Agent { mode: tenure_git::Mode::Local, ..a.clone() };
    local.acquire("path:x", MINUTE).expect("asked for this clone only");
    std::fs::rename(world.dir.path().join("away.git"), world.remote()).expect("moved back");
    let other = world.agent_in(a.dir(), "other");
    match other.acquire("path:x", MINUTE) {
        Err(Error::Conflict(conflict)) => assert_eq!((conflict.why, conflict.owner.as_str()), (Why::LocalOnly, "a")),
        other => panic!("{other:?}"),
    }
    assert!(a.release("path:x").expect("also what only this clone knows"));
    other.acquire("path:x", MINUTE).expect("free");
}

#[test]
fn a_remote_that_refuses_by_a_hook_is_an_error_and_not_a_conflict() {
    let world = World::on_path();
    let a = world.clone_for("a");
    let hook = world.remote().join("hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\necho no locks here >&2\nexit 1\n").expect("written");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    match a.acquire("path:x", MINUTE) {
        Err(Error::RemoteRefused { detail, .. }) => assert!(detail.contains("no locks here"), "{detail}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn which_remote_judges_is_a_setting_and_a_missing_one_is_said() {
    let world = World::on_path();
    let a = world.clone_for("a");
    git(a.dir(), &["remote", "rename", "origin", "upstream"]);
    let a = world.agent_in(a.dir(), "a");
    assert!(matches!(a.repo.judge(&a.mode), Err(Error::NoSuchRemote { name }) if name == "origin"));
    git(a.dir(), &["config", "tenure.remote", "upstream"]);
    let a = world.agent_in(a.dir(), "a");
    a.acquire("path:x", MINUTE).expect("free");
    git(a.dir(), &["remote", "set-url", "--add", "upstream", "/elsewhere"]);
    assert!(matches!(world.agent_in(a.dir(), "a").repo.judge(&a.mode), Err(Error::UnfitRemote { .. })));
}

#[test]
fn the_margin_is_a_setting_with_bounds() {
    let world = World::on_path();
    let a = world.alone("a");
    for (text, expected) in
        [("0", Some(0)), ("250ms", Some(250)), ("1h", Some(3_600_000)), ("2h", None), ("soon", None)]
    {
        git(a.dir(), &["config", "tenure.skew", text]);
        assert_eq!(world.agent_in(a.dir(), "a").repo.skew_ms().ok(), expected, "{text}");
    }
}

#[test]
fn a_clock_within_the_margin_harms_nobody_and_one_beyond_it_is_seen_by_the_former_holder() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    let ahead = Agent { clock: TestClock::new(), ..b };
    ahead.clock.advance(4_000);
    let first = a.acquire("path:x", MINUTE).expect("free");
    world.clock.advance(MINUTE - 1);
    ahead.clock.advance(MINUTE - 1);
    // Ahead by less than the margin: the holder's last millisecond is its own.
    assert_eq!(refused_by(ahead.acquire("path:x", MINUTE)), "a");
    // Ahead by more: it takes what its holder still believes in.
    ahead.clock.advance(10_000);
    let second = ahead.acquire("path:x", MINUTE).expect("lapsed, by a wrong clock");
    assert!(first.payload.is_live(a.clock.now()));
    // The former holder hears of it at its next word, and the token tells who is late.
    assert_eq!(refused_by(a.renew("path:x", MINUTE)), "b");
    assert!(second.token > first.token);
    // Behind: its lock is over for the others before it is for itself; the margin is all it has left.
    let behind = Agent { name: "c".into(), clock: TestClock::new(), ..a.clone() };
    world.clock.advance(20 * MINUTE);
    behind.acquire("path:y", 10 * MINUTE).expect("free");
    a.acquire("path:y", MINUTE).expect("expired for everybody else");
    assert_eq!(refused_by(behind.renew("path:y", MINUTE)), "a");
}

#[test]
fn acquiring_what_one_holds_never_makes_it_end_earlier_and_renewing_does_as_asked() {
    two_agents(|_, a, _| {
        let first = a.acquire("path:src", 10 * MINUTE).expect("free");
        let again = a.acquire("path:src", MINUTE).expect("mine");
        assert_eq!(again.payload.expires_unix_ms, first.payload.expires_unix_ms);
        let renewed = a.renew("path:src", MINUTE).expect("mine");
        assert_eq!(renewed.payload.expires_unix_ms, a.clock.now().unix_ms() + MINUTE);
    });
}

#[test]
fn who_names_a_grant_keeps_and_ends_only_that_one() {
    two_agents(|world, a, _| {
        let name = LockName::parse("path:x").expect("a name");
        let ask = Ask { name: &name, ttl: ttl(MINUTE) };
        let first = a.acquire("path:x", 10 * MINUTE).expect("free").payload;
        let kept = a.with(|locks| locks.renew_grant(ask, &first.nonce)).expect("active");
        assert_eq!(kept.payload.expires_unix_ms, first.expires_unix_ms);
        world.clock.advance(10 * MINUTE);
        a.acquire("path:x", MINUTE).expect("its own, and over");
        let late = a.with(|locks| locks.renew_grant(ask, &first.nonce));
        assert!(matches!(late, Err(Error::NotHeld(NotHeld::Absent(_)))), "{late:?}");
        assert!(!a.with(|locks| locks.release_grant(&name, &first.nonce)).expect("nothing to do"));
        assert_eq!(a.live().len(), 1);
    });
}
