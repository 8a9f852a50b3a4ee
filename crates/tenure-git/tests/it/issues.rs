//! Issues, shared between clones.

use tenure_git::Error;
use tenure_git::issue::{Issues, State};

use crate::support::*;

fn with<T>(agent: &Agent, act: impl FnOnce(&Issues<'_>) -> T) -> T {
    let clock = || agent.clock.now();
    act(&Issues::open(&agent.repo, &agent.mode, agent.name.clone(), &clock).expect("issues"))
}

#[test]
fn an_issue_made_in_one_clone_is_found_commented_and_closed_in_another() {
    let world = World::on_path();
    let (a, b) = (world.clone_for("a"), world.clone_for("b"));
    let made =
        with(&a, |issues| issues.create("Process batch", "all of it", &["todo".into(), "a".into(), "todo".into()]));
    let id = made.expect("made").issue.issue_id;
    let listed = with(&b, |issues| issues.list()).expect("listed");
    assert_eq!(listed.iter().map(|issue| &issue.issue_id).collect::<Vec<_>>(), [&id]);
    assert_eq!(listed.first().map(|issue| issue.labels.clone()), Some(vec!["a".to_owned(), "todo".to_owned()]));
    with(&b, |issues| issues.comment(id.split_at(8).0, "Working on this")).expect("by prefix");
    let closed = with(&b, |issues| issues.set_state(&id, State::Closed)).expect("closed");
    assert_eq!(closed.commit.as_str(), git(&world.remote(), &["rev-parse", &format!("refs/tenure/issues/{id}")]));
    let seen = with(&a, |issues| issues.show(&id)).expect("shown");
    assert_eq!((seen.state, seen.comment_count(), seen.events.len()), (State::Closed, 1, 3));
    let parents: Vec<_> = seen.events.iter().skip(1).map(|event| event.parent.clone()).collect();
    assert_eq!(parents, seen.events.iter().take(2).map(|event| Some(event.event_id.clone())).collect::<Vec<_>>());
}

#[test]
fn everybody_who_comments_at_once_is_heard() {
    let world = World::on_path();
    let agents: Vec<Agent> = (0..4).map(|number| world.clone_for(&format!("c{number}"))).collect();
    let first = agents.first().expect("some");
    let id = with(first, |issues| issues.create("t", "", &[])).expect("made").issue.issue_id;
    std::thread::scope(|scope| {
        for agent in &agents {
            let id = &id;
            scope.spawn(move || with(agent, |issues| issues.comment(id, &agent.name)).expect("heard"));
        }
    });
    assert_eq!(with(first, |issues| issues.show(&id)).expect("shown").comment_count(), 4);
}

/// Puts a hook into the remote that adds a line to `pushes` for every push and then does more.
fn on_push(world: &World, more: &str) {
    let hook = world.remote().join("hooks/pre-receive");
    std::fs::create_dir_all(world.remote().join("hooks")).expect("made");
    std::fs::write(&hook, format!("#!/bin/sh\necho push >> pushes\n{more}\n")).expect("written");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
}

fn pushes(world: &World) -> usize {
    std::fs::read_to_string(world.remote().join("pushes")).expect("pushed").lines().count()
}

#[test]
fn a_comment_waits_while_the_change_of_another_is_under_way() {
    let world = World::on_path();
    let a = world.clone_for("a");
    let id = with(&a, |issues| issues.create("t", "", &[])).expect("made").issue.issue_id;
    // What the other holds in the remote, from before our first push to our third.
    let lock = format!("refs/tenure/issues/{id}.lock");
    std::fs::write(world.remote().join(&lock), "").expect("written");
    on_push(&world, &format!("test $(wc -l < pushes) -lt 3 || rm -f {lock}"));
    with(&a, |issues| issues.comment(&id, "heard")).expect("heard");
    assert_eq!(pushes(&world), 3);
    assert_eq!(with(&a, |issues| issues.show(&id)).expect("shown").comment_count(), 1);
}

#[test]
fn a_hook_that_says_no_is_asked_once_and_a_lock_that_stays_is_said() {
    let world = World::on_path();
    let a = world.clone_for("a");
    let id = with(&a, |issues| issues.create("t", "", &[])).expect("made").issue.issue_id;
    on_push(&world, "exit 1");
    assert!(matches!(with(&a, |issues| issues.comment(&id, "x")), Err(Error::RemoteRefused { .. })));
    assert_eq!(pushes(&world), 1);
    std::fs::write(world.remote().join(format!("refs/tenure/issues/{id}.lock")), "").expect("written");
    on_push(&world, "");
    assert!(matches!(with(&a, |issues| issues.comment(&id, "x")), Err(Error::RemoteRefused { .. })));
    assert_eq!(pushes(&world), 8, "six more tries than the first");
}

#[test]
fn what_is_no_issue_is_said_to_be_none() {
    let world = World::on_path();
    let a = world.alone("a");
    assert!(matches!(with(&a, |issues| issues.show("abcd")), Err(Error::Issue(_))));
    for bad in ["", "abc", "xyzw", "../x"] {
        assert!(matches!(with(&a, |issues| issues.show(bad)), Err(Error::BadInput(_))), "{bad}");
    }
    for title in ["", " ", "a\nb", &"x".repeat(600)] {
        assert!(matches!(with(&a, |issues| issues.create(title, "", &[])), Err(Error::BadInput(_))), "{title:?}");
    }
    let id = with(&a, |issues| issues.create("t", "", &[])).expect("made").issue.issue_id;
    assert!(matches!(with(&a, |issues| issues.comment(&id, &"x".repeat(1_100_000))), Err(Error::BadInput(_))));
    assert!(matches!(with(&a, |issues| issues.comment(&id, " ")), Err(Error::BadInput(_))));
}

#[test]
fn what_the_other_program_keeps_in_its_own_refs_stays_as_it_is() {
    let world = World::on_path();
    let a = world.clone_for("a");
    let tree = git(a.dir(), &["mktree"]);
    let wal = git(a.dir(), &["commit-tree", &tree, "-m", "WAL"]);
    git(a.dir(), &["update-ref", "refs/grite/wal", &wal]);
    git(a.dir(), &["push", "-q", "origin", "refs/grite/wal:refs/grite/wal"]);
    with(&a, |issues| issues.create("t", "", &[])).expect("made");
    a.acquire("path:x", MINUTE).expect("free");
    a.with(|locks| locks.gc()).expect("gc");
    assert_eq!(git(&world.remote(), &["rev-parse", "refs/grite/wal"]), wal);
    assert_eq!(git(a.dir(), &["rev-parse", "refs/grite/wal"]), wal);
}
