//! Reads standard input line by line on a separate thread, because a blocking read cannot be cancelled.

use std::io::{self, BufRead, Read};

use tokio::sync::mpsc;

/// Maximum number of lines read ahead.
const LINES_MAX: usize = 16;
/// A line is at most as long as a program.
const LINE_BYTES_MAX: u64 = engine::CODE_BYTES_MAX as u64;

/// Starts reading. The channel ends with the input. Invalid UTF-8 ends it with an error.
pub(super) fn read() -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        while let Some(line) = next().transpose() {
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

fn next() -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut input = io::stdin().lock().take(LINE_BYTES_MAX + 1);
    input.read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() as u64 > LINE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than a program may be"));
    }
    let text = String::from_utf8(bytes);
    let mut text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(Some(text))
}
