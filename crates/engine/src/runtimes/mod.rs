//! Languages as data: what `runtimes/<language>/` says, and where its interpreter is on this machine.
//!
//! The definitions are embedded in the binary. An interpreter is looked for on the operator's PATH, unless the
//! operator named one, and asked
//! once, by the runtime's own probe, what it needs to live in a sandbox; the answer is kept in the state
//! directory for as long as the interpreter does not change ([`cache`]).

mod cache;
mod canary;
mod compile;
mod definition;
mod error;
mod locate;
mod slot;
mod zygote;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policy::Floor;
use sandbox::{PlacedFile, ReadOnlyBind, WORKSPACE};
use tokio::sync::Semaphore;

use self::cache::ProbeError;
pub use self::canary::CanaryMemory;
pub(crate) use self::compile::{BUILD_FOLDER, CompileCall};
pub(crate) use self::definition::Definition;
pub use self::error::RuntimeError;
use self::slot::Slot;
pub(crate) use self::zygote::is_among;
use crate::diagnostics::{self, Said};
use crate::variables::VariableStyle;

/// Where drivers are inside a sandbox.
const INSIDE: &str = "/palisade";
/// Our own executable there, for the roles that runtimes ask for.
const OWN_EXECUTABLE: &str = "/palisade/palisade";
/// What was made of a program before it runs; taken away by the driver.
const PREPARED: &str = "/tmp/.palisade-prepared";
/// A plain environment; a runtime adds its own.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "agent"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
];

/// A language that can be used here.
#[derive(Debug)]
pub struct Runtime {
    definition: Arc<Definition>,
    found: cache::Found,
    driver: Arc<[u8]>,
    placed: Vec<PlacedFile>,
}

impl Runtime {
    fn new(definition: Arc<Definition>, found: cache::Found, compiled: Option<Vec<u8>>) -> Self {
        let name = driver_name(&definition);
        let driver: Arc<[u8]> = compiled.map_or_else(|| definition.file(name).into(), Arc::from);
        let mut placed = Vec::new();
        if !name.is_empty() {
            let path = driver_path(&definition, &found);
            placed.push(PlacedFile { path, content: Arc::clone(&driver) });
        }
        if let Some(script) = definition.check.as_ref().and_then(|check| check.script.as_deref()) {
            placed.push(PlacedFile { path: inside(script), content: definition.file(script).into() });
        }
        Self { definition, found, driver, placed }
    }

    /// Its name in requests.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Version of the interpreter.
    pub fn version(&self) -> &str {
        &self.found.version
    }

    /// The interpreter itself.
    pub fn executable(&self) -> &str {
        &self.found.executable
    }

    /// Packages that can be imported.
    pub fn packages(&self) -> &BTreeMap<String, String> {
        &self.found.packages
    }

    /// A program that proves the runtime works, and what it prints.
    pub fn canary(&self) -> (&str, &str) {
        (&self.definition.canary.code, &self.definition.canary.stdout)
    }

    pub(crate) fn floor(&self) -> Floor {
        self.definition.limits
    }

    pub(crate) fn source(&self) -> &str {
        &self.definition.source
    }

    /// Where the program is inside.
    pub(crate) fn source_path(&self) -> String {
        format!("{WORKSPACE}/{}", self.definition.source)
    }

    /// Whether its interpreter can live on between runs.
    pub(crate) fn is_live(&self) -> bool {
        self.definition.drive.live
    }

    /// The interpreter that languages share: TypeScript's is that of JavaScript.
    pub(crate) fn interpreter(&self) -> &str {
        self.definition.base.as_deref().unwrap_or(&self.definition.name)
    }

    /// Whether the language keeps that name for itself.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        self.definition.drive.reserved.iter().any(|reserved| reserved == name)
    }

    pub(crate) fn variable_style(&self) -> VariableStyle {
        self.definition.drive.variables
    }

    /// What its driver is told of a program; empty where it reads the file, which has line ends of its own.
    pub(crate) fn told<'a>(&self, code: &'a str) -> &'a str {
        const SHORT_BYTES: usize = 16 << 10;
        if self.definition.drive.told && code.len() <= SHORT_BYTES && !code.contains('\r') {
            code
        } else {
            ""
        }
    }

    /// Modules that come with the interpreter.
    pub(crate) fn modules(&self) -> &[String] {
        &self.found.modules
    }

    /// What must be in the sandbox: the driver, and what checks programs.
    pub(crate) fn placed_files(&self) -> Vec<PlacedFile> {
        self.placed.clone()
    }

    /// Parts of the host that must be visible; `own` is our own executable.
    pub(crate) fn read_only_binds(&self, own: Option<&Path>) -> Vec<ReadOnlyBind> {
        let mut binds: Vec<ReadOnlyBind> =
            self.found.binds.iter().cloned().map(ReadOnlyBind::in_place).collect();
        let definition = &self.definition;
        let commands = [
            definition.prepare.as_ref().map(|it| &it.command),
            definition.check.as_ref().map(|it| &it.command),
        ];
        let needs_own = commands.into_iter().flatten().flatten().any(|part| part.contains("{palisade}"));
        // An executable that was replaced on disk meanwhile is not ours any more.
        if let Some(own) = own.filter(|own| needs_own && own.is_file()) {
            binds.push(ReadOnlyBind { path: own.to_owned(), target: PathBuf::from(OWN_EXECUTABLE) });
        }
        binds
    }

    /// How programs are made ready, where they are: a command, what it is told, and whether it must succeed.
    pub(crate) fn preparing(&self, call: &Call<'_>) -> Option<Preparing> {
        self.definition.prepare.as_ref().map(|prepare| Preparing {
            command: self.fill(&prepare.command, call),
            order: self.fill(&prepare.order, call),
            is_required: prepare.required,
        })
    }

    /// The command that looks at a program without running it.
    pub(crate) fn check_command(&self, call: &Call<'_>) -> Option<Vec<String>> {
        self.definition.check.as_ref().map(|check| self.fill(&check.command, call))
    }

    /// Arguments of the interpreter.
    pub(crate) fn command(&self, call: &Call<'_>) -> Vec<String> {
        self.fill(&self.definition.drive.command, call)
    }

    fn fill(&self, command: &[String], call: &Call<'_>) -> Vec<String> {
        let driver = driver_path(&self.definition, &self.found).to_string_lossy().into_owned();
        let script =
            self.definition.check.as_ref().and_then(|check| check.script.as_deref()).unwrap_or_default();
        let check = inside(script).to_string_lossy().into_owned();
        let values = [
            ("{executable}", self.found.executable.as_str()),
            ("{driver}", &driver),
            ("{check}", &check),
            ("{palisade}", OWN_EXECUTABLE),
            ("{prepared}", PREPARED),
            ("{mode}", call.mode),
            ("{source}", call.source),
            ("{name}", &self.definition.source),
        ];
        let fill =
            |part: &String| values.iter().fold(part.clone(), |text, (name, value)| text.replace(name, value));
        command.iter().map(|part| self.with_programs(fill(part))).collect()
    }

    /// Puts in the other programs of a toolchain, as the probe found them.
    fn with_programs(&self, part: String) -> String {
        self.found.programs.iter().fold(part, |text, (name, path)| text.replace(&format!("{{{name}}}"), path))
    }

    /// Whether its check writes what its compiler would.
    pub(crate) fn check_has_diagnostics(&self) -> bool {
        self.definition.check.as_ref().is_some_and(|check| check.diagnostics)
    }

    /// What a failed program said about its failure, in its last words.
    pub(crate) fn explain_failure(&self, stderr: &str) -> Option<Said> {
        let failure = &self.definition.failure;
        diagnostics::find(stderr, &failure.patterns, self.source(), 1).pop()
    }

    /// Whether a failed program gave up for want of memory: the host measured that it had used most of the limit, and it
    /// says so. Neither alone counts.
    pub(crate) fn ran_out_of_memory(&self, stderr: &str, peak_bytes: u64, limit_bytes: u64) -> bool {
        let failure = &self.definition.failure;
        failure.memory_percent > 0
            && peak_bytes >= limit_bytes / 100 * failure.memory_percent
            && failure.memory_words.iter().any(|word| stderr.contains(word))
    }

    /// Environment of every program of this runtime.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let mut env: BTreeMap<String, String> =
            ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.extend(self.definition.env.clone());
        env.extend(self.found.env.clone());
        env.into_iter().collect()
    }
}

/// What a command is started for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// `last` or `keep`.
    pub(crate) mode: &'a str,
    /// Absolute path of the program inside.
    pub(crate) source: &'a str,
}

/// How a program is made ready.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// Started before there is a program, and waits.
    pub(crate) command: Vec<String>,
    /// What it is told.
    pub(crate) order: Vec<String>,
    /// Whether the program runs only if this succeeds.
    pub(crate) is_required: bool,
}

/// Where it is inside.
fn driver_path(definition: &Definition, found: &cache::Found) -> PathBuf {
    let suffix = if found.compiled { definition.compiled_suffix() } else { "" };
    inside(&format!("{}{suffix}", driver_name(definition)))
}

/// The file that stands beside the program: a driver, or what compiles it.
fn driver_name(definition: &Definition) -> &str {
    let tool = definition.compile.as_ref().and_then(|compile| compile.tool.as_deref());
    tool.unwrap_or(&definition.drive.driver)
}

fn inside(name: &str) -> PathBuf {
    Path::new(INSIDE).join(name)
}

/// All languages.
pub struct Runtimes {
    state_dir: PathBuf,
    path: OsString,
    /// Named by the operator.
    named: BTreeMap<String, PathBuf>,
    /// Makes a probe end with this process.
    launcher: Vec<String>,
    ready: BTreeMap<&'static str, Slot>,
    /// How long a probe may take.
    patience: Duration,
    /// Probes at once: as many as there are cores.
    asking: Semaphore,
}

impl Runtimes {
    pub(crate) fn new(state_dir: PathBuf, named: BTreeMap<String, PathBuf>, launcher: Vec<String>) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let ready = definition::names().map(|name| (name, Slot::default())).collect();
        let asking = Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from));
        Self { state_dir, path, named, launcher, ready, patience: cache::PROBE_PATIENCE, asking }
    }

    /// Names of all languages, installed or not.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        definition::names()
    }

    /// The command that installs a language on a Debian-like machine.
    pub fn install_command(&self, name: &str) -> Option<String> {
        definition::load(name).map(|definition| definition.interpreter.install.clone())
    }

    /// The runtime of that name, looked for at its first use.
    pub async fn find(&self, name: &str) -> Result<Arc<Runtime>, RuntimeError> {
        let slot = self.ready.get(name);
        // Its definition is read once.
        if let Some(found) = slot.and_then(|slot| slot.found.get()) {
            return found.clone();
        }
        let Some((slot, definition)) = slot.zip(definition::load(name)) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(RuntimeError::Unknown { name: name.chars().take(64).collect(), known });
        };
        let found = slot.found.get_or_try_init(|| async {
            // Those who waited for a probe that was late do not each wait for another.
            slot.due()?;
            match self.look(definition).await {
                Err(late @ RuntimeError::Late { .. }) => Err(slot.put_off(late)),
                settled => Ok(settled),
            }
        });
        found.await?.clone()
    }

    /// Where the interpreter is: where the operator says, else on the PATH.
    fn command(&self, definition: &Definition) -> Result<PathBuf, RuntimeError> {
        let title = || definition.title.clone();
        match self.named.get(&definition.name) {
            Some(file) if locate::is_program(file) => Ok(file.clone()),
            // Never another one instead: the operator had a reason.
            Some(_) => {
                let reason = "the interpreter named in the configuration is not a program".to_owned();
                Err(RuntimeError::Broken { title: title(), reason })
            }
            None => locate::on_path(&definition.interpreter.commands, &self.path).ok_or_else(|| {
                let mut commands = definition.interpreter.commands.join(", ");
                let closed = locate::closed_directories(&self.path);
                commands.push_str(" is on the PATH");
                if closed > 0 {
                    commands.push_str(&format!(
                        ", as far as this user may look ({closed} directories are closed to it)"
                    ));
                }
                RuntimeError::Missing { title: title(), commands }
            }),
        }
    }

    /// Recalls what was found out before (a few small reads), else runs the probe off this thread.
    async fn look(&self, definition: Arc<Definition>) -> Result<Arc<Runtime>, RuntimeError> {
        let command = self.command(&definition)?;
        if let Some((found, compiled)) = cache::recall(&definition, &command, &self.state_dir) {
            return Ok(Arc::new(Runtime::new(definition, found, compiled)));
        }
        let title = definition.title.clone();
        let told = |error: ProbeError| match error {
            ProbeError::Late(reason) => RuntimeError::Late { title, reason, retry_after_ms: 0 },
            ProbeError::Broken(reason) => RuntimeError::Broken { title, reason },
        };
        let place = cache::Place {
            state_dir: self.state_dir.clone(),
            path: self.path.clone(),
            launcher: self.launcher.clone(),
            patience: self.patience,
        };
        // The semaphore is never closed.
        let _turn = self.asking.acquire().await.ok();
        let asked = tokio::task::spawn_blocking(move || {
            let (found, compiled) = cache::find_out(&definition, &command, &place)?;
            Ok::<_, ProbeError>(Arc::new(Runtime::new(definition, found, compiled)))
        });
        asked.await.map_err(|error| ProbeError::Late(error.to_string())).flatten().map_err(told)
    }
}

/// Languages whose interpreters can live on between runs, here or not.
pub(crate) fn live_languages() -> impl Iterator<Item = &'static str> {
    languages().filter(|name| definition::load(name).is_some_and(|definition| definition.drive.live))
}

/// A language as a log or a figure may name it: one of those that there are, else [`crate::telemetry::OTHER`]. What a caller
/// asks for may be any text.
pub fn known_language(asked: &str) -> &'static str {
    languages().find(|name| *name == asked).unwrap_or(crate::telemetry::OTHER)
}

/// Names of all languages that there are, for whoever has no engine yet.
pub fn languages() -> impl Iterator<Item = &'static str> {
    definition::names()
}

/// Whether an interpreter could be started from there.
pub fn is_program(file: &Path) -> bool {
    locate::is_program(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_interpreter_that_the_operator_named_is_used_and_never_replaced() {
        let state = std::env::temp_dir().join(format!("palisade-named-{}", std::process::id()));
        let bash = locate::on_path(&["bash".to_owned()], &std::env::var_os("PATH").unwrap()).unwrap();
        let link = state.join("named-bash");
        std::fs::create_dir_all(&state).unwrap();
        std::os::unix::fs::symlink(&bash, &link).unwrap();
        let with = |path: PathBuf| {
            Runtimes::new(state.clone(), BTreeMap::from([("bash".to_owned(), path)]), Vec::new())
        };
        let used = with(link.clone()).find("bash").await;
        let missing = with(state.join("nothing")).find("bash").await;
        let no_program = with(state.clone()).find("bash").await;
        std::fs::remove_dir_all(&state).unwrap();
        assert!(used.is_ok(), "{used:?}");
        for refused in [missing, no_program] {
            assert_eq!(refused.unwrap_err().code(), "language_broken");
        }
    }

    #[tokio::test]
    async fn a_slow_probe_holds_up_no_other_language() {
        let state = std::env::temp_dir().join(format!("palisade-slow-{}", std::process::id()));
        std::fs::create_dir_all(&state).unwrap();
        let slow = state.join("slow");
        // Until its own file is taken away.
        std::fs::write(&slow, "#!/bin/sh\nwhile [ -e \"$0\" ]; do sleep 0.01; done\n").unwrap();
        std::fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let named = BTreeMap::from([("lua".to_owned(), slow)]);
        let runtimes = Runtimes::new(state.clone(), named, Vec::new());
        let first = tokio::select! {
            biased;
            _ = runtimes.find("lua") => "the slow one",
            found = async {
                tokio::task::yield_now().await;
                runtimes.find("bash").await
            } => if found.is_ok() { "the other" } else { "neither" },
        };
        std::fs::remove_dir_all(&state).ok();
        assert_eq!(first, "the other");
    }
}
