//! Each client's file, as the client writes it.

use harness::TestFolder;

use super::*;

fn servers(client: &str, text: &str) -> (Vec<ForeignServer>, Vec<(String, String)>) {
    let source = SOURCES.iter().find(|source| source.client == client).unwrap();
    let imported = taken(PathBuf::new(), table(text, source).unwrap());
    (imported.servers, imported.left_out)
}

fn command(name: &str, words: &[&str], env: &[(&str, &str)]) -> ForeignServer {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let args = words[1..].iter().map(|word| (*word).to_owned()).collect();
    let reached = ForeignReach::Command { command: words[0].to_owned(), args, env, cwd: None };
    ForeignServer { name: name.to_owned(), reached }
}

#[test]
fn each_notation_is_read() {
    let expected = vec![command("git", &["uvx", "mcp-server-git"], &[("TOKEN", "${env:GIT_TOKEN}")])];
    for (client, text) in [
        (
            "claude-code",
            r#"{"mcpServers":{"git":{"type":"stdio","command":"uvx","args":["mcp-server-git"],"env":{"TOKEN":"${GIT_TOKEN:-x}"}}}}"#,
        ),
        (
            "cursor",
            "{\"mcpServers\":{/* c */\"git\":{\"command\":\"uvx\",\"args\":[\"mcp-server-git\"],\"env\":{\"TOKEN\":\"${env:GIT_TOKEN}\"},}}}",
        ),
        (
            "codex",
            "[mcp_servers.git]\ncommand = \"uvx\"\nargs = [\"mcp-server-git\"]\nenv = { TOKEN = \"${GIT_TOKEN}\" }\n",
        ),
        (
            "zed",
            r#"{"context_servers":{"git":{"command":{"path":"uvx","args":["mcp-server-git"]},"env":{"TOKEN":"${GIT_TOKEN}"}}}}"#,
        ),
        (
            "opencode",
            r#"{"mcp":{"git":{"type":"local","command":["uvx","mcp-server-git"],"environment":{"TOKEN":"${GIT_TOKEN}"}}}}"#,
        ),
        (
            "goose",
            "extensions:\n  git:\n    type: stdio\n    cmd: uvx\n    args:\n      - mcp-server-git\n    envs:\n      TOKEN: ${GIT_TOKEN}\n    enabled: true\n",
        ),
    ] {
        assert_eq!(servers(client, text), (expected.clone(), Vec::new()), "{client}");
    }
}

#[test]
fn addresses_have_headers_from_any_field() {
    let text = "[mcp_servers.a]\nurl = \"https://a.example/mcp\"\nbearer_token_env_var = \"T\"\nenv_http_headers = { X = \"V\" }\n";
    let (found, _) = servers("codex", text);
    let ForeignReach::Url { url, headers } = &found[0].reached else { panic!() };
    assert_eq!(url, "https://a.example/mcp");
    assert_eq!((headers["Authorization"].as_str(), headers["X"].as_str()), ("Bearer ${env:T}", "${env:V}"));
    let (found, _) = servers("windsurf", r#"{"mcpServers":{"a":{"serverUrl":"https://a.example/"}}}"#);
    assert_eq!(found.len(), 1);
}

#[test]
fn what_cannot_be_taken_is_told_with_its_reason() {
    let text = r#"{"servers":{"a":{"command":"x","env":{"K":"${input:key}"}},"b":{"type":"sse","url":"https://b.example"},
        "c":{"command":"x","disabled":true},"d":{},"e":{"command":"ok"}}}"#;
    let (found, left_out) = servers("vscode", text);
    assert_eq!((found.len(), left_out.len()), (1, 4));
    assert!(left_out[0].1.contains("asks the client"), "{left_out:?}");
    let deep = format!("a: {}", "[".repeat(50));
    assert!(yaml(&deep).is_err() && yaml("a: &x 1\nb: *x\n").is_err());
}

/// Writes a client's file where the client has it, and reads the servers by the client's name.
fn imported(client: &str, file: &str, text: &str) -> Imported {
    let folder = TestFolder::new();
    let (home, config) = (folder.path().join("home"), folder.path().join("config"));
    folder.file(file, text);
    import(&UserFolders { home: Some(home), config: Some(config) }, client).unwrap()
}

/// The file has a command `git` and an address `hub`, with a header and variables of the user's environment.
fn takes_both(client: &str, file: &str, text: &str) {
    let found = imported(client, file, text);
    assert!(found.path.ends_with(file.split_once('/').unwrap().1), "{}", found.path.display());
    let git = command("git", &["uvx", "mcp-server-git"], &[("TOKEN", "${env:GIT_TOKEN}")]);
    assert!(found.servers.contains(&git), "{client}: {found:?}");
    let hub = found.servers.iter().find(|server| server.name == "hub").expect(client);
    let ForeignReach::Url { url, headers } = &hub.reached else { panic!("{client}: {hub:?}") };
    assert_eq!((url.as_str(), headers.len()), ("https://hub.example/mcp", 1), "{client}");
    assert_eq!(found.servers.len(), 2, "{client}");
}

const COMMON: &str = r#"{"mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${env:GIT_TOKEN}"}},
    "hub": {"type": "http", "url": "https://hub.example/mcp", "headers": {"X-Key": "abc"}}}}"#;

#[test]
fn claude_code_is_imported() {
    takes_both("claude-code", "home/.claude.json", &COMMON.replace("${env:GIT_TOKEN}", "${GIT_TOKEN}"));
}

#[test]
fn claude_desktop_is_imported() {
    takes_both("claude-desktop", "config/Claude/claude_desktop_config.json", COMMON);
}

#[test]
fn cursor_is_imported() {
    takes_both("cursor", "home/.cursor/mcp.json", COMMON);
}

#[test]
fn vscode_is_imported() {
    takes_both("vscode", "config/Code/User/mcp.json", &COMMON.replace("mcpServers", "servers"));
}

#[test]
fn codex_is_imported() {
    let text = "[mcp_servers.git]\ncommand = \"uvx\"\nargs = [\"mcp-server-git\"]\n[mcp_servers.git.env]\nTOKEN = \"${GIT_TOKEN}\"\n\
        [mcp_servers.hub]\nurl = \"https://hub.example/mcp\"\nbearer_token_env_var = \"HUB\"\n";
    takes_both("codex", "home/.codex/config.toml", text);
}

#[test]
fn gemini_is_imported() {
    takes_both("gemini", "home/.gemini/settings.json", &COMMON.replace("\"url\"", "\"httpUrl\""));
}

#[test]
fn windsurf_is_imported_under_its_old_and_its_new_name() {
    let text = COMMON.replace("\"url\"", "\"serverUrl\"");
    takes_both("windsurf", "home/.codeium/windsurf/mcp_config.json", &text);
    let text = COMMON.replace("\"type\": \"http\"", "\"transport\": \"http\"");
    takes_both("windsurf", "config/devin/mcp_config.json", &text);
    takes_both("devin", "config/devin/mcp_config.json", &text);
    let text = COMMON.replace("\"type\": \"http\"", "\"transport\": \"sse\"");
    assert_eq!(imported("devin", "config/devin/mcp_config.json", &text).left_out[0].0, "hub");
}

#[test]
fn zed_is_imported() {
    let text = format!("// settings\n{}", COMMON.replace("mcpServers", "context_servers"));
    takes_both("zed", "config/zed/settings.json", &text);
}

#[test]
fn opencode_is_imported() {
    let text = r#"{"mcp": {
        "git": {"type": "local", "command": ["uvx", "mcp-server-git"], "environment": {"TOKEN": "${GIT_TOKEN}"}},
        "hub": {"type": "remote", "url": "https://hub.example/mcp", "headers": {"X-Key": "abc"}, "enabled": true}}}"#;
    takes_both("opencode", "config/opencode/opencode.json", text);
}

#[test]
fn goose_is_imported() {
    let text = "extensions:\n  git:\n    type: stdio\n    cmd: uvx\n    args: [mcp-server-git]\n    envs: {TOKEN: \"${GIT_TOKEN}\"}\n    enabled: true\n\
        \x20 hub:\n    type: streamable_http\n    uri: https://hub.example/mcp\n    headers: {X-Key: abc}\n    enabled: true\n\
        \x20 developer:\n    type: builtin\n    enabled: true\n";
    takes_both("goose", "config/goose/config.yaml", text);
}
