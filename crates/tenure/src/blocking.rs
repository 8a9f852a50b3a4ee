//! Owns the same calls for programs without a runtime: each waits until it is answered. The heartbeat has its own thread
//! in any case.
//!
//! ```no_run
//! use tenure::{Acquire, blocking};
//!
//! # fn main() -> Result<(), tenure::Error> {
//! let client = blocking::Client::new(tenure::Client::builder().holder("agent-7"))?;
//! let lease = client.acquire(Acquire::one("path:src/parser.rs"))?;
//! println!("{}", lease.token());
//! lease.release()?;
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::client::ClientBuilder;
use crate::error::Error;
use crate::guard::Loss;
use crate::model::{Check, LeaseInfo, LeasePage, Mode, Renewal};
use crate::request::{Acquire, LeaseQuery};
use crate::transport::setup;
use crate::{LeaseId, guard};

/// A client whose calls block. Not for use inside an asynchronous runtime: a call there panics.
#[derive(Debug, Clone)]
pub struct Client {
    client: crate::Client,
    runtime: Arc<Runtime>,
}

impl Client {
    /// Builds the client with a runtime of its own, which has one thread.
    ///
    /// # Errors
    /// [`Error::Setup`].
    pub fn new(builder: ClientBuilder) -> Result<Client, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tenure-blocking")
            .enable_all()
            .build()
            .map_err(|error| setup("a runtime cannot be started", error))?;
        Ok(Client { client: builder.build()?, runtime: Arc::new(runtime) })
    }

    /// Waits for any call of the asynchronous client.
    pub fn wait_for<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// The asynchronous client below, for [`Client::wait_for`].
    pub fn asynchronous(&self) -> &crate::Client {
        &self.client
    }

    /// See [`crate::Client::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, request: Acquire) -> Result<Lease, Error> {
        let lease = self.wait_for(self.client.acquire(request))?;
        Ok(Lease { lease, client: self.clone() })
    }

    /// See [`crate::Client::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self, id: LeaseId, ttl: Option<Duration>) -> Result<Renewal, Error> {
        self.wait_for(self.client.renew(id, ttl))
    }

    /// See [`crate::Client::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(&self, id: LeaseId) -> Result<LeaseInfo, Error> {
        self.wait_for(self.client.release(id))
    }

    /// See [`crate::Client::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, resources: impl IntoIterator<Item = impl Into<String>>, mode: Mode) -> Result<Check, Error> {
        self.wait_for(self.client.check(resources, mode))
    }

    /// See [`crate::Client::leases`].
    ///
    /// # Errors
    /// As there.
    pub fn leases(&self, query: &LeaseQuery) -> Result<LeasePage, Error> {
        self.wait_for(self.client.leases(query))
    }
}

/// A guard whose calls block; everything else is that of [`crate::Lease`].
#[derive(Debug)]
#[must_use = "a dropped guard is not renewed: the lease lapses after its ttl"]
pub struct Lease {
    lease: guard::Lease,
    client: Client,
}

impl Lease {
    /// Waits until the lease is lost.
    pub fn wait_lost(&self) -> Loss {
        self.client.wait_for(self.lease.lost())
    }

    /// See [`crate::Lease::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        let Lease { lease, client } = self;
        client.wait_for(lease.release())
    }
}

impl Deref for Lease {
    type Target = guard::Lease;

    fn deref(&self) -> &guard::Lease {
        &self.lease
    }
}
