//! A palisade that serves, and HTTP/1.1 by hand against it: bytes are sent as they are written, so that what no
//! library would send can be sent too. Every wait is bounded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Build, Palisade, User, state_dir, users};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::{SOON, until};

/// The newer era's revision.
pub const MODERN: &str = "2026-07-28";
/// The newest revision with a handshake.
pub const LEGACY: &str = "2025-11-25";

/// How long a run of every installed language may take on a busy machine.
const CANARIES: Duration = Duration::from_secs(150);

/// A server that is running; killed when dropped.
pub struct Server {
    child: Child,
    log: Arc<Mutex<String>>,
    /// Where it listens.
    pub address: SocketAddr,
    /// What clients show.
    pub token: String,
}

impl Server {
    /// On a free port, as the first user that can be had.
    pub fn start() -> Self {
        Self::start_as(users()[0], &["--listen", "127.0.0.1:0"])
    }

    /// As that user; at least one address is a TCP one.
    pub fn start_as(user: User, arguments: &[&str]) -> Self {
        let palisade =
            Palisade::new(Build::Real, user, &["serve"]).args(arguments).env("PALISADE_LOG", "info");
        Self::start_command(user, palisade.into_command())
    }

    /// From a command line of `palisade serve` that logs at `info`.
    pub fn start_command(user: User, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("palisade starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let address = until(SOON, "the server listens", || {
            let log = log.lock().unwrap();
            assert!(child.try_wait().unwrap().is_none(), "the server ended: {log}");
            log.lines().find_map(address_in)
        });
        let token = std::fs::read_to_string(state_dir(user).join("token")).unwrap_or_default();
        Self { child, log, address, token: token.trim().to_owned() }
    }

    /// A new connection, unless the server is gone: a test that kills it may do so before a thread of it begins.
    pub fn connect_if_alive(&self) -> Option<Wire> {
        TcpStream::connect(self.address).ok().map(Wire::tcp)
    }

    /// A new connection.
    pub fn connect(&self) -> Wire {
        Wire::tcp(TcpStream::connect(self.address).unwrap())
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &Request) -> Answer {
        let mut wire = self.connect();
        wire.send(&request.bytes(self));
        wire.answer()
    }

    /// Asks `/readyz` until it says yes. The first answer may be that the canaries, a run of every language, take too long.
    pub fn wait_until_ready(&self) {
        until(CANARIES, "the server is ready", || {
            (self.ask(&Request::get("/readyz")).status == 200).then_some(())
        });
    }

    /// Fails unless a run works.
    pub fn is_well(&self) {
        let answer = self.ask(&Request::run("bash", "echo well"));
        assert_eq!(answer.result()["structuredContent"]["stdout"], "well\n", "{answer:?}");
    }

    /// A number from `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.ask(&Request::get("/metrics")).text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    /// Its process number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        until(patience, "the server ends", || self.child.try_wait().unwrap())
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// A session of the era with sessions; its id.
    pub fn open_session(&self) -> String {
        let opening = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.ask(&Request::legacy("initialize", opening));
        assert_eq!(answer.status, 200, "{answer:?}");
        let id = answer.header("mcp-session-id").expect("a session id").to_owned();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let told = self.ask(&Request::post(initialized.to_string()).header("Mcp-Session-Id", &id));
        assert_eq!(told.status, 202, "{told:?}");
        id
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let (_, rest) = line["url"].as_str()?.split_once("://")?;
    rest.strip_suffix("/mcp")?.parse().ok()
}

/// A request in the making. `Host`, the token and the length are filled in unless something else is said.
#[derive(Debug, Clone)]
pub struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    without: Vec<String>,
    body: Vec<u8>,
}

impl Request {
    /// GET.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path, Vec::new())
    }

    /// Any method.
    pub fn new(method: &'static str, path: &str, body: Vec<u8>) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), without: Vec::new(), body }
    }

    /// POST of JSON to `/mcp`.
    pub fn post(body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", "/mcp", body.into())
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
    }

    /// A request of the newer era.
    pub fn modern(method: &str, params: Value) -> Self {
        let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
        let mut request =
            Self::post(modern_message(1, method, params)).header("MCP-Protocol-Version", MODERN);
        request = request.header("Mcp-Method", method);
        match name {
            Some(name) => request.header("Mcp-Name", &name),
            None => request,
        }
    }

    /// A request of the era with sessions; the session is added by [`Request::header`].
    pub fn legacy(method: &str, params: Value) -> Self {
        Self::post(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string())
    }

    /// A run, in the newer era.
    pub fn run(language: &str, code: &str) -> Self {
        Self::modern("tools/call", call_run(language, code))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header away, also one that would be filled in.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self.without.push(name.to_ascii_lowercase());
        self
    }

    /// What goes over the wire.
    pub fn bytes(&self, server: &Server) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let own = [
            ("Host", server.address.to_string()),
            ("Authorization", format!("Bearer {}", server.token)),
            ("Content-Length", self.body.len().to_string()),
        ];
        for (name, value) in own {
            let is_given = self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
            if !is_given && !self.without.contains(&name.to_ascii_lowercase()) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

/// The message of a request of the newer era.
pub fn modern_message(id: u64, method: &str, mut params: Value) -> String {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// Arguments of `tools/call` for a run.
pub fn call_run(language: &str, code: &str) -> Value {
    json!({"name": "run", "arguments": {"language": language, "code": code}})
}

trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// A connection.
pub struct Wire {
    stream: Box<dyn Duplex>,
    tcp: Option<TcpStream>,
    buffer: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Of the first line.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Without chunks.
    pub body: Vec<u8>,
}

impl Wire {
    /// Over TCP.
    pub fn tcp(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(SOON * 2)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        let tcp = stream.try_clone().ok();
        Self { stream: Box::new(stream), tcp, buffer: Vec::new() }
    }

    /// Over a unix socket.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self { stream: Box::new(stream), tcp: None, buffer: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    /// The same where the server may have left.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Says nothing more, but listens on.
    pub fn close_writing(&self) {
        self.tcp.as_ref().unwrap().shutdown(Shutdown::Write).unwrap();
    }

    /// The next answer.
    pub fn answer(&mut self) -> Answer {
        self.try_answer().unwrap()
    }

    /// The next answer, if the server says anything.
    pub fn try_answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(piece) = self.chunk()? {
                answer.body.extend(piece);
            }
        } else if let Some(length) = answer.header("content-length").and_then(|text| text.parse().ok()) {
            answer.body = self.take(length)?;
        }
        Ok(answer)
    }

    /// The head of the next answer; its body is still to come.
    pub fn head(&mut self) -> io::Result<Answer> {
        let end = loop {
            if let Some(found) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break found;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {head}")))?;
        let split =
            |line: &str| line.split_once(':').map(|(a, b)| (a.to_ascii_lowercase(), b.trim().to_owned()));
        Ok(Answer { status, headers: lines.filter_map(split).collect(), body: Vec::new() })
    }

    /// Whatever comes until the server hangs up.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more().is_ok() {}
        std::mem::take(&mut self.buffer)
    }

    /// So many bytes.
    pub fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            self.more()?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(found) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                break found;
            }
            self.more()?;
        };
        let text = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 2);
        let length = usize::from_str_radix(text.trim(), 16).map_err(io::Error::other)?;
        let piece = self.take(length)?;
        self.take(2)?;
        Ok((length > 0).then_some(piece))
    }

    fn more(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 << 10];
        match self.stream.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }
}

impl Answer {
    /// One header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The message in it, plain or as the last event of a stream.
    pub fn message(&self) -> Value {
        let text = self.text();
        let last =
            text.lines().rev().find_map(|line| line.strip_prefix("data: ").filter(|data| !data.is_empty()));
        serde_json::from_str(last.unwrap_or(&text)).unwrap_or_default()
    }

    /// The message's result.
    pub fn result(&self) -> Value {
        self.message()["result"].clone()
    }
}
