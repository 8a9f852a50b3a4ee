//! Owns the OpenIntent protocol under test, spoken the same way to two servers: Tenure's door, and the server inside that
//! project's own Python package with its database file on the same disk.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::tenure::Tenure;
use super::{Described, TTL_SECONDS};
use crate::http::{Connection, text_member};
use crate::load::{Client, Op, Target};
use crate::process::{Server, free_address};

/// Tenure, by its OpenIntent door.
pub struct Door(pub Tenure);

/// The server of the package.
pub struct Reference {
    server: Server,
    address: SocketAddr,
}

impl Reference {
    /// Starts it, if the package is installed where the Python tests have it.
    pub fn start(scratch: &Path) -> Result<Option<Reference>> {
        let Some(program) = program() else { return Ok(None) };
        let address = free_address()?;
        let database = format!("sqlite:///{}", scratch.join("openintent.db").display());
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string(), "--database-url", &database]);
        command.args(["--log-level", "error"]).stdout(Stdio::null());
        let mut server = Server::start(&mut command, "openintent-server", scratch)?;
        server.wait_for(address)?;
        Ok(Some(Reference { server, address }))
    }
}

fn program() -> Option<PathBuf> {
    let target = std::env::current_exe().ok()?.parent()?.parent()?.to_owned();
    Some(target.join("venv/bin/openintent-server")).filter(|program| program.is_file())
}

/// One connection, one agent, one intent of its own.
pub struct IntentClient {
    connection: Connection,
    headers: String,
    intent: String,
    lease: String,
    version: u64,
}

impl IntentClient {
    async fn open(address: SocketAddr, n: usize) -> Result<IntentClient> {
        let headers =
            format!("X-Agent-ID: agent-{n:05}\r\nX-API-Key: dev-user-key\r\nContent-Type: application/json\r\n");
        let connection = Connection::open(address).await?;
        let mut client = IntentClient { connection, headers, intent: String::new(), lease: String::new(), version: 1 };
        let body = format!("{{\"title\":\"bench\",\"description\":\"\",\"created_by\":\"agent-{n:05}\"}}");
        let answer = client.connection.call("POST", &["/api/v1/intents"], &[&client.headers], body.as_bytes()).await?;
        ensure!(matches!(answer.status, 200 | 201), "{}: {}", answer.status, answer.text());
        client.intent = text_member(answer.body, "id").context("an intent without an id")?.to_owned();
        Ok(client)
    }

    async fn acquire(&mut self) -> Result<()> {
        let path = ["/api/v1/intents/", &self.intent, "/leases"];
        let body = format!("{{\"scope\":\"work\",\"duration_seconds\":{TTL_SECONDS}}}");
        let answer = self.connection.call("POST", &path, &[&self.headers], body.as_bytes()).await?;
        ensure!(matches!(answer.status, 200 | 201), "{}: {}", answer.status, answer.text());
        self.lease = text_member(answer.body, "id").context("a lease without an id")?.to_owned();
        Ok(())
    }

    async fn on_lease(&mut self, method: &str, body: &[u8]) -> Result<()> {
        let path = ["/api/v1/intents/", &self.intent, "/leases/", &self.lease];
        let answer = self.connection.call(method, &path, &[&self.headers], body).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        Ok(())
    }

    async fn patch(&mut self) -> Result<()> {
        let path = ["/api/v1/intents/", &self.intent, "/state"];
        let if_match = format!("If-Match: {}\r\n", self.version);
        let body = format!("{{\"patches\":[{{\"op\":\"set\",\"path\":\"progress\",\"value\":{}}}]}}", self.version);
        let answer = self.connection.call("POST", &path, &[&self.headers, &if_match], body.as_bytes()).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        self.version += 1;
        Ok(())
    }
}

impl Client for IntentClient {
    /// This protocol has no ping; its place is taken by a patch of the state, its other write.
    async fn perform(&mut self, op: Op) -> Result<()> {
        let renew = format!("{{\"duration_seconds\":{TTL_SECONDS}}}");
        match op {
            Op::Ping => self.patch().await,
            Op::Acquire => self.acquire().await,
            Op::Renew => self.on_lease("PATCH", renew.as_bytes()).await,
            Op::Release => self.on_lease("DELETE", &[]).await,
        }
    }
}

impl Target for Door {
    type Client = IntentClient;

    async fn connect(&self, n: usize) -> Result<IntentClient> {
        IntentClient::open(self.0.address, n).await
    }

    fn cpu(&self) -> Result<Duration> {
        self.0.server.cpu()
    }
}

impl Described for Door {
    const NAME: &'static str = "Tenure";
    const NOTE: &'static str =
        "Tenure: the OpenIntent door; every grant, release and patch is on the disk before it is answered.";

    fn server(&self) -> &Server {
        &self.0.server
    }
}

impl Target for Reference {
    type Client = IntentClient;

    async fn connect(&self, n: usize) -> Result<IntentClient> {
        IntentClient::open(self.address, n).await
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.cpu()
    }
}

impl Described for Reference {
    const NAME: &'static str = "openintent-server";
    const NOTE: &'static str =
        "openintent-server: the server of the package openintent 0.17.0, one process, its own SQLite file.";

    fn server(&self) -> &Server {
        &self.server
    }
}
