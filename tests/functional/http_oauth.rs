//! Access tokens of an authorization server: where clients are sent, what a token may do, and what is refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use functional::http::{Answer, Request, Server, call_run, modern_message};
use functional::socket::{Socket, TEXT, upgrade};
use functional::tls::certificate_with;
use harness::{Build, Palisade, TestFolder, users};
use serde_json::{Value, json};

/// The server does not compare it with its own address.
const RESOURCE: &str = "http://127.0.0.1:9/mcp";
const METADATA: &str = "http://127.0.0.1:9/.well-known/oauth-protected-resource/mcp";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../oauth/authorization_server.py");

/// An authorization server on loopback; it ends with its standard input.
struct Authority {
    child: Child,
    issuer: String,
}

impl Authority {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// Over TLS with these files: certificate and key.
    fn start_with(files: &[&Path]) -> Self {
        let mut command = Command::new("python3");
        command
            .arg(PROGRAM)
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.spawn().expect("python3 starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { child, issuer: said["issuer"].as_str().unwrap().to_owned() }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let host = self.issuer.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// A token with these claims over the usual ones.
    fn token(&self, mut claims: Value) -> String {
        if claims.get("aud").is_none() {
            claims["aud"] = json!(RESOURCE);
        }
        self.post("/mint", &json!({ "claims": claims }))["token"].as_str().unwrap().to_owned()
    }

    /// A server that accepts its tokens, and lets every holder do what the scopes allow.
    fn server(&self) -> Server {
        self.server_with(&[])
    }

    /// The same, with more settings.
    fn server_with(&self, settings: &[(&str, &str)]) -> Server {
        let user = users()[0];
        let palisade = Palisade::new(Build::Real, user, &["serve"])
            .args(&["--listen", "127.0.0.1:0"])
            .env("PALISADE_LOG", "info")
            .env("PALISADE_OAUTH_ISSUERS", &self.issuer)
            .env("PALISADE_OAUTH_RESOURCE", RESOURCE)
            .env("PALISADE_POLICY_BIND", "oauth:*=open");
        let palisade = settings.iter().fold(palisade, |palisade, (name, value)| palisade.env(name, value));
        Server::start_command(user, palisade.into_command())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn with(request: Request, token: &str) -> Request {
    request.header("Authorization", &format!("Bearer {token}"))
}

fn call(name: &str, arguments: Value) -> Request {
    Request::modern("tools/call", json!({"name": name, "arguments": arguments}))
}

fn challenge(answer: &Answer) -> &str {
    answer.header("www-authenticate").unwrap_or_default()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_client_without_a_token_is_told_where_to_get_one() {
    let authority = Authority::start();
    let server = authority.server();
    let answer = server.ask(&Request::run("bash", "true").without("Authorization"));
    let expected = format!(
        "Bearer realm=\"palisade\", resource_metadata=\"{METADATA}\", scope=\"palisade:run palisade:sandbox\""
    );
    assert_eq!((answer.status, challenge(&answer)), (401, expected.as_str()));
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let own = format!("http://{}", server.address);
        let page = Request::get(path).without("Authorization").header("Origin", &own);
        let answer = server.ask(&page);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(own.as_str()));
        let expected = json!({
            "resource": RESOURCE,
            "authorization_servers": [authority.issuer],
            "scopes_supported": ["palisade:run", "palisade:sandbox"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Palisade",
        });
        assert_eq!(answer.message(), expected);
        let foreign = Request::get(path).without("Authorization").header("Origin", "https://evil.example");
        assert_eq!(server.ask(&foreign).status, 403, "as every other page");
    }
    assert_eq!(server.ask(&Request::get("/metrics").without("Authorization")).status, 401);
    server.is_well();
}

#[test]
fn a_server_without_issuers_has_no_metadata_and_accepts_no_access_token() {
    let authority = Authority::start();
    let server = Server::start();
    let path = "/.well-known/oauth-protected-resource";
    assert_eq!(server.ask(&Request::get(path).without("Authorization")).status, 401);
    assert_eq!(server.ask(&Request::get(path)).status, 404);
    let token = authority.token(json!({"scope": "palisade:admin"}));
    assert_eq!(server.ask(&with(Request::run("bash", "true"), &token)).status, 401);
}

#[test]
fn an_access_token_runs_programs_and_owns_what_it_makes() {
    let authority = Authority::start();
    let server = authority.server();
    let alice = authority.token(json!({"scope": "palisade:sandbox openid"}));
    let answer = server.ask(&with(Request::run("bash", "echo hello"), &alice));
    assert_eq!(answer.result()["structuredContent"]["stdout"], "hello\n", "{answer:?}");
    let opened = server.ask(&with(call("sandbox_open", json!({})), &alice));
    let sandbox = opened.result()["structuredContent"]["sandbox_id"].as_str().map(str::to_owned);
    let sandbox = sandbox.unwrap_or_else(|| panic!("{opened:?}"));
    let inside = || call("run", json!({"language": "bash", "code": "echo in", "sandbox_id": sandbox}));
    let again = authority.token(json!({"scope": "palisade:sandbox"}));
    assert_eq!(server.ask(&with(inside(), &again)).result()["structuredContent"]["stdout"], "in\n");
    let bob = authority.token(json!({"scope": "palisade:admin", "sub": "bob"}));
    for other in [with(inside(), &bob), inside()] {
        let answer = server.ask(&other);
        assert_eq!(answer.result()["structuredContent"]["error"]["code"], "unknown_sandbox", "{answer:?}");
    }
    let closed = server.ask(&with(call("sandbox_close", json!({"sandbox_id": sandbox})), &alice));
    assert_eq!(closed.status, 200, "{closed:?}");
}

#[test]
fn a_wrong_access_token_is_refused_without_details() {
    let authority = Authority::start();
    let server = authority.server();
    let scope = "palisade:run";
    let wrong = "the access token is not valid for this server";
    for (claims, said) in [
        (json!({"scope": scope, "aud": "https://other.example/mcp"}), wrong),
        (json!({"scope": scope, "iss": format!("{}/", authority.issuer)}), wrong),
        (json!({"scope": scope, "cnf": {"jkt": "x"}}), wrong),
        (json!({"scope": scope, "exp": null}), wrong),
        (json!({"scope": scope, "exp": now_s() - 70}), "the access token has expired"),
    ] {
        let answer = server.ask(&with(Request::run("bash", "true"), &authority.token(claims.clone())));
        let expected = format!("error=\"invalid_token\", error_description=\"{said}\"");
        assert_eq!(answer.status, 401, "{claims}");
        assert!(challenge(&answer).contains("resource_metadata="), "{answer:?}");
        assert!(challenge(&answer).ends_with(&expected), "{claims}: {answer:?}");
    }
    server.is_well();
    assert!(!server.log().contains("eyJ"), "a token is in the log");
}

#[test]
fn a_token_in_the_query_or_in_two_places_is_no_token() {
    let authority = Authority::start();
    let server = authority.server();
    let token = authority.token(json!({"scope": "palisade:run"}));
    let list = modern_message(1, "tools/list", json!({}));
    for path in [format!("/mcp?access_token={token}"), format!("/mcp/{token}")] {
        let asked = Request::new("POST", Box::leak(path.into_boxed_str()), list.clone().into_bytes());
        assert_eq!(server.ask(&asked.without("Authorization")).status, 401);
    }
    let twice = with(with(Request::run("bash", "true"), &token), &token);
    assert_eq!(server.ask(&twice).status, 401);
}

#[test]
fn a_call_that_lacks_a_scope_gets_403_with_every_scope_that_it_needs() {
    let authority = Authority::start();
    let server = authority.server();
    let runner = authority.token(json!({"scope": "palisade:run"}));
    let in_sandbox = json!({"language": "bash", "code": "true", "sandbox_id": "sbx_x"});
    for asked in [
        call("sandbox_open", json!({})),
        call("run", in_sandbox.clone()),
        // Arguments as a text are repaired, and judged as they are carried out.
        Request::modern("tools/call", json!({"name": "run", "arguments": in_sandbox.to_string()})),
    ] {
        let answer = server.ask(&with(asked, &runner));
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (403, Some("application/json")),
            "{answer:?}"
        );
        let expected = format!(
            "Bearer error=\"insufficient_scope\", scope=\"palisade:run palisade:sandbox\", \
             resource_metadata=\"{METADATA}\", error_description=\"the access token lacks a scope for this call\""
        );
        assert_eq!(challenge(&answer), expected);
        let message = answer.message();
        assert_eq!(
            (&message["id"], &message["error"]["data"]["error"]),
            (&json!(1), &json!("insufficient_scope"))
        );
    }
    assert_eq!(server.ask(&with(Request::run("bash", "true"), &runner)).status, 200);
    let nothing = authority.token(json!({"scope": "openid"}));
    let answer = server.ask(&with(Request::run("bash", "true"), &nothing));
    assert!(answer.status == 403 && challenge(&answer).contains("scope=\"palisade:run\""), "{answer:?}");
    assert_eq!(server.ask(&with(Request::modern("tools/list", json!({})), &nothing)).status, 200);
}

#[test]
fn a_websocket_tells_a_lacking_scope_as_an_error_and_goes_on() {
    let authority = Authority::start();
    let server = authority.server();
    let runner = authority.token(json!({"scope": "palisade:run"}));
    let mut socket = Socket::ask(&server, &with(upgrade(), &runner));
    let open = json!({"name": "sandbox_open", "arguments": {}});
    socket.send(TEXT, modern_message(5, "tools/call", open).as_bytes()).unwrap();
    let refused = socket.message();
    assert_eq!(refused["id"], 5, "{refused}");
    let expected = json!({
        "error": "insufficient_scope", "scope": "palisade:run palisade:sandbox", "resource_metadata": METADATA
    });
    assert_eq!(refused["error"]["data"], expected);
    socket.send(TEXT, modern_message(6, "tools/call", call_run("bash", "echo on")).as_bytes()).unwrap();
    assert_eq!(socket.message()["result"]["structuredContent"]["stdout"], "on\n");
}

#[test]
fn the_expiry_of_a_token_ends_its_websocket_and_its_streams() {
    let authority = Authority::start();
    let server = authority.server();
    // The leeway is a minute.
    let short = authority.token(json!({"scope": "palisade:run", "exp": now_s() - 56}));
    let mut socket = Socket::ask(&server, &with(upgrade(), &short));
    let mut wire = server.connect();
    wire.send(&with(Request::run("bash", "sleep 60"), &short).bytes(&server));
    assert!(socket.is_ended());
    let answer = wire.try_answer();
    assert!(answer.as_ref().map_or(true, |answer| answer.status == 401), "{answer:?}");
    assert_eq!(server.ask(&with(Request::run("bash", "true"), &short)).status, 401);
}

#[test]
fn an_unknown_key_is_looked_for_once_in_30_s_and_known_ones_stay_in_force() {
    let authority = Authority::start();
    let server = authority.server();
    // The server reads the keys at its start, and again 30 s later at the earliest: this one was not known before.
    let first = authority.token(json!({"scope": "palisade:run"}));
    assert_eq!(server.ask(&with(Request::run("bash", "true"), &first)).status, 200);
    authority.post("/rotate", &json!({}));
    let second = authority.token(json!({"scope": "palisade:run"}));
    let early = server.ask(&with(Request::run("bash", "true"), &second));
    assert_eq!(early.status, 401, "one attempt in 30 s");
    assert_eq!(server.ask(&with(Request::run("bash", "true"), &first)).status, 200, "kept for ten minutes");
}

#[test]
fn keys_over_tls_need_an_authority_that_is_trusted() {
    let folder = TestFolder::new();
    let options =
        ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
    let Some(made) = certificate_with(folder.path(), "localhost", &options) else { return };
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (certificate, key) = (Path::new(&made.certificate), Path::new(&made.key));
    let authority = Authority::start_with(&[certificate, key]);
    assert!(authority.issuer.starts_with("https://localhost:"));
    // A token of the right form: without the keys of its issuer, a server cannot judge it.
    let part = |value: Value| base64url(value.to_string().as_bytes());
    let claims = json!({"iss": authority.issuer, "aud": RESOURCE, "sub": "a", "exp": now_s() + 600});
    let token =
        format!("{}.{}.{}", part(json!({"alg": "ES256", "kid": "x"})), part(claims), base64url(&[0; 64]));
    let asked = || with(Request::run("bash", "true"), &token);
    let stranger = authority.server().ask(&asked());
    assert_eq!((stranger.status, stranger.header("retry-after")), (503, Some("30")), "{stranger:?}");
    let trusting = authority.server_with(&[("PALISADE_OAUTH_CA_FILE", &made.certificate)]);
    let refused = trusting.ask(&asked());
    assert_eq!(
        refused.status,
        401,
        "the keys were read, and none is named x: {refused:?}\n{}",
        trusting.log()
    );
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |piece: &[u8], at: usize| {
        let bits =
            piece.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - piece.len()));
        char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize])
    };
    bytes.chunks(3).flat_map(|piece| (0..=piece.len()).map(move |at| digit(piece, at))).collect()
}
