//! Owns Tenure under test: the release binary with its own data directory, and a client of its native API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Described, TTL_SECONDS};
use crate::http::{Answer, Connection, text_member};
use crate::load::{Client, Op, Target, block_on};
use crate::process::Server;

/// A running Tenure.
pub struct Tenure {
    pub server: Server,
    pub address: SocketAddr,
    pub start_time: Duration,
}

impl Tenure {
    /// Starts it; comes back when it answers.
    pub fn start(binary: &Path, data: &Path) -> Result<Tenure> {
        let started = Instant::now();
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).stdout(Stdio::piped());
        let logs = data.parent().context("the data directory has no parent")?;
        let mut server = Server::start(&mut command, "tenure", logs)?;
        let address = server.announced()?;
        let tenure = Tenure { server, address, start_time: Duration::ZERO };
        block_on(async {
            let mut connection = Connection::open(address).await?;
            let answer = connection.call("GET", &["/readyz"], &[], &[]).await?;
            ensure!(answer.status == 200, "/readyz: {} {}", answer.status, answer.text());
            Ok(())
        })?;
        Ok(Tenure { start_time: started.elapsed(), ..tenure })
    }

    /// The sum of a metric's samples; nothing if there is no such metric.
    pub fn metric(&self, name: &str) -> Result<Option<f64>> {
        let text = self.metrics()?;
        let values: Vec<f64> = text.lines().filter_map(|line| sample(line, name)).collect();
        Ok((!values.is_empty()).then(|| values.iter().sum()))
    }

    /// All metrics as text.
    pub fn metrics(&self) -> Result<String> {
        block_on(async {
            let mut connection = Connection::open(self.address).await?;
            let answer = connection.call("GET", &["/metrics"], &[], &[]).await?;
            ensure!(answer.status == 200, "/metrics: {}", answer.status);
            Ok(answer.text())
        })
    }
}

/// The value of a line of metrics with that name, whatever its labels.
fn sample(line: &str, name: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let value = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
    value.strip_prefix(' ')?.split(' ').next()?.parse().ok()
}

/// Where the release binary is, unless told otherwise: beside this one.
pub fn default_binary() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let binary = own.parent().context("this program has no directory")?.join("tenure");
    ensure!(binary.is_file(), "{} does not exist: run `cargo build --release` first", binary.display());
    Ok(binary)
}

/// One connection, one holder, one lease at a time.
pub struct TenureClient {
    connection: Connection,
    holder: String,
    holder_line: String,
    taken: u64,
    lease: String,
    body: Vec<u8>,
}

impl Target for Tenure {
    type Client = TenureClient;

    async fn connect(&self, n: usize) -> Result<TenureClient> {
        let holder = format!("agent-{n:05}");
        let holder_line = format!("X-Tenure-Holder: {holder}\r\n");
        let connection = Connection::open(self.address).await?;
        Ok(TenureClient { connection, holder, holder_line, taken: 0, lease: String::new(), body: Vec::new() })
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.cpu()
    }
}

impl Described for Tenure {
    const NAME: &'static str = "Tenure";
    const NOTE: &'static str = "Tenure: HTTP/1.1 with JSON, `POST /v1/leases`, `…/renew`, `DELETE`; every grant and release is on the disk \
        before it is answered, a renewal within a second.";

    fn server(&self) -> &Server {
        &self.server
    }
}

impl Client for TenureClient {
    async fn perform(&mut self, op: Op) -> Result<()> {
        match op {
            Op::Ping => self.ping().await,
            Op::Acquire => self.acquire().await,
            Op::Renew => self.renew().await,
            Op::Release => self.release().await,
        }
    }
}

impl TenureClient {
    fn write_body(&mut self) -> Result<()> {
        self.taken += 1;
        write_acquire(
            &mut self.body,
            &format_args!("task:{}/{:08}", self.holder, self.taken),
            &self.holder,
            TTL_SECONDS as f64,
        )
    }

    /// Sends what an acquire would send.
    async fn ping(&mut self) -> Result<()> {
        self.write_body()?;
        let answer = self.connection.call("POST", &["/v1/ping"], &[&self.holder_line], &self.body).await?;
        expect(&answer, 200)?;
        ensure!(answer.body == self.body, "the echo differs: {}", answer.text());
        Ok(())
    }

    async fn acquire(&mut self) -> Result<()> {
        self.write_body()?;
        let answer = self.connection.call("POST", &["/v1/leases"], &[&self.holder_line], &self.body).await?;
        expect(&answer, 201)?;
        let id = text_member(answer.body, "id").context("a lease without an id")?;
        self.lease.clear();
        self.lease.push_str(id);
        Ok(())
    }

    async fn renew(&mut self) -> Result<()> {
        let path = ["/v1/leases/", &self.lease, "/renew"];
        let answer = self.connection.call("POST", &path, &[&self.holder_line], &[]).await?;
        expect(&answer, 200)
    }

    async fn release(&mut self) -> Result<()> {
        let answer = self.connection.call("DELETE", &["/v1/leases/", &self.lease], &[&self.holder_line], &[]).await?;
        ensure!(matches!(answer.status, 200 | 204), "{}: {}", answer.status, answer.text());
        Ok(())
    }
}

/// Writes the body of an acquire.
pub fn write_acquire(
    body: &mut Vec<u8>,
    resource: &dyn std::fmt::Display,
    holder: &str,
    ttl_seconds: f64,
) -> Result<()> {
    use std::io::Write;
    body.clear();
    write!(body, "{{\"resource\":\"{resource}\",\"holder\":\"{holder}\",\"ttl_seconds\":{ttl_seconds}}}")?;
    Ok(())
}

/// Fails unless the answer has that status.
pub fn expect(answer: &Answer<'_>, status: u16) -> Result<()> {
    ensure!(answer.status == status, "{} where {status} is due: {}", answer.status, answer.text());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_read_with_and_without_labels() {
        assert_eq!(sample("tenure_live_leases 7", "tenure_live_leases"), Some(7.0));
        assert_eq!(sample("tenure_ends_total{how=\"expired\"} 3", "tenure_ends_total"), Some(3.0));
        assert_eq!(sample("tenure_live_leases_total 7", "tenure_live_leases"), None);
        assert_eq!(sample("# HELP tenure_live_leases Active", "tenure_live_leases"), None);
    }
}
