//! Owns PostgreSQL under test: a table of locks, one prepared statement and so one transaction for each operation.
//!
//! Speaks the extended protocol itself: bind, execute and sync in one write, the answer in one read.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::{Uid, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Described, TTL_SECONDS};
use crate::load::{Client, Op, Target, block_on};
use crate::process::{Server, find_program, free_address};

/// PostgreSQL refuses to run as root; the Debian package makes this user.
const USER: &str = "postgres";
/// More than the largest number of connections.
const CONNECTIONS_MAX: &str = "300";

/// How often it is asked whether it has started.
const START_TRIES: u32 = 300;
const START_PAUSE: Duration = Duration::from_millis(100);

const SCHEMA: [&str; 2] = [
    "CREATE SEQUENCE tokens",
    "CREATE TABLE locks (resource text PRIMARY KEY, holder text NOT NULL, token bigint NOT NULL, expires_at timestamptz NOT NULL)",
];
const STATEMENTS: [(&str, &str); 3] = [
    (
        "acquire",
        "INSERT INTO locks VALUES ($1, $2, nextval('tokens'), now() + $3::bigint * interval '1 ms') \
         ON CONFLICT (resource) DO UPDATE SET holder = excluded.holder, token = excluded.token, \
         expires_at = excluded.expires_at WHERE locks.expires_at <= now() RETURNING token",
    ),
    (
        "renew",
        "UPDATE locks SET expires_at = now() + $3::bigint * interval '1 ms' \
         WHERE resource = $1 AND holder = $2 AND expires_at > now()",
    ),
    ("release", "DELETE FROM locks WHERE resource = $1 AND holder = $2"),
];

/// A running PostgreSQL.
pub struct Postgres {
    server: Server,
    address: SocketAddr,
}

impl Postgres {
    /// Starts it, if it is installed.
    pub fn start(scratch: &Path) -> Result<Option<Postgres>> {
        let (Some(server), Some(initdb)) = (find_binary("postgres"), find_binary("initdb")) else { return Ok(None) };
        let data = scratch.join("postgres");
        std::fs::create_dir(&data)?;
        if Uid::effective().is_root() {
            let Some(user) = User::from_name(USER)? else { return Ok(None) };
            chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        let mut init = as_user(&initdb);
        init.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D"]).arg(&data);
        let made = init.current_dir(&data).output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let address = free_address()?;
        let mut command = as_user(&server);
        command.arg("-D").arg(&data).current_dir(&data).stdout(Stdio::null());
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        command.args(["-p", &address.port().to_string(), "-N", CONNECTIONS_MAX]);
        let mut server = Server::start(&mut command, "postgres-server", scratch)?;
        server.wait_for(address)?;
        let postgres = Postgres { server, address };
        block_on(async {
            let mut connection = first_connection(address).await?;
            for statement in SCHEMA {
                connection.execute(statement).await?;
            }
            Ok(())
        })?;
        Ok(Some(postgres))
    }
}

/// It listens before it lets anybody in.
async fn first_connection(address: SocketAddr) -> Result<Connection> {
    let mut tries = 0;
    loop {
        match Connection::open(address).await {
            Err(_) if tries < START_TRIES => tokio::time::sleep(START_PAUSE).await,
            done => return done,
        }
        tries += 1;
    }
}

/// Debian keeps the server's programs of each version in a directory of their own, outside the path.
fn find_binary(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok();
    let newest = versions.and_then(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).max());
    newest
        .map(|path| path.join("bin").join(name))
        .filter(|path| path.metadata().is_ok_and(|file| file.mode() & 1 != 0))
        .or_else(|| find_program(name))
}

fn as_user(program: &Path) -> Command {
    if !Uid::effective().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(program);
    command
}

impl Target for Postgres {
    type Client = PostgresClient;

    async fn connect(&self, n: usize) -> Result<PostgresClient> {
        let mut connection = Connection::open(self.address).await?;
        for (name, statement) in STATEMENTS {
            connection.prepare(name, statement).await?;
        }
        Ok(PostgresClient { connection, holder: format!("agent-{n:05}"), taken: 0, resource: String::new() })
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.cpu()
    }
}

impl Described for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const NOTE: &'static str = "PostgreSQL: a table of locks with its resource as key, `INSERT … ON CONFLICT`, `UPDATE` and `DELETE` as prepared \
        statements, one transaction each, settings as installed (`synchronous_commit = on`).";

    fn server(&self) -> &Server {
        &self.server
    }
}

/// One connection, one holder, one lock at a time.
pub struct PostgresClient {
    connection: Connection,
    holder: String,
    taken: u64,
    resource: String,
}

impl Client for PostgresClient {
    async fn perform(&mut self, op: Op) -> Result<()> {
        let ttl = (TTL_SECONDS * 1_000).to_string();
        let (statement, tag) = match op {
            Op::Ping => bail!("PostgreSQL has no ping"),
            Op::Acquire => ("acquire", "INSERT 0 1"),
            Op::Renew => ("renew", "UPDATE 1"),
            Op::Release => ("release", "DELETE 1"),
        };
        if op == Op::Acquire {
            self.taken += 1;
            self.resource = format!("task:{}/{:08}", self.holder, self.taken);
        }
        let values = [self.resource.as_str(), &self.holder, &ttl];
        let count = if op == Op::Release { 2 } else { 3 };
        let done = self.connection.run(statement, values.get(..count).unwrap_or_default()).await?;
        ensure!(done == tag, "{done} where {tag} is due");
        Ok(())
    }
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream, out: Vec::new(), answer: vec![0; 4_096] };
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        body.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
        connection.out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        connection.out.extend_from_slice(&body);
        connection.exchange().await?;
        Ok(connection)
    }

    async fn execute(&mut self, statement: &str) -> Result<()> {
        self.out.clear();
        self.message(b'Q', |out| text(out, statement));
        self.exchange().await.map(drop)
    }

    async fn prepare(&mut self, name: &str, statement: &str) -> Result<()> {
        self.out.clear();
        self.message(b'P', |out| {
            text(out, name);
            text(out, statement);
            out.extend_from_slice(&0_u16.to_be_bytes());
        });
        self.message(b'S', |_| ());
        self.exchange().await.map(drop)
    }

    /// Runs a prepared statement with text values; returns what it says it did.
    async fn run(&mut self, name: &str, values: &[&str]) -> Result<&str> {
        self.out.clear();
        self.message(b'B', |out| {
            text(out, "");
            text(out, name);
            out.extend_from_slice(&0_u16.to_be_bytes());
            out.extend_from_slice(&(values.len() as u16).to_be_bytes());
            for value in values {
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
            out.extend_from_slice(&0_u16.to_be_bytes());
        });
        self.message(b'E', |out| {
            text(out, "");
            out.extend_from_slice(&0_u32.to_be_bytes());
        });
        self.message(b'S', |_| ());
        self.exchange().await
    }

    fn message(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(kind);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        write(&mut self.out);
        let length = (self.out.len() - at) as u32;
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Sends what is written and reads until the server is ready for more; returns the last command tag.
    async fn exchange(&mut self) -> Result<&str> {
        self.stream.write_all(&self.out).await?;
        let (mut filled, mut read) = (0, 0);
        let mut tag = 0..0;
        loop {
            while let Some((kind, body)) = next_message(self.answer.get(..filled).unwrap_or_default(), read) {
                read = body.end;
                match kind {
                    b'Z' => return Ok(std::str::from_utf8(self.answer.get(tag).unwrap_or_default())?),
                    b'C' => tag = body.start..body.end - 1,
                    b'E' => {
                        let fields = String::from_utf8_lossy(self.answer.get(body).unwrap_or_default());
                        bail!("{}", fields.replace('\0', " "));
                    }
                    _ => {}
                }
            }
            let free = self.answer.get_mut(filled..).unwrap_or_default();
            ensure!(!free.is_empty(), "a longer answer than any due one");
            match self.stream.read(free).await.context("reading")? {
                0 => bail!("PostgreSQL closed the connection"),
                count => filled += count,
            }
        }
    }
}

/// The kind of the message at `from` and where its body is; nothing while it is incomplete.
fn next_message(bytes: &[u8], from: usize) -> Option<(u8, std::ops::Range<usize>)> {
    let (kind, rest) = bytes.get(from..)?.split_first()?;
    let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    (rest.len() >= length).then_some((*kind, from + 5..from + 1 + length))
}

fn text(out: &mut Vec<u8>, value: &str) {
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_only_once_it_is_complete() {
        let bytes = b"C\0\0\0\x0dUPDATE 1\0Z\0\0\0\x05I";
        for cut in 0..14 {
            assert_eq!(next_message(&bytes[..cut], 0), None, "{cut}");
        }
        assert_eq!(next_message(bytes, 0), Some((b'C', 5..14)));
        assert_eq!(next_message(bytes, 14), Some((b'Z', 19..20)));
    }
}
