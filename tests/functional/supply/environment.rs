//! A state directory with the resolver in it, and a mirror.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use functional::own_folder;
use harness::{Build, Ended, Palisade, User, users};
use serde_json::Value;

/// The checksum database of the mirror: what `gomirror.py` prints.
const DATABASE: &str = "sums.example+3ad6b0e9+AT+25LkmesQof6IVzyMQ/0SxioJAv06q09p8sFCF2N7e";
/// How long one installation may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

/// A mirror that ends with the test.
struct Mirror {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Mirror {
    fn start(folder: &Path, state_dir: &Path) -> Self {
        let log = folder.join("requests.log");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/supply/mirror.py");
        let mut child = Command::new("/usr/bin/python3")
            .args(["-I", script])
            .arg(&log)
            .arg(state_dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the mirror starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().expect("the mirror tells its port"), log }
    }
}

/// A server's state and its mirror.
pub(super) struct Supply {
    pub(super) user: User,
    pub(super) state_dir: PathBuf,
    folder: PathBuf,
    mirror: Mirror,
}

/// A state directory that `fetch.sh` made, which tests only read. `None` if it is not there.
pub(super) fn fetched(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/supply").join(name);
    let found = fs::canonicalize(folder).ok().filter(|folder| folder.join("stamp").is_file());
    if found.is_none() {
        eprintln!("SKIPPED: target/supply/{name} is not there: run tests/functional/supply/fetch.sh");
    }
    found
}

impl Drop for Supply {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl Supply {
    /// A fresh state directory with the resolver, and a mirror. `None` if there is no resolver.
    pub(super) fn new(name: &str) -> Option<Self> {
        let ready = fetched("resolver")?;
        let supply = Self::without_resolver(name);
        let state_dir = &supply.state_dir;
        let sets = ready.join("packages/sets");
        let set = fs::read_dir(sets).unwrap().map(|entry| entry.unwrap().path());
        let set = set
            .into_iter()
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("uv-"))
            .unwrap();
        let entry: Value = serde_json::from_slice(&fs::read(&set).unwrap()).unwrap();
        let layer = Path::new("packages/layers").join(entry["digest"].as_str().unwrap());
        let copy = |how: &str, from: &Path, to: &Path| {
            Command::new("cp").arg(how).arg(from).arg(to).output().unwrap().status.success()
        };
        // The files are shared, because they are large. The manifest is not, because it is locked while in use. On another
        // file system they cannot be shared.
        fs::create_dir_all(state_dir.join(&layer)).unwrap();
        let files = ready.join(&layer).join("files");
        assert!(["-al", "-a"].iter().any(|how| copy(how, &files, &state_dir.join(&layer))));
        assert!(copy("-a", &ready.join(&layer).join("manifest.json"), &state_dir.join(&layer)));
        fs::create_dir_all(state_dir.join("packages/sets")).unwrap();
        assert!(copy("-a", &set, &state_dir.join("packages/sets")));
        Some(supply)
    }

    /// A fresh state directory, and a mirror: for Go, whose resolver is the host's own.
    pub(super) fn without_resolver(name: &str) -> Self {
        let user = users()[0];
        let folder = own_folder(user, &format!("supply-{name}"));
        let state_dir = folder.join("state");
        fs::create_dir_all(state_dir.join("packages/layers")).unwrap();
        let mirror = Mirror::start(&folder, &state_dir);
        Self { user, state_dir, folder, mirror }
    }

    /// Ends the mirror. Nothing listens on its port any more.
    pub(super) fn end_mirror(&mut self) {
        self.mirror.child.kill().ok();
        self.mirror.child.wait().ok();
    }

    /// How often the mirror was asked for something whose path contains this.
    pub(super) fn requests(&self, part: &str) -> usize {
        let log = fs::read_to_string(&self.mirror.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(part)).count()
    }

    /// A command with this state and this mirror.
    pub(super) fn palisade(&self, args: &[&str]) -> Palisade {
        self.with_mirror(Palisade::new(Build::Real, self.user, args))
    }

    /// The setting of the mirrors, with a user and a password if there are some.
    pub(super) fn mirrors(&self, user: &str) -> String {
        let place = format!("{user}127.0.0.1:{}", self.mirror.port);
        format!("pypi=http://{place}/simple,npm=http://{place}/npm,go=http://{place}/go")
    }

    /// The same for a command that exists.
    pub(super) fn with_mirror(&self, command: Palisade) -> Palisade {
        let port = self.mirror.port;
        command
            .env("PALISADE_PACKAGES_ENABLED", "true")
            .env("PALISADE_STATE_DIR", self.state_dir.to_str().unwrap())
            .env("PALISADE_PACKAGES_MIRRORS", &self.mirrors(""))
            // Nothing of these tests may reach a real registry, whatever the settings are.
            .env("PIP_INDEX_URL", &format!("http://127.0.0.1:{port}/simple"))
            .env("npm_config_registry", &format!("http://127.0.0.1:{port}/npm"))
            .env("GOPROXY", &format!("http://127.0.0.1:{port}/go"))
            .env("PALISADE_PACKAGES_GO_SUMDB", DATABASE)
            .env("PALISADE_LOG", "error")
            .within(harness::patience(PATIENCE))
    }

    /// `palisade packages prepare`.
    pub(super) fn prepare(&self, from: &str, packages: &[&str]) -> Palisade {
        self.palisade(&["packages", "prepare", "--json", "--from", from, "--"]).args(packages)
    }

    /// Installs a set and returns what was printed.
    pub(super) fn installed(&self, from: &str, packages: &[&str]) -> Value {
        good(self.prepare(from, packages).end())
    }

    /// Fails to install a set with this code, and leaves no layer. Returns the message.
    #[track_caller]
    pub(super) fn refused(&self, from: &str, packages: &[&str], code: &str) -> String {
        let before = self.layers();
        let told = refusal(self.prepare(from, packages).end(), code);
        assert_eq!(self.layers(), before, "a failed installation leaves nothing: {told}");
        told
    }

    /// The names in the folder of layers.
    pub(super) fn layers(&self) -> Vec<String> {
        let listed = fs::read_dir(self.state_dir.join("packages/layers")).unwrap();
        let mut names: Vec<String> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A path beside the state directory.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// What a successful command printed.
#[track_caller]
pub(super) fn good(ended: Ended) -> Value {
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The message of a command that failed with this code.
#[track_caller]
pub(super) fn refusal(ended: Ended, code: &str) -> String {
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!ended.status.success(), "{told}");
    assert!(told.contains(&format!("({code})")), "expected {code}: {told}");
    told
}

/// The names and versions of a set.
pub(super) fn versions(set: &Value) -> Vec<String> {
    let one = |one: &Value| format!("{} {}", one["name"].as_str().unwrap(), one["version"].as_str().unwrap());
    set["packages"].as_array().unwrap().iter().map(one).collect()
}

/// The folder of the files of a set.
pub(super) fn files(set: &Value) -> PathBuf {
    PathBuf::from(set["path"].as_str().unwrap())
}
