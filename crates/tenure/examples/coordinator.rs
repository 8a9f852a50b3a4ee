//! One coordinator leads a portfolio; a second one is refused, and takes over when the first resigns.
//!
//! ```sh
//! tenure serve &
//! cargo run -p tenure --example coordinator
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Client, Coordinator, Term};

const TTL: Duration = Duration::from_secs(600);

/// Gives back the term of the one who took over.
pub async fn run(url: &str) -> Result<Term, Box<dyn Error>> {
    let intents = |holder: &str| Client::builder().url(url).holder(holder).build().map(|client| client.intents());
    let (first, second) = (intents("coordinator-1")?, intents("coordinator-2")?);
    let about = json!({ "name": "Trips", "created_by": "coordinator-1" });
    let portfolio = first.request("POST", "/portfolios", Some(about), None).await?;
    let portfolio = portfolio.get("id").and_then(Value::as_str).ok_or("a portfolio has an id")?;
    let (first, second) = (Coordinator::new(first), Coordinator::new(second));

    let term = first.lead_portfolio(portfolio, TTL).await?;
    first.beat(&term).await?;
    match second.lead_portfolio(portfolio, TTL).await {
        Err(error) if error.code() == "held" => println!("not now: {error}"),
        other => return Err(format!("two coordinators lead at the same time: {other:?}").into()),
    }
    first.resign(term).await?;
    Ok(second.lead_portfolio(portfolio, TTL).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_URL").unwrap_or_else(|_| tenure::DEFAULT_URL.to_owned());
    let term = run(&url).await?;
    println!("{} leads", term.agent_id);
    Ok(())
}
