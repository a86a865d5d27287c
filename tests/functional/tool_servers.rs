//! Tool servers behind the wall: real ones work, a hostile one achieves nothing, and none survives its Palisade.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use functional::{SOON, until};
use harness::{Build, Ended, Palisade, TestFolder, User};
use serde_json::Value;

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../origin/hostile_upstream.py");
/// An account that is not root, for directories that servers may write.
const OWNER: u32 = 1000;

/// A user with a configuration, and directories beside it.
struct Home {
    folder: TestFolder,
}

impl Home {
    fn new(config: &str) -> Self {
        let folder = TestFolder::new();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder.file("config/palisade/palisade.toml", config.replace("{}", folder.path().to_str().unwrap()));
        Self { folder }
    }

    /// The hostile server, with and without a wall.
    fn hostile(more: &str) -> Self {
        let server = |name: &str, more: &str| {
            format!(
                "[tools.servers.{name}]\ncommand = \"python3\"\nargs = [{HOSTILE:?}]\nallow = [\"*\"]\n{more}\n"
            )
        };
        Self::new(&format!("{}{}", server("walled", more), server("bare", "wall = \"none\"")))
    }

    /// A directory of somebody who is not root.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        path
    }

    fn palisade(&self, args: &[&str]) -> Palisade {
        let (config, state) = (self.folder.path().join("config"), self.folder.path().join("state"));
        Palisade::new(Build::Real, User::Root, args)
            .env("XDG_CONFIG_HOME", config.to_str().unwrap())
            .env("HOME", self.folder.path().to_str().unwrap())
            .env("PALISADE_STATE_DIR", state.to_str().unwrap())
            .env("GIVEN_TO_TOOLS", "a-credential")
            .within(Duration::from_secs(120))
    }

    fn ended(&self, args: &[&str]) -> Ended {
        self.palisade(args).end()
    }

    /// The text that a tool answers.
    fn call(&self, name: &str, arguments: &Value) -> String {
        let ended = self.ended(&["tools", "call", name, "--json", &arguments.to_string()]);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let result: Value = serde_json::from_str(&ended.stdout).unwrap();
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: these tests give directories to another user, and need root");
    }
    is_root
}

/// The processes whose command line has this mark.
fn marked(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    // The command line of Palisade itself contains the mark as an argument of the call.
    lines.filter(|line| line.contains(mark) && line.contains("time.sleep")).collect()
}

fn mark(name: &str) -> String {
    format!("palisade-test-{name}-{}", std::process::id())
}

#[test]
fn a_hostile_server_cannot_read_the_home_directory() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("");
    let secret = home.folder.file("secret", "hunter2");
    let ask = serde_json::json!({ "path": secret });
    assert_eq!(home.call("bare.read", &ask), "hunter2");
    let answer = home.call("walled.read", &ask);
    assert!(answer.starts_with("failed:") && answer.contains("No such file"), "{answer}");
    // Neither what the whole machine has, nor the state of Palisade.
    for path in ["/etc/shadow", "/root/.bashrc", "/proc/1/environ"] {
        let answer = home.call("walled.read", &serde_json::json!({ "path": path }));
        assert!(answer.starts_with("failed:"), "{path}: {answer}");
    }
}

#[test]
fn a_hostile_server_cannot_connect_to_loopback() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ask = serde_json::json!({"port": listener.local_addr().unwrap().port()});
    assert_eq!(home.call("bare.connect", &ask), "connected");
    let answer = home.call("walled.connect", &ask);
    assert!(answer.starts_with("failed:"), "{answer}");
}

#[test]
fn a_hostile_server_leaves_no_process_with_or_without_a_wall() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("");
    for server in ["walled", "bare"] {
        let mark = mark(&format!("left-{server}"));
        assert_eq!(home.call(&format!("{server}.leave"), &serde_json::json!({ "mark": mark })), "left");
        until(SOON, "the end of the process", || marked(&mark).is_empty().then_some(()));
    }
}

#[test]
fn a_server_writes_only_what_it_may_write() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("read = [\"{}/input\"]\nwrite = [\"{}/output\"]");
    let (input, output) = (home.directory("input"), home.directory("output"));
    // Readable by its owner alone.
    let private = home.folder.file("input/private", "data");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&private, Some(OWNER), Some(OWNER)).unwrap();
    let write = |path: &Path| serde_json::json!({"path": path, "text": "x"});
    assert_eq!(home.call("walled.read", &serde_json::json!({ "path": private })), "data");
    assert_eq!(home.call("walled.write", &write(&output.join("made"))), "written");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(output.join("made")).unwrap()), OWNER);
    for path in [input.join("made"), private] {
        let answer = home.call("walled.write", &write(&path));
        assert!(answer.starts_with("failed:"), "{}: {answer}", path.display());
    }
    // Beside its directories the server has the sandbox's own /tmp, and nothing of it is seen outside.
    let beside = home.folder.path().join("made");
    home.call("walled.write", &write(&beside));
    assert!(!beside.exists());
}

#[test]
fn a_directory_of_root_is_not_written_and_the_error_says_what_to_do() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("write = [\"{}/output\"]");
    fs::create_dir(home.folder.path().join("output")).unwrap();
    let ended = home.ended(&["tools", "call", "walled.environment"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("belongs to root") && ended.stderr.contains("chown"), "{ended:?}");
}

#[test]
fn a_server_has_its_own_credential_and_no_other_variable_and_results_do_not_show_it() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("env = { TOKEN = \"${env:GIVEN_TO_TOOLS}\" }");
    let environment: Value =
        serde_json::from_str(&home.call("walled.environment", &serde_json::json!({}))).unwrap();
    assert_eq!(environment["TOKEN"], "[redacted]", "{environment}");
    assert!(environment.get("GIVEN_TO_TOOLS").is_none(), "{environment}");
    assert_eq!(environment["HOME"], "/home/agent");
    assert_eq!(environment["PALISADE_TOOLS_DEPTH"], "1");
}

#[test]
fn a_server_reaches_the_web_only_by_its_own_access() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("access = [\"web\"]\n[access.web]\negress = [\"allowed.example\"]\n");
    let environment: Value =
        serde_json::from_str(&home.call("walled.environment", &serde_json::json!({}))).unwrap();
    assert_eq!(environment["http_proxy"], "http://127.0.0.1:3128", "{environment}");
    // The gate refuses before it asks for a name.
    let ask = serde_json::json!({"port": 3128, "url": "http://denied.example/"});
    let answer = home.call("walled.ask", &ask);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn a_killed_palisade_leaves_no_walled_server_in_mid_call() {
    if !is_root() {
        return;
    }
    let home = Home::hostile("");
    let mark = mark("killed");
    let arguments = serde_json::json!({ "mark": mark }).to_string();
    let command = home.palisade(&["tools", "call", "walled.sleep", "--json", &arguments]).into_command();
    let mut command = command;
    let mut child =
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    until(Duration::from_secs(60), "the call", || (!marked(&mark).is_empty()).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    until(Duration::from_secs(2), "the end of the server", || marked(&mark).is_empty().then_some(()));
}

#[test]
fn adding_a_server_says_what_it_lacks_and_doctor_names_servers_without_a_wall() {
    if !is_root() {
        return;
    }
    let home = Home::new("");
    let data = home.directory("data");
    let data = data.to_str().unwrap();
    let add = |name: &str, more: &[&str]| {
        let mut args = vec!["tools", "add", name];
        args.extend(more);
        args.extend(["--", "python3", HOSTILE, data]);
        home.ended(&args)
    };
    let ended = add("lacking", &[]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stdout.contains("lacking has 7 tools"), "{ended:?}");
    assert!(ended.stdout.contains(&format!("--read {data}")), "{ended:?}");
    assert!(!add("given", &["--read", data]).stdout.contains("missing:"));
    add("bare", &["--no-wall"]);
    let list = home.ended(&["tools", "list"]).stdout;
    assert!(list.contains("bare  7 tools, WITHOUT a wall"), "{list}");
    assert!(list.contains("given  7 tools, behind the wall"), "{list}");
    let doctor = home.ended(&["doctor", "--json"]);
    let findings: Value = serde_json::from_str(&doctor.stdout).unwrap();
    assert_eq!(findings["servers_without_wall"], serde_json::json!(["bare"]));
    let client = harness::mcp::Client::start(home.palisade(&["mcp"]));
    let capabilities = client.call("get_capabilities", serde_json::json!({}));
    let access = capabilities["access"].as_array().unwrap();
    let bare = access.iter().find(|one| one["name"] == "bare").unwrap();
    assert_eq!(bare["tools_without_wall"], serde_json::json!(["bare"]), "{capabilities:#}");
    assert!(access.iter().find(|one| one["name"] == "given").unwrap().get("tools_without_wall").is_none());
    let ended = home.ended(&["tools", "remove", "bare"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!home.ended(&["tools", "list"]).stdout.contains("bare"));
}

/// The folder of the real servers; `None` if they are not installed.
fn real() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/upstreams");
    let is_there = folder.join("stamp").exists();
    if !is_there {
        eprintln!("!!!! SKIPPED real servers: run tests/upstreams/install.sh first");
    }
    is_there.then(|| folder.canonicalize().unwrap())
}

#[test]
fn real_servers_work_behind_the_wall() {
    let Some(servers) = real().filter(|_| is_root()) else { return };
    let servers = servers.to_str().unwrap();
    let home = Home::new(&format!(
        "[tools.servers.everything]\ncommand = \"{servers}/js/node_modules/.bin/mcp-server-everything\"\n\
         [tools.servers.files]\ncommand = \"{servers}/js/node_modules/.bin/mcp-server-filesystem\"\nargs = [\"{{}}/data\"]\nwrite = [\"{{}}/data\"]\n\
         [tools.servers.memory]\ncommand = \"{servers}/js/node_modules/.bin/mcp-server-memory\"\nenv = {{ MEMORY_FILE_PATH = \"/tmp/memory.json\" }}\n\
         [tools.servers.git]\ncommand = \"{servers}/py/bin/mcp-server-git\"\nread = [\"{{}}/data\"]\n\
         [tools.servers.time]\ncommand = \"{servers}/py/bin/mcp-server-time\"\n"
    ));
    let data = home.directory("data");
    assert_eq!(home.call("everything.echo", &serde_json::json!({"message": "hi"})), "Echo: hi");
    let file = data.join("a.txt");
    home.call("files.write_file", &serde_json::json!({"path": file, "content": "behind the wall"}));
    assert_eq!(fs::read_to_string(&file).unwrap(), "behind the wall");
    assert!(home.call("memory.read_graph", &serde_json::json!({})).contains("entities"));
    let git = |args: &[&str]| {
        let status = std::process::Command::new("git").arg("-C").arg(&data).args(args).status().unwrap();
        assert!(status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    // git(1) works only in repositories of its own user.
    let owner = format!("{OWNER}:{OWNER}");
    assert!(std::process::Command::new("chown").args(["-R", &owner]).arg(&data).status().unwrap().success());
    let status = home.call("git.git_status", &serde_json::json!({ "repo_path": data }));
    assert!(status.contains("a.txt"), "{status}");
    assert!(home.call("time.get_current_time", &serde_json::json!({"timezone": "UTC"})).contains("UTC"));
}

/// Fetches from registries by the ordinary clients' settings.
#[test]
fn packages_of_npx_and_uvx_run_from_layers_behind_the_wall() {
    if real().is_none() || !is_root() {
        return;
    }
    let home = Home::new(
        "[tools.servers.memory]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-memory\"]\n\
         [tools.servers.time]\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"]\n",
    );
    let refused = home.ended(&["tools", "call", "time.get_current_time", "timezone=UTC"]);
    assert!(refused.stderr.contains("packages_off"), "{refused:?}");
    for name in ["memory.read_graph", "time.get_current_time"] {
        let call = home.palisade(&["tools", "call", name, "timezone=UTC"]);
        // The registries that this user's own clients use.
        let home = std::env::var("HOME").unwrap_or_default();
        let ended = call
            .env("PALISADE_PACKAGES_ENABLED", "true")
            .env("HOME", &home)
            .within(Duration::from_secs(300))
            .end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    }
}

#[test]
fn every_command_about_tools_works() {
    if !is_root() {
        return;
    }
    let home = Home::new("");
    let client = serde_json::json!({"mcpServers": {
        "Hostile One": {"command": "python3", "args": [HOSTILE]},
        "palisade": {"command": "/opt/bin/palisade", "args": ["mcp"]},
        "off": {"command": "x", "disabled": true}}});
    home.folder.file(".claude.json", client.to_string());
    let ok = |args: &[&str]| {
        let ended = home.ended(args);
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {ended:?}");
        ended.stdout
    };
    let refused = |args: &[&str], part: &str| {
        let ended = home.ended(args);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{args:?}: {ended:?}");
    };
    refused(&["tools", "list"], "no tool server is configured");
    let printed = ok(&["tools", "import", "claude-code", "--print"]);
    assert!(
        printed.contains("[tools.servers.hostile-one]") && printed.contains("nothing was written"),
        "{printed}"
    );
    assert!(printed.contains("it is Palisade itself") && printed.contains("switched off"), "{printed}");
    refused(&["tools", "list"], "no tool server is configured");
    assert!(ok(&["tools", "import", "claude-code"]).starts_with("1 servers"));
    refused(&["tools", "import", "emacs"], "no client that is known");
    assert!(ok(&["tools", "list"]).contains("hostile-one  not listed yet, behind the wall"));
    assert!(ok(&["tools", "find", "read"]).contains("hostile_one.read"));
    assert!(!ok(&["tools", "list"]).contains("not listed yet"));
    assert!(ok(&["tools", "show", "hostile-one.read"]).contains("\"access\": \"allow\""));
    assert!(ok(&["tools", "show", "hostile-one", "--stubs", "typescript"]).contains("environment"));
    assert_eq!(ok(&["tools", "diff"]).trim(), "nothing is held");
    assert!(ok(&["tools", "accept", "hostile-one"]).contains("nothing of hostile-one was held"));
    assert!(ok(&["tools", "call", "hostile-one.environment"]).contains("PALISADE_TOOLS_DEPTH"));
    refused(&["tools", "call", "hostile-one.none"], "unknown_tool");
    refused(&["tools", "login", "hostile-one"], "has no login");
    assert!(ok(&["tools", "forget", "hostile-one"]).contains("is forgotten"));
    assert!(ok(&["tools", "forget", "hostile-one"]).contains("nothing was known"));
    ok(&["tools", "remove", "hostile-one"]);
    refused(&["tools", "list"], "no tool server is configured");
}
