//! Owns Redis under test: the lock everybody writes (`SET NX PX`, Lua to renew and to release), with every write on the disk.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Described, TTL_SECONDS};
use crate::load::{Client, Op, Target};
use crate::process::{Server, find_program, free_address};

const RENEW: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// A running Redis.
pub struct Redis {
    server: Server,
    address: SocketAddr,
}

impl Redis {
    /// Starts it, if it is installed.
    pub fn start(scratch: &Path) -> Result<Option<Redis>> {
        let Some(program) = find_program("redis-server") else { return Ok(None) };
        let data = scratch.join("redis");
        std::fs::create_dir(&data)?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--dir"]).arg(&data);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        let mut server = Server::start(command.stdout(Stdio::null()), "redis", scratch)?;
        server.wait_for(address)?;
        Ok(Some(Redis { server, address }))
    }
}

impl Target for Redis {
    type Client = RedisClient;

    async fn connect(&self, n: usize) -> Result<RedisClient> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let holder = format!("agent-{n:05}");
        let scripts = [String::new(), String::new()];
        let mut client = RedisClient {
            stream,
            out: Vec::new(),
            answer: vec![0; 512],
            holder,
            taken: 0,
            key: String::new(),
            scripts,
        };
        let renew = client.load(RENEW).await?;
        let release = client.load(RELEASE).await?;
        client.scripts = [renew, release];
        Ok(client)
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.cpu()
    }
}

impl Described for Redis {
    const NAME: &'static str = "Redis";
    const NOTE: &'static str = "Redis: `SET key holder NX PX`, renewed and released by `EVALSHA` of scripts that compare the holder; \
        `appendonly yes`, `appendfsync always`.";

    fn server(&self) -> &Server {
        &self.server
    }
}

/// One connection, one holder, one lock at a time.
pub struct RedisClient {
    stream: TcpStream,
    out: Vec<u8>,
    answer: Vec<u8>,
    holder: String,
    taken: u64,
    key: String,
    scripts: [String; 2],
}

impl Client for RedisClient {
    async fn perform(&mut self, op: Op) -> Result<()> {
        let ttl = (TTL_SECONDS * 1_000).to_string();
        let [renew, release] = &self.scripts;
        match op {
            Op::Ping => write_command(&mut self.out, &["PING"]),
            Op::Acquire => {
                self.taken += 1;
                self.key = format!("task:{}/{:08}", self.holder, self.taken);
                write_command(&mut self.out, &["SET", &self.key, &self.holder, "NX", "PX", &ttl]);
            }
            Op::Renew => write_command(&mut self.out, &["EVALSHA", renew, "1", &self.key, &self.holder, &ttl]),
            Op::Release => write_command(&mut self.out, &["EVALSHA", release, "1", &self.key, &self.holder]),
        }
        let due: &[u8] = match op {
            Op::Ping => b"+PONG\r\n",
            Op::Acquire => b"+OK\r\n",
            Op::Renew | Op::Release => b":1\r\n",
        };
        let answer = self.exchange().await?;
        ensure!(answer == due, "{}", String::from_utf8_lossy(answer));
        Ok(())
    }
}

impl RedisClient {
    async fn load(&mut self, script: &str) -> Result<String> {
        write_command(&mut self.out, &["SCRIPT", "LOAD", script]);
        let answer = std::str::from_utf8(self.exchange().await?)?;
        let (_, hash) = answer.trim_end().split_once("\r\n").with_context(|| answer.to_owned())?;
        Ok(hash.to_owned())
    }

    async fn exchange(&mut self) -> Result<&[u8]> {
        self.stream.write_all(&self.out).await?;
        let mut filled = 0;
        loop {
            let free = self.answer.get_mut(filled..).unwrap_or_default();
            ensure!(!free.is_empty(), "a longer answer than any due one");
            match self.stream.read(free).await? {
                0 => bail!("Redis closed the connection"),
                count => filled += count,
            }
            if is_complete(self.answer.get(..filled).unwrap_or_default()) {
                return Ok(self.answer.get(..filled).unwrap_or_default());
            }
        }
    }
}

/// Whether a simple answer, or one string of known length, is there as a whole.
fn is_complete(answer: &[u8]) -> bool {
    let lines = answer.windows(2).filter(|window| window == b"\r\n").count();
    let is_text = answer.first() == Some(&b'$') && !answer.starts_with(b"$-1");
    answer.ends_with(b"\r\n") && lines >= if is_text { 2 } else { 1 }
}

fn write_command(out: &mut Vec<u8>, words: &[&str]) {
    use std::io::Write;
    out.clear();
    // Writing to a vector does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_line() {
        for (answer, complete) in [
            ("+OK\r", false),
            ("+OK\r\n", true),
            (":1\r\n", true),
            ("$-1\r\n", true),
            ("$3\r\n", false),
            ("$3\r\nabc\r\n", true),
        ] {
            assert_eq!(is_complete(answer.as_bytes()), complete, "{answer:?}");
        }
    }
}
