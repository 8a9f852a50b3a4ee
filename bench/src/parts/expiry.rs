//! Owns how late expiries are when many leases run out together: on the ledger's clock, and as a follower sees them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use jiff::Timestamp;

use super::Setup;
use crate::fill::{Wanted, fill};
use crate::load::{self, Pace, Workload, block_on, new_histogram};
use crate::report::{Aim, Section, Table, Unit, progress, thousands};
use crate::sse::Subscriber;
use crate::targets::tenure::Tenure;

const LEASES: u64 = 100_000;
/// All of them run out within this time.
const WINDOW: Duration = Duration::from_secs(10);
/// From the first acquire to the first expiry: all must be granted by then.
const LEAD: Duration = Duration::from_secs(15);
/// An expiry that is not told by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections that load the server meanwhile, in the second run.
const LOAD_CONNECTIONS: usize = 32;

struct Lateness {
    /// From the end of the lease to the time in its event, in milliseconds.
    told: Histogram<u64>,
    /// To its arrival at a follower.
    seen: Histogram<u64>,
}

pub fn run(setup: &Setup) -> Result<Section> {
    let leases = setup.scaled(LEASES);
    let tenure = Tenure::start(&setup.tenure, &setup.directory("expiry")?)?;
    let quiet = block_on(expire(&tenure, leases, "quiet"))?;
    let pace = Pace { warm_up: Duration::ZERO, measure: LEAD + WINDOW };
    let (loaded, rate) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load::run(&tenure, LOAD_CONNECTIONS, &Workload::CHURN, pace));
        let loaded = block_on(expire(&tenure, leases, "loaded"))?;
        let measured = load.join().map_err(|_| anyhow::anyhow!("the load stopped"))??;
        Ok::<_, anyhow::Error>((loaded, measured.rate()))
    })?;
    let mut table = Table::new(&["lateness, ms", "p50", "p99", "largest"]);
    let busy = format!("{} operations/s beside", thousands(rate));
    for (name, histogram) in [
        ("event's time, otherwise idle".to_owned(), &quiet.told),
        ("arrival, otherwise idle".to_owned(), &quiet.seen),
        (format!("event's time, {busy}"), &loaded.told),
        (format!("arrival, {busy}"), &loaded.seen),
    ] {
        table.row(&[&name, &histogram.value_at_quantile(0.5), &histogram.value_at_quantile(0.99), &histogram.max()]);
    }
    let aim = |what: &str, of: &Lateness| {
        Aim::at_most(what, of.told.value_at_quantile(0.99) as f64, Unit::Milliseconds, 100.0)
    };
    let aims = vec![aim("lateness p99, otherwise idle", &quiet), aim("lateness p99, under load", &loaded)];
    let notes = vec![format!(
        "{} leases run out within {} s. The event's time is when the expiry was decided; the arrival is when a follower \
         of the event stream, in the same process as the load, had read it.",
        thousands(leases as f64),
        WINDOW.as_secs()
    )];
    Ok(Section { title: "Expiry", notes, tables: vec![table], aims })
}

async fn expire(tenure: &Tenure, leases: u64, name: &str) -> Result<Lateness> {
    let mut follower = Subscriber::open(tenure.address, "?kind=lease.expired").await?;
    let first = Timestamp::now().checked_add(LEAD)?;
    let prefix = format!("task:{name}");
    let wanted = move |n: u64| {
        let until =
            first.duration_since(Timestamp::now()).as_secs_f64() + WINDOW.as_secs_f64() * n as f64 / leases as f64;
        let ttl_seconds = (until * 1_000.0).round().max(100.0) / 1_000.0;
        Wanted { resource: format!("{prefix}/{n:08}"), holder: format!("agent-{}", n % 1_000), ttl_seconds }
    };
    fill(tenure.address, leases, wanted).await?;
    ensure!(
        Timestamp::now() < first,
        "{leases} leases took longer than {LEAD:?}: this machine is too slow for this part"
    );
    progress(format!("{leases} leases wait for their end, {name}"));
    let mut lateness = Lateness { told: new_histogram(), seen: new_histogram() };
    let mut count = 0;
    let read = async {
        while count < leases {
            follower
                .read(|_, data| {
                    count += 1;
                    lateness.record(data)
                })
                .await?;
        }
        Ok(())
    };
    match tokio::time::timeout(LEAD + WINDOW + PATIENCE, read).await {
        Ok(read) => read.map(|()| lateness),
        Err(_) => anyhow::bail!("{count} of {leases} expiries were told"),
    }
}

impl Lateness {
    fn record(&mut self, data: &[u8]) -> Result<()> {
        let now = Timestamp::now();
        let event: serde_json::Value = serde_json::from_slice(data)?;
        let time = |name: &str| -> Result<Timestamp> {
            Ok(event
                .get(name)
                .and_then(|value| value.as_str())
                .with_context(|| format!("an event without {name}"))?
                .parse()?)
        };
        let (at, expires_at) = (time("at")?, time("expires_at")?);
        ensure!(at >= expires_at, "a lease expired at {at}, before its time {expires_at}");
        let ms = |until: Timestamp| until.duration_since(expires_at).as_millis().try_into().unwrap_or(0);
        self.told.saturating_record(ms(at));
        self.seen.saturating_record(ms(now));
        Ok(())
    }
}
