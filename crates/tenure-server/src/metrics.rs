//! Owns what the server counts about itself. Counting never waits: counters are atomics, histograms are touched once a batch.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tenure_core::event::{Event, EventKind};
use tenure_core::lease::End;
use tenure_store::StoreStats;

/// The code of a refusal, as on every wire.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: &'static str,
}

/// How a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct How {
    how: &'static str,
}

/// Everything that is counted.
pub struct Metrics {
    grants: Counter,
    ends: Family<How, Counter>,
    refusals: Family<Code, Counter>,
    renewals: Counter,
    expiry_lateness: Histogram,
    batch_commands: Histogram,
    commit_seconds: Histogram,
    /// Connections at present.
    pub connections: Gauge,
}

/// What is not counted but looked at when somebody asks.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Active leases.
    pub leases: usize,
    /// Waits in the queue.
    pub waiters: usize,
    /// Holders with a lease or a wait.
    pub holders: usize,
    /// Readers of events that every commit wakes.
    pub followers: usize,
    /// Commands that wait for the batch that is not on its way yet.
    pub queue: usize,
    /// How the store is doing.
    pub store: StoreStats,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            grants: Counter::default(),
            ends: Family::default(),
            refusals: Family::default(),
            renewals: Counter::default(),
            expiry_lateness: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            batch_commands: Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            commit_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            connections: Gauge::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn refused(&self, code: &'static str) {
        self.refusals.get_or_create(&Code { code }).inc();
    }

    pub(crate) fn renewed(&self, count: usize) {
        self.renewals.inc_by(count as u64);
    }

    /// One commit of so many commands.
    pub(crate) fn committed(&self, commands: usize, seconds: f64, events: &[Event]) {
        self.batch_commands.observe(commands as f64);
        self.commit_seconds.observe(seconds);
        let (mut grants, mut ends) = (0, [(End::Released, 0), (End::Expired, 0), (End::Revoked, 0)]);
        for event in events {
            grants += u64::from(event.kind == EventKind::LeaseGranted);
            for (end, count) in &mut ends {
                *count += u64::from(event.kind.end() == Some(*end));
            }
            if let (EventKind::LeaseExpired, Some(expires_at)) = (event.kind, event.expires_at) {
                self.expiry_lateness.observe(event.at.ms_since(expires_at) as f64 / 1_000.0);
            }
        }
        // Once for a commit: finding a counter by its label takes longer than counting.
        self.grants.inc_by(grants);
        for (end, count) in ends.into_iter().filter(|(_, count)| *count > 0) {
            self.ends.get_or_create(&How { how: end.as_str() }).inc_by(count);
        }
    }

    /// Everything in the text format of Prometheus.
    pub fn encode(&self, snapshot: Snapshot) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("tenure");
        registry.register("grants", "Leases granted", self.grants.clone());
        registry.register("lease_ends", "Leases ended, by how", self.ends.clone());
        let refused =
            "Acquires, renewals and releases of leases that the ledger refused, and what was one too many, by code";
        registry.register("refusals", refused, self.refusals.clone());
        registry.register("renewals", "Renewals granted", self.renewals.clone());
        registry.register_with_unit(
            "expiry_lateness",
            "From the moment a lease ran out to the event that says so",
            Unit::Seconds,
            self.expiry_lateness.clone(),
        );
        registry.register("batch_commands", "Commands answered by one commit", self.batch_commands.clone());
        registry.register_with_unit("commit", "Duration of a commit", Unit::Seconds, self.commit_seconds.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        for (name, help, value) in [
            ("live_leases", "Active leases", snapshot.leases as i64),
            ("waiters", "Acquires that wait", snapshot.waiters as i64),
            ("holders", "Holders with a lease or a wait", snapshot.holders as i64),
            ("event_followers", "Readers of events that every commit wakes", snapshot.followers as i64),
            ("queue_depth", "Commands that wait for the next commit", snapshot.queue as i64),
            ("fold_lag_batches", "Batches not yet in the readable tables", snapshot.store.lag() as i64),
            ("fold_lag_milliseconds", "By how much the readable tables are behind", snapshot.store.lag_ms() as i64),
            (
                "fold_failing",
                "Whether folding has stopped; the log says why",
                i64::from(snapshot.store.fold_error.is_some()),
            ),
            ("events_kept", "Events that can be read", snapshot.store.events_kept() as i64),
            ("journal_bytes", "Size of the journal's files", snapshot.store.journal_bytes as i64),
            ("tables_bytes", "Size of the tables' files", snapshot.store.tables_bytes as i64),
        ] {
            let gauge: Gauge = Gauge::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}
