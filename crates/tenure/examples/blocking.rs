//! The same for a program without a runtime: every call waits until it is answered.
//!
//! ```sh
//! tenure serve &
//! cargo run -p tenure --example blocking
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::time::Duration;

use tenure::{Acquire, State, Token, blocking};

/// Gives back the token of the first lease and of the one that waited for it.
pub fn run(url: &str) -> Result<(Token, Token), Box<dyn Error>> {
    let connect = |holder: &str| blocking::Client::new(tenure::Client::builder().url(url).holder(holder));
    let (ann, bob) = (connect("ann")?, connect("bob")?);
    let lease = ann.acquire(Acquire::one("repo:deploy").ttl(Duration::from_secs(30)))?;
    let first = lease.token();

    let waiting = std::thread::spawn(move || {
        let lease = bob.acquire(Acquire::one("repo:deploy").wait(Duration::from_secs(60)))?;
        let token = lease.token();
        lease.release().map(|()| token)
    });
    // The heartbeat has a thread of its own: this one may do what it likes.
    std::thread::sleep(Duration::from_millis(100));
    if lease.state() != State::Lost {
        println!("deployed under token {first}");
    }
    lease.release()?;
    let second = waiting.join().map_err(|_| "the thread panicked")??;
    Ok((first, second))
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_URL").unwrap_or_else(|_| tenure::DEFAULT_URL.to_owned());
    run(&url).map(drop)
}
