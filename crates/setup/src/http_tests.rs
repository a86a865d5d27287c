//! Every client that supports an address, each in a separate home directory.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::super::clients::{CLIENTS, Client, Places, Reach};
use super::super::{Connection, Task};
use super::*;
use harness::TestFolder;

const URL: &str = "https://tools.example/mcp";

fn places(folder: &TestFolder) -> Places {
    let (home, project) = (folder.path().join("home"), folder.path().join("project"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&project).unwrap();
    Places { config: home.join(".config"), home, claude: None, codex: None, project }
}

fn task(client: &'static Client, remote: Remote) -> Task {
    let connection = Connection::Http(client.http.unwrap(), remote);
    Task { client, reach: Reach::User, name: "palisade".to_owned(), connection }
}

fn with_token() -> Remote {
    Remote::new(Some(URL), Some(TOKEN_VARIABLE)).unwrap()
}

/// The place of each client's list of servers, and the written entry.
#[test]
fn what_is_written_for_each_client_is_as_before() {
    let at = |path: &str| std::path::PathBuf::from(path);
    let (home, config, project) = (at("HOME"), at("CONFIG"), at("PROJECT"));
    let places = Places { home, config, claude: None, codex: None, project };
    let path = |client: &Client, reach| client.path(reach, &places).map(|path| path.display().to_string());
    let told = CLIENTS.iter().map(|client| {
        json!({
            "client": client.name,
            "file": path(client, Reach::User),
            "project_file": path(client, Reach::Project),
            "format": format!("{:?}", client.format),
            "container": client.container,
            "program": client.entry("palisade"),
            "address": client.http.map(|shape| with_token().entry(&shape)),
            "then": client.after,
        })
    });
    let told: Vec<_> = told.collect();
    insta::assert_snapshot!("clients", serde_json::to_string_pretty(&told).unwrap());
}

#[test]
fn the_entries_have_the_shape_that_their_clients_read() {
    let entry = |name: &str| {
        let client = Client::by_name(name).unwrap();
        client.http.map(|shape| with_token().entry(&shape))
    };
    let header = |value: &str| json!({ "Authorization": value });
    let (braces, env) = ("Bearer ${PALISADE_TOKEN}", "Bearer ${env:PALISADE_TOKEN}");
    let typed = |value: &str| Some(json!({ "type": "http", "url": URL, "headers": header(value) }));
    assert_eq!(entry("claude-code"), typed(braces));
    assert_eq!(entry("gemini"), typed(braces));
    assert_eq!(entry("vscode"), typed(env));
    assert_eq!(entry("cursor"), Some(json!({ "url": URL, "headers": header(env) })));
    assert_eq!(entry("windsurf"), Some(json!({ "serverUrl": URL, "headers": header(env) })));
    assert_eq!(entry("codex"), Some(json!({ "url": URL, "bearer_token_env_var": "PALISADE_TOKEN" })));
    assert_eq!(entry("zed"), Some(json!({ "url": URL })));
    assert_eq!(entry("claude-desktop"), None);
}

#[test]
fn an_address_is_written_once_and_replaces_another_program_only_by_force() {
    for client in CLIENTS.iter().filter(|client| client.http.is_some()) {
        let folder = TestFolder::new();
        let places = places(&folder);
        let program = Connection::Program("/opt/other".to_owned());
        let local = Task { client, reach: Reach::User, name: "palisade".to_owned(), connection: program };
        local.set_up(&places, false).unwrap();
        let task = task(client, with_token());
        let error = task.set_up(&places, false).unwrap_err();
        assert!(matches!(error, SetupError::Differs { .. }), "{}: {error}", client.name);
        assert!(task.set_up(&places, true).unwrap().contains("was replaced in"));
        assert!(task.set_up(&places, false).unwrap().contains("already set up"), "{}", client.name);
        let path = client.path(Reach::User, &places).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(URL) && !text.contains("/opt/other"), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn what_to_do_about_the_token_is_said_and_shown_without_its_text() {
    let folder = TestFolder::new();
    let places = places(&folder);
    for client in CLIENTS.iter().filter(|client| client.http.is_some()) {
        let said = task(client, with_token()).set_up(&places, false).unwrap();
        let expected = if client.name == "zed" { "reads no variables" } else { "PALISADE_TOKEN set to" };
        assert!(said.contains(expected), "{said}");
        let shown = task(client, with_token()).print(&places).unwrap();
        assert!(shown.contains(URL) && shown.contains(expected), "{shown}");
        let open = Remote::new(Some(URL), None).unwrap();
        let said = task(client, open).print(&places).unwrap();
        assert!(!said.contains("PALISADE_TOKEN") && !said.contains("Authorization"), "{said}");
    }
}

#[test]
fn a_token_does_not_travel_in_the_open() {
    for private in ["http://127.0.0.1:8808/mcp", "http://localhost/mcp", "http://[::1]:1/mcp", URL] {
        assert!(Remote::new(Some(private), Some("TOKEN")).is_ok(), "{private}");
    }
    for open in ["http://tools.example/mcp", "http://192.0.2.1/mcp", "http://localhost.evil.example/mcp"] {
        let error = Remote::new(Some(open), Some("TOKEN")).unwrap_err();
        assert!(matches!(error, SetupError::TokenInTheOpen { .. }), "{open}");
        assert!(Remote::new(Some(open), None).is_ok(), "{open}: no token, nothing to see");
    }
}

#[test]
fn addresses_are_addresses() {
    let url = |text: &str| Remote::new(Some(text), None).map(|remote| remote.url);
    assert_eq!(url("https://tools.example").unwrap(), URL);
    assert_eq!(url("https://tools.example/").unwrap(), URL);
    assert_eq!(url("https://tools.example/sandbox/mcp").unwrap(), "https://tools.example/sandbox/mcp");
    assert_eq!(Remote::new(None, Some("T")).unwrap().url, "http://127.0.0.1:8808/mcp");
    for bad in [
        "",
        "tools.example",
        "unix:/run/p.sock",
        "ftp://tools.example/mcp",
        "https://me:secret@tools.example/mcp",
        "https://${HOST}/mcp",
        "https://tools.example/mcp?token=secret",
        "https://tools.example/mcp#x",
        "https://tools.example/\"x",
        "https://tools.example/a b",
        "https:///mcp",
    ] {
        assert!(matches!(url(bad), Err(SetupError::BadUrl { .. })), "{bad}");
    }
    for bad in ["", "A B", "A-B", "$A", "1A", "A}"] {
        assert!(matches!(Remote::new(None, Some(bad)), Err(SetupError::BadVariable)), "{bad}");
    }
}
