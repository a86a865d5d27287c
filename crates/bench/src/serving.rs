//! `palisade serve` on a unix socket, and callers with one persistent HTTP connection each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{BenchCall, Message, PROTOCOL, milliseconds};
use super::scene::Scene;
use super::server::end;

const START_PATIENCE: Duration = Duration::from_secs(20);
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Maximum size of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A running `palisade serve`; ends when dropped.
pub(super) struct Served {
    child: Child,
    socket: PathBuf,
    expected: String,
}

impl Served {
    /// Starts it and waits until it accepts connections. `expected` is the output of the callers' programs.
    pub(super) fn start(scene: &Scene, expected: &str) -> Result<Self, String> {
        let socket = scene.folder.path().join("serve.sock");
        let address = format!("unix:{}", socket.display());
        let command = scene.recipe.command(&["serve", "--no-auth", "--listen", &address]);
        let mut command = command.map_err(|error| format!("starting it: {error}"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| format!("starting it: {error}"))?;
        let mut served = Self { child, socket, expected: expected.to_owned() };
        let deadline = Instant::now() + START_PATIENCE;
        while UnixStream::connect(&served.socket).is_err() {
            let has_ended = served.child.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || Instant::now() > deadline {
                return Err(format!("it does not start: {}", scene.recipe.last_words()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(served)
    }

    /// A caller with a separate connection.
    pub(super) fn caller(&self, call: &BenchCall) -> impl FnMut() -> Result<f64, String> + use<> {
        let body = call.numbered(1);
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {PROTOCOL}\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: run\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (socket, expected) = (self.socket.clone(), self.expected.clone());
        let mut connection = None;
        move || {
            let answered = ask(&mut connection, &socket, &request);
            if answered.is_err() {
                connection = None;
            }
            let (body, ms) = answered?;
            let result = Message::read(&body)?.into_result()?;
            if result.stdout == expected { Ok(ms) } else { Err(format!("it printed {:?}", result.stdout)) }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        end(&mut self.child);
    }
}

/// Sends a request over the connection, and opens one if there is none. Returns the JSON of the answer and
/// its time.
fn ask(
    connection: &mut Option<BufReader<UnixStream>>,
    socket: &PathBuf,
    request: &str,
) -> Result<(Vec<u8>, f64), String> {
    let said = |error: std::io::Error| format!("the connection broke: {error}");
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = UnixStream::connect(socket).map_err(said)?;
            stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(said)?;
            connection.insert(BufReader::new(stream))
        }
    };
    let began = Instant::now();
    stream.get_mut().write_all(request.as_bytes()).map_err(said)?;
    let body = read_answer(stream).map_err(said)?;
    Ok((body, milliseconds(began.elapsed())))
}

fn read_answer(stream: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let length = length.filter(|length| *length <= ANSWER_BYTES_MAX);
    let Some(length) = length else { return Err(std::io::Error::other("an answer without a usable length")) };
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_its_length() {
        let text = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1";
        assert_eq!(read_answer(&mut text.as_bytes()).unwrap(), b"{}");
        assert!(read_answer(&mut "HTTP/1.1 200 OK\r\n\r\n".as_bytes()).is_err());
        assert!(read_answer(&mut "".as_bytes()).is_err());
    }
}
