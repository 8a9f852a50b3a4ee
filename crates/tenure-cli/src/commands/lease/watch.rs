//! `tenure lease watch`: events as they happen, one line each, until interrupted.

use tenure::{Client, EventQuery};

use super::show;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only events about what overlaps this resource
    #[arg(long)]
    resource: Option<String>,
    /// Only events about leases of this holder
    #[arg(long, value_name = "NAME")]
    held_by: Option<String>,
    /// Only events of this kind, for example lease.expired
    #[arg(long)]
    kind: Option<String>,
    /// Start after this cursor; 0 is the beginning [default: now]
    #[arg(long, value_name = "CURSOR")]
    after: Option<u64>,
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub(super) async fn run(client: &Client, args: &Args, output: Output) -> Result<Exit, tenure::Error> {
    let mut query = EventQuery::default();
    query = args.resource.iter().fold(query, EventQuery::resource);
    query = args.held_by.iter().fold(query, EventQuery::holder);
    query = args.kind.iter().fold(query, EventQuery::kind);
    query = args.after.into_iter().fold(query, EventQuery::after);
    // A wrong URL or filter should be said now and not be tried for ever.
    client.events(&query.clone().limit(1)).await?;
    let mut events = client.watch(query);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 && !output.is_over() {
        let event = events.next().await?;
        output.line(&event, || show::event_line(&event));
        left -= 1;
    }
    Ok(Exit::OK)
}
