//! Determines what an interpreter needs, once, and caches the answer.
//!
//! The runtime's probe runs with the operator's interpreter, outside any sandbox, with a cleared environment.
//! The answer is cached under the interpreter's fingerprint. It is written to a temporary file and renamed, so
//! a killed server leaves either the old answer or the new one. A damaged answer is probed again.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ::sandbox::{InventoryError, PROGRAM_PATH, Toolchain, ToolchainQuery};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::locate;

/// A version manager's shim may take a second. An interpreter that takes longer than this has failed to answer.
pub(super) const PROBE_PATIENCE: Duration = Duration::from_secs(30);
const PROBE_POLL: Duration = Duration::from_millis(2);
const ANSWER_BYTES_MAX: u64 = 4 << 20;
const BINDS_MAX: usize = 64;
/// The most answers cached for one language.
const ANSWERS_MAX: usize = 8;
const FOLDER: &str = "runtimes";

/// The number of probes of this process. It makes the name of each probe's folder unique.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// An answer in the folder. The compiled driver is a file beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    toolchain: Toolchain,
    /// Whether the probe compiled the driver.
    #[serde(default)]
    compiled: bool,
}

/// Returns the cached answer with the compiled driver, if both are still valid.
pub(super) fn recall(query: &ToolchainQuery, command: &Path, state_dir: &Path) -> Option<Toolchain> {
    read(&state_dir.join(FOLDER), &key(query, command))
}

/// Where and how to run a probe.
pub(super) struct ProbeSurroundings {
    pub(super) state_dir: PathBuf,
    pub(super) path: OsString,
    /// Prefix for the probe's command line.
    pub(super) launcher: Vec<String>,
    /// How long a probe may take.
    pub(super) patience: Duration,
}

/// Returns the answer with the compiled driver by running the probe.
pub(super) fn find_out(
    query: &ToolchainQuery,
    command: &Path,
    place: &ProbeSurroundings,
) -> Result<Toolchain, InventoryError> {
    let folder = place.state_dir.join(FOLDER);
    let key = key(query, command);
    let work = folder.join(format!("{key}.{}.{}", std::process::id(), ASKED.fetch_add(1, Ordering::Relaxed)));
    let question = Question { query, command, place, folder: &folder, key: &key, work: &work };
    let asked = question.ask();
    discard(&work);
    asked?;
    read(&folder, &key).ok_or_else(|| late("its answer could not be stored"))
}

/// A temporary failure: the machine is busy, or lacks something that it may have later.
pub(super) fn late(reason: impl Into<String>) -> InventoryError {
    InventoryError::Late { reason: reason.into() }
}

/// A permanent failure.
pub(super) fn broken(reason: impl Into<String>) -> InventoryError {
    InventoryError::Broken { reason: reason.into() }
}

fn key(query: &ToolchainQuery, command: &Path) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let settings: Vec<String> = query
        .settings
        .iter()
        .map(|file| PathBuf::from(file.replace('~', &home)))
        .map(|file| format!("{:?}", locate::identity(&file)))
        .collect();
    let contents: Vec<&[u8]> = query
        .files
        .iter()
        .map(|(_, content)| &**content)
        .chain(settings.iter().map(String::as_bytes))
        .collect();
    format!("{}-{:016x}", query.language, locate::fingerprint(command, &contents))
}

fn read(folder: &Path, key: &str) -> Option<Toolchain> {
    let Stored { toolchain, compiled } =
        serde_json::from_slice(&fs::read(folder.join(format!("{key}.json"))).ok()?).ok()?;
    if !Path::new(&toolchain.executable).exists()
        || toolchain.binds.iter().chain(&toolchain.run_binds).any(|bind| !bind.exists())
    {
        return None;
    }
    let driver =
        if compiled { Some(fs::read(folder.join(format!("{key}.driver"))).ok()?.into()) } else { None };
    Some(Toolchain { driver, ..toolchain })
}

/// The probe of one interpreter.
struct Question<'a> {
    query: &'a ToolchainQuery,
    command: &'a Path,
    place: &'a ProbeSurroundings,
    /// The folder of the cached answers.
    folder: &'a Path,
    key: &'a str,
    /// The working folder of the probe, removed afterwards.
    work: &'a Path,
}

impl Question<'_> {
    /// Creates the probe's folder and locks it. Removes folders without a lock holder, whose server was killed.
    /// The lock of the parent folder keeps other servers from finding a folder that is just being created.
    fn prepare(&self) -> io::Result<fs::File> {
        make_private(self.folder)?;
        let whole = fs::File::open(self.folder)?;
        rustix::fs::flock(&whole, FlockOperation::LockExclusive)?;
        for entry in fs::read_dir(self.folder)?.flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let Ok(lock) = fs::File::open(entry.path()) else { continue };
            if is_folder && rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                discard(&entry.path());
            }
        }
        make_private(self.work)?;
        let lock = fs::File::open(self.work)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    fn ask(&self) -> Result<(), InventoryError> {
        let problem = |error: io::Error| {
            tracing::warn!(reason = %error, "probe_not_stored");
            late(format!("the state directory cannot be used, its operator must repair it: {error}"))
        };
        let _lock = self.prepare().map_err(problem)?;
        for (name, content) in &self.query.files {
            fs::write(self.work.join(name), content).map_err(problem)?;
        }
        let out = self.work.join("compiled-driver");
        let fill = |part: &String| {
            part.replace("{interpreter}", &self.command.to_string_lossy())
                .replace("{folder}", &self.work.to_string_lossy())
                .replace("{out}", &out.to_string_lossy())
        };
        let probe = self.query.probe.iter().map(fill);
        let argv: Vec<String> = self.place.launcher.iter().cloned().chain(probe).collect();
        let mut found: Toolchain = serde_json::from_slice(&run_probe(&argv, self.place)?)
            .map_err(|error| broken(format!("its probe answered nonsense: {error}")))?;
        if found.binds.len().max(found.run_binds.len()).max(found.tools.binds.len()) > BINDS_MAX {
            let count = found.binds.len();
            return Err(broken(format!("it needs {count} directories, more than {BINDS_MAX}")));
        }
        found.binds.retain(|bind| is_fit_to_show(bind));
        found.run_binds.retain(|bind| is_fit_to_show(bind));
        found.tools.binds.retain(|bind| is_fit_to_show(bind));
        found.tools.commands.retain(|name, path| !is_found_anyway(name, path));
        // The compiled driver is the file, whatever the probe prints.
        found.driver = None;
        let compiled = out.is_file();
        if compiled {
            fs::rename(&out, self.folder.join(format!("{}.driver", self.key))).map_err(problem)?;
        }
        let answer = self.work.join("answer");
        let text = serde_json::to_vec(&Stored { toolchain: found, compiled })
            .map_err(|error| broken(error.to_string()))?;
        fs::write(&answer, text).map_err(problem)?;
        fs::rename(&answer, self.folder.join(format!("{}.json", self.key))).map_err(problem)?;
        self.forget_old_ones();
        Ok(())
    }

    /// Keeps the newest answers of a language, because interpreters come and go.
    fn forget_old_ones(&self) {
        let mut answers: Vec<(SystemTime, PathBuf)> = fs::read_dir(self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&format!("{}-", self.query.language)) && name.ends_with(".json")
            })
            .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        answers.sort();
        let surplus = answers.len().saturating_sub(ANSWERS_MAX);
        for (_, path) in answers.into_iter().take(surplus) {
            // An answer without a driver has no file to remove. The next probe removes what is left behind.
            fs::remove_file(path.with_extension("driver")).ok();
            fs::remove_file(path).ok();
        }
    }
}

/// Whether a bind that the probe asks for may be shown. Directories that hold secrets of users or of the system
/// are never shown whole.
fn is_fit_to_show(bind: &Path) -> bool {
    const NEVER: [&str; 12] =
        ["/", "/home", "/root", "/etc", "/var", "/run", "/proc", "/sys", "/dev", "/tmp", "/boot", "/mnt"];
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let is_someones_home = bind.parent() == Some(Path::new("/home"));
    bind.is_absolute()
        && !NEVER.iter().any(|never| bind == Path::new(never))
        && !is_someones_home
        && !home.starts_with(bind)
}

/// Whether the usual directories lead to that command.
fn is_found_anyway(name: &str, path: &str) -> bool {
    let found =
        locate::on_path(&[name.to_owned()], PROGRAM_PATH.as_ref()).and_then(|file| file.canonicalize().ok());
    found.is_some() && found == Path::new(path).canonicalize().ok()
}

fn run_probe(argv: &[String], place: &ProbeSurroundings) -> Result<Vec<u8>, InventoryError> {
    let empty = || broken("its probe is empty");
    let (program, arguments) = argv.split_first().ok_or_else(empty)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", &place.path).env("LANG", "C.UTF-8").current_dir("/");
    for variable in ["HOME", "PYENV_ROOT", "PYENV_VERSION", "NODENV_ROOT", "RBENV_ROOT", "RUSTUP_HOME"] {
        if let Some(value) = std::env::var_os(variable) {
            command.env(variable, value);
        }
    }
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| {
        let words = format!("it cannot be started: {error}");
        // A lack of processes or memory is not a fault of the interpreter.
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => late(words),
            _ => broken(words),
        }
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdout = std::thread::spawn(move || bounded(stdout));
    let stderr = std::thread::spawn(move || bounded(stderr));
    let deadline = Instant::now() + place.patience;
    let status = loop {
        match child.try_wait().map_err(|error| late(error.to_string()))? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                // The probe may have ended by now. The error reports that it did not end in time.
                child.kill().ok();
                child.wait().ok();
                let words = format!("its probe did not end within {} s", place.patience.as_secs());
                return Err(late(words));
            }
            None => std::thread::sleep(PROBE_POLL),
        }
    };
    let output = stdout.join().unwrap_or_default();
    if status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&stderr.join().unwrap_or_default()).trim().to_owned();
    let last = said.lines().last().unwrap_or("").chars().take(300).collect::<String>();
    let words = format!("its probe failed ({status}): {last}");
    // A signal ended the probe, from the kernel for lack of memory, or from a user.
    Err(if status.code().is_none() { late(words) } else { broken(words) })
}

/// Removes the folder of a probe. The next probe removes what is left behind.
fn discard(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(reason = %error, "probe_folder_not_removed");
        }
        _ => {}
    }
}

fn bounded(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // Output read before an error is judged like any answer.
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).ok();
    }
    bytes
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown_whole() {
        for bad in ["/", "/home", "/home/someone", "/root", "/etc", "relative", "/var"] {
            assert!(!is_fit_to_show(Path::new(bad)), "{bad}");
        }
        assert!(is_fit_to_show(Path::new("/opt/python")));
        assert!(is_fit_to_show(Path::new("/home/someone/.versions/3.12")));
    }
}
