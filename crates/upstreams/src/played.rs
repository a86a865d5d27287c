//! Tool servers that a test plays in this process, behind a wall that is none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::Principal;
use sandbox::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::wall::{WalledEnd, WalledProcess, WalledProgram, WalledStart};
use crate::{
    HttpSpec, ServerSpec, ServerWall, StdioSpec, ToolCall, ToolError, ToolName, ToolRules, Transport,
    Upstreams, UpstreamsConfig,
};

/// The messages with which a server answers a request.
type Player = dyn Fn(&Value) -> Vec<Value> + Send + Sync;

/// A server, and the credential that it got.
pub(crate) struct PlayedServer {
    player: Arc<Player>,
    secrets: Vec<String>,
}

struct NoEnd;

impl WalledEnd for NoEnd {
    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn last_words(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl WalledStart for PlayedServer {
    fn start<'a>(&'a self, _: WalledProgram<'a>) -> BoxFuture<'a, Result<WalledProcess, ToolError>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(ours);
        let player = Arc::clone(&self.player);
        tokio::spawn(async move {
            let (lines, mut out) = tokio::io::split(theirs);
            let mut lines = BufReader::new(lines).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let request: Value = serde_json::from_str(&line).unwrap();
                for message in player(&request) {
                    if out.write_all(format!("{message}\n").as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        });
        let secrets = self.secrets.clone();
        let process = WalledProcess {
            reader: Box::new(reader),
            writer: Box::new(writer),
            end: Box::new(NoEnd),
            secrets,
        };
        Box::pin(std::future::ready(Ok(process)))
    }
}

/// A result.
pub(crate) fn answer(request: &Value, result: Value) -> Vec<Value> {
    vec![json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })]
}

/// An error in the server's own words.
pub(crate) fn refusal(request: &Value, words: &str) -> Vec<Value> {
    vec![json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32000, "message": words } })]
}

pub(crate) fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A tool that only reads.
pub(crate) fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } })
}

/// An ordinary server of these tools: a call answers with the name under which it arrived.
pub(crate) fn ordinary(request: &Value, tools: &[Value]) -> Vec<Value> {
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => answer(
            request,
            json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "p" } }),
        ),
        "tools/list" => answer(request, json!({ "tools": tools })),
        "tools/call" => answer(request, said(request["params"]["name"].as_str().unwrap())),
        _ if request.get("id").is_none() => Vec::new(),
        _ => refusal(request, "no such method"),
    }
}

/// An ordinary server whose tools the test changes. It tells so after the next call.
#[derive(Clone, Default)]
pub(crate) struct Changing(Arc<Mutex<Vec<Value>>>);

impl Changing {
    pub(crate) fn set(&self, names: &[&str]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            names.iter().map(|name| tool(name)).collect();
    }

    pub(crate) fn play(&self, request: &Value) -> Vec<Value> {
        let tools = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut messages = ordinary(request, &tools);
        if request["method"] == "tools/call" {
            messages.insert(0, json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
        }
        messages
    }
}

pub(crate) fn spec(transport: Transport) -> ServerSpec {
    ServerSpec {
        name: "s".to_owned(),
        about: String::new(),
        transport,
        rules: ToolRules::default(),
        labels: Vec::new(),
        refuses: Vec::new(),
        idle: Duration::from_secs(60),
        timeout: Duration::from_secs(20),
    }
}

/// The server `s`, played so, which got these credentials.
pub(crate) fn host(
    folder: &harness::TestFolder,
    secrets: &[&str],
    player: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
) -> Arc<Upstreams> {
    host_with(folder, secrets, ToolRules::default(), player)
}

/// The same, with these rules.
pub(crate) fn host_with(
    folder: &harness::TestFolder,
    secrets: &[&str],
    rules: ToolRules,
    player: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
) -> Arc<Upstreams> {
    let secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
    let wall: Arc<dyn WalledStart> = Arc::new(PlayedServer { player: Arc::new(player), secrets });
    let transport = Transport::Stdio(StdioSpec {
        command: "played".to_owned(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
        wall: ServerWall::Own { read: Vec::new(), write: Vec::new(), access: Vec::new() },
    });
    let state_dir = folder.path().to_owned();
    let servers = vec![ServerSpec { rules, ..spec(transport) }];
    Upstreams::new(UpstreamsConfig { state_dir, launcher: PathBuf::new(), wall: Some(wall), servers })
}

/// The server `s` at an address, which answers each message with what `reply` makes of it and of its token.
pub(crate) async fn host_at_address(
    folder: &harness::TestFolder,
    reply: impl Fn(&Value, &str) -> Vec<Value> + Send + Sync + 'static,
) -> (Arc<Upstreams>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let reply = Arc::new(reply);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_http(stream, Arc::clone(&reply)));
        }
    });
    let http = HttpSpec { url: url.parse().unwrap(), headers: Vec::new() };
    let state_dir = folder.path().to_owned();
    let servers = vec![spec(Transport::Http(http))];
    let config = UpstreamsConfig { state_dir, launcher: PathBuf::new(), wall: None, servers };
    (Upstreams::new(config), url)
}

async fn serve_http(stream: TcpStream, reply: Arc<impl Fn(&Value, &str) -> Vec<Value>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut token, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line.trim_end().is_empty() {
                    break;
                } else {
                    continue;
                };
            };
            match name.to_lowercase().as_str() {
                "authorization" => token = value.trim_start_matches("Bearer ").to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let body = reply(&request, &token).first().map(Value::to_string).unwrap_or_default();
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        stream.get_mut().write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    }
}

/// A call for the owner.
pub(crate) fn call<'a>(principal: &'a Principal, tool: ToolName<'a>) -> ToolCall<'a> {
    ToolCall {
        principal,
        server: "s",
        tool,
        arguments: Map::new(),
        deadline: Instant::now() + Duration::from_secs(20),
        cancel: CancellationToken::new(),
        answer_bytes_max: 8 << 20,
        is_learned_from: true,
    }
}
