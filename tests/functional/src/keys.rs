//! Keys of the state directory that a test's servers share, and requests that show them.

use std::time::{Duration, Instant};

use harness::{Build, Ended, Palisade, users};
use serde_json::{Value, json};

use crate::http::{Answer, Request, Server};

/// What a revocation may take on every server.
pub const SECOND: Duration = Duration::from_secs(1);

/// `palisade keys ARGS` as the user of the servers.
pub fn keys(args: &[&str]) -> Ended {
    Palisade::new(Build::Real, users()[0], &["keys"]).args(args).end()
}

/// A new key with these scopes (with commas) and the policy `open`.
pub fn create(name: &str, scopes: &str) -> String {
    printed(&["create", name, "--scope", scopes, "--policy", "open"])
}

/// The key that a command prints.
pub fn printed(args: &[&str]) -> String {
    let ended = keys(args);
    assert_eq!(ended.status.code(), Some(0), "{args:?}: {}", ended.stderr);
    let key = ended.stdout.strip_suffix('\n').expect("a line").to_owned();
    assert!(key.starts_with("plsk_") && !key.contains(char::is_whitespace), "{key}");
    assert!(!ended.stderr.contains(&key), "{}", ended.stderr);
    key
}

/// Ends a key.
pub fn revoke(name: &str) {
    let ended = keys(&["revoke", name]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

/// The same request, which shows that bearer.
pub fn showing(request: Request, bearer: &str) -> Request {
    request.header("Authorization", &format!("Bearer {bearer}"))
}

/// The status of a request that shows that bearer: 200 for every known caller. The page needs no language to be ready.
pub fn status(server: &Server, bearer: &str) -> u16 {
    match server.ask(&showing(Request::get("/metrics"), bearer)).status {
        403 => 200,
        status => status,
    }
}

/// Calls a tool with that key.
pub fn call(server: &Server, key: &str, tool: &str, arguments: Value) -> Value {
    let call = Request::modern("tools/call", json!({"name": tool, "arguments": arguments}));
    let answer: Answer = server.ask(&showing(call, key));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.result()["structuredContent"].clone()
}

/// How long it takes until a server answers that bearer with that status; at most ten seconds.
pub fn time_until(server: &Server, bearer: &str, wanted: u16) -> Duration {
    let begun = Instant::now();
    while status(server, bearer) != wanted && begun.elapsed() < SECOND * 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    begun.elapsed()
}
