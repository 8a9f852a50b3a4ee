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
