//! `tenure lease`: leases of a server, one call per command.

mod show;
mod watch;

use std::time::{Duration, SystemTime};

use clap::Subcommand;
use serde_json::Value;
use tenure::{Acquire, Check, Client, LeaseId, LeaseQuery, Mode, Status};

use crate::connect::{self, Connect};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::output::Output;
use crate::{refused, span};

/// Acquire, renew, release and look at leases of a server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take resources, all or none; they stay held until released or the ttl ends
    Acquire(AcquireArgs),
    /// Keep a lease for another ttl
    ///
    /// A shorter --ttl takes time away from whoever keeps the lease: a 'tenure run' or a program that renews it by itself
    /// believes in the ttl that it knows until its next renewal, a third of that ttl later at most, and the lease may be
    /// another's by then. Stop it first.
    Renew {
        /// The lease, as 'lease acquire' printed it
        id: LeaseId,
        /// A new ttl from now on; for a shorter one see above [default: the one it has]
        #[arg(long, value_parser = span::parse)]
        ttl: Option<Duration>,
    },
    /// Give a lease back
    Release {
        /// The lease
        id: LeaseId,
    },
    /// Take a lease away from its holder, who is told why (administrators)
    Revoke {
        /// The lease
        id: LeaseId,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// List who holds what
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one lease and what happened to it
    Show {
        /// The lease
        id: LeaseId,
    },
    /// Print events as they happen
    Watch(watch::Args),
    /// Say who would stop an acquire, without taking anything; exits with 4 if somebody would
    Check {
        #[command(flatten)]
        what: Resources,
        /// Ask for a shared lease
        #[arg(long)]
        shared: bool,
        /// Leases of one's own do not count: is somebody else in the way?
        #[arg(long)]
        others: bool,
    },
}

/// Resources, by position or by flag.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Resources {
    /// What to hold, written kind:name, for example path:src/main.rs
    #[arg(value_name = "RESOURCE")]
    positional: Vec<String>,
    /// The same, as a flag; may be repeated
    #[arg(long = "resource", value_name = "RESOURCE")]
    flagged: Vec<String>,
}

impl Resources {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.positional.iter().chain(&self.flagged)
    }
}

#[derive(Debug, clap::Args)]
struct AcquireArgs {
    #[command(flatten)]
    what: Resources,
    /// How long it lasts without a renewal
    #[arg(long, default_value = "5m", value_parser = span::parse)]
    ttl: Duration,
    /// Wait in line this long if it is held
    #[arg(long, value_parser = span::parse)]
    wait: Option<Duration>,
    /// Together with other shared leases, but with no exclusive one
    #[arg(long)]
    shared: bool,
    /// Keep it closed this long if the holder is lost
    #[arg(long, value_parser = span::parse)]
    grace: Option<Duration>,
    /// A lease of the same holder to live within
    #[arg(long, value_name = "LEASE")]
    within: Option<LeaseId>,
    /// A note that everyone can read: a JSON object
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    metadata: Option<Value>,
    /// The same key gets the same lease: makes it safe to run this command again
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only what overlaps this resource
    #[arg(long)]
    resource: Option<String>,
    /// Only leases of this holder (a filter; --holder says who asks)
    #[arg(long, value_name = "NAME")]
    held_by: Option<String>,
    /// Only leases in this state: active, released, expired or revoked
    #[arg(long, value_parser = status, default_value = "active")]
    status: Status,
    /// Only resources of this kind, for example path
    #[arg(long)]
    kind: Option<String>,
    /// At most this many [default: all that are active, the latest 1000 of others]
    #[arg(long)]
    limit: Option<usize>,
}

/// How many leases that are over are listed unless more are asked for: there are as many as the history is long.
const ENDED_MAX: usize = 1_000;
/// The longest page a server gives.
const PAGE_MAX: usize = 1_000;

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    let client = args.connect.client(connect::user_at_host(), connect::PATIENCE)?;
    let done = match &args.verb {
        Verb::Acquire(args) => acquire(&client, args, output).await,
        Verb::Renew { id, ttl } => renew(&client, *id, *ttl, output).await,
        Verb::Release { id } => release(&client, *id, output).await,
        Verb::Revoke { id, reason } => revoke(&client, *id, reason, output).await,
        Verb::Ls(args) => list(&client, args, output).await,
        Verb::Show { id } => show::run(&client, *id, output).await,
        Verb::Watch(args) => watch::run(&client, args, output).await,
        Verb::Check { what, shared, others } => {
            let checked = match others {
                true => client.check_others(what.all(), mode(*shared)).await,
                false => client.check(what.all(), mode(*shared)).await,
            };
            checked.map(|found| print_check(&found, output))
        }
    };
    done.map_err(|error| refused::explain(&error))
}

type Done = Result<Exit, tenure::Error>;

async fn acquire(client: &Client, args: &AcquireArgs, output: Output) -> Done {
    let mut request = Acquire::all(args.what.all()).ttl(args.ttl);
    request = if args.shared { request.shared() } else { request };
    request = args.wait.into_iter().fold(request, Acquire::wait);
    request = args.grace.into_iter().fold(request, Acquire::grace);
    request = args.within.into_iter().fold(request, Acquire::within_id);
    request = args.metadata.iter().cloned().fold(request, Acquire::metadata);
    request = args.idempotency_key.iter().fold(request, Acquire::idempotency_key);
    let lease = client.acquire_without_heartbeat(request).await?;
    output.result(&lease, || format!("Lease acquired\n{}", show::facts(&lease, SystemTime::now())));
    Ok(Exit::OK)
}

async fn renew(client: &Client, id: LeaseId, ttl: Option<Duration>, output: Output) -> Done {
    let renewal = client.renew(id, ttl).await?;
    output.result(&renewal, || {
        let until = renewal.expires_at.map(|at| format!("\n  Expires: {}", show::expiry(at, SystemTime::now())));
        format!("Lease renewed\n  Lease: {id}{}", until.unwrap_or_default())
    });
    Ok(Exit::OK)
}

async fn release(client: &Client, id: LeaseId, output: Output) -> Done {
    let lease = client.release(id).await?;
    output.result(&lease, || format!("Lease released\n  Lease: {id}\n  Resource: {}", show::resources(&lease)));
    Ok(Exit::OK)
}

async fn revoke(client: &Client, id: LeaseId, reason: &str, output: Output) -> Done {
    let lease = client.revoke(id, reason).await?;
    output.result(&lease, || {
        // One that is over cannot be taken away; that it is over is what was wanted.
        let done = if lease.status == Status::Revoked { "Lease revoked" } else { "Lease was over already" };
        format!("{done}\n{}", show::facts(&lease, SystemTime::now()))
    });
    Ok(Exit::OK)
}

async fn list(client: &Client, args: &ListArgs, output: Output) -> Done {
    let mut query = LeaseQuery::default();
    query = args.resource.iter().fold(query, LeaseQuery::resource);
    query = args.held_by.iter().fold(query, LeaseQuery::holder);
    query = args.kind.iter().fold(query, LeaseQuery::kind);
    query = query.status(args.status);
    let limit = args.limit.unwrap_or(if args.status == Status::Active { usize::MAX } else { ENDED_MAX });
    let mut leases = Vec::new();
    let mut now = None;
    let next = loop {
        let left = limit.saturating_sub(leases.len()).min(PAGE_MAX);
        let page = client.leases(&query.clone().limit(u32::try_from(left).unwrap_or(u32::MAX))).await?;
        now = now.or(page.server_time);
        leases.extend(page.leases);
        match page.next {
            Some(next) if leases.len() < limit => query = query.after(next),
            next => break next,
        }
    };
    let data = serde_json::json!({ "leases": leases, "next": next });
    output.result(&data, || show::table(&leases, now.unwrap_or_else(SystemTime::now), args.status));
    if next.is_some() {
        output.note(&format!("Note: there are more than these {}; --limit says how many to list", leases.len()));
    }
    Ok(Exit::OK)
}

fn mode(shared: bool) -> Mode {
    if shared { Mode::Shared } else { Mode::Exclusive }
}

fn print_check(check: &Check, output: Output) -> Exit {
    output.result(check, || match check.free {
        true => "Free".to_owned(),
        false => {
            let now = SystemTime::now();
            let blocks = check
                .conflicts
                .iter()
                .map(|conflict| format!("{} is not free\n{}", conflict.resource, refused::describe(conflict, now)));
            blocks.collect::<Vec<_>>().join("\n")
        }
    });
    if check.free { Exit::OK } else { Exit::CONFLICT }
}

pub(crate) fn json_object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("it is not a JSON object, such as {\"run\": 7}".to_owned()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

fn status(text: &str) -> Result<Status, String> {
    serde_json::from_value(text.into()).map_err(|_| "it is one of active, released, expired, revoked".to_owned())
}
