//! What the suites over all languages share: the folders under `runtimes/`, whether their interpreters are here, and one
//! run of a program with everything a caller may send along.

use std::fs;
use std::path::{Path, PathBuf};

use harness::{Build, Palisade, User};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Where every user's programs are.
const FOLDERS: &str = harness::SEARCH_PATH;

/// A language that palisade knows.
#[derive(Debug, Clone)]
pub struct Language {
    /// Its name in requests.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What its programs need, in the order of preference.
    pub commands: Vec<String>,
    /// Whether a program can fail before it runs.
    pub is_compiled: bool,
    /// Whether its programs are compiled in a sandbox of their own.
    pub has_compiler: bool,
    /// Whether its interpreter outlives a run in a persistent sandbox.
    pub is_live: bool,
    /// The usual file name of a program.
    pub source: String,
}

#[derive(Deserialize)]
struct Definition {
    title: String,
    source: String,
    drive: Drive,
    interpreter: Interpreter,
    compile: Option<toml::Value>,
    prepare: Option<Prepare>,
}

#[derive(Deserialize)]
struct Drive {
    #[serde(default)]
    live: bool,
}

#[derive(Deserialize)]
struct Prepare {
    required: bool,
}

#[derive(Deserialize)]
struct Interpreter {
    commands: Vec<String>,
}

/// The top of the repository.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All languages, by name.
pub fn languages() -> Vec<Language> {
    let runtimes = top().join("runtimes");
    let mut found: Vec<Language> = fs::read_dir(runtimes)
        .unwrap()
        .filter_map(|entry| {
            let folder = entry.unwrap().path();
            let text = fs::read_to_string(folder.join("runtime.toml")).ok()?;
            let definition: Definition =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            Some(Language {
                name: folder.file_name().unwrap().to_string_lossy().into_owned(),
                title: definition.title,
                commands: definition.interpreter.commands,
                has_compiler: definition.compile.is_some(),
                is_live: definition.drive.live,
                source: definition.source,
                is_compiled: definition.compile.is_some() || definition.prepare.is_some_and(|it| it.required),
                folder,
            })
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

impl Language {
    /// Whether one of its commands is installed where that user finds it.
    pub fn is_installed(&self, user: User) -> bool {
        let path = search_path(user);
        let is_there =
            |command: &String| path.split(':').any(|folder| Path::new(folder).join(command).exists());
        self.commands.iter().any(is_there)
    }

    /// Where palisade looks for it.
    pub fn search_path(&self, user: User) -> String {
        search_path(user)
    }

    /// A test of this language; where it is not installed, one that is counted as skipped and says so.
    pub fn trial(
        &self,
        what: &str,
        user: User,
        test: impl FnOnce(&Self, User) -> Result<(), Failed> + Send + 'static,
    ) -> Trial {
        let name = format!("{}::{what}", self.name);
        if self.is_installed(user) {
            let language = self.clone();
            return Trial::test(name, move || test(&language, user));
        }
        eprintln!(
            "SKIPPED: {} is not installed for {user:?}: no {}",
            self.title,
            self.commands.join(", no ")
        );
        Trial::test(format!("{name}::skipped_not_installed"), || Ok(())).with_ignored_flag(true)
    }
}

/// Where palisade looks for interpreters; rustup puts its own into a home.
fn search_path(user: User) -> String {
    match std::env::var("HOME") {
        Ok(home) if user == User::Root => format!("{FOLDERS}:{home}/.cargo/bin"),
        _ => FOLDERS.to_owned(),
    }
}

/// A file to be placed beside the program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Where, in the workspace.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// One run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The program.
    pub code: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What it reads.
    pub stdin: String,
    /// Its variables.
    pub variables: Map<String, Value>,
    /// Files beside it.
    pub inputs: Vec<Input>,
    /// Options of the command line.
    pub options: Vec<String>,
}

impl Run {
    /// Runs it as that user; the result without the long list of guarantees.
    pub fn result(&self, user: User, language: &str) -> Value {
        let mut palisade =
            Palisade::new(Build::Real, user, &["run", language, "--json"]).env("PATH", &search_path(user));
        for option in &self.options {
            palisade = palisade.args(&[option]);
        }
        for (number, input) in self.inputs.iter().enumerate() {
            let name = format!("{language}-{user:?}-input-{number}");
            let file = crate::readable_file(&name, input.text.as_bytes());
            palisade = palisade.args(&["--input", &format!("{}={}", file.display(), input.path)]);
        }
        for (name, value) in &self.variables {
            palisade = palisade.args(&["--var", &format!("{name}={value}")]);
        }
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let ended = palisade.args(&["-c", &self.code, "--"]).args(&args).stdin(self.stdin.as_bytes()).end();
        let mut result: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {} {}", ended.stdout, ended.stderr));
        if let Some(fields) = result.as_object_mut() {
            fields.remove("isolation");
        }
        result
    }
}
