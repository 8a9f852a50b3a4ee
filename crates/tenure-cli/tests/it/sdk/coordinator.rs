//! Coordinators: one leads, and another only after it.

use std::time::Duration;

use serde_json::Map;
use tenure::Coordinator;

use super::{client, seen};
use crate::rig::Rig;

#[tokio::test]
async fn one_leads_an_intent_at_a_time_and_the_other_is_told_who() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, bob) = (client(&server, "ann").intents(), client(&server, "bob").intents());
    let intent = ann.create("Plan", "", Map::new()).await.unwrap();
    let (ann, bob) = (Coordinator::new(ann), Coordinator::new(bob));
    let term = ann.lead_intent(&intent.id, Duration::from_secs(60)).await.unwrap();
    assert_eq!((term.agent_id.as_str(), term.intent_id.as_ref()), ("ann", Some(&intent.id)));
    let error = bob.lead_intent(&intent.id, Duration::from_secs(60)).await.unwrap_err();
    assert!(error.code() == "held" && error.to_string().contains("ann"), "{error:?}");
    ann.resign(term).await.unwrap();
    assert_eq!(bob.lead_intent(&intent.id, Duration::from_secs(60)).await.unwrap().agent_id, "bob");
}

#[tokio::test]
async fn a_coordinator_that_stops_beating_is_followed_and_its_late_beat_is_refused() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, bob) = (client(&server, "ann").intents(), client(&server, "bob").intents());
    let intent = ann.create("Plan", "", Map::new()).await.unwrap();
    let (ann, bob) = (Coordinator::new(ann), Coordinator::new(bob));
    let silent = ann.lead_intent(&intent.id, Duration::from_millis(1_500)).await.unwrap();
    // The term of the silent one ends.
    let term = seen(async || bob.lead_intent(&intent.id, Duration::from_secs(60)).await.ok()).await;
    let late = ann.beat(&silent).await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!(bob.term(&term.id).await.unwrap().agent_id, "bob");
}

#[tokio::test]
async fn a_coordinator_that_beats_outlives_its_ttl() {
    let rig = Rig::new();
    let server = rig.serve();
    let (ann, bob) = (client(&server, "ann").intents(), client(&server, "bob").intents());
    let intent = ann.create("Plan", "", Map::new()).await.unwrap();
    let (ann, bob) = (Coordinator::new(ann), Coordinator::new(bob));
    let term = ann.lead_intent(&intent.id, Duration::from_secs(2)).await.unwrap();
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        ann.beat(&term).await.unwrap();
        let error = bob.lead_intent(&intent.id, Duration::from_secs(2)).await.unwrap_err();
        assert_eq!(error.code(), "held", "{error:?}");
    }
}
