//! `tenure serve`, `tenure key`, `tenure check`: a server's life as its operator sees it.

use std::io::{Read, Write};
use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::rig::{Rig, Server, wait_until};

#[test]
fn it_stops_cleanly_on_term_and_on_interrupt_and_leaves_sound_data() {
    let rig = Rig::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = rig.serve();
        server.run(&["lease", "acquire", &format!("x:{signal}")]).expect(0);
        server.child.signal(signal);
        assert_eq!(server.child.end(), 0, "{signal}");
    }
    let check = rig.run(&["check"]).expect(0);
    assert!(check.stdout.contains("./tenure-data is sound"), "{check:?}");
    assert_eq!(rig.run(&["check", "--json"]).expect(0).data()["problems_found"], 0);
}

#[test]
fn a_second_server_on_the_same_data_is_told_so() {
    let rig = Rig::new();
    let server = rig.serve();
    let second = rig.run(&["serve", "--listen", "127.0.0.1:0"]).expect(4);
    assert!(second.stderr.contains("is in use by process"), "{second:?}");
    let same_port = rig.run(&["serve", "--listen", server.address(), "--data", "elsewhere"]).expect(4);
    assert!(same_port.stderr.contains("cannot listen on"), "{same_port:?}");
    let check = rig.run(&["check"]).expect(4);
    assert!(check.stderr.contains("is in use"), "{check:?}");
}

#[test]
fn data_that_is_not_there_or_not_tenures_is_said_to_be_so() {
    let rig = Rig::new();
    rig.run(&["check", "nowhere"]).expect(3);
    std::fs::create_dir(rig.home().join("empty")).unwrap();
    let empty = rig.run(&["check", "empty"]).expect(3);
    assert!(empty.stderr.contains("could not find a store in empty"), "{empty:?}");
    assert_eq!(std::fs::read_dir(rig.home().join("empty")).unwrap().count(), 0, "the check leaves nothing behind");
    std::fs::write(rig.home().join("file"), "this is no database, and long enough to be looked at as one").unwrap();
    let garbage = rig.run(&["check", "file", "--json"]).expect(1);
    assert_eq!(garbage.envelope()["ok"], false);
    rig.run(&["serve", "--listen", "127.0.0.1:0", "--data", "file"]).expect(4);
}

#[test]
fn other_machines_come_in_with_keys_only() {
    let rig = Rig::new();
    let refused = rig.run(&["serve", "--listen", "0.0.0.0:0"]).expect(2);
    assert!(refused.stderr.contains("--keys"), "{refused:?}");
    let agent = rig.run(&["key", "new", "ci", "--keys", "keys.toml", "--json"]).expect(0).data();
    let admin = rig.run(&["key", "new", "boss", "--role", "admin", "--keys", "keys.toml", "--json"]).expect(0).data();
    let several = rig.run(&["key", "new", "all", "--holder", "ci-*", "--keys", "keys.toml", "--json"]).expect(0).data();
    let file = std::fs::read_to_string(rig.home().join("keys.toml")).unwrap();
    assert!(!file.contains(agent["key"].as_str().unwrap()), "only the hash is kept");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(rig.home().join("keys.toml")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);

    let server = rig.serve_with("127.0.0.1:0", &["--keys", "keys.toml"]);
    let with = |key: &serde_json::Value, words: &[&str]| {
        let output = server.tenure(words).env("TENURE_API_KEY", key.as_str().unwrap()).output().unwrap();
        crate::rig::Done::from(output)
    };
    server.run(&["lease", "ls"]).expect(77);
    with(&"tnr_wrong".into(), &["lease", "ls"]).expect(77);
    let lease = with(&agent["key"], &["lease", "acquire", "x:a", "--json"]).expect(0).data();
    assert_eq!(lease["holder"], "ci", "the key's own name");
    with(&agent["key"], &["lease", "acquire", "x:b", "--holder", "somebody"]).expect(77);
    let id = lease["id"].as_str().unwrap();
    with(&agent["key"], &["lease", "revoke", id, "--reason", "x"]).expect(77);
    with(&admin["key"], &["lease", "revoke", id, "--reason", "x"]).expect(0);
    let own = with(&admin["key"], &["lease", "acquire", "x:boss", "--json"]).expect(0).data();
    assert_eq!(own["holder"], "boss", "an administrator's own name");
    with(&agent["key"], &["run", "--resource", "x:a", "--", "true"]).expect(0);
    with(&several["key"], &["lease", "acquire", "x:c", "--holder", "ci-7"]).expect(0);
    let nameless = with(&several["key"], &["lease", "acquire", "x:d"]).expect(2);
    assert!(nameless.stderr.contains("--holder or TENURE_HOLDER"), "{nameless:?}");
    assert!(!nameless.stderr.contains("X-Tenure-Holder"), "nobody here writes headers: {nameless:?}");
    with(&agent["key"], &["backup", "copy.db"]).expect(77);
    with(&admin["key"], &["backup", "copy.db"]).expect(0);
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_that_looks_like_one() {
    let rig = Rig::new();
    let halting = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", halting.local_addr().unwrap());
    let mut server = rig.serve();
    let mut broken_off = server.start(&["backup", "copy.db", "--url", &url]);
    let (mut client, _) = halting.accept().unwrap();
    // An answer that comes before its question is none.
    let asked = client.read(&mut [0; 4_096]).unwrap();
    assert!(asked > 0);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.sqlite3\r\ncontent-length: 100000\r\n\r\n";
    client.write_all(head.as_bytes()).and_then(|()| client.write_all(&[7; 50_000])).unwrap();
    let partial = rig.home().join("copy.db.partial");
    wait_until("a part is written", || partial.metadata().is_ok_and(|found| found.len() > 0));
    broken_off.signal(Signal::SIGKILL);
    broken_off.end();
    assert!(!rig.home().join("copy.db").exists(), "half a backup has its name");
    server.run(&["backup", "copy.db"]).expect(0);
    assert!(!partial.exists(), "what was left is cleared away");
    rig.run(&["check", "copy.db"]).expect(0);
    server.child.signal(Signal::SIGTERM);
    assert_eq!(server.child.end(), 0);
}

#[test]
fn a_store_and_a_data_directory_are_not_both_given() {
    let both = Rig::new().run(&["serve", "--data", "here", "--store", "sqlite:there"]).expect(2);
    assert!(both.stderr.contains("cannot be used with"), "{both:?}");
}

#[test]
fn a_backup_of_a_running_server_is_sound_and_restores() {
    let rig = Rig::new();
    let mut server = rig.serve();
    let lease = server.run(&["lease", "acquire", "x:a", "--ttl", "1h", "--json"]).expect(0).data();
    let made = server.run(&["backup", "copy.db", "--json"]).expect(0).data();
    let length = std::fs::metadata(rig.home().join("copy.db")).unwrap().len();
    assert!(length > 0 && made["bytes"] == length, "{made}");
    let again = server.run(&["backup", "copy.db"]).expect(4);
    assert!(again.stderr.contains("copy.db cannot be written"), "{again:?}");
    rig.run(&["backup", "other.db", "--data", "tenure-data"]).expect(4);
    server.child.signal(Signal::SIGTERM);
    assert_eq!(server.child.end(), 0);
    let nobody = server.run(&["backup", "late.db"]).expect(5);
    assert!(!rig.home().join("late.db").exists(), "{nobody:?}");
    rig.run(&["backup", "offline.db", "--data", "tenure-data"]).expect(0);
    rig.run(&["backup", "nothing.db", "--data", "nowhere"]).expect(3);
    std::fs::create_dir(rig.home().join("empty")).unwrap();
    rig.run(&["backup", "nothing.db", "--data", "empty"]).expect(3);
    let made = [rig.home().join("nothing.db").exists(), rig.home().join("empty/tables.db").exists()];
    assert_eq!(made, [false, false], "a backup of nothing would be one to rely on");

    for (file, data) in [("copy.db", "restored-1"), ("offline.db", "restored-2")] {
        rig.run(&["check", file]).expect(0);
        std::fs::create_dir(rig.home().join(data)).unwrap();
        std::fs::copy(rig.home().join(file), rig.home().join(data).join("tables.db")).unwrap();
        let restored = rig.serve_with("127.0.0.1:0", &["--data", data]);
        assert_eq!(restored.wait_for_lease("x:a")["id"], lease["id"]);
        let next = restored.run(&["lease", "acquire", "x:b", "--json"]).expect(0).data();
        assert!(next["token"].as_u64() > lease["token"].as_u64());
    }
}

#[test]
fn a_key_is_shown_once_and_refused_when_it_would_not_protect() {
    let rig = Rig::new();
    let made = rig.run(&["key", "new", "ci", "--holder", "ci-*"]).expect(0);
    assert!(made.stdout.contains("  Key: tnr_") && made.stdout.contains("[[key]]"), "{made:?}");
    rig.run(&["key", "new", "ci", "--holder", "a\nb"]).expect(2);
    let between = rig.run(&["key", "new", "ci", "--holder", "a*b", "--keys", "none.toml"]).expect(2);
    assert!(between.stderr.contains("a * that is not its end"), "{between:?}");
    let unnamed = rig.run(&["key", "new", "", "--role", "admin", "--keys", "none.toml"]).expect(2);
    assert!(unnamed.stderr.contains("a key's name has 1 to 256 bytes"), "{unnamed:?}");
    assert!(!rig.home().join("none.toml").exists());
    rig.run(&["key", "new", "ci", "--keys", "no/such/dir/keys.toml"]).expect(1);
    std::fs::write(rig.home().join("empty"), "").unwrap();
    rig.run(&["serve", "--listen", "127.0.0.1:0", "--keys", "empty"]).expect(2);
}

#[test]
fn the_ready_line_is_an_envelope_with_json() {
    let rig = Rig::new();
    let mut command = rig.tenure(&["serve", "--listen", "127.0.0.1:0", "--json", "--log-format", "json"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(ready["data"]["urls"][0].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
    let mut server = crate::rig::Running(child);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end(), 0);
    let mut log = String::new();
    std::io::Read::read_to_string(server.0.stderr.as_mut().unwrap(), &mut log).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "stopping"), "{log}");
}

#[test]
fn who_does_not_trust_the_certificate_is_told_how_to() {
    let rig = Rig::new();
    rig.certify();
    let server = rig.serve_with("127.0.0.1:0", &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let distrusted = rig.run(&["lease", "ls", "--url", &url]).expect(5);
    let lines: Vec<&str> = distrusted.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "an error and a hint: {distrusted:?}");
    assert!(lines[1].contains("--ca FILE") && !lines[1].contains("running"), "{distrusted:?}");
    rig.run(&["lease", "ls", "--url", &url, "--ca", "cert.pem"]).expect(0);
    let elsewhere = rig.run(&["lease", "ls", "--url", &server.url, "--ca", "cert.pem"]).expect(5);
    assert!(elsewhere.stderr.contains("the name in --url"), "{elsewhere:?}");
}

#[test]
fn a_webhook_is_delivered_over_tls_once_its_certificate_is_trusted() {
    let rig = Rig::new();
    rig.certify();
    let receiver =
        rig.serve_with("127.0.0.1:0", &["--data", "receiver", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = format!("{}/v1/ping", receiver.url.replace("127.0.0.1", "localhost"));
    let start = |certificates: &str| {
        let mut serve = rig.tenure(&["serve", "--listen", "127.0.0.1:0"]);
        serve.env("SSL_CERT_FILE", certificates);
        rig.started(serve)
    };
    std::fs::write(rig.home().join("none.pem"), "").unwrap();
    let mut server = start("none.pem");
    let read =
        |answer: String| serde_json::from_str::<serde_json::Value>(&answer).unwrap_or_else(|_| panic!("{answer}"));
    let intent = read(server.ask("POST", "/api/v1/intents", r#"{"title": "t"}"#))["id"].as_str().unwrap().to_owned();
    let subscription = format!(r#"{{"intent_id": "{intent}", "webhook_url": "{url}"}}"#);
    let made = read(server.ask("POST", "/api/v1/subscriptions", &subscription));
    let error = |server: &Server| {
        let all = read(server.ask("GET", &format!("/api/v1/subscriptions?intent_id={intent}"), ""));
        let one = all["subscriptions"].as_array().unwrap().iter().find(|one| one["id"] == made["id"]).unwrap();
        one["last_error"].as_str().map(str::to_owned)
    };
    server.ask("POST", &format!("/api/v1/intents/{intent}/events"), r#"{"event_type": "comment", "payload": {}}"#);
    wait_until("it is refused", || error(&server).is_some());
    assert!(error(&server).unwrap().contains("ertificate"), "{:?}", error(&server));
    server.child.signal(Signal::SIGTERM);
    server.child.end();
    let server = start("cert.pem");
    wait_until("it is delivered", || error(&server).is_none());
}
