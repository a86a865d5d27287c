//! The messages of an answer: one if it is JSON, several if it is an event stream (WHATWG HTML, 9.2).

use std::io;

use super::http::Response;

const EVENT_STREAM: &str = "text/event-stream";

/// Yields messages as they arrive.
pub(crate) struct Events {
    response: Response,
    bytes_max: usize,
    /// Bytes that are not a complete line yet, or for JSON not a complete answer.
    unread: Vec<u8>,
    /// Number of these bytes that were searched for a line end.
    searched: usize,
    data: Vec<u8>,
    is_over: bool,
}

impl Events {
    /// Reads this response. `bytes_max` bounds each message.
    pub(crate) fn new(response: Response, bytes_max: usize) -> Self {
        let (unread, data) = (Vec::new(), Vec::new());
        Self { response, bytes_max, unread, searched: 0, data, is_over: false }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> u16 {
        self.response.status
    }

    /// The next message, or `None` at the end. The future can be dropped and called again.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.response.head().await?;
        let kind = self.response.header("content-type").unwrap_or_default();
        let is_stream = kind.starts_with(EVENT_STREAM);
        loop {
            if is_stream && let Some(event) = self.take_event() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.response.piece().await? {
                Some(piece) if self.unread.len() + self.data.len() + piece.len() > self.bytes_max => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
                }
                Some(piece) => self.unread.extend_from_slice(&piece),
                None => {
                    self.is_over = true;
                    if !is_stream {
                        return Ok(Some(std::mem::take(&mut self.unread)));
                    }
                }
            }
        }
    }

    /// An event ends with an empty line. Events without data only keep the connection alive.
    fn take_event(&mut self) -> Option<Vec<u8>> {
        loop {
            let found = self.unread[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(found) = found else {
                self.searched = self.unread.len();
                return None;
            };
            let rest = self.unread.split_off(self.searched + found + 1);
            let line = std::mem::replace(&mut self.unread, rest);
            self.searched = 0;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            }
        }
    }
}
