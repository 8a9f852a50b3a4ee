//! `tenure lease` against a real server.

use insta::assert_snapshot;

use crate::rig::Rig;

/// The same text on every run: moments, spans, ids and the blanks of columns are made alike.
fn stable(text: &str) -> String {
    let lines = text.replace("just now", "1s ago");
    let lines = lines.lines().map(|line| {
        let indent = if line.starts_with(' ') { "  " } else { "" };
        let words: Vec<String> = line.split_whitespace().map(stable_word).collect();
        format!("{indent}{}", words.join(" ")).replace("DATE DATE UTC", "TIME")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn stable_word(word: &str) -> String {
    let bare = word.trim_matches(['(', ')']);
    let has_digits = bare.bytes().any(|byte| byte.is_ascii_digit());
    let only = |allowed: &str| has_digits && bare.chars().all(|c| c.is_ascii_digit() || allowed.contains(c));
    let name = match bare {
        bare if bare.starts_with("lease-") => "LEASE",
        _ if only("") && bare.len() > 12 => "TOKEN",
        _ if only("-:") => "DATE",
        _ if only("dhms") => "SPAN",
        _ => return word.to_owned(),
    };
    word.replace(bare, name)
}

#[test]
fn a_lease_is_taken_shown_renewed_and_given_back() {
    let rig = Rig::new();
    let server = rig.serve();
    let acquired = server.run(&["lease", "acquire", "path:src/a.rs", "--holder", "ann"]).expect(0);
    let id = acquired.stdout.lines().find_map(|line| line.strip_prefix("  Lease: ")).unwrap().to_owned();
    assert_snapshot!(stable(&acquired.stdout), @r#"
    Lease acquired
      Lease: LEASE
      Token: TOKEN
      Resource: path:src/a.rs
      Holder: ann
      Expires: TIME (in SPAN)
    "#);
    assert_snapshot!(stable(&server.run(&["lease", "ls"]).expect(0).stdout), @r#"
    HOLDER RESOURCE SINCE EXPIRES IN LEASE
    ann path:src/a.rs SPAN ago SPAN LEASE
    "#);
    let refused = server.run(&["lease", "acquire", "path:src", "--holder", "bob"]).expect(4);
    assert_snapshot!(stable(&refused.stderr), @r#"
    Error: path:src is not free
      Held by: ann
      Resource: path:src/a.rs
      Lease: LEASE
      Since: TIME (SPAN ago)
      Expires: TIME (in SPAN)
    Hint: add --wait SPAN to wait for it in line
    "#);
    let not_hers = server.run(&["lease", "release", &id, "--holder", "bob"]).expect(4);
    assert_snapshot!(stable(&not_hers.stderr), @r#"
    Error: the lease belongs to ann; nothing was changed
    Hint: act in the holder's name with --holder or TENURE_HOLDER, if that is you
    "#);
    let renewed = server.run(&["lease", "renew", &id, "--ttl", "4m59s", "--holder", "ann"]).expect(0);
    assert_snapshot!(stable(&renewed.stdout), @r#"
    Lease renewed
      Lease: LEASE
      Expires: TIME (in SPAN)
    "#);
    let released = server.run(&["lease", "release", &id, "--holder", "ann"]).expect(0);
    assert_snapshot!(stable(&released.stdout), @r#"
    Lease released
      Lease: LEASE
      Resource: path:src/a.rs
    "#);
    server.run(&["lease", "release", &id, "--holder", "ann"]).expect(0);
    assert_snapshot!(stable(&server.run(&["lease", "show", &id]).expect(0).stdout), @r#"
      Lease: LEASE
      Token: TOKEN
      Resource: path:src/a.rs
      Holder: ann
      Status: released TIME
    History:
      TIME lease.granted path:src/a.rs ann LEASE
      TIME lease.renewed path:src/a.rs ann LEASE
      TIME lease.released path:src/a.rs ann LEASE
    "#);
    assert_snapshot!(stable(&server.run(&["lease", "ls"]).expect(0).stdout), @r#"
    No active leases
    "#);
    let late = server.run(&["lease", "renew", &id, "--holder", "ann", "--json"]).expect(75);
    assert_eq!(late.envelope()["error"]["code"], "lost");
    assert_eq!(late.envelope()["error"]["details"]["reason"], "released");
}

#[test]
fn with_json_a_refusal_says_who_holds_it() {
    let rig = Rig::new();
    let server = rig.serve();
    server.run(&["lease", "acquire", "x:a", "--holder", "ann"]).expect(0);
    let refused = server.run(&["lease", "acquire", "x:a", "--holder", "bob", "--json"]).expect(4);
    let error = &refused.envelope()["error"];
    assert_eq!((&error["code"], &error["details"]["conflict"]["holder"]), (&"held".into(), &"ann".into()));
    let check = server.run(&["lease", "check", "x:a"]).expect(4);
    assert!(check.stdout.contains("Held by: ann"), "{check:?}");
    server.run(&["lease", "check", "x:a", "--others", "--holder", "ann"]).expect(0);
    server.run(&["lease", "check", "x:a", "--others", "--holder", "bob"]).expect(4);
    server.run(&["lease", "check", "x:b"]).expect(0);
}

#[test]
fn a_wait_that_runs_out_has_its_own_exit_code() {
    let rig = Rig::new();
    let server = rig.serve();
    server.run(&["lease", "acquire", "x:a", "--holder", "ann"]).expect(0);
    let late = server.run(&["lease", "acquire", "x:a", "--holder", "bob", "--wait", "200ms"]).expect(124);
    assert!(late.stderr.contains("x:a did not become free in time") && late.stderr.contains("ann"), "{late:?}");
}

#[test]
fn every_option_of_an_acquire_reaches_the_server() {
    let rig = Rig::new();
    let server = rig.serve();
    let parent = server.run(&["lease", "acquire", "path:src", "--json", "--holder", "ann"]).expect(0).data();
    let id = parent["id"].as_str().unwrap();
    let words = [
        "lease",
        "acquire",
        "path:src/a.rs",
        "--resource",
        "path:src/b.rs",
        "--ttl",
        "1m30s",
        "--within",
        id,
        "--metadata",
        "{\"run\": 7}",
        "--grace",
        "5s",
        "--idempotency-key",
        "k",
        "--json",
        "--holder",
        "ann",
    ];
    let child = server.run(&words).expect(0).data();
    assert_eq!(
        (&child["ttl_ms"], &child["within"], &child["metadata"]["run"]),
        (&90_000.into(), &id.into(), &7.into())
    );
    assert_eq!(child["resources"].as_array().unwrap().len(), 2);
    let again = server.run(&words).expect(0).data();
    assert_eq!(again["id"], child["id"], "the same key gets the same lease");
    for holder in ["carl", "dora"] {
        server.run(&["lease", "acquire", "x:shared", "--shared", "--holder", holder]).expect(0);
    }
    server.run(&["lease", "acquire", "x:shared", "--holder", "eve"]).expect(4);
}

#[test]
fn what_the_server_finds_wrong_is_wrong_usage() {
    let rig = Rig::new();
    let server = rig.serve();
    let done = server.run(&["lease", "acquire", "no-kind"]).expect(2);
    assert!(done.stderr.contains("kind:name"), "{done:?}");
    server.run(&["lease", "acquire", "x:a", "--ttl", "10ms"]).expect(2);
    server.run(&["lease", "show", "lease-1048575-1"]).expect(3);
}

#[test]
fn events_are_watched_as_lines_and_as_envelopes() {
    let rig = Rig::new();
    let server = rig.serve();
    let id = server.run(&["lease", "acquire", "x:a", "--holder", "ann", "--json"]).expect(0).data()["id"].clone();
    server.run(&["lease", "revoke", id.as_str().unwrap(), "--reason", "stuck", "--holder", "root"]).expect(0);
    let words = ["lease", "watch", "--after", "0", "--resource", "x:a", "--count", "2"];
    let lines = server.run(&words).expect(0).stdout;
    let (first, second) = lines.split_once('\n').unwrap();
    assert!(first.contains("lease.granted   x:a  ann  lease-"), "{lines}");
    assert!(second.contains("lease.revoked") && second.contains("by root  (stuck)"), "{lines}");
    let json = server.run(&[&words[..], &["--json", "--kind", "lease.revoked", "--count", "1"]].concat());
    assert_eq!(json.code, 2, "--count twice is wrong usage: {json:?}");
    let json =
        server.run(&["lease", "watch", "--after", "0", "--kind", "lease.revoked", "--count", "1", "--json"]).expect(0);
    assert_eq!(json.data()["reason"], "stuck");
    server.run(&["lease", "watch", "--kind", "lease.flown"]).expect(2);
    let ended = server.run(&["lease", "ls", "--status", "revoked", "--json"]).expect(0).data();
    assert_eq!(ended["leases"][0]["note"], "stuck");
}

#[test]
fn who_takes_away_what_is_over_is_told_how_it_ended() {
    let rig = Rig::new();
    let server = rig.serve();
    let acquire = |resource: &str| {
        let lease = server.run(&["lease", "acquire", resource, "--holder", "ann", "--json"]).expect(0).data();
        lease["id"].as_str().unwrap().to_owned()
    };
    let revoke = |id: &str| server.run(&["lease", "revoke", id, "--reason", "stuck", "--holder", "root"]).expect(0);
    let over = acquire("x:a");
    server.run(&["lease", "release", &over, "--holder", "ann"]).expect(0);
    assert_snapshot!(stable(&revoke(&over).stdout), @r#"
    Lease was over already
      Lease: LEASE
      Token: TOKEN
      Resource: x:a
      Holder: ann
      Status: released TIME
    "#);
    assert_snapshot!(stable(&revoke(&acquire("x:b")).stdout), @r#"
    Lease revoked
      Lease: LEASE
      Token: TOKEN
      Resource: x:b
      Holder: ann
      Status: revoked TIME (stuck)
    "#);
}

#[test]
fn who_holds_it_already_is_not_told_to_wait_in_line() {
    let rig = Rig::new();
    let server = rig.serve();
    server.run(&["lease", "acquire", "x:a", "--holder", "ann"]).expect(0);
    let own = server.run(&["lease", "acquire", "x:a", "--holder", "ann"]).expect(4);
    assert!(own.stderr.contains("your own") && !own.stderr.contains("--wait"), "{own:?}");
    let others = server.run(&["lease", "acquire", "x:a", "--holder", "bob"]).expect(4);
    assert!(others.stderr.contains("--wait") && !others.stderr.contains("your own"), "{others:?}");
}

#[test]
fn a_listing_has_every_lease_and_says_so_when_it_was_asked_for_fewer() {
    const LEASES: usize = 1_001;
    let rig = Rig::new();
    let server = rig.serve();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = tenure::Client::builder().url(&server.url).holder("ann").build().unwrap();
        let mut taken = tokio::task::JoinSet::new();
        for n in 0..LEASES {
            let client = client.clone();
            taken.spawn(async move { client.acquire_without_heartbeat(tenure::Acquire::one(format!("x:{n}"))).await });
        }
        taken.join_all().await.into_iter().for_each(|taken| drop(taken.unwrap()));
    });
    let all = server.run(&["lease", "ls", "--json"]).expect(0);
    assert_eq!((all.data()["leases"].as_array().unwrap().len(), all.stderr.as_str()), (LEASES, ""));
    assert_eq!(server.run(&["lease", "ls"]).expect(0).stdout.lines().count(), 1 + LEASES);
    let few = server.run(&["lease", "ls", "--limit", "2", "--json"]).expect(0);
    assert!(few.stderr.contains("more than these 2") && few.data()["next"].is_string(), "{few:?}");
}
