//! Many at once. After every round an auditor asks the judge and the guard's history: no two overlapping holders, one
//! token for one grant, growing.

use std::sync::Barrier;

use tenure_git::{Error, Granted, LockName, Repo, guard};

use crate::support::*;

const AGENTS: usize = 8;
const NAMES: [&str; 6] = ["path:src", "path:src/a.rs", "path:src/b.rs", "repo:*", "repo:global", "issue:1"];

/// The one whose turn it is.
fn turn<T>(all: &[T], round: usize) -> &T {
    all.iter().cycle().nth(round).expect("never empty")
}

/// Every agent does one act at the same moment.
fn at_once<T: Send>(agents: &[Agent], act: impl Fn(usize, &Agent) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(agents.len());
    std::thread::scope(|scope| {
        let act = &act;
        let start = &start;
        let run = |(number, agent)| {
            scope.spawn(move || {
                start.wait();
                act(number, agent)
            })
        };
        let threads: Vec<_> = agents.iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Only a grant or a conflict is an answer.
fn answer(result: Result<Granted, Error>) -> Option<Granted> {
    match result {
        Ok(granted) => Some(granted),
        Err(Error::Conflict(_) | Error::NotHeld(_)) => None,
        Err(other) => panic!("neither granted nor refused: {other:?}"),
    }
}

/// Everything the judge and the guard say after a round.
fn audit(agent: &Agent, guard_repo: &std::path::Path, granted: &[Granted], last_token: u64) -> u64 {
    let status = agent.with(|locks| locks.status()).expect("status");
    for (at, lock) in status.live.iter().enumerate() {
        for other in status.live.iter().skip(at + 1) {
            let fine = lock.owner == other.owner || !lock.name.overlaps(&other.name);
            assert!(fine, "{} of {} and {} of {}", lock.name, lock.owner, other.name, other.owner);
        }
    }
    let is_live = |granted: &&Granted| {
        let same = |lock: &&tenure_git::status::Listed| lock.name.as_str() == granted.payload.resource;
        status.live.iter().find(same).is_some_and(|lock| lock.owner == granted.payload.owner)
    };
    assert_eq!(granted.iter().filter(is_live).count(), granted.len(), "a reported grant is not there");
    let history = guard::history(&tenure_git::git::Git::in_dir(guard_repo), "refs/tenure/guard").expect("history");
    let tokens: Vec<u64> = history.iter().map(|grant| grant.token).collect();
    let newest = tokens.first().copied().unwrap_or_default();
    let expected: Vec<u64> = (1..=newest).rev().collect();
    assert_eq!(tokens, expected, "the guard's history has a gap or a double");
    for grant in granted.iter().filter(|grant| grant.acquired) {
        let token = grant.token.expect("a token");
        assert!(token > last_token, "{token} after {last_token}");
        let remembered = history.iter().find(|remembered| remembered.token == token).expect("in the history");
        assert_eq!(remembered.payload.nonce, grant.payload.nonce);
    }
    newest
}

/// Rounds of acquires on overlapping names, over what the last round left: live, released, or lapsed locks.
fn race(world: &World, agents: &[Agent], guard_repo: &std::path::Path, rounds: usize) {
    let mut last_token = 0;
    for round in 0..rounds {
        let same = round % 3 == 0;
        let wanted = |number: usize| if same { "path:src" } else { *turn(&NAMES, number + round) };
        let grants = at_once(agents, |number, agent| answer(agent.acquire(wanted(number), MINUTE)));
        let granted: Vec<Granted> = grants.into_iter().flatten().collect();
        assert!(!granted.is_empty(), "round {round}: nobody got anything");
        assert!(!same || granted.len() == 1, "round {round}: {granted:?}");
        last_token = audit(turn(agents, round), guard_repo, &granted, last_token);
        if round % 2 == 0 {
            for grant in &granted {
                let holder = agents.iter().find(|agent| agent.name == grant.payload.owner).expect("one of them");
                holder.release(&grant.payload.resource).expect("its own");
            }
        } else {
            world.clock.advance(MINUTE + 5_000);
        }
    }
}

/// Everything at once: former holders renew and release, others take over, somebody collects.
fn melee(world: &World, agents: &[Agent], guard_repo: &std::path::Path, rounds: usize) {
    let mut last_token = 0;
    for round in 0..rounds {
        let resource = *turn(&NAMES, round % 3);
        let holder = turn(agents, round);
        let first = answer(holder.acquire(resource, MINUTE)).expect("free");
        world.clock.advance(MINUTE + 5_000);
        let grants = at_once(agents, |number, agent| match (number + round) % 4 {
            _ if agent.name == holder.name => answer(agent.renew(resource, MINUTE)),
            0 => {
                agent.with(|locks| locks.gc()).expect("gc");
                None
            }
            1 => answer(agent.acquire("path:src/a.rs", MINUTE)),
            _ => answer(agent.acquire(resource, MINUTE)),
        });
        let granted: Vec<Granted> = grants.into_iter().flatten().collect();
        assert!(granted.iter().all(|grant| grant.payload.nonce != first.payload.nonce), "an expired lock was revived");
        audit(holder, guard_repo, &granted, last_token.max(first.token.expect("a token")));
        let left: Vec<(String, String)> = holder.live();
        for (resource, owner) in left {
            let owner = agents.iter().find(|agent| agent.name == owner).expect("one of them");
            owner.release(&resource).expect("its own");
        }
        last_token = first.token.expect("a token");
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..AGENTS).map(|number| format!("agent-{number}"))
}

#[test]
fn eight_clones_of_one_remote_never_hold_overlapping_locks() {
    let world = World::on_path();
    let agents: Vec<Agent> = names().map(|name| world.clone_for(&name)).collect();
    race(&world, &agents, &world.remote(), rounds(12));
    world.clock.advance(MINUTE + 5_000);
    melee(&world, &agents, &world.remote(), rounds(6));
}

#[test]
fn eight_clones_behind_a_daemon_never_hold_overlapping_locks() {
    let world = World::on_daemon();
    let agents: Vec<Agent> = names().map(|name| world.clone_for(&name)).collect();
    race(&world, &agents, &world.remote(), rounds(6));
    world.clock.advance(MINUTE + 5_000);
    melee(&world, &agents, &world.remote(), rounds(3));
}

#[test]
fn eight_agents_in_one_clone_never_hold_overlapping_locks() {
    let world = World::on_path();
    let agents: Vec<Agent> = names().map(|name| world.alone(&name)).collect();
    let repo = turn(&agents, 0).dir().to_owned();
    race(&world, &agents, &repo, rounds(40));
    world.clock.advance(MINUTE + 5_000);
    melee(&world, &agents, &repo, rounds(20));
}

#[test]
fn agents_that_change_refs_through_git_and_as_files_never_hold_overlapping_locks() {
    let world = World::on_path();
    let through_git = |agent: Agent| Agent { repo: Repo::ask_git(agent.dir()).expect("a repository"), ..agent };
    let agents: Vec<Agent> = names().map(|name| world.alone(&name)).collect();
    let repo = turn(&agents, 0).dir().to_owned();
    let half = agents.len() / 2;
    let mixed = |(number, agent): (usize, Agent)| if number < half { through_git(agent) } else { agent };
    let agents: Vec<Agent> = agents.into_iter().enumerate().map(mixed).collect();
    race(&world, &agents, &repo, rounds(20));
    world.clock.advance(MINUTE + 5_000);
    melee(&world, &agents, &repo, rounds(10));
}

#[test]
fn eight_agents_in_one_clone_of_a_remote_never_hold_overlapping_locks() {
    let world = World::on_path();
    let first = world.clone_for("clone");
    let agents: Vec<Agent> = names().map(|name| world.agent_in(first.dir(), &name)).collect();
    race(&world, &agents, &world.remote(), rounds(6));
}

#[test]
fn eight_at_once_on_eight_things_all_get_theirs() {
    let world = World::on_path();
    let agents: Vec<Agent> = names().map(|name| world.clone_for(&name)).collect();
    let grants = at_once(&agents, |number, agent| answer(agent.acquire(&format!("path:file-{number}"), MINUTE)));
    let granted: Vec<Granted> = grants.into_iter().flatten().collect();
    assert_eq!(granted.len(), AGENTS);
    audit(turn(&agents, 0), &world.remote(), &granted, 0);
    // A parameterised name checks itself: all of them are names.
    assert!(granted.iter().all(|grant| LockName::parse(&grant.payload.resource).is_ok()));
}
