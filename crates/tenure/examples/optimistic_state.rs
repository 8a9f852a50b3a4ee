//! Ten writers count in one shared state at the same time, and no update is lost.
//!
//! ```sh
//! tenure serve &
//! cargo run -p tenure --example optimistic_state
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;

use serde_json::{Map, Value};
use tenure::{Client, Expected, Intent};

/// Gives back the intent after all have counted.
pub async fn run(url: &str) -> Result<Intent, Box<dyn Error>> {
    let client = Client::builder().url(url).holder("counter").build()?;
    let intents = client.intents();
    let intent = intents.create("Count", "", counted(0)).await?;

    // A write that names the version it read is refused once there is a newer one.
    intents.patch_state(&intent.id, &counted(0), Expected::Version(intent.version), None).await?;
    match intents.patch_state(&intent.id, &counted(0), Expected::Version(intent.version), None).await {
        Err(error) if error.code() == "stale_version" => println!("too late: {error}"),
        other => return Err(format!("an old version was overwritten: {other:?}").into()),
    }

    // The helper reads, changes and writes, and does it again if somebody was faster.
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (intents, id) = (intents.clone(), intent.id.clone());
        writers.spawn(async move { intents.update_state(&id, None, one_more).await });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(intents.get(&intent.id).await?)
}

fn one_more(intent: &Intent) -> Map<String, Value> {
    counted(intent.state.get("n").and_then(Value::as_u64).unwrap_or_default() + 1)
}

fn counted(n: u64) -> Map<String, Value> {
    Map::from_iter([("n".to_owned(), n.into())])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_URL").unwrap_or_else(|_| tenure::DEFAULT_URL.to_owned());
    println!("{:?}", run(&url).await?.state);
    Ok(())
}
