//! A state directory with the resolver in it, and a mirror.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use functional::own_folder;
use harness::{Build, Ended, Palisade, User, users};
use serde_json::Value;

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

/// The folder with the resolver's layer, which all tests share. `None` if the registry cannot be reached.
fn resolver() -> Option<PathBuf> {
    let shared = std::env::temp_dir().join("palisade-test-resolver");
    fs::create_dir_all(&shared).unwrap();
    let lock = fs::File::create(shared.join("lock")).unwrap();
    lock.lock().unwrap();
    let ready = shared.join("state");
    let is_ready = || fs::read_dir(ready.join("packages/sets")).is_ok_and(|mut sets| sets.next().is_some());
    if !is_ready() {
        let fetching = shared.join("fetching");
        fs::remove_dir_all(&fetching).ok();
        let prepare = Palisade::new(Build::Real, users()[0], &["packages", "prepare", "six"])
            .env("PALISADE_STATE_DIR", fetching.to_str().unwrap())
            .within(harness::patience(PATIENCE));
        let ended = with_registry(prepare).end();
        if !ended.status.success() {
            eprintln!(
                "SKIPPED: the resolver cannot be fetched from this machine's registry: {}",
                ended.stderr
            );
            return None;
        }
        fs::rename(&fetching, &ready).unwrap();
    }
    Some(ready)
}

/// Lets a command use this machine's registries, by the settings of their ordinary clients.
pub(super) fn with_registry(command: Palisade) -> Palisade {
    let names = ["PIP_INDEX_URL", "PIP_CERT", "npm_config_registry", "HOME", "HTTPS_PROXY", "NO_PROXY"];
    let set = names.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
    set.fold(command.env("PALISADE_PACKAGES_ENABLED", "true"), |command, (name, value)| {
        command.env(name, &value)
    })
}

impl Drop for Supply {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl Supply {
    /// A fresh state directory with the resolver, and a mirror. `None` if there is no resolver.
    pub(super) fn new(name: &str) -> Option<Self> {
        let ready = resolver()?;
        let user = users()[0];
        let folder = own_folder(user, &format!("supply-{name}"));
        let state_dir = folder.join("state");
        fs::create_dir_all(state_dir.join("packages/layers")).unwrap();
        let sets = ready.join("packages/sets");
        let set = fs::read_dir(sets).unwrap().map(|entry| entry.unwrap().path());
        let set = set
            .into_iter()
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("uv-"))
            .unwrap();
        let entry: Value = serde_json::from_slice(&fs::read(&set).unwrap()).unwrap();
        let layer = Path::new("packages/layers").join(entry["digest"].as_str().unwrap());
        let copied = |how: &str, from: &Path, to: &Path| {
            let status = Command::new("cp").arg(how).arg(from).arg(to).status().unwrap();
            assert!(status.success());
        };
        // The files are shared, because they are large. The manifest is not, because it is locked while in use.
        fs::create_dir_all(state_dir.join(&layer)).unwrap();
        copied("-al", &ready.join(&layer).join("files"), &state_dir.join(&layer));
        copied("-a", &ready.join(&layer).join("manifest.json"), &state_dir.join(&layer));
        fs::create_dir_all(state_dir.join("packages/sets")).unwrap();
        copied("-a", &set, &state_dir.join("packages/sets"));
        let mirror = Mirror::start(&folder, &state_dir);
        Some(Self { user, state_dir, folder, mirror })
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

    /// The same for a command that exists.
    pub(super) fn with_mirror(&self, command: Palisade) -> Palisade {
        let port = self.mirror.port;
        let mirrors = format!("pypi=http://127.0.0.1:{port}/simple,npm=http://127.0.0.1:{port}/npm");
        command
            .env("PALISADE_PACKAGES_ENABLED", "true")
            .env("PALISADE_STATE_DIR", self.state_dir.to_str().unwrap())
            .env("PALISADE_PACKAGES_MIRRORS", &mirrors)
            // Nothing of these tests may reach a real registry, whatever the settings are.
            .env("PIP_INDEX_URL", &format!("http://127.0.0.1:{port}/simple"))
            .env("npm_config_registry", &format!("http://127.0.0.1:{port}/npm"))
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
