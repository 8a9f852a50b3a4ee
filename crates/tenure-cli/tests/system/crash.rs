//! SIGKILL under load, again and again: what was acknowledged is there, what was released stays released.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::audit::History;
use crate::http::{Answer, Http};
use crate::server::Server;

const CLIENTS: usize = 6;

/// What the server told one client before it died. The last request of each is unknown: it may have happened.
#[derive(Default)]
pub struct Told {
    pub granted: BTreeMap<u64, String>,
    pub released: Vec<u64>,
}

/// A tree of paths, so that grants overlap.
fn some_resource(random: &mut StdRng) -> String {
    let depth = random.random_range(1..=3);
    let segments: Vec<String> = (0..depth).map(|_| random.random_range(0..4).to_string()).collect();
    format!("path:{}", segments.join("/"))
}

/// Acquires, renews and releases until the server is gone, or says that it is going: its last answer then is none.
pub fn load(address: SocketAddr, client: usize, seed: u64) -> Told {
    let mut random = StdRng::seed_from_u64(seed);
    let mut told = Told::default();
    let mut mine: Vec<(u64, String)> = Vec::new();
    let holder = format!("client-{client}");
    let Ok(mut http) = Http::connect(address) else { return told };
    loop {
        let done = match random.random_range(0..3) {
            0 if !mine.is_empty() => {
                let (token, id) = mine.swap_remove(random.random_range(0..mine.len()));
                answered(http.delete(&format!("/v1/leases/{id}"), &holder)).map(|answer| {
                    assert_eq!(answer.status, 200, "{}", answer.body);
                    told.released.push(token);
                })
            }
            1 if !mine.is_empty() => {
                let (_, id) = &mine[random.random_range(0..mine.len())];
                answered(http.post(&format!("/v1/leases/{id}/renew"), &holder, &json!({}))).map(|answer| {
                    assert_eq!(answer.status, 200, "{}", answer.body);
                })
            }
            _ => {
                let body = json!({ "resource": some_resource(&mut random), "holder": holder, "ttl_seconds": 3600 });
                answered(http.post("/v1/leases", &holder, &body)).map(|answer| {
                    assert!(matches!(answer.status, 201 | 409), "{}", answer.body);
                    if answer.status == 201 {
                        let token = answer.body["token"].as_u64().expect("a token");
                        let id = answer.body["id"].as_str().expect("an id").to_owned();
                        told.granted.insert(token, id.clone());
                        mine.push((token, id));
                    }
                })
            }
        };
        if done.is_none() {
            return told;
        }
    }
}

fn answered(answer: std::io::Result<Answer>) -> Option<Answer> {
    answer.ok().filter(|answer| answer.status != 503)
}

/// What every restart must find: everything that was told, and nothing twice.
pub fn verify(data: &Path, history: &mut History, told: &[Told], last_token: &mut u64) {
    let server = Server::start(data);
    let mut http = server.connect();
    history.read(&mut http);
    for told in told {
        for (token, id) in &told.granted {
            assert!(history.granted.contains(token), "{id} was granted, and the history does not know it");
            assert!(*token > *last_token, "{id}: a token went back");
            let is_active = http.get(&format!("/v1/leases/{id}")).expect("get").body["status"] == "active";
            assert_ne!(is_active, history.ended.contains_key(token), "{id}: the lease and its history disagree");
        }
        for token in &told.released {
            assert!(history.ended.contains_key(token), "token {token} was released and is back");
        }
    }
    *last_token = history.granted.last().copied().unwrap_or(0);
    // The next round begins with a clean desk.
    clear(&mut http);
    history.read(&mut http);
    server.kill();
}

fn clear(http: &mut Http) {
    loop {
        let page = http.get("/v1/leases?limit=500").expect("list").body;
        let leases = page["leases"].as_array().expect("a list").clone();
        for lease in &leases {
            let (id, holder) = (lease["id"].as_str().expect("id"), lease["holder"].as_str().expect("holder"));
            http.delete(&format!("/v1/leases/{id}"), holder).expect("release");
        }
        if leases.is_empty() {
            return;
        }
    }
}

/// How often: enough to matter in every run, `TENURE_ROUNDS` times as often when asked.
pub fn rounds(each: u64) -> u64 {
    each * std::env::var("TENURE_ROUNDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

#[test]
fn a_server_killed_under_load_forgets_nothing_it_said_and_repeats_no_token() {
    let seed: u64 =
        std::env::var("TENURE_SEED").map_or_else(|_| rand::rng().random(), |seed| seed.parse().expect("a number"));
    println!("TENURE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let data = tempfile::tempdir().expect("a directory");
    let mut history = History::default();
    let mut last_token = 0;
    for _ in 0..rounds(100) {
        let server = Server::start(data.path());
        let address = server.address;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let seed = random.random();
                std::thread::spawn(move || load(address, client, seed))
            })
            .collect();
        // Not a wait for something to become true: the moment of the crash is what is random here.
        std::thread::sleep(Duration::from_millis(random.random_range(1..80)));
        server.kill();
        let told: Vec<Told> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
        verify(data.path(), &mut history, &told, &mut last_token);
    }
    assert!(history.granted.len() > 500, "only {} grants: that was no load", history.granted.len());
}
