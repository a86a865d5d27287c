//! Uploads that do not end: their drafts do not stay in the workspace and do not count for its quota.

use std::path::{Path, PathBuf};

use functional::http::{Request, Server, Wire};
use functional::{SOON, files_beneath, until};
use harness::{state_dir, users};
use serde_json::{Value, json};

const MB: usize = 1 << 20;

fn call(server: &Server, tool: &str, arguments: Value) -> Value {
    let answer = server.ask(&Request::modern("tools/call", json!({"name": tool, "arguments": arguments})));
    answer.result()["structuredContent"].clone()
}

fn drafts() -> Vec<PathBuf> {
    let beneath = files_beneath(&state_dir(users()[0]).join("sandboxes"));
    let is_draft = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".palisade-draft-"))
    };
    beneath.into_iter().filter(is_draft).collect()
}

/// Sends the first 6 MB of an upload of 7 MB, and waits until its draft exists.
fn begin(server: &Server, sandbox: &str) -> Wire {
    let offered = call(server, "write_file", json!({"sandbox_id": sandbox, "path": "big"}));
    let url = offered["upload_url"].as_str().unwrap_or_else(|| panic!("{offered}")).to_owned();
    let path = url.splitn(4, '/').nth(3).unwrap();
    let head = Request::new("PUT", &format!("/{path}"), Vec::new()).without("Content-Length");
    let mut wire = server.connect();
    wire.send(&head.header("Content-Length", &(7 * MB).to_string()).bytes(server));
    wire.send(&vec![b'x'; 6 * MB]);
    until(SOON, "the draft exists", || (!drafts().is_empty()).then_some(()));
    wire
}

/// Fails unless 7 MB fit beside nothing else in a workspace of 8 MB.
fn has_room(server: &Server, sandbox: &str) {
    let text = "y".repeat(7 * MB);
    let written = call(server, "write_file", json!({"sandbox_id": sandbox, "path": "whole", "text": text}));
    assert_eq!(written["size_bytes"], 7 * MB, "{written}");
}

fn open(server: &Server) -> String {
    let opened = call(server, "sandbox_open", json!({"limits": {"disk_mb": 8}}));
    opened["sandbox_id"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
}

#[test]
fn an_upload_whose_connection_breaks_leaves_nothing() {
    let server = Server::start();
    let sandbox = open(&server);
    drop(begin(&server, &sandbox));
    until(SOON, "the draft is gone", || drafts().is_empty().then_some(()));
    has_room(&server, &sandbox);
}

#[test]
fn a_killed_server_leaves_no_draft_to_the_next_one() {
    let server = Server::start();
    let sandbox = open(&server);
    let wire = begin(&server, &sandbox);
    drop(server);
    drop(wire);
    assert_eq!(drafts().len(), 1, "the server was killed");
    let server = Server::start();
    has_room(&server, &sandbox);
    assert_eq!(drafts(), Vec::<PathBuf>::new());
}

#[test]
fn a_run_sees_no_draft_of_a_killed_server() {
    let server = Server::start();
    let sandbox = open(&server);
    let wire = begin(&server, &sandbox);
    drop(server);
    drop(wire);
    let server = Server::start();
    let code = "ls -A; head -c 7000000 /dev/zero > own && echo fits";
    let ran = call(&server, "run", json!({"language": "bash", "code": code, "sandbox_id": sandbox}));
    assert_eq!(ran["stdout"], "fits\n", "{ran:#}");
}

#[test]
fn a_server_leaves_alone_what_another_one_is_writing() {
    let (writing, other) = (Server::start(), Server::start());
    let sandbox = open(&writing);
    let mut wire = begin(&writing, &sandbox);
    let listed = call(&other, "list_files", json!({"sandbox_id": sandbox}));
    assert!(listed["entries"].is_array(), "{listed}");
    let refused =
        call(&other, "write_file", json!({"sandbox_id": sandbox, "path": "w", "text": "y".repeat(7 * MB)}));
    assert_eq!(refused["error"]["code"], "disk_full", "{refused}");
    wire.send(&vec![b'x'; MB]);
    assert_eq!(wire.answer().status, 201);
    assert!(
        Path::new(&state_dir(users()[0])).join("sandboxes").join(&sandbox).join("workspace/big").exists()
    );
}
