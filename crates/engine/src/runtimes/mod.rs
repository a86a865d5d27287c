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
    definitions: BTreeMap<String, Arc<Definition>>,
    state_dir: PathBuf,
    path: OsString,
    /// Named by the operator.
    named: BTreeMap<String, PathBuf>,
    ready: Mutex<BTreeMap<String, Result<Arc<Runtime>, RuntimeError>>>,
}

impl Runtimes {
    pub(crate) fn new(state_dir: PathBuf, named: BTreeMap<String, PathBuf>) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { definitions: definition::embedded(), state_dir, path, named, ready: Mutex::default() }
    }

    /// Names of all languages, installed or not.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions.keys().map(String::as_str)
    }

    /// The command that installs a language on a Debian-like machine.
    pub fn install_command(&self, name: &str) -> Option<&str> {
        self.definitions.get(name).map(|definition| definition.interpreter.install.as_str())
    }

    /// The runtime of that name, looked for at its first use.
    pub async fn find(&self, name: &str) -> Result<Arc<Runtime>, RuntimeError> {
        let Some(definition) = self.definitions.get(name) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(RuntimeError::Unknown { name: name.chars().take(64).collect(), known });
        };
        let mut ready = self.ready.lock().await;
        if let Some(known) = ready.get(name) {
            return known.clone();
        }
        let (definition, state_dir, path) = (Arc::clone(definition), self.state_dir.clone(), self.path.clone());
        let named = self.named.get(name).cloned();
        let looked = tokio::task::spawn_blocking(move || look(definition, named, &state_dir, &path)).await;
        let found = looked.unwrap_or_else(|error| {
            Err(RuntimeError::Broken { title: name.to_owned(), reason: error.to_string() })
        });
        ready.insert(name.to_owned(), found.clone());
        found
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

fn look(
    definition: Arc<Definition>,
    named: Option<PathBuf>,
    state_dir: &Path,
    path: &OsString,
) -> Result<Arc<Runtime>, RuntimeError> {
    let broken = |reason: String| RuntimeError::Broken { title: definition.title.clone(), reason };
    let command = match named {
        Some(file) if locate::is_program(&file) => file,
        // Never another one instead: the operator had a reason.
        Some(_) => {
            return Err(broken("the interpreter named in the configuration is not a program".to_owned()));
        }
        None => locate::on_path(&definition.interpreter.commands, path).ok_or_else(|| {
            let commands = definition.interpreter.commands.join(", ");
            RuntimeError::Missing { title: definition.title.clone(), commands }
        })?,
    };
    let (found, compiled) = cache::find_out(&definition, &command, state_dir, path).map_err(broken)?;
    let driver = compiled.unwrap_or_else(|| definition.file(&definition.drive.driver).to_vec());
    Ok(Arc::new(Runtime { definition, found, driver }))
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
