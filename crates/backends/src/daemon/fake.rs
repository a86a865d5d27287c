//! An engine for tests: a unix socket at which a function answers each call.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::http::Client;

/// Answers a method and a path with a status and a body; `None` closes the connection without an answer.
type Answer = fn(&str, &str) -> Option<(u16, String)>;

/// A listening engine. It ends with the test process.
pub(super) struct FakeEngine {
    folder: PathBuf,
    calls: Arc<Mutex<Vec<String>>>,
}

impl FakeEngine {
    pub(super) fn start(name: &str, answer: Answer) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-fake-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, answer, &told).ok();
            }
        });
        Self { folder, calls }
    }

    pub(super) fn client(&self) -> Client {
        Client::new(&self.folder.join("socket"))
    }

    /// A directory for the test, removed with the engine.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The calls with that method, in their order.
    pub(super) fn calls(&self, method: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter_map(|call| call.strip_prefix(method)).map(|path| path.trim().to_owned()).collect()
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn serve(mut stream: UnixStream, answer: Answer, calls: &Mutex<Vec<String>>) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    stream.read_exact(&mut vec![0; length.unwrap_or(0)])?;
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap().to_ascii_uppercase(), words.next().unwrap());
    calls.lock().unwrap().push(format!("{method} {path}"));
    let Some((status, body)) = answer(&method, path) else { return Ok(()) };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} told\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// A runtime for one test.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
