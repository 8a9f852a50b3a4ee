//! Owns what can be asked for, as builders. Nothing is checked here: the server has the rules and says which field is
//! wrong.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tenure_core::LeaseId;

use crate::guard::Lease;
use crate::model::{Mode, Status};

/// The ttl of an acquire that names none: long enough to survive a restart of the server, short enough that the
/// resource of a crashed holder is soon free.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// For doors that read whole seconds only: what is begun counts whole.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// What to acquire, and how.
///
/// ```
/// # use std::time::Duration;
/// # use tenure::Acquire;
/// let both = Acquire::all(["path:src/parser.rs", "issue:17"])
///     .ttl(Duration::from_secs(60))
///     .wait(Duration::from_secs(300));
/// # let _ = both;
/// ```
#[derive(Debug, Clone, Serialize)]
#[must_use = "an acquire does nothing until a client sends it"]
pub struct Acquire {
    resources: Vec<String>,
    #[serde(rename = "ttl_seconds", serialize_with = "seconds")]
    pub(crate) ttl: Duration,
    mode: Mode,
    #[serde(rename = "wait_seconds", serialize_with = "maybe_seconds", skip_serializing_if = "Option::is_none")]
    pub(crate) wait: Option<Duration>,
    #[serde(rename = "grace_seconds", serialize_with = "maybe_seconds", skip_serializing_if = "Option::is_none")]
    grace: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<LeaseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
    #[serde(skip)]
    pub(crate) key: Option<String>,
}

impl Acquire {
    /// One resource, written `kind:name`.
    pub fn one(resource: impl Into<String>) -> Acquire {
        Acquire::all([resource])
    }

    /// Several resources: all of them or none.
    pub fn all(resources: impl IntoIterator<Item = impl Into<String>>) -> Acquire {
        Acquire {
            resources: resources.into_iter().map(Into::into).collect(),
            ttl: DEFAULT_TTL,
            mode: Mode::Exclusive,
            wait: None,
            grace: None,
            within: None,
            metadata: None,
            key: None,
        }
    }

    /// How long the lease lasts without a renewal; 30 s if not said. The guard renews three times per ttl.
    pub fn ttl(mut self, ttl: Duration) -> Acquire {
        self.ttl = ttl;
        self
    }

    /// Together with other shared leases, but with no exclusive one.
    pub fn shared(mut self) -> Acquire {
        self.mode = Mode::Shared;
        self
    }

    /// Waits in line up to this long; without it a held resource is refused at once.
    pub fn wait(mut self, wait: Duration) -> Acquire {
        self.wait = Some(wait);
        self
    }

    /// How long the resources stay closed if this holder is lost (not if it releases).
    pub fn grace(mut self, grace: Duration) -> Acquire {
        self.grace = Some(grace);
        self
    }

    /// Lives within a lease of the same holder: does not conflict with it, and ends with it.
    pub fn within(self, parent: &Lease) -> Acquire {
        self.within_id(parent.id())
    }

    /// As [`Acquire::within`], for a lease that is known by its id.
    pub fn within_id(mut self, parent: LeaseId) -> Acquire {
        self.within = Some(parent);
        self
    }

    /// A note that everyone can read with the lease: a JSON object.
    pub fn metadata(mut self, metadata: Value) -> Acquire {
        self.metadata = Some(metadata);
        self
    }

    /// The idempotency key. Every acquire gets a new one by itself; set it only to make the same acquire again from
    /// another process or after a restart.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Acquire {
        self.key = Some(key.into());
        self
    }

    /// As it is sent, in this holder's name.
    pub(crate) fn named<'a>(&'a self, holder: Option<&'a str>) -> impl Serialize {
        #[derive(Serialize)]
        struct Named<'a> {
            #[serde(flatten)]
            acquire: &'a Acquire,
            #[serde(skip_serializing_if = "Option::is_none")]
            holder: Option<&'a str>,
        }
        Named { acquire: self, holder }
    }
}

/// Which leases to list; everything that is not said is not filtered.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LeaseQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

impl LeaseQuery {
    /// Only leases that overlap this resource.
    pub fn resource(mut self, resource: impl Into<String>) -> LeaseQuery {
        self.resource = Some(resource.into());
        self
    }

    /// Only leases of this holder.
    pub fn holder(mut self, holder: impl Into<String>) -> LeaseQuery {
        self.holder = Some(holder.into());
        self
    }

    /// Only leases in this state.
    pub fn status(mut self, status: Status) -> LeaseQuery {
        self.status = Some(status);
        self
    }

    /// Only leases on resources of this kind (`path`, `task`, …).
    pub fn kind(mut self, kind: impl Into<String>) -> LeaseQuery {
        self.kind = Some(kind.into());
        self
    }

    /// The page that starts at [`crate::LeasePage::next`].
    pub fn after(mut self, next: impl Into<String>) -> LeaseQuery {
        self.after = Some(next.into());
        self
    }

    /// At most this many.
    pub fn limit(mut self, limit: u32) -> LeaseQuery {
        self.limit = Some(limit);
        self
    }
}

/// Which events to read; everything that is not said is not filtered.
#[derive(Debug, Clone, Default, Serialize)]
pub struct EventQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
}

impl EventQuery {
    /// Only events after this cursor; 0 is the beginning.
    pub fn after(mut self, cursor: u64) -> EventQuery {
        self.after = Some(cursor);
        self
    }

    /// At most this many per page.
    pub fn limit(mut self, limit: u32) -> EventQuery {
        self.limit = Some(limit);
        self
    }

    /// Only events of this kind, for example `lease.expired`.
    pub fn kind(mut self, kind: impl Into<String>) -> EventQuery {
        self.kind = Some(kind.into());
        self
    }

    /// Only events about resources that overlap this one.
    pub fn resource(mut self, resource: impl Into<String>) -> EventQuery {
        self.resource = Some(resource.into());
        self
    }

    /// Only events about leases of this holder.
    pub fn holder(mut self, holder: impl Into<String>) -> EventQuery {
        self.holder = Some(holder.into());
        self
    }
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_seconds(*duration))
}

fn maybe_seconds<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    seconds(&duration.unwrap_or_default(), serializer)
}

/// Whole milliseconds as seconds, so that 100 ms is written 0.1.
pub(crate) fn in_seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_acquire_is_written_as_the_server_reads_it() {
        let plain = Acquire::one("x:a");
        let plain = serde_json::to_value(plain.named(None)).unwrap();
        assert_eq!(plain, json!({"resources": ["x:a"], "ttl_seconds": 30.0, "mode": "exclusive"}));
        let full = Acquire::all(["x:a", "x:b"])
            .ttl(Duration::from_millis(100))
            .shared()
            .wait(Duration::from_secs(5))
            .grace(Duration::from_secs(1))
            .within_id("lease-1-1".parse().unwrap())
            .metadata(json!({"why": "test"}));
        let full = serde_json::to_value(full.named(Some("me"))).unwrap();
        let expected = json!({"resources": ["x:a", "x:b"], "ttl_seconds": 0.1, "mode": "shared", "wait_seconds": 5.0,
            "grace_seconds": 1.0, "within": "lease-1-1", "metadata": {"why": "test"}, "holder": "me"});
        assert_eq!(full, expected);
    }
}
