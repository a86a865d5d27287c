//! Real servers of other makers, in the versions that tests/upstreams/install.sh put into `target/upstreams`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use upstreams::{Dialect, ServerSpec, ServerWall, StdioSpec, Template, ToolHost, Transport, Upstreams};

use crate::stage::{Folder, arguments, call_with, host, owner, query, server, text};

/// Where the servers are, if they were installed.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/upstreams");
    folder.join("stamp").exists().then_some(folder)
}

fn command(words: &[&str]) -> ServerSpec {
    let folder = folder().unwrap();
    let program = folder.join(words[0]);
    let args = words[1..].iter().map(|word| Template::parse(word).unwrap()).collect();
    server(Transport::Stdio(StdioSpec {
        command: program.to_str().unwrap().to_owned(),
        args,
        env: BTreeMap::new(),
        cwd: None,
        wall: ServerWall::None,
    }))
}

/// Starts a server, checks the number of its tools, and that declarations exist in both languages.
async fn started(spec: ServerSpec, state: &Folder, tools_least: usize) -> std::sync::Arc<Upstreams> {
    let host = host(state, spec);
    let (tools, held) = host.list("s", owner(), Duration::from_secs(50)).await.unwrap();
    assert!(tools >= tools_least, "{tools} tools");
    assert_eq!(held, 0, "an ordinary definition is held: {:?}", host.held("s"));
    for dialect in [Dialect::Python, Dialect::TypeScript] {
        assert!(host.stubs(owner(), "s", dialect).await.unwrap().lines().count() > tools);
    }
    host
}

pub(crate) async fn everything_echoes_and_gives_an_image() {
    let state = Folder::new();
    let host = started(command(&["js/node_modules/.bin/mcp-server-everything"]), &state, 5).await;
    let answer = call_with(&host, "echo", arguments(json!({"message": "hello"}))).await.unwrap();
    assert!(text(&answer).contains("hello"));
    let found = host.find(query("image", 5)).await;
    let name = found.tools.iter().find(|tool| tool.name.contains("mage")).unwrap().name.clone();
    let tool = name.split_once('.').unwrap().1;
    let answer = call_with(&host, tool, arguments(json!({}))).await.unwrap();
    let content = answer.result["content"].as_array().unwrap();
    assert!(content.iter().any(|block| block["type"] == "image"), "{content:?}");
    host.close().await;
}

pub(crate) async fn filesystem_reads_and_writes() {
    let state = Folder::new();
    let data = state.0.join("data");
    std::fs::create_dir(&data).unwrap();
    let path = data.canonicalize().unwrap();
    let host =
        started(command(&["js/node_modules/.bin/mcp-server-filesystem", path.to_str().unwrap()]), &state, 8)
            .await;
    let file = path.join("a.txt");
    let written = json!({"path": file, "content": "12345678901234567890"});
    call_with(&host, "write_file", arguments(written)).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "12345678901234567890");
    let read = call_with(&host, "read_text_file", arguments(json!({ "path": file }))).await.unwrap();
    assert_eq!(text(&read), "12345678901234567890");
    let outside =
        call_with(&host, "read_text_file", arguments(json!({"path": "/etc/hostname"}))).await.unwrap();
    assert!(outside.is_error());
    host.close().await;
}

pub(crate) async fn memory_remembers() {
    let state = Folder::new();
    let mut spec = command(&["js/node_modules/.bin/mcp-server-memory"]);
    let Transport::Stdio(stdio) = &mut spec.transport else { panic!() };
    let file = state.0.join("memory.jsonl");
    stdio.env.insert("MEMORY_FILE_PATH".to_owned(), Template::parse(file.to_str().unwrap()).unwrap());
    let host = started(spec, &state, 5).await;
    let entity = json!({"entities": [{"name": "wall", "entityType": "thing", "observations": ["it holds"]}]});
    call_with(&host, "create_entities", arguments(entity)).await.unwrap();
    let graph = call_with(&host, "read_graph", arguments(json!({}))).await.unwrap();
    assert!(text(&graph).contains("it holds"));
    host.close().await;
}

pub(crate) async fn git_shows_a_status() {
    let state = Folder::new();
    let repository = state.0.join("repository");
    let git = std::process::Command::new("git").arg("init").arg("-q").arg(&repository).status().unwrap();
    assert!(git.success());
    let host = started(command(&["py/bin/mcp-server-git"]), &state, 8).await;
    let answer = call_with(&host, "git_status", arguments(json!({ "repo_path": repository }))).await.unwrap();
    assert!(text(&answer).contains("branch"), "{}", text(&answer));
    host.close().await;
}

pub(crate) async fn time_tells_the_time() {
    let state = Folder::new();
    let host = started(command(&["py/bin/mcp-server-time", "--local-timezone", "UTC"]), &state, 2).await;
    let answer = call_with(&host, "get_current_time", arguments(json!({"timezone": "UTC"}))).await.unwrap();
    assert!(text(&answer).contains("UTC"));
    host.close().await;
}
