//! Many processes, one resource: exactly one holder at a time, and a paused one is told that it lost.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::audit::History;
use crate::crash::rounds;
use crate::http::Http;
use crate::server::Server;

const PROCESSES: u64 = 64;
const ROUNDS_ALL: u64 = 10_000;

/// What a process of the race is told through its environment.
const RACER: &str = "TENURE_TEST_RACER";

/// Holds the resource again and again. Whoever is inside owns a file that only one can create.
fn race(address: SocketAddr, inside: &Path, name: &str, times: u64) {
    let mut http = Http::connect(address).expect("the server");
    let mut last_token = 0;
    for _ in 0..times {
        let body = json!({ "resource": "task:race", "holder": name, "ttl_seconds": 60, "wait_seconds": 600 });
        let granted = http.post("/v1/leases", name, &body).expect("acquire");
        assert_eq!(granted.status, 201, "{}", granted.body);
        let token = granted.body["token"].as_u64().expect("a token");
        assert!(token > last_token, "a token went back");
        last_token = token;
        let mut file: File =
            OpenOptions::new().write(true).create_new(true).open(inside).expect("nobody else is inside");
        write!(file, "{token}").expect("write");
        std::fs::remove_file(inside).expect("still mine");
        let id = granted.body["id"].as_str().expect("an id");
        assert_eq!(http.delete(&format!("/v1/leases/{id}"), name).expect("release").status, 200);
    }
}

/// Runs in the processes of the race only; anywhere else it has nothing to do.
#[test]
fn racer() {
    let Ok(task) = std::env::var(RACER) else { return };
    let mut words = task.split('\n');
    let mut word = || words.next().expect("a word");
    let (address, inside, name) = (word().parse().expect("an address"), PathBuf::from(word()), word());
    race(address, &inside, name, word().parse().expect("a number"));
}

#[test]
fn sixty_four_processes_hold_one_resource_one_at_a_time() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(&data.path().join("data"));
    let inside = data.path().join("inside");
    let each = rounds(ROUNDS_ALL) / PROCESSES + 1;
    let racers: Vec<_> = (0..PROCESSES)
        .map(|racer| {
            let task = format!("{}\n{}\nracer-{racer}\n{each}", server.address, inside.display());
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "race::racer"]).env(RACER, task).stdout(Stdio::null()).stderr(Stdio::inherit());
            command.spawn().expect("a process")
        })
        .collect();
    for mut racer in racers {
        assert!(racer.wait().expect("it ends").success(), "a process saw what it must not see");
    }
    let mut history = History::default();
    history.read(&mut server.connect());
    assert_eq!(history.granted.len() as u64, each * PROCESSES);
    assert_eq!(history.ended.len(), history.granted.len());
}

#[test]
fn a_holder_paused_beyond_its_ttl_is_told_that_it_lost_and_changes_nothing() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path());
    let mut http = server.connect();
    // Its own heartbeat would keep the lease for ever; only the pause ends it.
    let mut holder = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["run", "--resource", "task:1", "--ttl", "1s", "--url", &format!("http://{}", server.address)])
        .args(["--", "sleep", "600"])
        .stderr(Stdio::null())
        .spawn()
        .expect("tenure run");
    let held = loop {
        let page = http.get("/v1/leases?resource=task:1").expect("list").body;
        if let Some(lease) = page["leases"].get(0) {
            break lease.clone();
        }
    };
    let pid = Pid::from_raw(holder.id() as i32);
    kill(pid, Signal::SIGSTOP).expect("stop");
    let body = json!({ "resource": "task:1", "holder": "next", "ttl_seconds": 600, "wait_seconds": 60 });
    let next = http.post("/v1/leases", "next", &body).expect("acquire");
    assert_eq!(next.status, 201, "{}", next.body);
    kill(pid, Signal::SIGCONT).expect("continue");
    let ended = holder.wait().expect("it ends");
    assert!(!ended.success(), "a run that lost its lease did not fail");
    let (id, name) = (held["id"].as_str().expect("id"), held["holder"].as_str().expect("holder"));
    let late = http.post(&format!("/v1/leases/{id}/renew"), name, &json!({})).expect("renew");
    assert_eq!((late.status, late.body["code"].as_str()), (409, Some("lost")), "{}", late.body);
    assert_eq!(late.body["reason"], "expired");
    assert_eq!(late.body["current"]["holder"], "next");
    http.delete(&format!("/v1/leases/{id}"), name).expect("release");
    let still = http.get(&format!("/v1/leases/{}", next.body["id"].as_str().expect("id"))).expect("get");
    assert_eq!(still.body["status"], "active", "a late release ended someone else's lease");
}
