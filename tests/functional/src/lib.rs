//! What the modules of the suite share: a palisade that is still running, unique words to find its processes by, and a
//! look at what palisade leaves behind.
//!
//! Nothing here waits for a time to pass: [`until`] looks again and again for a state, and gives up loudly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod admin;
pub mod gate;
pub mod http;
pub mod socket;
pub mod tls;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use harness::{Build, Ended, Palisade, User};
pub use harness::{Chance, is_quick};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};
use serde_json::Value;

pub mod keys;
pub mod languages;
pub mod policies;
pub mod sandbox;
pub mod schema;
pub mod serving;

/// How long something that takes milliseconds may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks until something is there; fails with `what` when it does not come.
pub fn until<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A word that no other process on this machine has in its command line.
pub fn marker(label: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("mark-{label}-{}-{}-end", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Processes with that word in their command line.
pub fn marked(word: &str) -> Vec<String> {
    harness::baseline::look(word).processes
}

/// `palisade run LANG OPTIONS -c CODE` with the program's own streams and status.
pub fn run_plain(user: User, language: &str, code: &str, options: &[&str]) -> Ended {
    Palisade::new(Build::Real, user, &["run", language]).args(options).args(&["-c", code]).end()
}

/// `palisade run LANG --json OPTIONS -c CODE`: the result without the long list of guarantees.
pub fn run_json(user: User, language: &str, code: &str, options: &[&str]) -> Value {
    let mut result = harness::run_json(user, language, code, options);
    if let Some(fields) = result.as_object_mut() {
        fields.remove("isolation");
    }
    result
}

/// The outcome of a result.
pub fn outcome(result: &Value) -> &str {
    result["outcome"].as_str().unwrap_or("(none)")
}

/// A run that must complete; its standard output.
pub fn completed(user: User, language: &str, code: &str, options: &[&str]) -> String {
    let result = run_json(user, language, code, options);
    assert_eq!(outcome(&result), "completed", "as {user:?}: {result:#}\n{code}");
    result["stdout"].as_str().unwrap_or_default().to_owned()
}

/// A file that every user can read.
pub fn readable_file(name: &str, content: &[u8]) -> PathBuf {
    let path = harness::shared_folder().join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

/// An empty folder that belongs to that user; made anew.
pub fn own_folder(user: User, name: &str) -> PathBuf {
    let path = harness::shared_folder().join(format!("{name}-{user:?}").to_lowercase());
    fs::remove_dir_all(&path).ok();
    fs::create_dir(&path).unwrap();
    if user == User::Ordinary && rustix::process::geteuid().is_root() {
        let status = Command::new("chown").arg(harness::ORDINARY_USER).arg(&path).status().unwrap();
        assert!(status.success());
    }
    path
}

/// Everything beneath a folder, relative to it.
pub fn files_beneath(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            found.insert(entry.path().strip_prefix(folder).unwrap().to_owned());
        }
    }
    found
}

/// Control groups of palisade whose server is gone: nobody holds their lock. Other suites may run beside this
/// one, so the mere presence of a group says nothing.
pub fn abandoned_cgroups() -> BTreeSet<PathBuf> {
    let groups = harness::baseline::look("\u{0}no process\u{0}").cgroups;
    let is_free = |path: &PathBuf| {
        let Ok(lock) = File::open(path) else { return false };
        rustix::fs::flock(lock.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    groups.into_iter().filter(is_free).collect()
}

/// Waits until no group is abandoned that was not before.
pub fn wait_for_no_new_abandoned_cgroups(before: &BTreeSet<PathBuf>) {
    // A group that is being made right now is free for an instant: look again.
    until(SOON, "abandoned cgroups stay behind", || abandoned_cgroups().is_subset(before).then_some(()));
}

/// A palisade that is running; killed when dropped.
pub struct Live {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Live {
    /// Starts it with all streams piped and standard input at its end.
    pub fn start(palisade: Palisade) -> Self {
        let mut command = palisade.into_command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("palisade starts");
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdout }
    }

    /// Waits for one line of standard output.
    pub fn line(&mut self) -> String {
        let mut text = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut text).unwrap();
        text.trim_end().to_owned()
    }

    /// Nobody reads what it prints any more.
    pub fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Its process number; `setpriv` becomes palisade without a new process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Its spawner: the child named `palisade-jail`.
    pub fn spawner(&self) -> Option<Pid> {
        let pid = self.pid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let numbers = children.split_whitespace().filter_map(|number| number.parse::<i32>().ok());
        let named = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "palisade-jail")
        };
        numbers.into_iter().find(named).and_then(Pid::from_raw)
    }

    /// Waits for its end without reading what it prints.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        until(patience, "palisade ends", || self.child.try_wait().unwrap())
    }

    /// Waits for its end; gives back status and standard error.
    pub fn end(mut self, patience: Duration) -> (ExitStatus, String) {
        let status = self.wait(patience);
        let mut stderr = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        (status, String::from_utf8_lossy(&stderr).into_owned())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
