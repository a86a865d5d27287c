//! Reads standard input line by line on a separate thread, because a blocking read cannot be cancelled.

use std::io::{self, BufRead, Read};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
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

/// The longest line that a terminal gives at once. See termios(3), canonical mode.
const TERMINAL_LINE_BYTES: usize = 4096;

/// The next line of the terminal at standard input, in its usual mode; `None` at the end (Ctrl-D). Between two programs
/// an editor reads the terminal, so no thread may wait for it here. The future can be dropped and called again.
pub(super) async fn of_terminal() -> Option<Vec<u8>> {
    let stdin = watched(io::stdin()).ok()?;
    let ready = stdin.readable().await.ok()?;
    let mut line = vec![0; TERMINAL_LINE_BYTES];
    let count = rustix::io::read(ready.get_inner(), &mut line).ok()?;
    line.truncate(count);
    (count > 0).then_some(line)
}

#[expect(
    deprecated,
    reason = "standard input never changes its number, so the case the replacement guards is not ours"
)]
fn watched(stdin: io::Stdin) -> io::Result<AsyncFd<io::Stdin>> {
    AsyncFd::with_interest(stdin, Interest::READABLE)
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
