//! Owns a reader of Tenure's event stream: the chunks of the answer, the lines in them, the events in those.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::http::Connection;

/// Read at a time.
const BUFFER_BYTES: usize = 8_192;

/// An open event stream.
pub struct Subscriber {
    stream: TcpStream,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Subscriber {
    /// Opens a stream from the present on; comes back when the server has said that it is open.
    pub async fn open(address: SocketAddr, query: &str) -> Result<Subscriber> {
        let connection = Connection::open(address).await?;
        let stream = connection.stream(&format!("/v1/events{query}"), &["Accept: text/event-stream\r\n"]).await?;
        let mut subscriber = Subscriber { stream, decoder: Decoder::default(), buffer: vec![0; BUFFER_BYTES] };
        while subscriber.decoder.framing == Framing::Head {
            subscriber.read(|id, _| bail!("event {id} before anything happened")).await?;
        }
        Ok(subscriber)
    }

    /// Waits for more and hands over every event in it: its id and its data.
    pub async fn read(&mut self, event: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let count = self.stream.read(&mut self.buffer).await?;
        ensure!(count > 0, "the server closed an event stream");
        self.decoder.feed(self.buffer.get(..count).unwrap_or_default(), event)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Framing {
    /// The answer's head.
    #[default]
    Head,
    /// The line with the length of a chunk.
    Length,
    /// So many bytes are left of a chunk.
    Chunk(usize),
    /// The line end behind a chunk.
    End,
}

#[derive(Default)]
struct Decoder {
    framing: Framing,
    /// A line of the framing that is not complete yet.
    frame: Vec<u8>,
    /// A line of the stream that is not complete yet.
    line: Vec<u8>,
    id: Option<u64>,
}

impl Decoder {
    fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            if let Framing::Chunk(left) = self.framing {
                let (now, later) = bytes.split_at(left.min(bytes.len()));
                self.text(now, &mut event)?;
                bytes = later;
                let left = left - now.len();
                self.framing = if left == 0 { Framing::End } else { Framing::Chunk(left) };
            } else if let Some(rest) = take_line(&mut self.frame, bytes) {
                bytes = rest;
                self.framing = self.next_framing()?;
            } else {
                break;
            }
        }
        Ok(())
    }

    fn next_framing(&mut self) -> Result<Framing> {
        let line = std::mem::take(&mut self.frame);
        let line = std::str::from_utf8(&line)?;
        Ok(match self.framing {
            Framing::Head if line.is_empty() => Framing::Length,
            Framing::Head => {
                ensure!(!line.starts_with("HTTP/") || line.contains(" 200 "), "no event stream: {line}");
                Framing::Head
            }
            Framing::Length => match usize::from_str_radix(line, 16).with_context(|| format!("a length: {line:?}"))? {
                0 => bail!("the server ended an event stream"),
                length => Framing::Chunk(length),
            },
            Framing::Chunk(_) | Framing::End => Framing::Length,
        })
    }

    fn text(&mut self, mut bytes: &[u8], event: &mut impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while let Some(rest) = take_line(&mut self.line, bytes) {
            bytes = rest;
            if let Some(id) = field(&self.line, b"id:") {
                self.id = Some(std::str::from_utf8(id)?.parse()?);
            } else if let Some(data) = field(&self.line, b"data:") {
                event(self.id.context("an event without an id")?, data)?;
            }
            self.line.clear();
        }
        Ok(())
    }
}

/// Moves one line, without its end, to `line`; returns what follows, or nothing if the line is not complete.
fn take_line<'a>(line: &mut Vec<u8>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        line.extend_from_slice(bytes);
        return None;
    };
    line.extend_from_slice(bytes.get(..end).unwrap_or_default());
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    bytes.get(end + 1..)
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_bytes_are_cut() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let first = ": connected\n\nid: 7\nevent: lease.granted\nda";
        let second = "ta: {\"x\":1}\n\nid: 8\ndata: {}\n\n";
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let wire = format!("{head}{}{}", chunk(first), chunk(second)).into_bytes();
        for cut in 0..wire.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in [&wire[..cut], &wire[cut..]] {
                decoder
                    .feed(piece, |id, data| {
                        seen.push((id, data.to_vec()));
                        Ok(())
                    })
                    .expect("a valid stream");
            }
            assert_eq!(seen, [(7, b"{\"x\":1}".to_vec()), (8, b"{}".to_vec())], "cut at {cut}");
        }
    }

    #[test]
    fn a_stream_that_ends_or_is_refused_is_an_error() {
        let feed = |wire: &str| Decoder::default().feed(wire.as_bytes(), |_, _| Ok(()));
        assert!(feed("HTTP/1.1 503 Service Unavailable\r\n\r\n").is_err());
        assert!(feed("HTTP/1.1 200 OK\r\n\r\n0\r\n\r\n").is_err());
    }
}
