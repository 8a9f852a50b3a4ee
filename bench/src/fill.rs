//! Owns taking a given number of leases as fast as the server grants them.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::http::Connection;
use crate::report::progress;
use crate::targets::tenure::{expect, write_acquire};

const CONNECTIONS: usize = 256;
/// How often the one who waits is told.
const TELL_EVERY: u64 = 100_000;

/// What to take.
pub struct Wanted {
    pub resource: String,
    pub holder: String,
    pub ttl_seconds: f64,
}

/// Takes lease number 0, 1, … `count - 1`; every one must be granted.
pub async fn fill(address: SocketAddr, count: u64, wanted: impl Fn(u64) -> Wanted + 'static) -> Result<()> {
    let next = Rc::new(Cell::new(0));
    let wanted = Rc::new(wanted);
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (next, wanted) = (Rc::clone(&next), Rc::clone(&wanted));
        let mut connection = Connection::open(address).await?;
        tasks.spawn_local(async move {
            let mut body = Vec::new();
            while next.get() < count {
                let n = next.replace(next.get() + 1);
                let Wanted { resource, holder, ttl_seconds } = wanted(n);
                write_acquire(&mut body, &resource, &holder, ttl_seconds)?;
                let answer = connection.call("POST", &["/v1/leases"], &[], &body).await?;
                expect(&answer, 201).with_context(|| format!("lease {n}"))?;
                if n > 0 && n.is_multiple_of(TELL_EVERY) {
                    progress(format!("{n} leases"));
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
