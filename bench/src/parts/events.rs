//! Owns many subscribers at once: whether each of them gets every event, in order, and how long that takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::Setup;
use crate::load::{Client, Op, Target, block_on};
use crate::report::{Aim, Section, Table, Unit, progress, short, thousands};
use crate::sse::Subscriber;
use crate::targets::tenure::Tenure;

const SUBSCRIBERS: u64 = 5_000;
/// Each acquire and each release is one.
const EVENTS: u64 = 200;
/// An event that has not come by then is lost.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(setup: &Setup) -> Result<Section> {
    let tenure = Tenure::start(&setup.tenure, &setup.directory("events")?)?;
    let subscribers = setup.scaled(SUBSCRIBERS);
    let (opened, produced, delivered) = block_on(deliver(&tenure, subscribers))?;
    let total = (subscribers * EVENTS) as f64;
    let mut table =
        Table::new(&["subscribers", "events", "all open after", "events made in", "all delivered in", "deliveries/s"]);
    table.row(&[
        &thousands(subscribers as f64),
        &EVENTS,
        &short(opened),
        &short(produced),
        &short(delivered),
        &thousands(total / delivered.as_secs_f64()),
    ]);
    let notes = vec!["One connection acquires and releases without a pause; every subscriber checks that no event is missing or out of order.".to_owned()];
    // A lost event has failed the run before this line.
    let aims =
        vec![Aim::at_least("subscribers that got every event", subscribers as f64, Unit::Count, subscribers as f64)];
    Ok(Section { title: "Subscribers", notes, tables: vec![table], aims })
}

async fn deliver(tenure: &Tenure, subscribers: u64) -> Result<(Duration, Duration, Duration)> {
    let started = Instant::now();
    let mut readers = JoinSet::new();
    for n in 0..subscribers {
        let subscriber = Subscriber::open(tenure.address, "").await.with_context(|| format!("subscriber {n}"))?;
        readers.spawn_local(read_all(subscriber));
    }
    let opened = started.elapsed();
    progress(format!("{subscribers} subscribers after {}", short(opened)));
    let mut client = tenure.connect(0).await?;
    let started = Instant::now();
    for _ in 0..EVENTS / 2 {
        client.perform(Op::Acquire).await?;
        client.perform(Op::Release).await?;
    }
    let produced = started.elapsed();
    let mut first = None;
    while let Some(read) = readers.join_next().await {
        let from = read??;
        ensure!(*first.get_or_insert(from) == from, "one subscriber began at event {from}, another at {first:?}");
    }
    let delivered = started.elapsed();
    progress(format!("delivered after {}", short(delivered)));
    Ok((opened, produced, delivered))
}

/// Reads until all events are there; returns the id of the first.
async fn read_all(mut subscriber: Subscriber) -> Result<u64> {
    let (mut first, mut next, mut count) = (None, None, 0);
    let read = async {
        while count < EVENTS {
            subscriber
                .read(|id, _| {
                    ensure!(next.is_none_or(|next| next == id), "event {id} where {next:?} is due");
                    first.get_or_insert(id);
                    next = Some(id + 1);
                    count += 1;
                    Ok(())
                })
                .await?;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(read) => read?,
        Err(_) => anyhow::bail!("a subscriber got {count} of {EVENTS} events in {PATIENCE:?}"),
    }
    first.context("no events")
}
