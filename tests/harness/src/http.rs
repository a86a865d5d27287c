//! `palisade serve` on a free port, and plain HTTP requests to it without a client library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Palisade;

const PATIENCE: Duration = Duration::from_secs(90);
const VERSION: &str = "2026-07-28";

/// A server; killed when dropped.
pub struct Server {
    child: Child,
    /// Host and port.
    pub address: String,
    /// Sent with every call.
    pub token: Option<String>,
}

impl Server {
    /// Starts a server and waits until it listens; the arguments say where (port 0).
    pub fn start(palisade: Palisade) -> Self {
        let mut command = palisade.into_command();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("palisade starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.by_ref().find_map(|line| {
            let said: Value = serde_json::from_str(&line).ok()?;
            let url = said["url"].as_str().filter(|_| said["event"] == "listening")?;
            Some(url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned())
        });
        // The rest of its output is read, so that the server never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("it says where it listens"), token: None }
    }

    /// Calls a tool. Returns the structured part of its answer.
    pub fn call(&self, tool: &str, arguments: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "suite", "version": "1"},
        });
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let mut headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version", VERSION.to_owned()),
            ("Mcp-Method", "tools/call".to_owned()),
            ("Mcp-Name", tool.to_owned()),
        ];
        headers.extend(self.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}"))));
        let (status, answer) = self.request("POST", "/mcp", &headers, body.as_bytes());
        let text = String::from_utf8_lossy(&answer);
        // In an event stream the answer is in the last data line.
        let data = text
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .rfind(|line| line.contains("\"id\":1"));
        let answer: Value = serde_json::from_str(data.unwrap_or(&text))
            .unwrap_or_else(|error| panic!("{status} {error}: {text}"));
        answer["result"]["structuredContent"].clone()
    }

    /// Sends one request. Returns status and body.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let split = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..split]).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = &answer[split + 4..];
        (status, if is_chunked { unchunked(body) } else { body.to_vec() })
    }

    /// Its process number; `setpriv` becomes palisade without a new process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Orders the server to end and waits for it.
    pub fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the server at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let Some(size) = size.filter(|size| *size > 0 && rest.len() >= end + 2 + size) else { break };
        whole.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = rest.get(end + 2 + size + 2..).unwrap_or_default();
    }
    whole
}
