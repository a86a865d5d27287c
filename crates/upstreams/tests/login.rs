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
use upstreams::{
    Dialect, FindQuery, HttpSpec, Login, ServerSpec, ToolAccess, ToolCall, ToolErrorCode, ToolHost, ToolName,
    Transport, Upstreams, Viewer,
};

use crate::http::{Reply, Request, TOKEN_ASKED, json_reply, play, with_handshake};
use crate::stage::{Folder, arguments, call, host, owner, query, server, text};

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
    /// The only token that is shown tools, if there is one.
    shown_to: Mutex<Option<String>>,
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    let line = request.head.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("", |value| value.trim())
}

async fn guarded_server(issuer: &str) -> (ServerSpec, Arc<Seen>) {
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
        let is_narrow = kept.shown_to.lock().unwrap().as_ref().is_some_and(|one| *one != token);
        kept.tokens.lock().unwrap().push(token);
        if is_narrow && request.method() == "tools/list" {
            return json_reply(request, json!({"tools": []}));
        }
        with_handshake(request)
    };
    let url = HttpSpec::parse_url(&play(Arc::new(player)).await).unwrap();
    (server(Transport::Http(HttpSpec { url, headers: Vec::new() })), seen)
}

async fn guarded(folder: &Folder, issuer: &str) -> (Arc<Upstreams>, Arc<Seen>) {
    let (spec, seen) = guarded_server(issuer).await;
    (host(folder, spec), seen)
}

async fn post(url: &str, body: &Value) {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
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

pub(crate) async fn a_token_that_replaces_a_refused_one_is_taken_out_of_results() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    log_in(&host, Login::default()).await.unwrap();
    assert_eq!(text(&call(&host, "echo", TOKEN_ASKED).await.unwrap()), "[redacted]");
    let first = seen.tokens.lock().unwrap().last().unwrap().clone();
    seen.refused.lock().unwrap().push(first.clone());
    // The answer to the request that was sent again with another token tells that token.
    assert_eq!(text(&call(&host, "echo", TOKEN_ASKED).await.unwrap()), "[redacted]");
    assert_ne!(*seen.tokens.lock().unwrap().last().unwrap(), first);
    host.close().await;
}

pub(crate) async fn tokens_belong_to_one_principal() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    log_in(&host, Login::default()).await.unwrap();
    let called = async |principal: &Principal| called(&host, principal).await;
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

async fn called(
    host: &Upstreams,
    principal: &Principal,
) -> Result<upstreams::ToolAnswer, upstreams::ToolError> {
    let call = ToolCall {
        principal,
        server: "s",
        tool: ToolName::Spelled("echo"),
        arguments: arguments(json!({"text": "x"})),
        deadline: Instant::now() + Duration::from_secs(20),
        cancel: CancellationToken::new(),
        answer_bytes_max: 1 << 20,
        is_learned_from: true,
    };
    host.call(call).await
}

pub(crate) async fn tools_are_listed_with_the_login_of_the_principal_who_asks() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    let (alice, bob) = (Principal::new("key:alice").unwrap(), Principal::new("key:bob").unwrap());
    log_in(&host, Login { principal: Some(alice.clone()), ..Login::default() }).await.unwrap();
    // The owner never logged in: what alice needs, she has by her own login.
    let of = |principal| FindQuery { viewer: Viewer::of(principal), ..query("", 10) };
    let found = host.find(of(&alice)).await;
    assert_eq!((found.total, found.failed.len()), (1, 0), "{found:?}");
    assert_eq!(host.standing(&alice, "s", "echo").await.unwrap().tool, "echo");
    assert_eq!(host.describe(&alice, "s", "echo").await.unwrap().tool, "echo");
    assert!(host.stubs(&alice, "s", Dialect::Python).await.unwrap().contains("echo"));
    assert_eq!(text(&called(&host, &alice).await.unwrap()), "x");
    host.forget("s").unwrap();
    // And what bob asks for is not asked for with the login of the owner.
    log_in(&host, Login::default()).await.unwrap();
    seen.tokens.lock().unwrap().clear();
    let found = host.find(of(&bob)).await;
    assert_eq!((found.total, found.failed.len()), (0, 1), "{found:?}");
    for error in [
        host.standing(&bob, "s", "echo").await.unwrap_err(),
        host.describe(&bob, "s", "echo").await.unwrap_err(),
        host.stubs(&bob, "s", Dialect::Python).await.unwrap_err(),
        called(&host, &bob).await.unwrap_err(),
    ] {
        assert_eq!(error.code, ToolErrorCode::LoginRequired, "{error}");
    }
    assert_eq!(*seen.tokens.lock().unwrap(), [""; 0]);
    host.close().await;
}

pub(crate) async fn a_login_that_shows_fewer_tools_takes_none_from_others() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (spec, seen) = guarded_server(&authorization.issuer).await;
    let first = host(&folder, spec.clone());
    let alice = Principal::new("key:alice").unwrap();
    log_in(&first, Login::default()).await.unwrap();
    called(&first, owner()).await.unwrap();
    // Only the token of the owner is shown tools.
    *seen.shown_to.lock().unwrap() = seen.tokens.lock().unwrap().last().cloned();
    log_in(&first, Login { principal: Some(alice.clone()), ..Login::default() }).await.unwrap();
    let patience = Duration::from_secs(20);
    assert_eq!(first.list("s", &alice, patience).await.unwrap(), (0, 0));
    assert_eq!(called(&first, &alice).await.unwrap_err().code, ToolErrorCode::UnknownTool);
    for host in [Arc::clone(&first), host(&folder, spec.clone())] {
        assert_eq!(host.standing(owner(), "s", "echo").await.unwrap().access, ToolAccess::Allow);
        called(&host, owner()).await.unwrap();
        host.close().await;
    }
    // With more rights she is shown what the operator has accepted already.
    *seen.shown_to.lock().unwrap() = None;
    let later = host(&folder, spec);
    assert_eq!(later.list("s", &alice, patience).await.unwrap(), (1, 0));
    called(&later, &alice).await.unwrap();
    later.close().await;
}

/// The address of a client's metadata, and a login of that client.
const DOCUMENT: &str = "https://client.example/palisade.json";

fn by_document(address: &str) -> Login {
    Login { client_id: Some(address.to_owned()), ..Login::default() }
}

pub(crate) async fn a_client_is_known_by_the_address_of_its_metadata() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let document = json!({"client_id": DOCUMENT, "client_name": "Palisade", "token_endpoint_auth_method": "none",
        "redirect_uris": ["http://127.0.0.1/callback"], "grant_types": ["authorization_code", "refresh_token"]});
    post(&format!("{}/documents", authorization.issuer), &json!({ DOCUMENT: document })).await;
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    log_in(&host, by_document(DOCUMENT)).await.unwrap();
    assert_eq!(text(&call(&host, "echo", "x").await.unwrap()), "x");
    // A refresh is of the same client, and nothing was registered.
    let first = seen.tokens.lock().unwrap().last().unwrap().clone();
    seen.refused.lock().unwrap().push(first.clone());
    assert_eq!(text(&call(&host, "echo", "y").await.unwrap()), "y");
    assert_ne!(*seen.tokens.lock().unwrap().last().unwrap(), first);
    let counters = get(&format!("{}/counters", authorization.issuer)).await;
    assert!(!counters.contains("/register"), "{counters}");
    host.close().await;
}

pub(crate) async fn a_client_document_that_is_not_its_own_is_refused() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let fine = json!({"client_id": DOCUMENT, "redirect_uris": ["http://127.0.0.1/callback"], "token_endpoint_auth_method": "none"});
    let mut of_another = fine.clone();
    of_another["client_id"] = json!("https://other.example/client.json");
    let mut elsewhere = fine.clone();
    elsewhere["redirect_uris"] = json!(["https://evil.example/callback"]);
    for document in [of_another, elsewhere] {
        post(&format!("{}/documents", authorization.issuer), &json!({ DOCUMENT: document })).await;
        let (host, _) = guarded(&folder, &authorization.issuer).await;
        let shown = Mutex::new(String::new());
        let login = by_document(DOCUMENT);
        let asked = host.login("s", &login, |url| *shown.lock().unwrap() = url.to_owned());
        // The authorization server refuses in the browser, and the login waits for an answer that does not come.
        assert!(tokio::time::timeout(Duration::from_millis(500), asked).await.is_err());
        let url = shown.into_inner().unwrap();
        assert!(get(&url).await.contains("invalid_client"));
    }
    let (host, _) = guarded(&folder, &authorization.issuer).await;
    for wrong in ["https://client.example", "https://client.example/a/../b", "http://client.example/a"] {
        let error = log_in(&host, by_document(wrong)).await.unwrap_err();
        assert!(error.message.contains("no address of a client metadata document"), "{wrong}: {error}");
    }
}

/// A server that is its own authorization server, with this metadata.
async fn with_metadata(
    folder: &Folder,
    change: impl Fn(&str, &mut Value) + Send + Sync + 'static,
) -> Arc<Upstreams> {
    let player = move |request: &Request| -> Option<Reply> {
        let authority = header(request, "host: ");
        let origin = format!("http://{authority}");
        let json_reply = |body: String| Some((200, "content-type: application/json\r\n".to_owned(), body));
        if request.head.starts_with("get /.well-known/oauth-authorization-server") {
            let mut metadata = json!({"issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                "code_challenge_methods_supported": ["S256"]});
            change(&origin, &mut metadata);
            return json_reply(metadata.as_str().map_or_else(|| metadata.to_string(), str::to_owned));
        }
        if request.head.starts_with("post /register") {
            return json_reply(json!({"client_id": 7}).to_string());
        }
        Some((if request.head.starts_with("get /mcp") { 401 } else { 404 }, String::new(), String::new()))
    };
    let url = HttpSpec::parse_url(&play(Arc::new(player)).await).unwrap();
    host(folder, server(Transport::Http(HttpSpec { url, headers: Vec::new() })))
}

pub(crate) async fn hostile_metadata_ends_a_login_before_a_code_is_asked_for() {
    let set = |name: &'static str, value: Value| {
        move |_: &str, metadata: &mut Value| metadata[name] = value.clone()
    };
    let folder = Folder::new();
    type Change = Box<dyn Fn(&str, &mut Value) + Send + Sync>;
    let cases: Vec<(Change, &str)> = vec![
        (Box::new(|_, _| ()), "did not register"),
        (Box::new(set("code_challenge_methods_supported", json!(["plain"]))), "PKCE"),
        (Box::new(set("code_challenge_methods_supported", json!("S256"))), "PKCE"),
        (Box::new(set("code_challenge_methods_supported", Value::Null)), "PKCE"),
        (Box::new(set("issuer", json!("https://other.example"))), "another issuer"),
        (Box::new(set("issuer", json!(["a"]))), "another issuer"),
        (Box::new(set("authorization_endpoint", json!("http://evil.example/authorize"))), "cannot be used"),
        (Box::new(set("authorization_endpoint", json!("javascript:alert(1)"))), "cannot be used"),
        (Box::new(set("authorization_endpoint", json!("https://a.example/\u{1b}[2J"))), "cannot be used"),
        (Box::new(set("authorization_endpoint", json!("https://user:word@a.example/"))), "cannot be used"),
        (Box::new(set("token_endpoint", json!("file:///etc/passwd"))), "cannot be used"),
        (Box::new(set("token_endpoint", Value::Null)), "token_endpoint"),
        (Box::new(set("registration_endpoint", json!("http://evil.example/register"))), "cannot be used"),
        (Box::new(set("registration_endpoint", Value::Null)), "registers no clients"),
        (Box::new(|_, metadata| *metadata = json!("[".repeat(5000))), "another issuer"),
        (Box::new(|_, metadata| *metadata = json!("x".repeat(300 << 10))), "too large"),
    ];
    for (change, words) in cases {
        let host = with_metadata(&folder, change).await;
        let error = host.login("s", &Login::default(), |url| panic!("{url} was shown")).await.unwrap_err();
        assert_eq!(error.code, ToolErrorCode::LoginRequired, "{error}");
        assert!(error.message.contains(words), "{words}: {error}");
    }
    // A support that is no boolean is none.
    let host = with_metadata(&folder, set("client_id_metadata_document_supported", json!("yes"))).await;
    let error = host.login("s", &by_document(DOCUMENT), |url| panic!("{url} was shown")).await.unwrap_err();
    assert!(error.message.contains("takes no client"), "{error}");
}

pub(crate) async fn tokens_that_cannot_be_sent_are_refused() {
    let (folder, authorization) = (Folder::new(), Authorization::start());
    let (host, seen) = guarded(&folder, &authorization.issuer).await;
    for spoiled in [
        json!({"access_token": "a\r\nx-forged: 1"}),
        json!({"access_token": ""}),
        json!({"access_token": 7}),
        json!({"access_token": "a".repeat(20 << 10)}),
        json!({"token_type": "mac"}),
        json!({ "access_token": null }),
    ] {
        post(&format!("{}/spoil", authorization.issuer), &spoiled).await;
        let error = log_in(&host, Login::default()).await.unwrap_err();
        assert!(error.message.contains("no token"), "{spoiled}: {error}");
    }
    assert_eq!(call(&host, "echo", "x").await.unwrap_err().code, ToolErrorCode::LoginRequired);
    assert!(seen.tokens.lock().unwrap().is_empty());
}
