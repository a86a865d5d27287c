//! Logins to servers behind a URL, with the authorization server of the tests (tests/oauth).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use policy::Principal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use upstreams::{HttpSpec, Login, ToolCall, ToolErrorCode, ToolHost, Transport, Upstreams};

use crate::http::{Reply, Request, play, with_handshake};
use crate::stage::{Folder, arguments, call, host, server, text};

/// The authorization server. It ends with its standard input.
struct Authorization {
    child: Child,
    issuer: String,
}

impl Authorization {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oauth/authorization_server.py");
        let mut child =
            Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        Self { child, issuer: told["issuer"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Authorization {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A server that takes tokens of an issuer, and what it saw.
#[derive(Default)]
struct Seen {
    tokens: Mutex<Vec<String>>,
    refused: Mutex<Vec<String>>,
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    let line = request.head.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("", |value| value.trim())
}

async fn guarded(folder: &Folder, issuer: &str) -> (Arc<Upstreams>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let (kept, issuer) = (Arc::clone(&seen), issuer.to_owned());
    let player = move |request: &Request| -> Option<Reply> {
        let authority = header(request, "host: ").to_owned();
        if request.head.starts_with("get /.well-known/oauth-protected-resource") {
            let metadata = json!({"resource": format!("http://{authority}/mcp"), "authorization_servers": [issuer],
                "scopes_supported": ["read", "offline_access"]});
            return Some((200, "content-type: application/json\r\n".to_owned(), metadata.to_string()));
        }
        let token = header(request, "authorization: bearer ").to_owned();
        let is_refused = kept.refused.lock().unwrap().contains(&token);
        if token.is_empty() || is_refused {
            let place = format!("http://{authority}/.well-known/oauth-protected-resource/mcp");
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{place}\"\r\n");
            return Some((401, challenge, String::new()));
        }
        kept.tokens.lock().unwrap().push(token);
        with_handshake(request)
    };
    let url = HttpSpec::parse_url(&play(Arc::new(player)).await).unwrap();
    (host(folder, server(Transport::Http(HttpSpec { url, headers: Vec::new() }))), seen)
}

async fn get(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A browser: opens the address and follows the redirect.
async fn browse(url: String) {
    let answer = get(&url).await;
    let place = answer.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a redirect");
    assert!(place.starts_with("http://127.0.0.1:"), "{place}");
    // Somebody else knows the address but not the state.
    let (callback, _) = place.split_once('?').unwrap();
    assert!(get(&format!("{callback}?code=stolen&state=guessed")).await.contains("404"));
    assert!(get(place).await.contains("The login is complete"));
}

async fn log_in(host: &Upstreams, login: Login) -> Result<String, upstreams::ToolError> {
    let browser = Mutex::new(None);
    let show = |url: &str| *browser.lock().unwrap() = Some(tokio::spawn(browse(url.to_owned())));
    let outcome = host.login("s", &login, show).await;
    let browser = browser.into_inner().unwrap();
    if let Some(browser) = browser {
        browser.await.unwrap();
    }
    outcome
}

pub(crate) async fn a_login_gives_tokens_that_are_refreshed_and_forgotten() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    let error = call(&host, "echo", "x").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::LoginRequired, "{error}");
    assert!(error.remedy.contains("palisade tools login s"), "{error}");
    assert_eq!(log_in(&host, Login::default()).await.unwrap(), "read offline_access");
    assert_eq!(text(&call(&host, "echo", "x").await.unwrap()), "x");
    // Another process finds the tokens, and a token that the server refuses is refreshed once.
    let first = seen.tokens.lock().unwrap().last().unwrap().clone();
    seen.refused.lock().unwrap().push(first.clone());
    assert_eq!(text(&call(&host, "echo", "y").await.unwrap()), "y");
    let second = seen.tokens.lock().unwrap().last().unwrap().clone();
    assert_ne!(first, second);
    // The token does not come back to a program.
    let kept = std::fs::read_dir(folder.0.join("tools/tokens")).unwrap().flatten();
    let kept: Vec<_> = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("s.")).collect();
    let granted: Value = serde_json::from_slice(&std::fs::read(kept[0].path()).unwrap()).unwrap();
    let token = granted["access_token"].as_str().unwrap();
    assert_eq!(text(&call(&host, "echo", token).await.unwrap()), "[redacted]");
    assert!(host.forget("s").unwrap());
    assert_eq!(
        std::fs::read_dir(folder.0.join("tools/tokens"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("s."))
            .count(),
        0
    );
    host.close().await;
}

pub(crate) async fn tokens_belong_to_one_principal() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    log_in(&host, Login::default()).await.unwrap();
    let called = async |principal: &Principal| {
        let call = ToolCall {
            principal,
            server: "s",
            tool: "echo",
            arguments: arguments(json!({"text": "x"})),
            deadline: Instant::now() + Duration::from_secs(20),
            cancel: CancellationToken::new(),
            answer_bytes_max: 1 << 20,
        };
        host.call(call).await
    };
    let (alice, bob) = (Principal::new("key:alice").unwrap(), Principal::new("key:bob").unwrap());
    called(&Principal::local()).await.unwrap();
    called(&Principal::token_holder()).await.unwrap();
    assert_eq!(called(&alice).await.unwrap_err().code, ToolErrorCode::LoginRequired);
    log_in(&host, Login { principal: Some(alice.clone()), ..Login::default() }).await.unwrap();
    called(&alice).await.unwrap();
    let of_alice = seen.tokens.lock().unwrap().last().unwrap().clone();
    assert_eq!(called(&bob).await.unwrap_err().code, ToolErrorCode::LoginRequired);
    called(&Principal::local()).await.unwrap();
    assert_ne!(*seen.tokens.lock().unwrap().last().unwrap(), of_alice);
    host.close().await;
}

pub(crate) async fn an_authorization_server_that_cannot_be_trusted_is_refused() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    // The metadata is that of the authorization server, and the issuer is named by another address.
    let other = authorization.issuer.replace("127.0.0.1", "localhost");
    let (host, _) = guarded(&folder, &other).await;
    let error = log_in(&host, Login::default()).await.unwrap_err();
    assert!(error.message.contains("another issuer"), "{error}");
    let (host, _) = guarded(&folder, &authorization.issuer).await;
    let document =
        Login { client_id: Some("https://client.example/metadata".to_owned()), ..Login::default() };
    let error = log_in(&host, document).await.unwrap_err();
    assert!(error.message.contains("metadata"), "{error}");
}
