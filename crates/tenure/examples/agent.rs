//! An agent: it is told of an intent, holds it while it works, and what it gives back is written into the state.
//!
//! ```sh
//! tenure serve &
//! cargo run -p tenure --example agent
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::time::Duration;

use serde_json::{Map, Value};
use tenure::{Agent, Client, Handled, Intent, Intents, Work};

/// Gives back the intent with its summary.
pub async fn run(url: &str) -> Result<Intent, Box<dyn Error>> {
    let author = Client::builder().url(url).holder("author").build()?.intents();
    let intent = author.create("A long report", "Summarise it", Map::new()).await?;
    author.assign(&intent.id, "summariser").await?;

    // The agent connects later than it was assigned, and is told all the same.
    let agent = Agent::new(Client::builder().url(url).holder("summariser").build()?.intents())
        .ttl(Duration::from_secs(10))
        .on_assignment(summarise);
    agent.run(until_summarised(&author, &intent.id)).await?;
    Ok(author.get(&intent.id).await?)
}

/// The whole intent is leased before this runs and kept while it runs. If the lease is lost, this is dropped at its next
/// `await`, and nothing is written.
async fn summarise(work: Work) -> Handled {
    let scope = work.acquire("summary", Duration::from_secs(60)).await?;
    let summary = format!("{}, under token {}", work.intent.title, scope.token());
    println!("{summary}");
    scope.release().await?;
    Ok(Map::from_iter([("summary".to_owned(), Value::from(summary))]))
}

async fn until_summarised(author: &Intents, id: &str) {
    while !author.get(id).await.is_ok_and(|intent| intent.state.contains_key("summary")) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_URL").unwrap_or_else(|_| tenure::DEFAULT_URL.to_owned());
    run(&url).await.map(drop)
}
