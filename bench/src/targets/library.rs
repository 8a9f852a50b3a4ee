//! Owns the client libraries under test: the same two requests to the same server, once by the HTTP library alone and once by
//! the SDK that is built on it.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use tenure::Acquire;

use super::TTL_SECONDS;
use super::tenure::Tenure;
use crate::http::text_member;
use crate::load::{Client, Op, Target};

/// Who sends all requests of one run. Tasks share it, as a program does: a pool of connections grows to their number.
const HOLDER: &str = "agent-7";

/// The HTTP library that the SDK uses, without the SDK.
pub struct Raw<'a> {
    server: &'a Tenure,
    // Connections belong to the runtime that made them, and every run has its own.
    http: RefCell<Option<reqwest::Client>>,
}

impl<'a> Raw<'a> {
    pub fn new(server: &'a Tenure) -> Raw<'a> {
        Raw { server, http: RefCell::default() }
    }
}

pub struct RawClient {
    http: reqwest::Client,
    base: String,
    run: u128,
    number: usize,
    taken: u64,
    lease: String,
}

impl Target for Raw<'_> {
    type Client = RawClient;

    async fn connect(&self, number: usize) -> Result<RawClient> {
        if number == 0 {
            // As the SDK does; a second time it is there already.
            let _ = rustls::crypto::ring::default_provider().install_default();
            *self.http.borrow_mut() = Some(reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?);
        }
        let http = self.http.borrow().clone().context("connection 0 comes first")?;
        let base = format!("http://{}/v1/leases", self.server.address);
        let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
        Ok(RawClient { http, base, run, number, taken: 0, lease: String::new() })
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.server.cpu()
    }
}

impl RawClient {
    /// New for every acquire, as long as the SDK's.
    fn key(&self) -> String {
        format!("{:020}-{:06}-{:08}", self.run, self.number, self.taken)
    }
}

impl Client for RawClient {
    async fn perform(&mut self, op: Op) -> Result<()> {
        match op {
            Op::Acquire => {
                self.taken += 1;
                let (number, taken) = (self.number, self.taken);
                let body = format!(
                    "{{\"resources\":[\"task:{number}/{taken}\"],\"ttl_seconds\":{TTL_SECONDS},\"mode\":\"exclusive\",\"holder\":\"{HOLDER}\"}}"
                );
                let request = self.http.post(&self.base).header("content-type", "application/json").body(body);
                let request = request.header("x-tenure-holder", HOLDER).header("idempotency-key", self.key());
                let bytes = request.send().await?.error_for_status()?.bytes().await?;
                self.lease = text_member(&bytes, "id").context("a lease without an id")?.to_owned();
            }
            Op::Release => {
                let request = self.http.delete(format!("{}/{}", self.base, self.lease));
                let answer = request.header("x-tenure-holder", HOLDER).send().await?.error_for_status()?;
                ensure!(!answer.bytes().await?.is_empty(), "no answer");
            }
            Op::Ping | Op::Renew => bail!("not measured here"),
        }
        Ok(())
    }
}

/// The SDK: a guard with its heartbeat for every lease.
pub struct Sdk<'a> {
    server: &'a Tenure,
    client: RefCell<Option<tenure::Client>>,
}

impl<'a> Sdk<'a> {
    pub fn new(server: &'a Tenure) -> Sdk<'a> {
        Sdk { server, client: RefCell::default() }
    }
}

pub struct SdkClient {
    client: tenure::Client,
    number: usize,
    taken: u64,
    lease: Option<tenure::Lease>,
}

impl Target for Sdk<'_> {
    type Client = SdkClient;

    async fn connect(&self, number: usize) -> Result<SdkClient> {
        if number == 0 {
            let url = format!("http://{}", self.server.address);
            *self.client.borrow_mut() = Some(tenure::Client::builder().url(url).holder(HOLDER).build()?);
        }
        let client = self.client.borrow().clone().context("connection 0 comes first")?;
        Ok(SdkClient { client, number, taken: 0, lease: None })
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.server.cpu()
    }
}

impl Client for SdkClient {
    async fn perform(&mut self, op: Op) -> Result<()> {
        match op {
            Op::Acquire => {
                self.taken += 1;
                let resource = format!("task:{}/{}", self.number, self.taken);
                let request = Acquire::one(resource).ttl(Duration::from_secs(TTL_SECONDS));
                self.lease = Some(self.client.acquire(request).await?);
            }
            Op::Release => self.lease.take().context("nothing is held")?.release().await?,
            Op::Ping | Op::Renew => bail!("not measured here"),
        }
        Ok(())
    }
}
