//! Languages as data: what `runtimes/<language>/` says, and where its interpreter is on this machine.
//!
//! The definitions are embedded in the binary. An interpreter is looked for on the operator's PATH and asked
//! once, by the runtime's own probe, what it needs to live in a sandbox; the answer is kept in the state
//! directory for as long as the interpreter does not change ([`cache`]).

mod cache;
mod definition;
mod locate;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
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
    fn new(definition: &Arc<Definition>, found: cache::Found, compiled: Option<Vec<u8>>) -> Self {
        let driver = compiled.unwrap_or_else(|| definition.file(&definition.drive.driver).to_vec());
        Self { definition: Arc::clone(definition), found, driver }
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
        let fill = |part: &String| part.replace("{executable}", &self.found.executable).replace("{driver}", &driver);
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
    ready: Mutex<BTreeMap<String, Result<Arc<Runtime>, RuntimeError>>>,
}

impl Runtimes {
    pub(crate) fn new(state_dir: PathBuf) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { state_dir, path, ready: Mutex::default() }
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
        let found = match self.remember(&definition) {
            Some(known) => known,
            None => self.ask(&definition).await,
        };
        ready.insert(name.to_owned(), found.clone());
        found
    }

    /// What was found out before: a few small reads, cheap enough to do at once.
    fn remember(&self, definition: &Arc<Definition>) -> Option<Result<Arc<Runtime>, RuntimeError>> {
        let Some(command) = locate::on_path(&definition.interpreter.commands, &self.path) else {
            let commands = definition.interpreter.commands.join(", ");
            return Some(Err(RuntimeError::Missing { title: definition.title.clone(), commands }));
        };
        let (found, compiled) = cache::recall(definition, &command, &self.state_dir)?;
        Some(Ok(Arc::new(Runtime::new(definition, found, compiled))))
    }

    /// Runs the probe, which may take a while, off this thread.
    async fn ask(&self, definition: &Arc<Definition>) -> Result<Arc<Runtime>, RuntimeError> {
        let broken = |reason: String| RuntimeError::Broken { title: definition.title.clone(), reason };
        let (definition, state_dir, path) = (Arc::clone(definition), self.state_dir.clone(), self.path.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let command = locate::on_path(&definition.interpreter.commands, &path).ok_or("it vanished")?;
            let (found, compiled) = cache::find_out(&definition, &command, &state_dir, &path)?;
            Ok::<_, String>(Arc::new(Runtime::new(&definition, found, compiled)))
        });
        asked.await.map_err(|error| broken(error.to_string()))?.map_err(broken)
    }
}
