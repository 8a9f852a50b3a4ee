//! Owns the native door, `/v1`: leases, events, and the ping that measures what HTTP itself costs.

pub(crate) mod backup;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod model;
pub(crate) mod query;
pub(crate) mod refusals;
pub(crate) mod renew;
pub(crate) mod requests;
pub(crate) mod workflows;
