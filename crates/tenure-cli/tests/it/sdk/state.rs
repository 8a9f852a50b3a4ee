//! Changing shared state without losing anyone's update.

use serde_json::{Map, json};
use tenure::{Acquire, Expected, Intent, STATE_TRIES_MAX, blocking};

use super::{client, members};
use crate::rig::Rig;

/// Bob writes, while ann is between her read and her write. Her change is not asynchronous, so he has his own thread.
fn overtake(url: &str, id: &str, n: u64) {
    let (url, id) = (url.to_owned(), id.to_owned());
    let write = move || {
        let bob = blocking::Client::new(tenure::Client::builder().url(url).holder("bob")).unwrap();
        let (intents, patch) = (bob.asynchronous().intents(), members(json!({ "n": n })));
        bob.wait_for(intents.patch_state(&id, &patch, Expected::Any, None)).unwrap();
    };
    std::thread::spawn(write).join().unwrap();
}

#[tokio::test]
async fn a_change_is_made_again_of_what_the_faster_writer_left() {
    let rig = Rig::new();
    let server = rig.serve();
    let ann = client(&server, "ann").intents();
    let intent = ann.create("Count", "", members(json!({ "n": 0 }))).await.unwrap();
    let mut tries = 0;
    let change = |now: &Intent| {
        tries += 1;
        if tries == 1 {
            overtake(&server.url, &intent.id, 10);
        }
        members(json!({ "n": now.state["n"].as_u64().unwrap() + 1 }))
    };
    let written = ann.update_state(&intent.id, None, change).await.unwrap();
    assert_eq!((tries, &written.state["n"]), (2, &json!(11)));
}

#[tokio::test]
async fn a_change_of_nothing_writes_nothing() {
    let rig = Rig::new();
    let server = rig.serve();
    let ann = client(&server, "ann").intents();
    let intent = ann.create("Count", "", Map::new()).await.unwrap();
    let same = ann.update_state(&intent.id, None, |_| Map::new()).await.unwrap();
    assert_eq!(same.version, intent.version);
}

#[tokio::test]
async fn a_change_that_is_always_overtaken_gives_up_and_says_why() {
    let rig = Rig::new();
    let server = rig.serve();
    let ann = client(&server, "ann").intents();
    let intent = ann.create("Count", "", members(json!({ "n": 0 }))).await.unwrap();
    let mut tries = 0;
    let change = |_: &Intent| {
        tries += 1;
        overtake(&server.url, &intent.id, 1);
        members(json!({ "n": 2 }))
    };
    let error = ann.update_state(&intent.id, None, change).await.unwrap_err();
    assert_eq!((error.code(), tries), ("stale_version", STATE_TRIES_MAX), "{error:?}");
}

#[tokio::test]
async fn a_write_that_relies_on_a_lease_is_refused_when_that_lease_is_over() {
    let rig = Rig::new();
    let server = rig.serve();
    let ann = client(&server, "ann");
    let intent = ann.intents().create("Plan", "", Map::new()).await.unwrap();
    let lease = ann.acquire(Acquire::one(format!("intent:{}/*", intent.id))).await.unwrap();
    let id = lease.id();
    let patch = members(json!({ "hotel": "found" }));
    ann.intents().update_state(&intent.id, Some(id), |_| patch.clone()).await.unwrap();
    lease.release().await.unwrap();
    let late = ann.intents().update_state(&intent.id, Some(id), |_| members(json!({ "hotel": "late" }))).await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!(ann.intents().get(&intent.id).await.unwrap().state["hotel"], "found");
}
