use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use tenure::{Agent, Client, Error, Work};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::fake::{Fake, PATIENCE, Reply, grant};

const SIGNALS: &str = "GET /api/v1/agents/me/subscribe";
const INTENT: &str = "GET /api/v1/intents/i";
const ACQUIRE: &str = "POST /v1/leases";
const RELEASE: &str = "DELETE /v1/leases/lease-1-1";
const BEAT: &str = "POST /api/v1/agents/me/heartbeat";

/// A stream with one signal, which then stays open or not.
fn signals(name: &str, then: &str) -> Reply {
    let data = json!({ "intent_id": "i" });
    Reply::Raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{then}\r\nevent: {name}\ndata: {data}\n\n"
    ))
}

fn intent() -> Reply {
    Reply::Json(200, json!({ "id": "i", "title": "t", "version": 1 }))
}

fn agent(client: &Client) -> Agent {
    Agent::new(client.intents())
}

/// An agent that runs until the other half is dropped.
fn start(agent: Agent) -> (oneshot::Sender<()>, JoinHandle<Result<(), Error>>) {
    let (stop, stopped) = oneshot::channel();
    (stop, tokio::spawn(agent.run(async { drop(stopped.await) })))
}

async fn ended(running: JoinHandle<Result<(), Error>>) {
    tokio::time::timeout(PATIENCE, running).await.expect("it ends").unwrap().unwrap();
}

/// An agent whose handler of completed intents says that it began and waits until it may go on.
fn patient(client: &Client) -> (Agent, mpsc::UnboundedReceiver<()>, Arc<Notify>) {
    let (began, begun) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    let agent = agent(client).on_complete(move |_: Work| {
        let (began, wait) = (began.clone(), Arc::clone(&wait));
        async move {
            let _ = began.send(());
            wait.notified().await;
            Ok(Map::new())
        }
    });
    (agent, begun, go_on)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_time_to_drain_is_over_does_not_go_on_standing_in_line() {
    let fake = Fake::start();
    fake.once(SIGNALS, signals("AGENT_ASSIGNED", "")).once(ACQUIRE, Reply::Hang);
    let agent = agent(&fake.client()).drain(Duration::ZERO).on_assignment(|_: Work| async { Ok(Map::new()) });
    let (stop, running) = start(agent);
    tokio::task::block_in_place(|| fake.wait_for(ACQUIRE, 1));
    drop(stop);
    ended(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_that_cannot_be_read_does_not_keep_its_lease() {
    let fake = Fake::start();
    let mut released = grant(1, 30_000);
    released["status"] = json!("released");
    fake.once(SIGNALS, signals("AGENT_ASSIGNED", ""))
        .once(ACQUIRE, Reply::Json(201, grant(1, 30_000)))
        .once(INTENT, Reply::Json(404, json!({ "message": "no such intent" })))
        .once(RELEASE, Reply::Json(200, released));
    let (stop, running) = start(agent(&fake.client()).on_assignment(|_: Work| async { Ok(Map::new()) }));
    tokio::task::block_in_place(|| fake.wait_for(RELEASE, 1));
    drop(stop);
    ended(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_has_failed_and_the_agent_goes_on() {
    let fake = Fake::start();
    let mut released = grant(1, 30_000);
    released["status"] = json!("released");
    fake.once(SIGNALS, signals("AGENT_ASSIGNED", ""))
        .once(ACQUIRE, Reply::Json(201, grant(1, 30_000)))
        .once(INTENT, intent())
        .once("POST /api/v1/intents/i/failures", Reply::Json(201, json!({})))
        .once(RELEASE, Reply::Json(200, released));
    let (stop, running) = start(agent(&fake.client()).on_assignment(|work: Work| async move {
        panic!("no way to work on {}", work.intent.id);
    }));
    tokio::task::block_in_place(|| fake.wait_for(RELEASE, 1));
    let said = &fake.seen("POST /api/v1/intents/i/failures")[0].body;
    assert_eq!(
        (&said["attempt_number"], &said["error_message"]),
        (&json!(1), &json!("it panicked: no way to work on i"))
    );
    drop(stop);
    ended(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registered_agent_beats_until_its_handlers_have_finished() {
    let fake = Fake::start();
    fake.once(SIGNALS, signals("INTENT_COMPLETED", "")).once(INTENT, intent());
    fake.once("POST /api/v1/agents/register", Reply::Json(200, json!({})));
    fake.always(BEAT, |_| Reply::Json(200, json!({})));
    fake.once("DELETE /api/v1/agents/me", Reply::Json(200, json!({})));
    let (agent, mut begun, go_on) = patient(&fake.client());
    let (stop, running) = start(agent.registered(["x"], Duration::from_millis(20)));
    begun.recv().await.unwrap();
    drop(stop);
    let before = fake.seen(BEAT).len();
    // One may have been on its way when it was told to stop.
    tokio::task::block_in_place(|| fake.wait_for(BEAT, before + 3));
    go_on.notify_one();
    ended(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_does_not_break_off_a_stream_that_is_being_opened() {
    let fake = Fake::start();
    let second = Reply::Late(Duration::from_millis(300), Box::new(signals("INTENT_COMPLETED", "")));
    fake.once(SIGNALS, signals("INTENT_COMPLETED", "connection: close\r\n")).once(SIGNALS, second);
    fake.once(INTENT, intent()).once(INTENT, intent());
    let (agent, mut begun, go_on) = patient(&fake.client());
    let (stop, running) = start(agent);
    begun.recv().await.unwrap();
    tokio::task::block_in_place(|| fake.wait_for(SIGNALS, 2));
    go_on.notify_one();
    begun.recv().await.unwrap();
    assert_eq!(fake.seen(SIGNALS).len(), 2);
    drop(stop);
    go_on.notify_one();
    ended(running).await;
}
