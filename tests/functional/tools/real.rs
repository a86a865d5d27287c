//! A task over three real servers of other makers in one run, which takes more than twenty calls otherwise.

use std::fs;
use std::path::Path;
use std::process::Command;

use functional::outcome;
use harness::mcp::Client;
use serde_json::json;

use super::{Upstream, real_servers};

const SURVEY: &str = include_str!("../../../examples/tools/survey.py");
const FILES: usize = 20;
const PIXEL: &[u8] = &[
    0x89, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8,
    6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 13, b'I', b'D', b'A', b'T', 0x78, 0xda, 0x63, 0xfc, 0xcf,
    0xc0, 0x50, 0x0f, 0, 4, 0x85, 1, 0x80, 0x84, 0xa9, 0x8c, 0x21, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae,
    0x42, 0x60, 0x82,
];

fn git(repository: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
    let done = Command::new("git").arg("-C").arg(repository).args(identity).args(args).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A repository with one commit for each file.
fn repository(path: &Path) {
    fs::create_dir(path).unwrap();
    git(path, &["init", "-q"]);
    for number in 0..FILES {
        let code = format!("def part_{number}():\n    # TODO: handle case {number}\n    return {number}\n");
        fs::write(path.join(format!("part_{number}.py")), code).unwrap();
        git(path, &["add", "-A"]);
        git(path, &["commit", "-qm", &format!("add part {number}")]);
    }
    fs::write(path.join("logo.png"), PIXEL).unwrap();
}

#[test]
fn a_task_over_three_real_servers_takes_one_run_and_an_image_comes_back() {
    let Some(servers) = real_servers() else { return };
    let upstream = Upstream::empty();
    let repository_path = upstream.path("repository");
    repository(&repository_path);
    let section = |name: &str, command: &str, more: &str| {
        let program = servers.join(command);
        format!("[tools.servers.{name}]\ncommand = {program:?}\nwall = \"none\"\nallow = [\"*\"]\n{more}\n")
    };
    let memory_file = upstream.path("memory.jsonl");
    upstream.configure(
        &[
            section(
                "filesystem",
                "js/node_modules/.bin/mcp-server-filesystem",
                &format!("args = [{repository_path:?}]"),
            ),
            section("git", "py/bin/mcp-server-git", ""),
            section(
                "memory",
                "js/node_modules/.bin/mcp-server-memory",
                &format!("env = {{ MEMORY_FILE_PATH = {memory_file:?} }}"),
            ),
        ]
        .concat(),
    );
    let client = Client::start(upstream.palisade(&["mcp"]));
    let code =
        format!("{SURVEY}\ndisplay(tools.filesystem.read_media_file(path=repository + '/logo.png'))\n");
    let whole = client.call_whole(
        "run",
        json!({"language": "python", "code": code, "access": ["filesystem", "git", "memory"],
            "timeout_ms": 60_000, "variables": {"repository": repository_path}}),
    );
    let result = &whole["structuredContent"];
    assert_eq!(outcome(result), "completed", "{whole:#}");
    assert_eq!(result["stdout"], "20 files, 20 open points, 20 relations\nAda: 20\n", "{whole:#}");
    assert!(result["tools"]["calls"].as_u64().unwrap() > 20, "{whole:#}");
    assert_eq!(result["tools"]["by_server"].as_object().unwrap().len(), 3, "{whole:#}");
    let pictures = whole["content"].as_array().unwrap().iter().filter(|block| block["type"] == "image");
    assert_eq!(pictures.count(), 1, "{whole:#}");
    let graph = fs::read_to_string(memory_file).unwrap();
    assert!(graph.contains("handle case 7") && graph.contains("left work in"), "{graph}");
}
