//! Walls with an OCI runtime or an engine through the product: persistent sandboxes, hosts of the web, tools of other
//! servers. They need only the stream to the guest, so each works behind each wall. What is not installed is skipped by
//! name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use functional::gate::Gate;
use functional::outcome;
use harness::behind::Behind;
use harness::mcp::Client;
use harness::{Build, Palisade, TestFolder, User};
use serde_json::{Value, json};

/// How long a server may take to remove what a killed one left.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);

fn stdout(result: &Value) -> &str {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}

/// A server with that wall alone, over a state directory of the test.
fn server(folder: &TestFolder, behind: &Behind) -> Client {
    let state = folder.path().join("state");
    let palisade = behind.make_default(Palisade::new(Build::Real, User::Root, &["mcp"]));
    Client::start(palisade.env("PALISADE_STATE_DIR", state.to_str().unwrap()))
}

fn files_last_over_a_restart(wall: &'static str) {
    let Some(behind) = Behind::new(wall) else { return };
    let folder = TestFolder::new();
    let mut first = server(&folder, &behind);
    let sandbox = first.open(json!({}));
    let written = first.run(
        &sandbox,
        "python",
        "x = 5\nopen('kept', 'w').write('of before')\nprint(open('kept').read())",
    );
    assert_eq!(stdout(&written), "of before\n");
    let alive = first.begin_run(&sandbox, "python", "print(x + 1)", json!({})).result();
    assert_eq!(stdout(&alive), "6\n", "the interpreter lives on");
    assert_eq!(alive["isolation"]["backend"], wall, "{alive:#}");
    let changed = first.run(&sandbox, "bash", "cat kept; echo more >> kept");
    assert_eq!(stdout(&changed), "of before");
    first.kill();
    let second = server(&folder, &behind);
    let read = second.run(&sandbox, "python", "print(open('kept').read(), 'x' in globals())");
    assert_eq!(stdout(&read), "of beforemore\n False\n");
    let read = second.call("read_file", json!({"sandbox_id": sandbox, "path": "kept"}));
    assert_eq!(read["text"], "of beforemore\n", "{read:#}");
    let closed = second.call("sandbox_close", json!({"sandbox_id": sandbox}));
    assert_eq!(closed["closed"], true, "{closed:#}");
    wait_for_sweep(&folder, wall);
    second.end();
    assert_eq!(behind.left(), [""; 0], "left behind {wall}");
}

/// Waits until the only server that has a directory of this wall is the one that runs.
fn wait_for_sweep(folder: &TestFolder, wall: &str) {
    let servers = folder.path().join("state/walls").join(wall);
    let deadline = Instant::now() + SWEEP_PATIENCE;
    while fs::read_dir(&servers).unwrap().count() > 1 {
        assert!(Instant::now() < deadline, "the killed server's directory is still there behind {wall}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn files_last_over_a_restart_behind_runc() {
    files_last_over_a_restart("runc");
}

#[test]
fn files_last_over_a_restart_behind_crun() {
    files_last_over_a_restart("crun");
}

#[test]
fn files_last_over_a_restart_behind_gvisor() {
    files_last_over_a_restart("gvisor");
}

#[test]
fn files_last_over_a_restart_behind_docker() {
    files_last_over_a_restart("docker");
}

#[test]
fn files_last_over_a_restart_behind_podman() {
    files_last_over_a_restart("podman");
}

const FETCH: &str = r#"
import ssl, urllib.request
trust = ssl.create_default_context(cafile="certificate.pem")
def fetch(url):
    try: return urllib.request.urlopen(url, context=trust, timeout=20).read().decode().strip()
    except Exception as error: return str(getattr(error, "reason", error))
print(fetch("https://origin.example:@TLS/a"))
print(fetch("http://origin.example:@PLAIN/b"))
print("denied" if "Palisade: " in fetch("https://evil.example/") else "reached")
"#;

/// In a fresh sandbox and in a persistent one.
fn an_allowed_host_is_reached(wall: &'static str) {
    let Some(behind) = Behind::new(wall) else { return };
    let Some(gate) = Gate::start("") else { return };
    let client = Client::start(behind.make_default(gate.palisade(User::Root, &["mcp"])));
    let certificate = fs::read_to_string(gate.certificate()).unwrap();
    let sandbox = client.open(json!({"access": ["web"]}));
    for of in [Value::Null, json!(sandbox)] {
        let mut call = json!({"language": "python", "code": gate.with_ports(FETCH), "access": ["web"],
                              "timeout_ms": 60_000, "inputs": [{"path": "certificate.pem", "text": certificate}]});
        if !of.is_null() {
            call["sandbox_id"] = of;
        }
        let result = client.call("run", call);
        assert_eq!(stdout(&result), "hello /a\nhello /b\ndenied\n");
        assert_eq!(result["isolation"]["backend"], wall, "{result:#}");
    }
    client.end();
}

#[test]
fn an_allowed_host_is_reached_behind_runc() {
    an_allowed_host_is_reached("runc");
}

#[test]
fn an_allowed_host_is_reached_behind_crun() {
    an_allowed_host_is_reached("crun");
}

#[test]
fn an_allowed_host_is_reached_behind_gvisor() {
    an_allowed_host_is_reached("gvisor");
}

#[test]
fn an_allowed_host_is_reached_behind_docker() {
    an_allowed_host_is_reached("docker");
}

#[test]
fn an_allowed_host_is_reached_behind_podman() {
    an_allowed_host_is_reached("podman");
}

fn a_tool_of_another_server_is_called(wall: &'static str) {
    let Some(behind) = Behind::new(wall) else { return };
    let folder = TestFolder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../origin/upstream.py");
    let config = format!(
        "[tools.servers.small]\nabout = \"the test server\"\ncommand = \"python3\"\nargs = [{script:?}, {:?}]\n\
         wall = \"none\"\n",
        folder.path().join("pid")
    );
    folder.file("config/palisade/palisade.toml", config);
    let (config, state) = (folder.path().join("config"), folder.path().join("state"));
    let palisade = |args: &[&str]| {
        let palisade = behind.make_default(Palisade::new(Build::Real, User::Root, args));
        palisade
            .env("XDG_CONFIG_HOME", config.to_str().unwrap())
            .env("PALISADE_STATE_DIR", state.to_str().unwrap())
    };
    let ended = palisade(&["tools", "accept", "small"]).end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let client = Client::start(palisade(&["mcp"]));
    let code = "print(tools.small.echo(a=7))";
    let result = client.call("run", json!({"language": "python", "code": code, "access": ["small"]}));
    assert_eq!(stdout(&result), "{'a': 7}\n");
    assert_eq!((&result["tools"]["calls"], &result["isolation"]["backend"]), (&json!(1), &json!(wall)));
    client.end();
}

#[test]
fn a_tool_of_another_server_is_called_behind_runc() {
    a_tool_of_another_server_is_called("runc");
}

#[test]
fn a_tool_of_another_server_is_called_behind_crun() {
    a_tool_of_another_server_is_called("crun");
}

#[test]
fn a_tool_of_another_server_is_called_behind_gvisor() {
    a_tool_of_another_server_is_called("gvisor");
}

#[test]
fn a_tool_of_another_server_is_called_behind_docker() {
    a_tool_of_another_server_is_called("docker");
}

#[test]
fn a_tool_of_another_server_is_called_behind_podman() {
    a_tool_of_another_server_is_called("podman");
}
