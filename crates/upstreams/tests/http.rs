//! Servers behind a URL, played by the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use upstreams::{HttpSpec, Template, ToolErrorCode, Transport, Upstreams};

use crate::stage::{Folder, call, call_within, host, server, text};

/// A request: its head, in lower case, and its message.
pub(crate) struct Request {
    pub(crate) head: String,
    /// Its token, as it was sent.
    pub(crate) bearer: String,
    body: Value,
}

impl Request {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// What the played server answers: status, more headers, body.
pub(crate) type Reply = (u16, String, String);
pub(crate) type Player = dyn Fn(&Request) -> Option<Reply> + Send + Sync;

async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let bearer = head.split_once("Bearer ").and_then(|(_, rest)| rest.split("\r\n").next());
    let bearer = bearer.unwrap_or_default().to_owned();
    let head = head.to_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
    let mut body = bytes.split_off(end);
    while body.len() < length {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        body.extend_from_slice(&piece[..count]);
    }
    Some(Request { head, bearer, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Plays a server; returns its URL.
pub(crate) async fn play(player: Arc<Player>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let player = Arc::clone(&player);
            tokio::spawn(async move {
                while let Some(request) = read_request(&mut stream).await {
                    // No reply: the connection is cut.
                    let Some((status, headers, body)) = player(&request) else { return };
                    let length = body.len();
                    let reply =
                        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
                    stream.write_all(reply.as_bytes()).await.unwrap();
                }
            });
        }
    });
    url
}

const JSON: &str = "content-type: application/json\r\n";

pub(crate) fn json_reply(request: &Request, result: Value) -> Option<Reply> {
    let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
    Some((200, JSON.to_owned(), body.to_string()))
}

fn tools() -> Value {
    let read = json!({"readOnlyHint": true});
    json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "annotations": read}], "resultType": "complete"})
}

/// A text in whose place a server tells the token of the request.
pub(crate) const TOKEN_ASKED: &str = "which token?";

fn echoed(request: &Request) -> Value {
    if request.body["params"]["arguments"]["text"] == TOKEN_ASKED {
        return json!({"content": [{"type": "text", "text": request.bearer}], "resultType": "complete"});
    }
    json!({"content": [{"type": "text", "text": request.body["params"]["arguments"]["text"]}], "resultType": "complete"})
}

/// An ordinary server of the era with a handshake, without sessions.
pub(crate) fn with_handshake(request: &Request) -> Option<Reply> {
    match request.method() {
        "initialize" => json_reply(request, hello()),
        "tools/list" => json_reply(request, tools()),
        "tools/call" => json_reply(request, echoed(request)),
        "" | "notifications/initialized" | "notifications/cancelled" => {
            Some((202, String::new(), String::new()))
        }
        _ => Some((400, String::new(), "bad request".to_owned())),
    }
}

fn hello() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}})
}

async fn hosted(folder: &Folder, player: Arc<Player>) -> Arc<Upstreams> {
    let url = HttpSpec::parse_url(&play(player).await).unwrap();
    let headers = vec![(http::HeaderName::from_static("x-key"), Template::parse("abc").unwrap())];
    host(folder, server(Transport::Http(HttpSpec { url, headers })))
}

pub(crate) async fn both_eras_are_spoken() {
    let folder = Folder::new();
    let old = hosted(&folder, Arc::new(with_handshake)).await;
    assert_eq!(text(&call(&old, "echo", "old").await.unwrap()), "old");

    let folder = Folder::new();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    let new = hosted(
        &folder,
        Arc::new(move |request: &Request| {
            seen.lock().unwrap().push(request.head.clone());
            let version = &request.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
            assert_eq!(version, "2026-07-28");
            match request.method() {
                "server/discover" => {
                    let result = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"});
                    json_reply(request, result)
                }
                "tools/list" => json_reply(request, tools()),
                "tools/call" => json_reply(request, echoed(request)),
                _ => Some((404, String::new(), String::new())),
            }
        }),
    )
    .await;
    assert_eq!(text(&call(&new, "echo", "new").await.unwrap()), "new");
    let heads = heads.lock().unwrap();
    let last = heads.last().unwrap();
    for line in ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: echo", "x-key: abc"]
    {
        assert!(last.contains(line), "{last}");
    }
    assert!(!last.contains("mcp-session-id"));
}

pub(crate) async fn an_event_stream_is_read() {
    let folder = Folder::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let replies = Arc::clone(&asked);
    let host = hosted(
        &folder,
        Arc::new(move |request: &Request| {
            if request.method().is_empty() && request.body["error"]["code"] == -32601 {
                replies.fetch_add(1, Ordering::SeqCst);
            }
            if request.method() != "tools/call" {
                return with_handshake(request);
            }
            let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": echoed(request)});
            let body = format!(
                ": ping\n\nevent: message\ndata: {}\n\ndata: {}\n\ndata: {answer}\n\n",
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
                json!({"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": {}}),
            );
            Some((200, "content-type: text/event-stream\r\n".to_owned(), body))
        }),
    )
    .await;
    assert_eq!(text(&call(&host, "echo", "streamed").await.unwrap()), "streamed");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

pub(crate) async fn a_session_that_is_gone_is_begun_anew() {
    let folder = Folder::new();
    let sessions = Arc::new(AtomicUsize::new(0));
    let executed = Arc::new(AtomicUsize::new(0));
    let (begun, ran) = (Arc::clone(&sessions), Arc::clone(&executed));
    let host = hosted(
        &folder,
        Arc::new(move |request: &Request| match request.method() {
            "initialize" => {
                let number = begun.fetch_add(1, Ordering::SeqCst);
                let (status, headers, body) = json_reply(request, hello())?;
                Some((status, format!("{headers}Mcp-Session-Id: s{number}\r\n"), body))
            }
            // The first session is forgotten as soon as a tool is called.
            "tools/call" if request.head.contains("mcp-session-id: s0") => {
                Some((404, String::new(), String::new()))
            }
            "tools/call" => {
                ran.fetch_add(1, Ordering::SeqCst);
                with_handshake(request)
            }
            _ => with_handshake(request),
        }),
    )
    .await;
    assert_eq!(text(&call(&host, "echo", "x").await.unwrap()), "x");
    assert_eq!((sessions.load(Ordering::SeqCst), executed.load(Ordering::SeqCst)), (2, 1));
}

pub(crate) async fn refusals_are_told_apart() {
    for (status, code, may_have_run) in [
        (401, ToolErrorCode::LoginRequired, false),
        (302, ToolErrorCode::ServerError, false),
        (503, ToolErrorCode::ServerUnavailable, true),
    ] {
        let folder = Folder::new();
        let host = hosted(
            &folder,
            Arc::new(move |request: &Request| match request.method() {
                "tools/call" => Some((status, "location: /x\r\n".to_owned(), String::new())),
                _ => with_handshake(request),
            }),
        )
        .await;
        let error = call(&host, "echo", "x").await.unwrap_err();
        assert_eq!((error.code, error.may_have_run), (code, may_have_run), "{error}");
    }
}

pub(crate) async fn a_call_that_may_have_arrived_is_not_repeated() {
    let folder = Folder::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let host = hosted(
        &folder,
        Arc::new(move |request: &Request| match request.method() {
            "tools/call" => {
                seen.fetch_add(1, Ordering::SeqCst);
                None
            }
            _ => with_handshake(request),
        }),
    )
    .await;
    let error = call_within(&host, "echo", "x", Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::ServerEnded, true), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
