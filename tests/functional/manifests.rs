//! The files in `manifests/` say what a running server says.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use functional::SOON;
use harness::{Build, Palisade, User};
use serde_json::{Value, json};

const LINES_MAX: usize = 64;

fn manifest(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Who it is does not matter.
fn user() -> User {
    harness::users()[0]
}

/// `palisade mcp` with a client that waits for each answer; killed when dropped.
struct Client {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    fn start() -> Self {
        let on = Palisade::new(Build::Real, user(), &["mcp"]).env("PALISADE_PACKAGES_ENABLED", "true");
        let mut command = on.into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        Self { child, input, lines }
    }

    fn tell(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.tell(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let line = self.lines.recv_timeout(SOON).expect("an answer in time");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Leaves only the languages that the server has. `run` names all, and some tools only those that they are for.
fn restrict(tools: &mut Value, all: &Value, working: &Value) {
    let works = |language: &Value| working.as_array().unwrap().contains(language);
    for tool in tools.as_array_mut().unwrap() {
        let is_run = tool["name"] == "run";
        if let Some(language) = tool.pointer_mut("/inputSchema/properties/language/enum") {
            assert!(!is_run || language == all, "the manifest has every language");
            language.as_array_mut().unwrap().retain(works);
        }
    }
}

#[test]
fn the_published_tools_are_those_that_a_server_answers_with() {
    let kept = manifest("tools.json");
    let mut client = Client::start();
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "manifests", "version": "1" },
    });
    let begun = client.ask(1, "initialize", &params);
    assert_eq!((&begun["serverInfo"], &begun["instructions"]), (&kept["server"], &kept["instructions"]));
    client.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let served = client.ask(2, "tools/list", &json!({}))["tools"].clone();
    let run = served.as_array().unwrap().iter().find(|tool| tool["name"] == "run").expect("a language works");
    let working = run["inputSchema"]["properties"]["language"]["enum"].clone();
    let is_known = |language: &Value| kept["languages"].as_array().unwrap().contains(language);
    assert!(working.as_array().unwrap().iter().all(is_known), "{working}");
    let mut tools = kept["tools"].clone();
    restrict(&mut tools, &kept["languages"], &working);
    assert_eq!(served, tools, "write the manifests anew: cargo xtask manifests");
}

#[test]
fn the_published_protocol_versions_are_those_that_a_server_speaks() {
    let kept = manifest("tools.json");
    let mut client = Client::start();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "manifests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.ask(1, "server/discover", &json!({ "_meta": meta }));
    assert_eq!(found["supportedVersions"], kept["protocol_versions"], "{found}");
}

#[test]
fn the_role_that_manifests_are_made_of_says_the_same() {
    let ended = Palisade::new(Build::Real, user(), &["__manifest"]).end();
    let published: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let kept = manifest("tools.json");
    for (part, value) in published.as_object().unwrap() {
        assert_eq!(value, &kept[part], "{part}: write the manifests anew: cargo xtask manifests");
    }
}

#[test]
fn every_manifest_is_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for name in ["server.json", "mcpb/manifest.json"] {
        assert_eq!(manifest(name)["version"], version, "{name}");
    }
    assert_eq!(manifest("tools.json")["server"]["version"], version);
}
