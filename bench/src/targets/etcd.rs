//! Owns etcd under test: its lock as its own client takes it, over gRPC. A session, which is a lease, for each client; to lock is
//! a transaction that creates a key bound to that lease if it is not there; to renew is a message on the session's
//! keep-alive stream; to unlock deletes the key.
//!
//! The few messages are written by hand: they are smaller than a code generator and its tool would be.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use tokio::net::TcpStream;

use super::{Described, TTL_SECONDS};
use crate::load::{Client, Op, Target};
use crate::process::{Server, find_program, free_address};

/// A running etcd.
pub struct Etcd {
    server: Server,
    address: SocketAddr,
}

impl Etcd {
    /// Starts it, if it is installed.
    pub fn start(scratch: &Path) -> Result<Option<Etcd>> {
        let Some(program) = find_program("etcd") else { return Ok(None) };
        let address = free_address()?;
        let (client, peer) = (format!("http://{address}"), format!("http://{}", free_address()?));
        let mut command = Command::new(program);
        command.args(["--name", "bench", "--log-level", "error", "--data-dir"]).arg(scratch.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("bench={peer}")]).stdout(Stdio::null());
        let mut server = Server::start(&mut command, "etcd-server", scratch)?;
        server.wait_for(address)?;
        Ok(Some(Etcd { server, address }))
    }
}

impl Target for Etcd {
    type Client = EtcdClient;

    async fn connect(&self, n: usize) -> Result<EtcdClient> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (calls, connection) = h2::client::handshake(stream).await?;
        tokio::task::spawn_local(connection);
        let mut calls = Calls { calls, address: self.address };
        let granted = calls.unary("Lease/LeaseGrant", Message::new().int(1, TTL_SECONDS).frame()).await?;
        let session = Message::read_int(&granted, 2).context("a lease without an id")?;
        let (keep_alive, answer) = calls.open("Lease/LeaseKeepAlive")?;
        let beat = KeepAlive { out: keep_alive, answer: Answer::Due(answer) };
        Ok(EtcdClient { calls, beat, session, holder: format!("agent-{n:05}"), taken: 0, key: String::new() })
    }

    fn cpu(&self) -> Result<Duration> {
        self.server.cpu()
    }
}

impl Described for Etcd {
    const NAME: &'static str = "etcd";
    const NOTE: &'static str = "etcd: its lock as its own client takes it, over gRPC: a session (lease) for each connection, a transaction that \
        creates the key under it, keep-alive of the session, deletion of the key. One member, settings as installed.";

    fn server(&self) -> &Server {
        &self.server
    }
}

/// One connection, one session, one lock at a time.
pub struct EtcdClient {
    calls: Calls,
    beat: KeepAlive,
    session: u64,
    holder: String,
    taken: u64,
    key: String,
}

impl Client for EtcdClient {
    async fn perform(&mut self, op: Op) -> Result<()> {
        match op {
            Op::Ping => bail!("etcd has no ping"),
            Op::Acquire => self.acquire().await,
            Op::Renew => {
                let answer = self.beat.send(Message::new().int(1, self.session).frame()).await?;
                ensure!(Message::read_int(&answer, 3).is_some_and(|ttl| ttl > 0), "the session is over");
                Ok(())
            }
            Op::Release => {
                let request = Message::new().bytes(1, self.key.as_bytes());
                let answer = self.calls.unary("KV/DeleteRange", request.frame()).await?;
                ensure!(Message::read_int(&answer, 2) == Some(1), "the lock was not there");
                Ok(())
            }
        }
    }
}

impl EtcdClient {
    async fn acquire(&mut self) -> Result<()> {
        self.taken += 1;
        self.key = format!("task:{}/{:08}", self.holder, self.taken);
        // Put the key under the lease if its create revision (target 1) equals (result 0) zero.
        let absent = Message::new().int(2, 1).bytes(3, self.key.as_bytes()).int(5, 0);
        let put = Message::new().bytes(1, self.key.as_bytes()).bytes(2, self.holder.as_bytes()).int(3, self.session);
        let success = Message::new().bytes(2, &put.0);
        let transaction = Message::new().bytes(1, &absent.0).bytes(2, &success.0);
        let answer = self.calls.unary("KV/Txn", transaction.frame()).await?;
        ensure!(Message::read_int(&answer, 2) == Some(1), "the lock is held");
        Ok(())
    }
}

struct Calls {
    calls: SendRequest<Bytes>,
    address: SocketAddr,
}

impl Calls {
    fn open(&mut self, method: &str) -> Result<(SendStream<Bytes>, h2::client::ResponseFuture)> {
        let request = Request::post(format!("http://{}/etcdserverpb.{method}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (answer, out) = self.calls.send_request(request, false)?;
        Ok((out, answer))
    }

    async fn unary(&mut self, method: &str, request: Bytes) -> Result<Bytes> {
        self.calls = self.calls.clone().ready().await?;
        let (mut out, answer) = self.open(method)?;
        out.send_data(request, true)?;
        let response = answer.await?;
        check_status(response.headers())?;
        let mut body = response.into_body();
        let message = read_frame(&mut body).await?;
        while body.data().await.is_some() {}
        check_status(&body.trailers().await?.context("an answer without an end")?)?;
        Ok(message)
    }
}

/// The stream on which a session is kept alive; it is open as long as the connection.
struct KeepAlive {
    out: SendStream<Bytes>,
    answer: Answer,
}

enum Answer {
    /// The head comes with the first message.
    Due(h2::client::ResponseFuture),
    Open(RecvStream),
}

impl KeepAlive {
    async fn send(&mut self, request: Bytes) -> Result<Bytes> {
        self.out.send_data(request, false)?;
        if let Answer::Due(head) = &mut self.answer {
            self.answer = Answer::Open(head.await?.into_body());
        }
        match &mut self.answer {
            Answer::Open(body) => read_frame(body).await,
            Answer::Due(_) => bail!("the keep-alive stream did not open"),
        }
    }
}

fn check_status(headers: &http::HeaderMap) -> Result<()> {
    let status = headers.get("grpc-status").map_or(b"0".as_slice(), http::HeaderValue::as_bytes);
    ensure!(status == b"0", "gRPC status {}: {:?}", String::from_utf8_lossy(status), headers.get("grpc-message"));
    Ok(())
}

/// Reads one message: a flag, its length, its bytes.
async fn read_frame(body: &mut RecvStream) -> Result<Bytes> {
    let mut read = BytesMut::new();
    loop {
        if let Some(length) = read.get(1..5).and_then(|bytes| bytes.first_chunk()) {
            let length = u32::from_be_bytes(*length) as usize;
            if read.len() >= 5 + length {
                return Ok(read.freeze().slice(5..5 + length));
            }
        }
        let data = body.data().await.context("the stream ended before its answer")??;
        body.flow_control().release_capacity(data.len())?;
        read.extend_from_slice(&data);
    }
}

/// A protobuf message: fields of whole numbers and of bytes.
struct Message(Vec<u8>);

impl Message {
    fn new() -> Message {
        Message(Vec::new())
    }

    fn int(mut self, field: u64, value: u64) -> Message {
        put_varint(&mut self.0, field << 3);
        put_varint(&mut self.0, value);
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        put_varint(&mut self.0, field << 3 | 2);
        put_varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// As gRPC carries it.
    fn frame(self) -> Bytes {
        let mut frame = BytesMut::with_capacity(5 + self.0.len());
        frame.put_u8(0);
        frame.put_u32(self.0.len() as u32);
        frame.put_slice(&self.0);
        frame.freeze()
    }

    /// The number in a field; nothing if it is absent, which means zero.
    fn read_int(mut bytes: &[u8], wanted: u64) -> Option<u64> {
        while !bytes.is_empty() {
            let key = take_varint(&mut bytes)?;
            let value = take_varint(&mut bytes)?;
            match key & 7 {
                0 if key >> 3 == wanted => return Some(value),
                0 => {}
                2 => bytes = bytes.get(usize::try_from(value).ok()?..)?,
                _ => return None,
            }
        }
        None
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_as_it_was_written() {
        let message = Message::new().bytes(1, b"header").int(2, 1 << 62).int(3, 0);
        assert_eq!(Message::read_int(&message.0, 2), Some(1 << 62));
        assert_eq!(Message::read_int(&message.0, 3), Some(0));
        assert_eq!(Message::read_int(&message.0, 4), None);
        assert_eq!(Message::new().int(1, 300).frame().as_ref(), [0, 0, 0, 0, 3, 8, 0xac, 2]);
    }
}
