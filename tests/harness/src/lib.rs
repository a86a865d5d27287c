//! Starts the built palisade for the test suites: the real binary or the one whose walls can be switched off,
//! as root or as an ordinary user, always with a time limit.
//!
//! The binaries come from `PALISADE_BIN` and `PALISADE_BREACH_BIN` (set by `scripts/test.sh`), else from the
//! target folder. They are copied to a directory that every user can reach.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a harness fails by panicking")]

pub mod baseline;
pub mod behind;
mod chance;
pub mod engines;
pub mod fire;
pub mod http;
pub mod mcp;
mod properties;
mod test_folder;
mod wall_attacks;
pub mod warm;

pub use self::chance::{Chance, is_quick};
pub use self::properties::properties;
pub use self::test_folder::TestFolder;
pub use self::wall_attacks::{WALL_ATTACKS, wall_attack};

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The user created by `scripts/setup-tests.sh`.
pub const ORDINARY_USER: &str = "palisade-test";
/// The search path for programs: the system's directories, and Go's.
pub const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin";
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a test waits on this machine: `usual` multiplied by the number in `PALISADE_PATIENCE`, which slow
/// machines set.
pub fn patience(usual: Duration) -> Duration {
    let factor = std::env::var("PALISADE_PATIENCE").ok().and_then(|number| number.parse::<u32>().ok());
    usual * factor.unwrap_or(1).max(1)
}

/// The user that starts palisade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Root; only available if the suite itself runs as root.
    Root,
    /// An ordinary user without subordinate ids and without delegated control groups.
    Ordinary,
}

/// The users available here. Prints which one is missing.
pub fn users() -> Vec<User> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED as root: the suite does not run as root");
        return vec![User::Ordinary];
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if passwd.lines().any(|line| line.starts_with(&format!("{ORDINARY_USER}:"))) {
        vec![User::Root, User::Ordinary]
    } else {
        eprintln!("SKIPPED as an ordinary user: run scripts/setup-tests.sh as root to make {ORDINARY_USER}");
        vec![User::Root]
    }
}

/// Which build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The product.
    Real,
    /// The test build whose walls can be switched off by name.
    Breach,
}

const FOLDER_PREFIX: &str = "palisade-suite-";

/// A folder of this test process that every user can enter. Folders of test processes that are gone are
/// removed.
pub fn shared_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        remove_leftovers();
        open_folder(&format!("{FOLDER_PREFIX}{}", std::process::id()))
    })
}

fn open_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Names end with the number of the process they belong to.
fn remove_leftovers() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(FOLDER_PREFIX).and_then(|number| number.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Path of a build, reachable by every user.
pub fn binary(build: Build) -> &'static Path {
    static REAL: OnceLock<PathBuf> = OnceLock::new();
    static BREACH: OnceLock<PathBuf> = OnceLock::new();
    let (slot, variable, fallback) = match build {
        Build::Real => (&REAL, "PALISADE_BIN", "../../target/real/palisade"),
        Build::Breach => (&BREACH, "PALISADE_BREACH_BIN", "../../target/breach/palisade"),
    };
    slot.get_or_init(|| {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join(fallback);
        let source = std::env::var_os(variable).map_or(beside, PathBuf::from);
        copy_once(&source, &format!("palisade-{build:?}").to_lowercase())
    })
}

/// One copy per build, shared by all test processes. The file's time and size are in its name.
fn copy_once(source: &Path, name: &str) -> PathBuf {
    let found = std::fs::metadata(source)
        .unwrap_or_else(|error| panic!("{} is not built ({error}): run ./scripts/test.sh", source.display()));
    let made = found.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let folder = open_folder(&format!("palisade-builds-{}", rustix::process::geteuid().as_raw()));
    let copy = folder.join(format!("{name}.{made}.{}", found.len()));
    if !copy.exists() {
        let unfinished = folder.join(format!("{name}-{}", std::process::id()));
        std::fs::copy(source, &unfinished).unwrap();
        std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&unfinished, &copy).unwrap();
    }
    copy
}

/// A state directory of this test process that belongs to that user.
pub fn state_dir(user: User) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = shared_folder().join(format!("state-{user:?}-{}", std::process::id()).to_lowercase());
    if !folder.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        if is_other_user(user) {
            let status = Command::new("chown").arg(ORDINARY_USER).arg(&folder).status().unwrap();
            assert!(status.success());
        }
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    folder
}

fn is_other_user(user: User) -> bool {
    user == User::Ordinary && rustix::process::geteuid().is_root()
}

/// A command line of palisade, with a cleared environment and a time limit.
pub struct Palisade {
    command: Command,
    stdin: Vec<u8>,
    patience: Duration,
}

/// The result of a command line.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From start to end.
    pub elapsed: Duration,
}

impl Palisade {
    /// `palisade ARGS` as that user.
    pub fn new(build: Build, user: User, args: &[&str]) -> Self {
        let mut command = if is_other_user(user) {
            let mut command = Command::new("/usr/bin/setpriv");
            let ids = [format!("--reuid={ORDINARY_USER}"), format!("--regid={ORDINARY_USER}")];
            command.args(ids).args(["--clear-groups", "--no-new-privs", "--"]).arg(binary(build));
            // no_new_privs also proves that nothing relies on set-uid helpers.
            command
        } else {
            Command::new(binary(build))
        };
        command.args(args).env_clear().env("PATH", SEARCH_PATH).env("LANG", "C.UTF-8");
        command.env("PALISADE_STATE_DIR", state_dir(user)).current_dir("/");
        // A test that installs packages says so: the others reach no registry.
        command.env("PALISADE_PACKAGES_ENABLED", "false");
        Self { command, stdin: Vec::new(), patience: patience(PATIENCE) }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable that every command has.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Gives it standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = bytes.to_vec();
        self
    }

    /// How long it may take before the test fails.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The command itself, for tests that need more than the result.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// Runs it to completion.
    pub fn end(mut self) -> Ended {
        let started = Instant::now();
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("palisade starts");
        let mut stdin = child.stdin.take().unwrap();
        let bytes = std::mem::take(&mut self.stdin);
        let feeding = std::thread::spawn(move || stdin.write_all(&bytes));
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let out = std::thread::spawn(move || read_lossy(&mut out));
        let err = std::thread::spawn(move || read_lossy(&mut err));
        let deadline = started + self.patience;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().ok();
                panic!("palisade did not end within {:?}: {:?}", self.patience, self.command);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        feeding.join().unwrap().ok();
        Ended { status, stdout: out.join().unwrap(), stderr: err.join().unwrap(), elapsed: started.elapsed() }
    }
}

fn read_lossy(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs `palisade run LANG --json OPTIONS -c CODE` as that user. Returns the parsed result.
pub fn run_json(user: User, language: &str, code: &str, options: &[&str]) -> Value {
    let ended = Palisade::new(Build::Real, user, &["run", language, "--json"])
        .args(options)
        .args(&["-c", code])
        .end();
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("no JSON ({error}): {} {}", ended.stdout, ended.stderr))
}
