//! Languages as data: the definitions in `runtimes/<language>/`, and the toolchains of a wall.
//!
//! The definitions are embedded in the binary. The server asks the wall's inventory for a toolchain at the
//! first use of a language; the wall decides where it looks. A permanent answer is kept, and a late one is
//! asked for again ([`slot`]).

mod canary;
mod compile;
mod definition;
mod error;
mod share;
mod slot;
mod tools;
mod zygote;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::Floor;
use sandbox::{Backend, PROGRAM_PATH, PlacedFile, ReadOnlyBind, Toolchain, ToolchainQuery, WORKSPACE};
use tokio::sync::OnceCell;

pub use self::canary::CanaryMemory;
pub(crate) use self::compile::{BUILD_FOLDER, CompileCall};
pub(crate) use self::definition::Definition;
pub use self::error::RuntimeError;
pub(crate) use self::share::CpuShare;
use self::slot::Slot;
use self::tools::ShellTools;
pub(crate) use self::zygote::{Preload, is_among};
use crate::diagnostics::{self, Said};
use crate::given::{Given, Way};
use crate::packages::Shows;
use crate::variables::VariableStyle;

/// The directory of the drivers inside a sandbox.
const INSIDE: &str = "/palisade";
/// The server's own executable inside, for runtimes that need it.
pub(crate) const OWN_EXECUTABLE: &str = "/palisade/palisade";
/// The output of the preparer. The driver removes it.
const PREPARED: &str = "/tmp/.palisade-prepared";
/// The basic environment. A runtime adds its own variables.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "agent"),
    ("PATH", PROGRAM_PATH),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
];

/// A language that can be used on this machine.
#[derive(Debug)]
pub struct Runtime {
    definition: Arc<Definition>,
    found: Arc<Toolchain>,
    /// The commands of all languages.
    tools: Arc<ShellTools>,
    driver: Arc<[u8]>,
    placed: Vec<PlacedFile>,
}

impl Runtime {
    fn new(definition: Arc<Definition>, found: Arc<Toolchain>, tools: Arc<ShellTools>) -> Self {
        let name = driver_name(&definition);
        let driver: Arc<[u8]> = found.driver.clone().unwrap_or_else(|| definition.file(name).into());
        let mut placed = Vec::new();
        if !name.is_empty() {
            let path = driver_path(&definition, &found);
            placed.push(PlacedFile { path, content: Arc::clone(&driver) });
        }
        if let Some(script) = definition.check.as_ref().and_then(|check| check.script.as_deref()) {
            placed.push(PlacedFile { path: inside(script), content: definition.file(script).into() });
        }
        Self { definition, found, tools, driver, placed }
    }

    /// Its name in requests.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Its name for people to read.
    pub(crate) fn title(&self) -> &str {
        &self.definition.title
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

    /// Whether its driver sets environment variables of a run while the interpreter runs.
    pub(crate) fn takes_environment_by_message(&self) -> bool {
        self.definition.environment.given == Way::Message
    }

    /// Whether an environment variable has an effect only if the interpreter starts with it.
    pub(crate) fn reads_at_start(&self, name: &str) -> bool {
        self.definition.environment.reads_at_start(name)
    }

    /// Whether its driver cannot work with that environment variable.
    pub(crate) fn refuses_environment(&self, name: &str) -> bool {
        self.definition.environment.refuses(name)
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

    /// The paths of the wall that must be visible: to the interpreter and its programs, or to the compiler.
    pub(crate) fn read_only_binds(&self) -> Vec<ReadOnlyBind> {
        if self.is_compiled() {
            return self.found.binds.iter().cloned().map(ReadOnlyBind::in_place).collect();
        }
        self.with_tools(&self.found.binds)
    }

    /// Where the Palisade executable must be visible, if a command of the language needs it.
    pub(crate) fn executable_at(&self) -> Option<PathBuf> {
        let definition = &self.definition;
        let commands = [
            definition.prepare.as_ref().map(|it| &it.command),
            definition.check.as_ref().map(|it| &it.command),
        ];
        let needs_own = commands.into_iter().flatten().flatten().any(|part| part.contains("{palisade}"));
        needs_own.then(|| PathBuf::from(OWN_EXECUTABLE))
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
        let name = Path::new(call.source).file_name().and_then(|name| name.to_str());
        let values = [
            ("{executable}", self.found.executable.as_str()),
            ("{driver}", &driver),
            ("{check}", &check),
            ("{palisade}", OWN_EXECUTABLE),
            ("{prepared}", PREPARED),
            ("{mode}", call.mode),
            ("{source}", call.source),
            ("{name}", name.unwrap_or(&self.definition.source)),
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

    /// What a failed program reported about its failure at the end of standard error. `source` is its file name.
    pub(crate) fn explain_failure(&self, stderr: &str, source: &str) -> Option<Said> {
        let failure = &self.definition.failure;
        diagnostics::find(stderr, &failure.patterns, source, 1).pop()
    }

    /// The module that a failed program did not find, by its error message.
    pub(crate) fn missing_module(&self, message: &str) -> Option<String> {
        let patterns = &self.definition.failure.missing;
        let first_line = message.lines().next().filter(|_| !patterns.is_empty())?;
        diagnostics::find(first_line, patterns, self.source(), 1).pop().map(|said| said.message)
    }

    /// Whether a failed program ran out of memory: the host measured that it used most of the limit, and the
    /// program says so. Neither alone is enough.
    pub(crate) fn ran_out_of_memory(&self, stderr: &str, peak_bytes: u64, limit_bytes: u64) -> bool {
        let failure = &self.definition.failure;
        failure.memory_percent > 0
            && peak_bytes >= limit_bytes / 100 * failure.memory_percent
            && failure.memory_words.iter().any(|word| stderr.contains(word))
    }

    /// The environment of every program of this runtime, or of its compiler, whatever its limits.
    pub(crate) fn own_environment(&self) -> BTreeMap<String, String> {
        let mut env: BTreeMap<String, String> =
            ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if !self.is_compiled() {
            env.extend(self.tools_environment());
        }
        env.extend(self.definition.env.clone());
        env.extend(self.found.env.clone());
        env
    }

    /// The environment of its programs, or of its compiler, in a sandbox with that share of the processors that shows
    /// these packages.
    pub(crate) fn environment(&self, share: CpuShare, shows: Shows) -> Vec<(String, String)> {
        let mut env: BTreeMap<String, String> = share.variables().collect();
        env.extend(self.own_environment());
        shows.add_to(&mut env);
        env.into_iter().collect()
    }

    /// The environment of a program that starts with what it is given.
    pub(crate) fn environment_with(
        &self,
        share: CpuShare,
        shows: Shows,
        given: &Given,
    ) -> Vec<(String, String)> {
        let mut env: BTreeMap<String, String> = self.environment(share, Shows::NOTHING).into_iter().collect();
        if self.is_compiled() {
            // The environment of the program, which has all commands, unlike its compiler.
            env.extend(self.tools_environment());
        }
        env.extend(given.pairs());
        shows.add_to(&mut env);
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
fn driver_path(definition: &Definition, found: &Toolchain) -> PathBuf {
    let suffix = if found.driver.is_some() { definition.compiled_suffix() } else { "" };
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

/// All languages of one wall.
pub struct Runtimes {
    backend: Arc<dyn Backend>,
    /// The folder of the results of canaries.
    canaries: PathBuf,
    /// The part of their names that tells walls apart. The default wall has none.
    label: Option<&'static str>,
    ready: BTreeMap<&'static str, Slot>,
    tools: OnceCell<Arc<ShellTools>>,
}

impl Runtimes {
    pub(crate) fn new(backend: Arc<dyn Backend>, state_dir: &Path, label: Option<&'static str>) -> Self {
        let ready = definition::names().map(|name| (name, Slot::default())).collect();
        Self { backend, canaries: state_dir.join(canary::FOLDER), label, ready, tools: OnceCell::new() }
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
        if let Some(ready) = slot.and_then(|slot| slot.runtime.get()) {
            return Ok(Arc::clone(ready));
        }
        let found = self.toolchain_of(name).await?;
        let Some((slot, definition)) = slot.zip(definition::load(name)) else {
            return Err(self.unknown(name));
        };
        let tools = self.shell_tools().await;
        let made = slot.runtime.get_or_init(|| async { Arc::new(Runtime::new(definition, found, tools)) });
        Ok(Arc::clone(made.await))
    }

    /// The runtime of that name, if it was used before. Looks for nothing.
    pub fn known(&self, name: &str) -> Option<Arc<Runtime>> {
        self.ready.get(name)?.runtime.get().cloned()
    }

    fn unknown(&self, name: &str) -> RuntimeError {
        let known = self.names().collect::<Vec<_>>().join(", ");
        RuntimeError::Unknown { name: name.chars().take(64).collect(), known }
    }

    /// The toolchain of a language. The wall is asked once.
    async fn toolchain_of(&self, name: &str) -> Result<Arc<Toolchain>, RuntimeError> {
        let Some(slot) = self.ready.get(name) else { return Err(self.unknown(name)) };
        if let Some(found) = slot.toolchain.get() {
            return found.clone();
        }
        // The definition is read once.
        let Some(definition) = definition::load(name) else { return Err(self.unknown(name)) };
        let found = slot.toolchain.get_or_try_init(|| async {
            // Callers that waited for a late probe do not each wait for another one.
            slot.due()?;
            match self.look(&definition).await {
                Err(late @ RuntimeError::Late { .. }) => Err(slot.put_off(late)),
                settled => Ok(settled),
            }
        });
        found.await?.clone()
    }

    async fn look(&self, definition: &Definition) -> Result<Arc<Toolchain>, RuntimeError> {
        let found = self.backend.inventory().find(&question(definition)).await;
        found.map(Arc::new).map_err(|error| RuntimeError::of(definition.title.clone(), error))
    }

    /// A text that changes when the toolchain of that runtime changes, or the wall that has it.
    pub(crate) async fn identity(&self, runtime: &Runtime) -> Result<String, RuntimeError> {
        let told = self.backend.inventory().identity(&runtime.found).await;
        let told = told.map_err(|error| RuntimeError::of(runtime.definition.title.clone(), error))?;
        Ok(format!("{}\n{told}", self.backend.name()))
    }
}

/// What a wall must know to find the language.
fn question(definition: &Definition) -> ToolchainQuery {
    let interpreter = &definition.interpreter;
    ToolchainQuery {
        language: definition.name.clone(),
        commands: interpreter.commands.clone(),
        probe: interpreter.probe.clone(),
        files: definition.files().map(|(name, content)| (name.to_owned(), content.into())).collect(),
        settings: interpreter.settings.clone(),
    }
}

/// The environment of a program that belongs to no language.
pub(crate) fn plain_environment(shows: Shows) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> =
        ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    shows.add_to(&mut env);
    env
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

#[cfg(test)]
mod tests {
    use sandbox::InventoryError;
    use sandbox::fake::FakeBackend;

    use super::*;

    #[tokio::test]
    async fn the_wall_is_asked_once_with_everything_that_its_probe_needs() {
        let fake = FakeBackend::new(drop);
        let driver = Some(Arc::from(&b"compiled"[..]));
        fake.languages().set("python", Ok(Toolchain { driver, ..Toolchain::default() }));
        let runtimes = Runtimes::new(Arc::new(fake.clone()), Path::new("/nowhere"), None);
        let python = runtimes.find("python").await.unwrap();
        runtimes.find("python").await.unwrap();
        let asked = fake.languages().asked();
        assert_eq!(asked.iter().filter(|name| *name == "python").count(), 1, "{asked:?}");
        assert_eq!(&*python.driver, b"compiled");
        let asked = question(&definition::load("python").unwrap());
        assert!(asked.probe.iter().any(|part| part == "{interpreter}") && asked.files.len() > 1);
        assert!(asked.files.iter().all(|(_, content)| !content.is_empty()));
    }

    #[tokio::test]
    async fn what_a_wall_lacks_is_told_with_the_name_of_the_language() {
        let fake = FakeBackend::new(drop);
        let missing = InventoryError::Missing { commands: "lua is in the image".to_owned() };
        fake.languages().set("lua", Err(missing));
        let runtimes = Runtimes::new(Arc::new(fake), Path::new("/nowhere"), None);
        let error = runtimes.find("lua").await.unwrap_err();
        assert_eq!(error.code(), "language_missing");
        assert_eq!(error.to_string(), "Lua is not installed on this server: none of lua is in the image");
    }
}
