//! What needs no server: usage, help, codes, and being told that nobody answers.

use insta::assert_snapshot;

use crate::rig::Rig;

#[test]
fn the_exit_codes_are_documented() {
    let done = Rig::new().run(&["help", "exit-codes"]).expect(0);
    assert_snapshot!(done.stdout, @r#"
    Exit codes of every tenure command, the same with and without --json:

        0  done
        1  something else went wrong; the message says what
        2  wrong usage: an unknown flag, a value that cannot be read, a field the server refused
        3  not found: no such lease, lock, task, workflow, key or repository
        4  conflict: held by somebody else, closed after a lost holder, would deadlock, or not yours
        5  unavailable: the server or the git remote cannot be reached, or has too much to do
       75  lost: the lease ended before this command was done with it
       77  denied: the API key is missing, unknown, or may not do this
      124  timed out: the wait ran out while somebody else still held it

    'tenure lease check' exits with 4 if somebody is in the way.

    'tenure run' and 'tenure lock run' exit with the code of the command they ran, or 128 plus the
    number of the signal that ended it. Their own outcomes are the codes above, and:

       75  the lease was lost while the command ran; the command and its children were stopped
      126  the command is there but cannot be run
      127  there is no such command
    "#);
}

#[test]
fn the_envelope_is_documented() {
    let done = Rig::new().run(&["help", "json"]).expect(0);
    assert!(done.stdout.contains(r#"{"schema_version": 1, "ok": true, "data": {...}}"#), "{done:?}");
}

#[test]
fn wrong_usage_exits_with_2_and_is_an_envelope_with_json() {
    let rig = Rig::new();
    for words in [
        &["lease", "acquire"][..],
        &["lease", "acquire", "x:a", "--ttl", "1 hour"],
        &["lease", "acquire", "x:a", "--metadata", "[]"],
        &["lease", "renew", "not-a-lease"],
        &["run", "--resource", "x:a"],
        &["run", "--", "true"],
        &["no-such-command"],
        &["help", "no-such-topic"],
        &["serve", "--retain", "forever"],
        &["serve", "--listen", "localhost"],
        &["lease", "ls", "--holder", ""],
        &["lease", "ls", "--holder", " a"],
        &["run", "--holder=", "--resource", "x:a", "--", "true"],
        &["serve", "--tls-cert", "x.pem"],
        &["lease", "ls", "--url", "localhost:1"],
    ] {
        let plain = rig.run(words).expect(2);
        assert!(plain.stdout.is_empty() && !plain.stderr.is_empty(), "{words:?}: {plain:?}");
        // Before `--`, after which everything belongs to the command that is run.
        let json = rig.run(&[&["--json"], words].concat()).expect(2);
        assert_eq!(json.envelope()["error"]["code"], "invalid_args", "{words:?}: {json:?}");
        assert!(json.stderr.is_empty(), "{json:?}");
    }
}

#[test]
fn an_empty_holder_in_the_environment_is_refused_and_not_replaced() {
    let rig = Rig::new();
    let done = rig.tenure(&["lease", "ls"]).env("TENURE_HOLDER", "").output().unwrap();
    let done = crate::rig::Done::from(done).expect(2);
    assert!(done.stderr.contains("--holder") && done.stderr.contains("a holder has 1 to 256 bytes"), "{done:?}");
}

#[test]
fn a_wrong_duration_is_answered_with_an_example() {
    let done = Rig::new().run(&["lease", "acquire", "x:a", "--ttl", "5 minutes"]).expect(2);
    assert_snapshot!(done.stderr, @r#"
    error: invalid value '5 minutes' for '--ttl <TTL>': "5 minutes" is not a duration: write for example 500ms, 90s, 15m, 2h, 2h30m or 1d

    For more information, try '--help'.
    "#);
}

#[test]
fn a_server_that_is_not_there_is_said_with_what_to_do() {
    let rig = Rig::new();
    let url = "http://127.0.0.1:1";
    let plain = rig.run(&["lease", "ls", "--url", url]).expect(5);
    assert_snapshot!(plain.stderr, @r#"
    Error: no answer from http://127.0.0.1:1/: Connection refused (os error 111)
    Hint: is the server running? 'tenure serve' starts one; --url or TENURE_URL says where it is
    "#);
    let json = rig.run(&["lease", "ls", "--url", url, "--json"]).expect(5);
    assert_snapshot!(json.stdout, @r#"
    {
      "schema_version": 1,
      "ok": false,
      "error": {
        "code": "unreachable",
        "message": "no answer from http://127.0.0.1:1/: Connection refused (os error 111)",
        "details": {
          "suggestions": [
            "is the server running? 'tenure serve' starts one; --url or TENURE_URL says where it is"
          ],
          "url": "http://127.0.0.1:1/"
        }
      }
    }
    "#);
    rig.run(&["run", "--url", url, "--resource", "x:a", "--", "true"]).expect(5);
    rig.run(&["lease", "watch", "--url", url]).expect(5);
}

#[test]
fn every_command_has_its_help_page() {
    let rig = Rig::new();
    let all = rig.run(&["help"]).expect(0).stdout;
    for command in ["serve", "run", "lease", "key", "check", "backup", "completions"] {
        assert!(all.contains(&format!("\n  {command} ")), "{command}: {all}");
        let page = rig.run(&["help", command]).expect(0).stdout;
        assert!(page.contains(&format!("Usage: tenure {command}")), "{page}");
        assert_eq!(page, rig.run(&[command, "--help"]).expect(0).stdout, "{command}");
    }
    assert!(rig.run(&["--version"]).expect(0).stdout.starts_with("tenure "));
}

#[test]
fn no_help_text_and_no_hint_advises_to_take_a_lease_away() {
    let rig = Rig::new();
    for words in [&["help"][..], &["help", "run"], &["help", "lease", "acquire"], &["help", "exit-codes"]] {
        assert!(!rig.run(words).expect(0).stdout.contains("revoke"), "{words:?}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    let rig = Rig::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(rig.run(&["completions", shell]).expect(0).stdout.contains("tenure"), "{shell}");
    }
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let rig = Rig::new();
    let words = ["lease", "ls", "--url", "http://127.0.0.1:1"];
    assert!(!rig.run(&words).stderr.contains('\u{1b}'));
    let asked = rig.tenure(&words).args(["--color", "always"]).output().unwrap();
    assert!(String::from_utf8(asked.stderr).unwrap().contains('\u{1b}'));
}
