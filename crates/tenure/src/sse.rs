//! Owns reading server-sent events out of a byte stream.

/// A line longer than this is not an event of ours.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One message: its `id`, its `event` name and the bytes of its `data` lines. A message without data may have an id, which
/// says from where the stream goes on. Comments and other fields are not kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) event: Option<String>,
    pub(crate) data: Option<Vec<u8>>,
}

/// A line or an event grew beyond its bound.
#[derive(Debug, thiserror::Error)]
#[error("an event has more than {LINE_BYTES_MAX} bytes")]
pub(crate) struct TooLong;

/// Takes bytes in as they come and gives events out as they are complete.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    message: Message,
    after_cr: bool,
}

impl Parser {
    /// Reads the next bytes; the events that they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Message>, TooLong> {
        let mut messages = Vec::new();
        for &byte in bytes {
            // CR, LF and CRLF all end a line.
            let second_of_crlf = std::mem::take(&mut self.after_cr) && byte == b'\n';
            match byte {
                b'\n' if second_of_crlf => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    messages.extend(self.end_of_line(&line));
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.message.data.as_ref().map_or(0, Vec::len) > LINE_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(messages)
    }

    fn end_of_line(&mut self, line: &[u8]) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return (message.id.is_some() || message.data.is_some()).then_some(message);
        }
        if let Some(value) = field(line, b"event:") {
            self.message.event = String::from_utf8(value.to_vec()).ok();
        }
        if let Some(value) = field(line, b"id:") {
            self.message.id = std::str::from_utf8(value).ok().and_then(|id| id.parse().ok());
        }
        if let Some(value) = field(line, b"data:") {
            match &mut self.message.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                none => *none = Some(value.to_vec()),
            }
        }
        None
    }
}

/// The value of a field: what stands behind its name and one blank.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> Vec<(Option<u64>, Option<String>)> {
        let mut parser = Parser::default();
        let messages = chunks.iter().flat_map(|chunk| parser.feed(chunk.as_bytes()).unwrap());
        messages.map(|Message { id, data, .. }| (id, data.map(|data| String::from_utf8(data).unwrap()))).collect()
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut_and_lines_end() {
        let text = ": hello\n\nid:5\n\nid: 7\nevent: lease.granted\ndata: {\"a\":1}\n\ndata:x\ndata: y\n\nretry: 5\n\n";
        let text_of = |data: &str| Some(data.to_owned());
        let expected = [(Some(5), None), (Some(7), text_of("{\"a\":1}")), (None, text_of("x\ny"))];
        for ending in ["\n", "\r", "\r\n"] {
            let text = text.replace('\n', ending);
            assert_eq!(read(&[&text]), expected);
            for cut in 0..text.len() {
                assert_eq!(read(&[&text[..cut], &text[cut..]]), expected, "{cut} {ending:?}");
            }
        }
    }

    #[test]
    fn an_event_without_end_is_refused_before_it_fills_the_memory() {
        let mut parser = Parser::default();
        let block = vec![b'x'; LINE_BYTES_MAX];
        assert!(parser.feed(&block).is_ok() && parser.feed(b"x").is_err());
    }
}
