//! Languages as data: what `runtimes/<language>/` says, and where its interpreter is on this machine.
//!
//! The definitions are embedded in the binary. An interpreter is looked for on the operator's PATH, unless the
//! operator named one, and asked
//! once, by the runtime's own probe, what it needs to live in a sandbox; the answer is kept in the state
//! directory for as long as the interpreter does not change ([`cache`]).

mod cache;
mod definition;
mod locate;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::Floor;
use tokio::sync::Mutex;

use self::definition::Definition;
use crate::variables::VariableStyle;

/// Where drivers are inside a sandbox.
const INSIDE: &str = "/palisade";
/// A plain environment; a runtime adds its own.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "agent"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
];

/// Why a language cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// Nobody knows it.
    #[error("`{name}` is not a language Palisade knows; it knows {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Its interpreter is not installed.
    #[error("{title} is not installed on this server: none of {commands} is on the PATH")]
    Missing {
        /// The language.
        title: String,
        /// What was looked for.
        commands: String,
    },
    /// Its interpreter does not answer.
    #[error("{title} is installed on this server but does not work: {reason}")]
    Broken {
        /// The language.
        title: String,
        /// What its probe said.
        reason: String,
    },
}

impl RuntimeError {
    /// Stable.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "language_unknown",
            Self::Missing { .. } => "language_missing",
            Self::Broken { .. } => "language_broken",
        }
    }

    /// What to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unknown { known, .. } => format!("use one of {known}"),
            Self::Missing { .. } | Self::Broken { .. } => {
                "use another language, or ask the operator to run `palisade doctor`".to_owned()
            }
        }
    }
}

/// A language that can be used here.
#[derive(Debug)]
pub struct Runtime {
    definition: Arc<Definition>,
    found: cache::Found,
    driver: Vec<u8>,
}

impl Runtime {
    fn new(definition: Arc<Definition>, found: cache::Found, compiled: Option<Vec<u8>>) -> Self {
        let driver = compiled.unwrap_or_else(|| definition.file(&definition.drive.driver).to_vec());
        Self { definition, found, driver }
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

    /// Whether the language keeps that name for itself.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        self.definition.drive.reserved.iter().any(|reserved| reserved == name)
    }

    pub(crate) fn variable_style(&self) -> VariableStyle {
        self.definition.drive.variables
    }

    pub(crate) fn binds(&self) -> &[PathBuf] {
        &self.found.binds
    }

    pub(crate) fn driver(&self) -> &[u8] {
        &self.driver
    }

    pub(crate) fn driver_path(&self) -> PathBuf {
        let suffix = if self.found.compiled { self.definition.compiled_suffix() } else { "" };
        PathBuf::from(format!("{INSIDE}/{}{suffix}", self.definition.drive.driver))
    }

    /// Arguments and environment of the interpreter.
    pub(crate) fn command(&self) -> (Vec<String>, Vec<(String, String)>) {
        let driver = self.driver_path().to_string_lossy().into_owned();
        let fill =
            |part: &String| part.replace("{executable}", &self.found.executable).replace("{driver}", &driver);
        let argv = self.definition.drive.command.iter().map(fill).collect();
        let mut env: BTreeMap<String, String> =
            ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.extend(self.definition.env.clone());
        env.extend(self.found.env.clone());
        (argv, env.into_iter().collect())
    }
}

/// All languages.
pub struct Runtimes {
    state_dir: PathBuf,
    path: OsString,
    /// Named by the operator.
    named: BTreeMap<String, PathBuf>,
    ready: Mutex<BTreeMap<String, Result<Arc<Runtime>, RuntimeError>>>,
}

impl Runtimes {
    pub(crate) fn new(state_dir: PathBuf, named: BTreeMap<String, PathBuf>) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { state_dir, path, named, ready: Mutex::default() }
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
        let mut ready = self.ready.lock().await;
        if let Some(known) = ready.get(name) {
            return known.clone();
        }
        let Some(definition) = definition::load(name) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(RuntimeError::Unknown { name: name.chars().take(64).collect(), known });
        };
        let found = self.look(definition).await;
        ready.insert(name.to_owned(), found.clone());
        found
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
                let commands = definition.interpreter.commands.join(", ");
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
        let broken = |reason: String| RuntimeError::Broken { title, reason };
        let (state_dir, path) = (self.state_dir.clone(), self.path.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let (found, compiled) = cache::find_out(&definition, &command, &state_dir, &path)?;
            Ok::<_, String>(Arc::new(Runtime::new(definition, found, compiled)))
        });
        asked.await.map_err(|error| error.to_string()).flatten().map_err(broken)
    }
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
        let with = |path: PathBuf| Runtimes::new(state.clone(), BTreeMap::from([("bash".to_owned(), path)]));
        let used = with(link.clone()).find("bash").await;
        let missing = with(state.join("nothing")).find("bash").await;
        let no_program = with(state.clone()).find("bash").await;
        std::fs::remove_dir_all(&state).unwrap();
        assert!(used.is_ok(), "{used:?}");
        for refused in [missing, no_program] {
            assert_eq!(refused.unwrap_err().code(), "language_broken");
        }
    }
}
