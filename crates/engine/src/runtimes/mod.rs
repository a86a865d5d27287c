//! Languages as data: the definitions in `runtimes/<language>/`, and the interpreters on this machine.
//!
//! The definitions are embedded in the binary. The server uses the interpreter that the operator named, or
//! looks for one on the operator's PATH. It runs the runtime's probe once to find out what the interpreter
//! needs in a sandbox. The answer is cached in the state directory for as long as the interpreter does not
//! change ([`cache`]).

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

/// The directory of the drivers inside a sandbox.
const INSIDE: &str = "/palisade";
/// The server's own executable inside, for runtimes that need it.
const OWN_EXECUTABLE: &str = "/palisade/palisade";
/// The output of the preparer. The driver removes it.
const PREPARED: &str = "/tmp/.palisade-prepared";
/// The basic environment. A runtime adds its own variables.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "agent"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
];

/// A language that can be used on this machine.
#[derive(Debug)]
pub struct Runtime {
    definition: Arc<Definition>,
    found: cache::ProbeAnswer,
    driver: Arc<[u8]>,
    placed: Vec<PlacedFile>,
}

impl Runtime {
    fn new(definition: Arc<Definition>, found: cache::ProbeAnswer, compiled: Option<Vec<u8>>) -> Self {
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

    /// A program that proves that the runtime works, and its expected output.
    pub fn canary(&self) -> (&str, &str) {
        (&self.definition.canary.code, &self.definition.canary.stdout)
    }

    pub(crate) fn floor(&self) -> Floor {
        self.definition.limits
    }

    pub(crate) fn source(&self) -> &str {
        &self.definition.source
    }

    /// The path of the program inside the sandbox.
    pub(crate) fn source_path(&self) -> String {
        format!("{WORKSPACE}/{}", self.definition.source)
    }

    /// Whether its interpreter can outlive a run.
    pub(crate) fn is_live(&self) -> bool {
        self.definition.drive.live
    }

    /// The name of the interpreter, which languages may share: TypeScript uses that of JavaScript.
    pub(crate) fn interpreter(&self) -> &str {
        self.definition.base.as_deref().unwrap_or(&self.definition.name)
    }

    /// Whether the language reserves that name.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        self.definition.drive.reserved.iter().any(|reserved| reserved == name)
    }

    pub(crate) fn variable_style(&self) -> VariableStyle {
        self.definition.drive.variables
    }

    /// The program text for its driver. Empty where the driver must read the file instead: the program is long
    /// or contains carriage returns, or the driver reads files faster.
    pub(crate) fn told<'a>(&self, code: &'a str) -> &'a str {
        const SHORT_BYTES: usize = 16 << 10;
        if self.definition.drive.told && code.len() <= SHORT_BYTES && !code.contains('\r') {
            code
        } else {
            ""
        }
    }

    /// The modules that come with the interpreter.
    pub(crate) fn modules(&self) -> &[String] {
        &self.found.modules
    }

    /// The files that must be in the sandbox: the driver, and the tool that checks programs.
    pub(crate) fn placed_files(&self) -> Vec<PlacedFile> {
        self.placed.clone()
    }

    /// The parts of the host that must be visible. `own` is the server's executable.
    pub(crate) fn read_only_binds(&self, own: Option<&Path>) -> Vec<ReadOnlyBind> {
        let mut binds: Vec<ReadOnlyBind> =
            self.found.binds.iter().cloned().map(ReadOnlyBind::in_place).collect();
        let definition = &self.definition;
        let commands = [
            definition.prepare.as_ref().map(|it| &it.command),
            definition.check.as_ref().map(|it| &it.command),
        ];
        let needs_own = commands.into_iter().flatten().flatten().any(|part| part.contains("{palisade}"));
        // An executable that was replaced on disk is no longer the running one.
        if let Some(own) = own.filter(|own| needs_own && own.is_file()) {
            binds.push(ReadOnlyBind { path: own.to_owned(), target: PathBuf::from(OWN_EXECUTABLE) });
        }
        binds
    }

    /// How programs are prepared, where the language needs it: a command, its order, and whether it must
    /// succeed.
    pub(crate) fn preparing(&self, call: &DriverCall<'_>) -> Option<Preparing> {
        self.definition.prepare.as_ref().map(|prepare| Preparing {
            command: self.fill(&prepare.command, call),
            order: self.fill(&prepare.order, call),
            is_required: prepare.required,
        })
    }

    /// The command that checks a program without running it.
    pub(crate) fn check_command(&self, call: &DriverCall<'_>) -> Option<Vec<String>> {
        self.definition.check.as_ref().map(|check| self.fill(&check.command, call))
    }

    /// Arguments of the interpreter.
    pub(crate) fn command(&self, call: &DriverCall<'_>) -> Vec<String> {
        self.fill(&self.definition.drive.command, call)
    }

    fn fill(&self, command: &[String], call: &DriverCall<'_>) -> Vec<String> {
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

    /// Inserts the other programs of a toolchain, as the probe found them.
    fn with_programs(&self, part: String) -> String {
        self.found.programs.iter().fold(part, |text, (name, path)| text.replace(&format!("{{{name}}}"), path))
    }

    /// Whether its check prints like its compiler.
    pub(crate) fn check_has_diagnostics(&self) -> bool {
        self.definition.check.as_ref().is_some_and(|check| check.diagnostics)
    }

    /// What a failed program reported about its failure at the end of standard error.
    pub(crate) fn explain_failure(&self, stderr: &str) -> Option<Said> {
        let failure = &self.definition.failure;
        diagnostics::find(stderr, &failure.patterns, self.source(), 1).pop()
    }

    /// Whether a failed program ran out of memory: the host measured that it used most of the limit, and the
    /// program says so. Neither alone is enough.
    pub(crate) fn ran_out_of_memory(&self, stderr: &str, peak_bytes: u64, limit_bytes: u64) -> bool {
        let failure = &self.definition.failure;
        failure.memory_percent > 0
            && peak_bytes >= limit_bytes / 100 * failure.memory_percent
            && failure.memory_words.iter().any(|word| stderr.contains(word))
    }

    /// The environment of every program of this runtime.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let mut env: BTreeMap<String, String> =
            ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.extend(self.definition.env.clone());
        env.extend(self.found.env.clone());
        env.into_iter().collect()
    }
}

/// The values for the placeholders of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverCall<'a> {
    /// `last` or `keep`.
    pub(crate) mode: &'a str,
    /// Absolute path of the program inside.
    pub(crate) source: &'a str,
}

/// How a program is prepared.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// The preparer's command. It starts before there is a program, and waits.
    pub(crate) command: Vec<String>,
    /// The order for the preparer.
    pub(crate) order: Vec<String>,
    /// Whether the program runs only if the preparer succeeds.
    pub(crate) is_required: bool,
}

/// The path of the driver inside the sandbox.
fn driver_path(definition: &Definition, found: &cache::ProbeAnswer) -> PathBuf {
    let suffix = if found.compiled { definition.compiled_suffix() } else { "" };
    inside(&format!("{}{suffix}", driver_name(definition)))
}

/// The file beside the program: a driver, or the tool that compiles the program.
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
    /// Interpreters that the operator named.
    named: BTreeMap<String, PathBuf>,
    /// Prefix that makes a probe end with this process.
    launcher: Vec<String>,
    ready: BTreeMap<&'static str, Slot>,
    /// How long a probe may take.
    patience: Duration,
    /// Limits the probes at once to the number of cores.
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

    /// The runtime of that name. Its interpreter is looked for at the first use.
    pub async fn find(&self, name: &str) -> Result<Arc<Runtime>, RuntimeError> {
        let slot = self.ready.get(name);
        // The definition is read once.
        if let Some(found) = slot.and_then(|slot| slot.found.get()) {
            return found.clone();
        }
        let Some((slot, definition)) = slot.zip(definition::load(name)) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(RuntimeError::Unknown { name: name.chars().take(64).collect(), known });
        };
        let found = slot.found.get_or_try_init(|| async {
            // Callers that waited for a late probe do not each wait for another one.
            slot.due()?;
            match self.look(definition).await {
                Err(late @ RuntimeError::Late { .. }) => Err(slot.put_off(late)),
                settled => Ok(settled),
            }
        });
        found.await?.clone()
    }

    /// The interpreter's path: from the operator, otherwise from the PATH.
    fn command(&self, definition: &Definition) -> Result<PathBuf, RuntimeError> {
        let title = || definition.title.clone();
        match self.named.get(&definition.name) {
            Some(file) if locate::is_program(file) => Ok(file.clone()),
            // There is no fallback to another interpreter: the operator chose this one.
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

    /// Returns the cached answer (a few small reads), otherwise runs the probe on another thread.
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
        let place = cache::ProbeSurroundings {
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

/// Languages whose interpreters can outlive a run, installed or not.
pub(crate) fn live_languages() -> impl Iterator<Item = &'static str> {
    languages().filter(|name| definition::load(name).is_some_and(|definition| definition.drive.live))
}

/// The name of a language for logs and metrics: a known language, otherwise [`crate::telemetry::OTHER`]. A
/// caller can send any text.
pub fn known_language(asked: &str) -> &'static str {
    languages().find(|name| *name == asked).unwrap_or(crate::telemetry::OTHER)
}

/// Names of all languages, for callers without an engine.
pub fn languages() -> impl Iterator<Item = &'static str> {
    definition::names()
}

/// Whether the file can be started as an interpreter.
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
        // The script runs until its own file is removed.
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
