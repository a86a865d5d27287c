//! Code mode with the real server: search, calls, pictures, humans, hostile upstreams and programs, and SIGKILL.

mod approvals;
mod calls;
mod hostile;
mod real;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use harness::mcp::Client;
use harness::{Build, Palisade, TestFolder, User};
use serde_json::{Value, json};

/// A configuration with one upstream, `small`, and what belongs to it.
struct Upstream {
    folder: TestFolder,
}

impl Upstream {
    fn new() -> Self {
        Self::with("")
    }

    /// With more settings of the server.
    fn with(more: &str) -> Self {
        let upstream = Self::empty();
        upstream.configure(&upstream.small(more));
        upstream
    }

    /// Without any configuration.
    fn empty() -> Self {
        let folder = TestFolder::new();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    /// The section of the small server.
    fn small(&self, more: &str) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../origin/upstream.py");
        let pid = self.path("pid");
        format!(
            "[tools.servers.small]\nabout = \"the test server\"\ncommand = \"python3\"\n\
             args = [{script:?}, {pid:?}]\nwall = \"none\"\n{more}\n"
        )
    }

    fn configure(&self, config: &str) {
        fs::create_dir_all(self.path("config/palisade")).unwrap();
        fs::write(self.path("config/palisade/palisade.toml"), config).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn palisade(&self, args: &[&str]) -> Palisade {
        let (config, state) = (self.path("config"), self.path("state"));
        Palisade::new(Build::Real, User::Root, args)
            .env("XDG_CONFIG_HOME", config.to_str().unwrap())
            .env("PALISADE_STATE_DIR", state.to_str().unwrap())
    }

    /// A client of a server whose upstream's tools are accepted.
    fn client(&self) -> Client {
        let ended = self.palisade(&["tools", "accept", "small"]).end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        Client::start(self.palisade(&["mcp"]))
    }

    /// How often the upstream noted that.
    fn noted(&self, what: &str) -> u64 {
        fs::metadata(self.path(&format!("pid.{what}"))).map_or(0, |file| file.len())
    }

    fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.path("pid")).ok()?.parse().ok()
    }
}

/// Whether a process is there and no zombie.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn python(code: &str) -> Value {
    json!({"language": "python", "code": code, "access": ["small"]})
}

/// The real servers of other makers, if tests/upstreams/install.sh has installed them.
fn real_servers() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/upstreams");
    let is_there = folder.join("stamp").exists();
    if !is_there {
        eprintln!("!!!! SKIPPED real servers: run tests/upstreams/install.sh first");
    }
    is_there.then(|| folder.canonicalize().unwrap())
}
