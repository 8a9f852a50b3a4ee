//! A client of the wire, written here on purpose: it shares no code with the server or the SDK.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// One keep-alive connection.
pub struct Http {
    stream: BufReader<TcpStream>,
}

/// An answer: status and JSON.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Http {
    pub fn connect(address: SocketAddr) -> Result<Http> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Http { stream: BufReader::new(stream) })
    }

    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.send("GET", path, "reader", None)
    }

    pub fn post(&mut self, path: &str, holder: &str, body: &Value) -> Result<Answer> {
        self.send("POST", path, holder, Some(body))
    }

    pub fn delete(&mut self, path: &str, holder: &str) -> Result<Answer> {
        self.send("DELETE", path, holder, None)
    }

    fn send(&mut self, method: &str, path: &str, holder: &str, body: Option<&Value>) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let content = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: tenure\r\nX-Tenure-Holder: {holder}\r\n{content}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read_answer()
    }

    fn read_answer(&mut self) -> Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(ErrorKind::UnexpectedEof)?;
        let mut length = 0;
        loop {
            let header = self.line()?;
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).map_err(Error::other)? };
        Ok(Answer { status, body })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
