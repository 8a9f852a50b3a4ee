//! Owns how leases look to a person, and `tenure lease show`.

use std::time::SystemTime;

use serde_json::json;
use tenure::{Client, Event, LeaseId, LeaseInfo, Mode, Status};

use crate::exit::Exit;
use crate::output::Output;
use crate::span;
use crate::table::Table;

pub(super) async fn run(client: &Client, id: LeaseId, output: Output) -> Result<Exit, tenure::Error> {
    let lease = client.lease(id).await?;
    let events = client.history(id).await?;
    output.result(&json!({ "lease": lease, "events": events }), || {
        let history: Vec<String> = events.iter().map(|event| format!("  {}", event_line(event))).collect();
        format!("{}\nHistory:\n{}", facts(&lease, SystemTime::now()), history.join("\n"))
    });
    Ok(Exit::OK)
}

/// The facts of one lease, a line each.
pub(super) fn facts(lease: &LeaseInfo, now: SystemTime) -> String {
    let mut lines = vec![
        format!("  Lease: {}", lease.id),
        format!("  Token: {}", lease.token),
        format!("  Resource: {}", resources(lease)),
        format!("  Holder: {}", lease.holder),
    ];
    if lease.mode == Mode::Shared {
        lines.push("  Mode: shared".to_owned());
    }
    if let Some(within) = lease.within {
        lines.push(format!("  Within: {within}"));
    }
    match (lease.status, lease.expires_at) {
        (Status::Active, Some(at)) => lines.push(format!("  Expires: {}", expiry(at, now))),
        (Status::Active, None) => {}
        (status, _) => lines.push(format!("  Status: {status}{}", ended(lease))),
    }
    lines.join("\n")
}

fn ended(lease: &LeaseInfo) -> String {
    let at = lease.ended_at.map(|at| format!(" {}", span::utc(at))).unwrap_or_default();
    let note = lease.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{at}{note}")
}

/// `2026-11-15 10:05:00 UTC (in 5m)`.
pub(super) fn expiry(at: SystemTime, now: SystemTime) -> String {
    format!("{} ({})", span::utc(at), span::until(at, now))
}

pub(super) fn resources(lease: &LeaseInfo) -> String {
    lease.resources.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Who, what, since, expires in.
pub(super) fn table(leases: &[LeaseInfo], now: SystemTime, asked: Status) -> String {
    if leases.is_empty() {
        return format!("No {asked} leases");
    }
    let end = if asked == Status::Active { "EXPIRES IN" } else { "ENDED" };
    let mut table = Table::new(&["HOLDER", "RESOURCE", "SINCE", end, "LEASE"]);
    for lease in leases {
        let mut what = resources(lease);
        if lease.mode == Mode::Shared {
            what.push_str(" (shared)");
        }
        let since = lease.acquired_at.map(|at| span::ago(at, now)).unwrap_or_default();
        let left = match lease.status {
            Status::Active => lease.expires_at.map(|at| left(at, now)).unwrap_or_default(),
            status => lease.ended_at.map_or_else(|| status.to_string(), |at| span::ago(at, now)),
        };
        table.row([lease.holder.to_string(), what, since, left, lease.id.to_string()]);
    }
    table.render()
}

fn left(at: SystemTime, now: SystemTime) -> String {
    span::format(at.duration_since(now).unwrap_or_default())
}

/// One event on one line.
pub(super) fn event_line(event: &Event) -> String {
    let what = event.resources.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let mut line = format!("{}  {:<14}  {what}", span::utc(event.at), event.kind);
    if let Some(holder) = &event.holder {
        line.push_str(&format!("  {holder}"));
    }
    if let Some(id) = event.lease_id {
        line.push_str(&format!("  {id}"));
    }
    if let Some(by) = &event.by {
        line.push_str(&format!("  by {by}"));
    }
    if let Some(reason) = &event.reason {
        line.push_str(&format!("  ({reason})"));
    }
    line
}
