//! Reads an event stream (WHATWG HTML, 9.2): only the data of events matters here.

/// Collects events, keeping at most a bounded number of bytes of one.
pub(crate) struct EventBuffer {
    line: Vec<u8>,
    data: Vec<u8>,
    bytes_max: usize,
}

/// An event is larger than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl EventBuffer {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { line: Vec::new(), data: Vec::new(), bytes_max }
    }

    /// Takes bytes, and returns the data of the events that they complete.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut events = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + part.len() > self.bytes_max {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                events.extend(self.take(&line));
            }
        }
        Ok(events)
    }

    fn take(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return (!self.data.is_empty()).then(|| std::mem::take(&mut self.data));
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_any_pieces() {
        let text = b": hi\r\n\r\nevent: message\r\nid: 4\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\n";
        let expected = vec![b"{\"a\":\n1}".to_vec(), b"x".to_vec()];
        assert_eq!(EventBuffer::new(100).feed(text).unwrap(), expected);
        let mut slow = EventBuffer::new(100);
        let found: Vec<Vec<u8>> = text.iter().flat_map(|byte| slow.feed(&[*byte]).unwrap()).collect();
        assert_eq!(found, expected);
        assert_eq!(EventBuffer::new(10).feed(b"data: 0123456789"), Err(TooLong));
    }
}
