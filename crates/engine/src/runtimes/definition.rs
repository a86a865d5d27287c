//! `runtime.toml`, parsed. The files are embedded at build time; a mistake in them fails a test here.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::Floor;
use serde::Deserialize;

use crate::diagnostics::Pattern;
use crate::typed::Declarations;
use crate::variables::VariableStyle;

/// Language, file name, content: made by `build.rs` from `runtimes/`.
const FILES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/runtimes.rs"));
const DEFINITION: &str = "runtime.toml";

/// What a language's folder says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// The name in requests; the folder's name too.
    pub(crate) name: String,
    /// The name for people.
    pub(crate) title: String,
    /// File name of the program in the workspace.
    pub(crate) source: String,
    /// Another language whose files this one uses too.
    #[serde(default)]
    pub(crate) base: Option<String>,
    pub(crate) interpreter: Interpreter,
    #[serde(default)]
    pub(crate) prepare: Option<Prepare>,
    /// How a program becomes one that can be started, where the language has a compiler.
    #[serde(default)]
    pub(crate) compile: Option<Compile>,
    pub(crate) drive: Drive,
    /// How its interpreter becomes one from which sandboxes are cloned, where it can.
    #[serde(default)]
    pub(crate) zygote: Option<ZygoteCommand>,
    #[serde(default)]
    pub(crate) check: Option<Check>,
    /// Where a program that failed says why.
    #[serde(default)]
    pub(crate) failure: Failure,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) limits: Floor,
    pub(crate) canary: Canary,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interpreter {
    /// Looked for on the PATH, in this order.
    pub(crate) commands: Vec<String>,
    /// Run once on the host; prints what the interpreter needs.
    pub(crate) probe: Vec<String>,
    /// Files of a version manager that decide which toolchain a command leads to; `~` is the operator's home.
    #[serde(default)]
    pub(crate) settings: Vec<String>,
    /// The command that installs it on a Debian-like machine.
    pub(crate) install: String,
}

/// Makes a program ready, in the sandbox, before its driver is told to run it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prepare {
    /// Started before there is a program; waits to be told on its standard input.
    pub(crate) command: Vec<String>,
    /// What it is told.
    pub(crate) order: Vec<String>,
    /// Whether a program that cannot be made ready does not run.
    pub(crate) required: bool,
}

/// Starts an interpreter that waits to be copied.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZygoteCommand {
    /// `{packages}` are the names of those to load, with commas between.
    pub(crate) command: Vec<String>,
    /// Packages that are worth loading ahead, if a program names one of them and they are installed.
    pub(crate) packages: Vec<String>,
}

/// Looks at a program without running it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    pub(crate) command: Vec<String>,
    /// File in the folder that is placed in the sandbox.
    #[serde(default)]
    pub(crate) script: Option<String>,
    /// Whether it writes what the compiler writes (`compile.diagnostics`) instead of a driver's messages.
    #[serde(default)]
    pub(crate) diagnostics: bool,
}

/// Makes of a program, in a sandbox of its own, what can be started in another one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compile {
    /// Leaves its product beneath `{build}`.
    pub(crate) command: Vec<String>,
    /// File in the folder that is placed in the sandbox, or what the probe made of it.
    #[serde(default)]
    pub(crate) tool: Option<String>,
    /// Endings of inputs that always take part.
    #[serde(default)]
    pub(crate) inputs: Vec<String>,
    /// Endings of inputs that are named to the compiler: `{sources}`.
    #[serde(default)]
    pub(crate) sources: Vec<String>,
    /// What an error looks like.
    #[serde(default)]
    pub(crate) diagnostics: Vec<Pattern>,
    /// Its own limits, whatever the program's are.
    pub(crate) limits: CompileLimits,
    /// How variables are declared to the program.
    pub(crate) declarations: Declarations,
}

/// Limits of a compiler.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompileLimits {
    pub(crate) timeout_ms: u64,
    pub(crate) memory_mb: u64,
    pub(crate) processes: u32,
    pub(crate) disk_mb: u64,
    pub(crate) open_files: u32,
}

/// Where a program that failed says why; only ever shown.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Failure {
    /// What its last words look like.
    pub(crate) patterns: Vec<Pattern>,
    /// Words of a runtime that gave up for want of memory before the limit was reached.
    pub(crate) memory_words: Vec<String>,
    /// Share of the memory limit that the host must have measured for those words to count.
    pub(crate) memory_percent: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drive {
    /// File in the folder that is placed in the sandbox; empty where the program is started itself.
    #[serde(default)]
    pub(crate) driver: String,
    pub(crate) variables: VariableStyle,
    /// Whether its driver keeps an interpreter between runs (mode `keep`).
    #[serde(default)]
    pub(crate) live: bool,
    /// Whether its driver has a short program sooner from the channel than from the file.
    #[serde(default)]
    pub(crate) told: bool,
    /// Names that no variable can have.
    #[serde(default)]
    pub(crate) reserved: Vec<String>,
    /// Program and arguments inside.
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Canary {
    pub(crate) code: String,
    pub(crate) stdout: String,
}

impl Definition {
    /// A file of the folder, or of the language it builds on; empty if there is none.
    pub(crate) fn file(&self, name: &str) -> &'static [u8] {
        let found = self.files().find(|(file, _)| *file == name);
        found.map_or(&[], |(_, content)| content)
    }

    /// All files of the folder, then those of the language it builds on.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &'static [u8])> + '_ {
        let of = |folder: &str| {
            let folder = folder.to_owned();
            FILES
                .iter()
                .filter(move |(language, ..)| *language == folder)
                .map(|(_, name, content)| (*name, *content))
        };
        let base = self.base.as_deref().map(of).into_iter().flatten();
        of(&self.name).chain(base.filter(|(name, _)| *name != DEFINITION))
    }

    /// Added to the driver's name when it was compiled: `driver.py` becomes `driver.pyc`.
    #[allow(clippy::unused_self, reason = "a property of the language, even if all share it today")]
    pub(crate) fn compiled_suffix(&self) -> &'static str {
        "c"
    }
}

/// Names of all languages, without reading their definitions: the folders are named alike.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter(|(_, file, _)| *file == DEFINITION).map(|(language, ..)| *language)
}

/// The definition of one language; parsed only when it is wanted, as most servers use few.
pub(crate) fn load(name: &str) -> Option<Arc<Definition>> {
    let (_, _, content) =
        FILES.iter().find(|(language, file, _)| *language == name && *file == DEFINITION)?;
    parse(content).ok().map(Arc::new)
}

fn parse(content: &[u8]) -> Result<Definition, String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    toml::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_has_a_sound_definition() {
        for (language, _, content) in FILES.iter().filter(|(_, file, _)| *file == DEFINITION) {
            let definition = parse(content).unwrap_or_else(|error| panic!("{language}: {error}"));
            assert_eq!(definition.name, *language);
            let tool = definition.compile.as_ref().and_then(|compile| compile.tool.as_deref());
            match &definition.compile {
                None => {
                    assert!(!definition.file(&definition.drive.driver).is_empty(), "{language} has no driver")
                }
                Some(compile) => compile.declarations.check(&definition).unwrap_or_else(|problem| {
                    panic!("{language}: {problem}");
                }),
            }
            assert!(tool.is_none_or(|name| !definition.file(name).is_empty()), "{language} has no tool");
            let script = definition.check.as_ref().and_then(|check| check.script.as_deref());
            assert!(script.is_none_or(|name| !definition.file(name).is_empty()), "{language} has no check");
            assert!(!definition.interpreter.commands.is_empty() && !definition.drive.command.is_empty());
        }
        let names: Vec<_> = names().collect();
        assert!(names.contains(&"python") && names.contains(&"bash"));
    }
}
