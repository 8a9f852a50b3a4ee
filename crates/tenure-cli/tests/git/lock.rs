//! Texts, JSON and exit codes.

use crate::support::*;

#[test]
fn acquire_answers_both_kinds_of_readers() {
    let world = World::new();
    let a = world.clone("a");
    let answer = a.acquire("path:src/api.rs", "1h").ok().json();
    let data = &answer["data"];
    assert_eq!((&answer["schema_version"], &answer["ok"]), (&1.into(), &true.into()));
    for field in ["resource", "owner", "nonce", "expires_unix_ms"] {
        assert_eq!(data["lock"][field], data[field], "{field}");
    }
    assert_eq!(data["lock"].as_object().map(|lock| lock.len()), Some(4));
    assert_eq!((&data["ttl_seconds"], &data["token"], &data["acquired"]), (&3600.into(), &1.into(), &true.into()));
    assert_eq!(data["remote"], "origin");
    let again = a.tenure(&["lock", "acquire", "path:src/api.rs", "--ttl", "7200", "--json"]).ok().json();
    assert_eq!((&again["data"]["acquired"], &again["data"]["token"]), (&false.into(), &1.into()));
    assert_eq!(again["data"]["ttl_seconds"], 7200);
    // Never shorter than it is, and what is said is what is in force.
    let shorter = a.acquire("path:src/api.rs", "1m").ok().json();
    assert_eq!(shorter["data"]["expires_unix_ms"], again["data"]["expires_unix_ms"]);
    assert!(shorter["data"]["ttl_seconds"].as_u64() > Some(7_000), "{shorter}");
}

#[test]
fn a_conflict_is_an_envelope_on_standard_output_and_exit_4_with_and_without_json() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    let owner = a.acquire("path:src", "1h").ok().json()["data"]["owner"].clone();
    let refused = b.acquire("path:src/a.rs", "1h").exits(4).json();
    assert_eq!((&refused["ok"], &refused["error"]["code"]), (&false.into(), &"conflict".into()));
    let details = &refused["error"]["details"];
    assert_eq!((&details["held"], &details["owner"], &details["why"]), (&"path:src".into(), &owner, &"held".into()));
    let message = refused["error"]["message"].as_str().expect("a text").to_owned();
    let expected =
        format!("conflict: Lock on path:src/a.rs is held by {} (expires in ", owner.as_str().expect("a text"));
    assert!(message.starts_with(&expected), "{message}");
    let human = b.tenure(&["lock", "acquire", "path:src/a.rs"]).exits(4);
    assert_eq!(human.out, "");
    let lines: Vec<&str> = human.err.lines().collect();
    assert_eq!(lines.first().copied(), Some("Error: Lock conflict"));
    assert!(lines.contains(&"  Resource: path:src/a.rs") && lines.contains(&"  Held: path:src"), "{lines:?}");
}

#[test]
fn every_failure_is_an_envelope_on_standard_output_with_its_exit_code() {
    let world = World::new();
    let a = world.clone("a");
    std::fs::create_dir_all(world.path("nowhere")).expect("made");
    let nowhere = world.place("nowhere");
    let cases: [(&Place, &[&str], i32, &str); 16] = [
        (&a, &["acquire", "path:x", "--ttl", "0"], 2, "invalid_args"),
        (&a, &["acquire", "path:x", "--ttl", "31d"], 2, "invalid_args"),
        (&a, &["acquire", "path:x", "--ttl", "18446744073709551615"], 2, "invalid_args"),
        (&a, &["acquire", "path:x", "--ttl", "1.5h"], 2, "invalid_args"),
        (&a, &["acquire", "path:x", "--ttl", "-1"], 2, "invalid_args"),
        (&a, &["acquire"], 2, "invalid_args"),
        (&a, &["acquire", ""], 2, "invalid_args"),
        (&a, &["acquire", "issue:"], 2, "invalid_args"),
        (&a, &["acquire", "path:../x"], 2, "invalid_args"),
        (&a, &["acquire", "path:x", "--nonsense"], 2, "invalid_args"),
        (&a, &["renew", "path:x"], 4, "not_held"),
        (&a, &["acquire", "path:x", "--actor", "nobody"], 3, "not_found"),
        (&a, &["acquire", "path:x", "--actor", "../../x"], 3, "not_found"),
        (&a, &["acquire", "path:x", "--data-dir", "/nowhere"], 3, "not_found"),
        (&a, &["acquire", "path:x", "--remote", "nowhere"], 3, "not_found"),
        (&nowhere, &["status"], 3, "not_found"),
    ];
    for (place, args, code, word) in cases {
        let json = place.tenure(&[&["lock"], args, &["--json"]].concat()).exits(code).json();
        assert_eq!((&json["ok"], &json["error"]["code"]), (&false.into(), &word.into()), "{args:?}: {json}");
        let human = place.tenure(&[&["lock"], args].concat()).exits(code);
        assert!(human.out.is_empty() && !human.err.is_empty(), "{args:?}: {human:?}");
    }
    assert_eq!(a.git(&["for-each-ref", "refs/grite", "refs/tenure"]).out, "");
}

#[test]
fn an_unreachable_remote_is_exit_5_and_grants_nothing_unless_this_clone_only_is_asked_for() {
    let world = World::new();
    let a = world.clone("a");
    a.git(&["remote", "set-url", "origin", "/nowhere.git"]).ok();
    let refused = a.acquire("path:x", "1h").exits(5).json();
    assert_eq!(refused["error"]["code"], "remote_unavailable");
    a.tenure(&["lock", "acquire", "path:x", "--local"]).ok();
    assert_eq!(a.tenure(&["lock", "status", "--local", "--json"]).ok().json()["data"]["total"], 1);
}

#[test]
fn release_is_idempotent_and_never_anothers() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    a.acquire("path:x", "1h").ok();
    b.tenure(&["lock", "release", "path:x"]).exits(4);
    assert_eq!(a.tenure(&["lock", "release", "--resource", "path:x"]).ok().out, "Lock released\n  Resource: path:x\n");
    assert_eq!(a.tenure(&["lock", "release", "path:x"]).ok().out, "Nothing to release\n  Resource: path:x\n");
    assert_eq!(b.tenure(&["lock", "release", "path:x", "--json"]).ok().json()["data"]["released"], true);
}

#[test]
fn status_lists_what_is_held_and_with_all_also_what_ran_out() {
    let world = World::new();
    let a = world.clone("a");
    assert_eq!(a.tenure(&["lock", "status"]).ok().out, "No active locks\n");
    a.acquire("path:short", "1s").ok();
    a.acquire("path:long", "2h30m").ok();
    until("it runs out", || a.live().len() == 1);
    let text = a.tenure(&["lock", "status"]).ok().out;
    assert!(text.starts_with("Active Locks:\n  path:long ") && text.ends_with("expires in 2h29m\n"), "{text}");
    let all = a.tenure(&["lock", "status", "--all"]).ok().out;
    assert!(all.contains("Expired Locks:\n  path:short "), "{all}");
    let json = a.tenure(&["lock", "status", "--all", "--json"]).ok().json();
    assert_eq!((&json["data"]["total"], &json["data"]["locks"][1]["expired"]), (&2.into(), &true.into()));
}

#[test]
fn watching_prints_again_when_something_changes() {
    let world = World::new();
    let a = world.alone("a");
    let mut command = a.command(env!("CARGO_BIN_EXE_tenure"));
    let file = world.path("watched");
    command.args(["lock", "status", "--watch", "--json"]).stdout(std::fs::File::create(&file).expect("made"));
    let mut watch = command.spawn().expect("it runs");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    until("the first listing", || lines() == 1);
    a.acquire("path:x", "1h").ok();
    until("the second listing", || lines() == 2);
    watch.kill().expect("ended");
    watch.wait().expect("ended");
}

#[test]
fn waiting_gets_the_lock_when_it_is_given_back_and_says_when_time_is_up() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    a.acquire("path:x", "1h").ok();
    let late = b.tenure(&["lock", "acquire", "path:x", "--wait", "1s", "--json"]).exits(124).json();
    assert_eq!(late["error"]["code"], "timed_out");
    let mut command = b.command(env!("CARGO_BIN_EXE_tenure"));
    let mut waiter = command.args(["lock", "acquire", "path:x", "--wait", "1m", "--quiet"]).spawn().expect("it runs");
    a.tenure(&["lock", "release", "path:x"]).ok();
    assert!(waiter.wait().expect("ended").success());
    assert_eq!(a.live().len(), 1);
    a.tenure(&["lock", "renew", "path:x"]).exits(4);
}

#[test]
fn two_agents_in_one_clone_are_two_holders() {
    let world = World::new();
    let a = world.clone("a");
    for label in ["one", "two"] {
        a.tenure(&["actor", "init", "--label", label]).ok();
    }
    let (one, two) = (a.acting_as("one"), a.acting_as("two"));
    one.acquire("path:x", "1h").ok();
    two.acquire("path:x", "1h").exits(4);
    two.tenure(&["lock", "release", "path:x"]).exits(4);
    a.acquire("path:x", "1h").exits(4);
    a.tenure(&["lock", "release", "path:x", "--actor", "one"]).ok();
    let listed = a.tenure(&["actor", "list", "--json"]).ok().json();
    assert_eq!(listed["data"]["actors"].as_array().map(Vec::len), Some(3));
    a.tenure(&["actor", "use", "two"]).ok();
    assert_eq!(a.tenure(&["actor", "show", "--json"]).ok().json()["data"]["label"], "two");
    assert_eq!(a.tenure(&["actor", "current", "--json"]).ok().json()["data"]["source"], "repo_default");
}

#[test]
fn without_a_remote_it_is_said_once_that_only_this_clone_knows() {
    let world = World::new();
    let a = world.alone("a");
    let first = a.tenure(&["lock", "acquire", "path:x"]).ok();
    assert!(first.err.contains("no remote"), "{first:?}");
    assert_eq!(a.tenure(&["lock", "acquire", "path:y"]).ok().err, "");
}

#[test]
fn check_says_by_its_exit_code_whether_files_may_be_touched() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    a.acquire("path:src", "1h").ok();
    a.tenure(&["lock", "check", "src/a.rs", "docs/b.md"]).ok();
    b.tenure(&["lock", "check", "docs/b.md"]).ok();
    let no = b.tenure(&["lock", "check", "docs/b.md", "src/a.rs", "--json"]).exits(4).json();
    assert_eq!(no["error"]["details"]["checked"][1]["held_by"][0]["resource"], "path:src");
    let deep = b.below("src/deep");
    deep.tenure(&["lock", "check", "../a.rs"]).exits(4);
    deep.tenure(&["lock", "check", "../../docs/b.md"]).ok();
    deep.tenure(&["lock", "check", "../../../outside"]).exits(2);
    b.write(".git/grite/config.toml", "lock_policy = \"require\"\n");
    b.tenure(&["lock", "check", "docs/b.md"]).exits(4);
    b.acquire("path:docs", "1h").ok();
    b.tenure(&["lock", "check", "docs/b.md"]).ok();
}

#[test]
fn git_dir_in_the_environment_is_the_repository() {
    let world = World::new();
    let a = world.clone("a");
    std::fs::create_dir_all(world.path("elsewhere")).expect("made");
    let script = format!(
        "cd {}; GIT_DIR={} tenure lock acquire path:x",
        world.path("elsewhere").display(),
        a.dir.join(".git").display()
    );
    a.bash(&script, &[]).ok();
    assert_eq!(a.live().len(), 1);
}

#[test]
fn under_the_name_grite_it_is_that_command_line() {
    let world = World::new();
    let a = world.alone("a");
    a.bash("grite lock acquire src/wal.rs --ttl 3600 >/dev/null; grite --json --no-daemon lock status | jq -e '.data.total == 1'", &[]).ok();
    a.bash("grite serve", &[]).exits(2);
    let usage = a.bash("grite lock", &[]).exits(2);
    assert!(usage.err.contains("Usage: grite lock"), "{usage:?}");
    let version = a.bash("grite --version", &[]).ok();
    assert!(version.out.starts_with("grite "), "{version:?}");
}

#[test]
fn run_holds_the_lock_while_the_command_runs_and_passes_its_exit_code_on() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    let script = r#"tenure lock run --resource path:x --ttl 1m -- sh -c 'tenure lock status --json | jq -e ".data.total == 1" >/dev/null; echo "$TENURE_TOKEN $TENURE_RESOURCES"; exit 7'"#;
    assert_eq!(a.bash(script, &[]).exits(7).out, "1 path:x\n");
    assert_eq!(b.live(), []);
    b.acquire("path:x", "1h").ok();
    a.tenure(&["lock", "run", "--resource", "path:x", "--", "true"]).exits(4);
    a.tenure(&["lock", "run", "--resource", "path:y", "--", "/nowhere"]).exits(127);
    assert_eq!(a.live().len(), 1);
}

#[test]
fn what_a_run_command_locks_it_locks_as_the_same_agent() {
    let world = World::new();
    let a = world.alone("a");
    let inner = "-- tenure lock run --resource path:src/a.rs -- tenure lock acquire path:src/a.rs --quiet";
    a.bash(&format!("tenure lock run --resource path:src {inner}"), &[]).ok();
    std::fs::create_dir_all(world.path("agent")).expect("made");
    std::fs::write(world.path("agent/config.toml"), "actor_id = \"agent-7\"\n").expect("written");
    let home = world.path("agent").display().to_string();
    a.bash(&format!("tenure lock run --data-dir {home} --resource path:src {inner}"), &[]).ok();
}

#[test]
fn run_stops_the_command_when_the_lock_is_lost() {
    let world = World::new();
    let a = world.clone("a");
    // Whoever may write the remote can take the lock away; the next renewal notices.
    let remote = world.path("remote.git");
    let script = format!(
        "tenure lock run --resource path:x --ttl 4s -- sh -c 'git -C {} update-ref -d refs/grite/locks/7d2dc4acb62b9ee9; exec sleep 600'",
        remote.display()
    );
    let started = std::time::Instant::now();
    let ended = a.bash(&script, &[]).exits(75);
    assert!(ended.err.contains("lost the lock on path:x"), "{ended:?}");
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn run_stops_the_command_before_its_lock_ends_when_the_remote_stays_away() {
    let world = World::new();
    let a = world.clone("a");
    let script =
        "tenure lock run --resource path:x --ttl 4s -- sh -c 'git remote set-url origin /nowhere.git; exec sleep 600'";
    let started = std::time::Instant::now();
    a.bash(script, &[]).exits(75);
    // Four seconds, and the time to get there on a busy machine.
    assert!(started.elapsed() < std::time::Duration::from_secs(8), "{:?}", started.elapsed());
}

#[test]
fn run_stops_the_command_before_its_lock_ends_also_if_the_remote_was_slow_to_grant_it() {
    let world = World::new();
    let a = world.clone("a");
    // Half of the ttl is gone when the answer comes.
    let hook = world.place("remote.git");
    hook.write("hooks/post-receive", "#!/bin/sh\nsleep 3\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(hook.dir.join("hooks/post-receive"), mode).expect("executable");
    // It does not listen to TERM, and says as long as it can when it still ran.
    let script = r#"tenure lock run --resource path:x --ttl 6s --wait 1m -- sh -c '
        trap "" TERM; git remote set-url origin /nowhere.git
        while :; do date +%s%3N >now && mv now last; sleep 0.05; done'"#;
    a.bash(script, &[]).exits(75);
    let last: u64 = std::fs::read_to_string(a.dir.join("last")).expect("it ran").trim().parse().expect("a time");
    a.git(&["remote", "set-url", "origin", &world.path("remote.git").display().to_string()]).ok();
    let locks = a.tenure(&["lock", "status", "--all", "--json"]).ok().json();
    let ends = locks["data"]["locks"][0]["expires_unix_ms"].as_u64().expect("a time");
    assert!(last < ends, "it ran for {} ms without its lock", last - ends);
}
