//! Persistent sandboxes for tests: one per user, with its server.

use harness::mcp::Client;
use harness::{User, users};
use serde_json::{Value, json};

use crate::outcome;

/// Calls the test with a server and an open sandbox of each user.
pub fn in_a_sandbox(limits: Value, test: impl Fn(&Client, &str)) {
    for_each_user(limits, |client, sandbox, _| test(client, sandbox));
}

/// Calls the test with a server, an open sandbox, and the user whose they are.
pub fn for_each_user(limits: Value, test: impl Fn(&Client, &str, User)) {
    for user in users() {
        let client = Client::new(user);
        let sandbox = client.open(json!({"limits": limits}));
        test(&client, &sandbox, user);
        assert!(client.end().success());
    }
}

/// What a completed run wrote.
pub fn stdout(result: &Value) -> &str {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}
