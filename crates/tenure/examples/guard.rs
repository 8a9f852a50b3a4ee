//! Holds a file while it works on it, and stops if the lease is lost.
//!
//! ```sh
//! tenure serve &
//! cargo run -p tenure --example guard
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::time::Duration;

use tenure::{Acquire, Client, Token};

/// Gives back the token under which the file was written.
pub async fn run(url: &str) -> Result<Token, Box<dyn Error>> {
    let client = Client::builder().url(url).holder("agent-7").build()?;
    let other = Client::builder().url(url).holder("agent-8").build()?;
    let lease = client.acquire(Acquire::one("path:src/parser.rs").ttl(Duration::from_secs(30))).await?;

    // The folder around it is not free now, and the refusal says whom to wait for.
    match other.acquire(Acquire::one("path:src")).await {
        Err(error) if error.conflict().is_some() => println!("agent-8 is refused: {error}"),
        other => return Err(format!("two hold the same file: {other:?}").into()),
    }

    let token = lease.token();
    tokio::select! {
        () = write_the_file(token) => lease.release().await?,
        loss = lease.lost() => println!("stopped in time: {loss}"),
    }
    Ok(token)
}

/// Whatever is written to should refuse a token smaller than the largest it has seen.
async fn write_the_file(token: Token) {
    println!("writing under token {token}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_URL").unwrap_or_else(|_| tenure::DEFAULT_URL.to_owned());
    run(&url).await.map(drop)
}
