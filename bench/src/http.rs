//! Owns the smallest HTTP/1.1 client that keeps its connection: one request, one answer with a length. The load comes from
//! the same machine as the server, so every microsecond spent here is taken from what is measured.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Answers are read into a buffer of this size first; it grows for larger ones.
const BUFFER_BYTES: usize = 4_096;

/// One connection.
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    out: Vec<u8>,
    answer: Vec<u8>,
    filled: usize,
}

/// What came back. The body stays in the connection's buffer.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body).into_owned()
    }
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let answer = vec![0; BUFFER_BYTES];
        Ok(Connection { stream, address, out: Vec::with_capacity(BUFFER_BYTES), answer, filled: 0 })
    }

    /// Sends a request and waits for its answer. `headers` are whole lines, each with its line end.
    pub async fn call(&mut self, method: &str, path: &[&str], headers: &[&str], body: &[u8]) -> Result<Answer<'_>> {
        self.write_head(method, path, headers, body.len());
        self.out.extend_from_slice(body);
        self.stream.write_all(&self.out).await?;
        self.read_answer().await
    }

    /// Sends a request whose answer has no end, and hands the connection over.
    pub async fn stream(mut self, path: &str, headers: &[&str]) -> Result<TcpStream> {
        self.write_head("GET", &[path], headers, 0);
        self.stream.write_all(&self.out).await?;
        Ok(self.stream)
    }

    fn write_head(&mut self, method: &str, path: &[&str], headers: &[&str], length: usize) {
        let out = &mut self.out;
        out.clear();
        for part in [method, " "].iter().chain(path).chain(&[" HTTP/1.1\r\nHost: "]).chain(&[]) {
            out.extend_from_slice(part.as_bytes());
        }
        // Writing to a vector does not fail.
        let _ = std::io::Write::write_fmt(out, format_args!("{}\r\n", self.address));
        for line in headers {
            out.extend_from_slice(line.as_bytes());
        }
        if length > 0 {
            let _ = std::io::Write::write_fmt(
                out,
                format_args!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
            );
        }
        out.extend_from_slice(b"\r\n");
    }

    async fn read_answer(&mut self) -> Result<Answer<'_>> {
        self.filled = 0;
        let (status, start, length) = loop {
            self.fill().await?;
            if let Some(head) = read_head(self.answer.get(..self.filled).unwrap_or_default())? {
                break head;
            }
        };
        while self.filled < start + length {
            self.fill().await?;
        }
        ensure!(self.filled == start + length, "more bytes than the answer has");
        let body = self.answer.get(start..start + length).unwrap_or_default();
        Ok(Answer { status, body })
    }

    async fn fill(&mut self) -> Result<()> {
        if self.filled == self.answer.len() {
            self.answer.resize(self.answer.len() * 2, 0);
        }
        let free = self.answer.get_mut(self.filled..).unwrap_or_default();
        match self.stream.read(free).await? {
            0 => bail!("the server closed the connection"),
            count => self.filled += count,
        }
        Ok(())
    }
}

/// Status, where the body begins and how long it is; nothing while the head is incomplete.
fn read_head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(bytes.get(..end).unwrap_or_default())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status line")?.parse()?;
    let mut length = 0;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
        ensure!(!name.eq_ignore_ascii_case("transfer-encoding"), "an answer in chunks where one with a length is due");
    }
    Ok(Some((status, end + 4, length)))
}

/// Where `needle` begins.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The text of a member of a JSON object, found by its name: enough for ids, which need no escapes.
pub fn text_member<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let key = format!("\"{name}\":\"");
    let rest = body.get(find(body, key.as_bytes())? + key.len()..)?;
    std::str::from_utf8(rest.get(..find(rest, b"\"")?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_only_once_it_is_complete() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        for cut in 0..answer.len() - 2 {
            assert!(read_head(&answer[..cut]).expect("no error").is_none(), "{cut}");
        }
        assert_eq!(read_head(answer).expect("a head"), Some((201, answer.len() - 2, 2)));
    }

    #[test]
    fn a_body_in_chunks_is_an_error_and_not_an_empty_body() {
        assert!(read_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn a_member_is_found_by_its_name() {
        let body = br#"{"id":"lease-1-2","token":7}"#;
        assert_eq!(text_member(body, "id"), Some("lease-1-2"));
        assert_eq!(text_member(body, "token"), None);
    }
}
