//! The request to run a program, and the checks on it.
//!
//! [`RunRequest::check`] runs once, before any other step of a run. It does not consult the machine or the
//! policy.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::sync::Arc;

use policy::Ask;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use wire::WindowSize;

use crate::audit::DecisionRef;
use crate::given::Given;
use crate::links::{GRANTS_MAX, Grant};
use crate::packages::Wanted;
use crate::result::RunError;
use crate::runtimes::Runtime;
use crate::sandboxes::SandboxAddress;
use crate::unpack;
use crate::variables;

/// The largest program.
pub const CODE_BYTES_MAX: usize = 1 << 20;
/// The largest number of arguments. `ARGS_BYTES_MAX` limits their total length.
pub const ARGS_MAX: usize = 1024;
/// The largest number of files placed before a run.
pub const INPUTS_MAX: usize = 64;
/// The largest total size of these files.
pub const INPUT_BYTES_MAX: usize = 16 << 20;
/// The largest size of the variables as JSON text.
pub const VARIABLES_BYTES_MAX: usize = 1 << 20;
const ARGS_BYTES_MAX: usize = 128 << 10;
const PATH_BYTES_MAX: usize = 1024;
const TERMINAL_KIND_BYTES_MAX: usize = 64;

/// One program to run.
#[derive(Debug, Default)]
pub struct RunRequest {
    /// Name of the runtime.
    pub language: String,
    /// The program.
    pub code: String,
    /// The file name that the program has in a fresh sandbox, and in its error messages. `None`, and any name
    /// that is no plain file name, selects that of the language. A compiled language always has its own.
    pub source_name: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its standard input.
    pub stdin: Stdin,
    /// Variables bound to native values of the language. A name that begins with `$` sets the environment
    /// instead: the check moves it to `given`.
    pub variables: Map<String, Value>,
    /// What the run is given besides: environment, proxies, secrets.
    pub given: Given,
    /// Files placed in the workspace before the run.
    pub inputs: Vec<InputFile>,
    /// The persistent sandbox to run in, and the context there. `None` asks for a fresh sandbox.
    pub sandbox: Option<SandboxAddress>,
    /// The wall to run behind: a name or `own_kernel`. `None` asks for the default one, or for that of the sandbox.
    pub wall: Option<String>,
    /// The lists of walls of the caller's policy. The wall must be in each.
    pub wall_lists: Vec<Vec<String>>,
    /// The limits that the caller asks for.
    pub ask: Ask,
    /// Whether the caller wants the files back that the run created or changed.
    pub collect_files: bool,
    /// Whether the program must be compiled again, even if the build cache has it.
    pub compile_anew: bool,
    /// Whether the run gets a newly built sandbox and does not count as demand for spares. Examinations of the
    /// machine set it; runs of callers do not.
    pub cold: bool,
    /// The names of what the program may reach outside. Usually none. The engine opens them, and takes them from here.
    pub access: Vec<String>,
    /// The packages that the program imports. Usually none. In a persistent sandbox they are installed for all later runs.
    pub packages: Vec<Wanted>,
    /// Is told the progress of their installation. A full channel loses messages.
    pub install_progress: Option<mpsc::Sender<String>>,
    /// The handle of the run, for the record of what it reached.
    pub run_id: Option<String>,
    /// What the program may reach outside, besides what `access` opens.
    pub grants: Vec<Grant>,
    /// A command on a terminal, instead of the program. It runs over the files of a persistent sandbox.
    pub terminal: Option<TerminalRequest>,
    /// The decision that allowed the run, for its receipt.
    pub decision: Option<Arc<DecisionRef>>,
}

/// A command that runs on a terminal inside a sandbox.
#[derive(Debug)]
pub struct TerminalRequest {
    /// The command and its arguments. A shell of the sandbox finds it.
    pub command: Vec<String>,
    /// The kind of the terminal, for the variable `TERM`.
    pub kind: String,
    /// The size of the window.
    pub size: WindowSize,
    /// New sizes of the window.
    pub resizes: mpsc::Receiver<WindowSize>,
}

/// The source of standard input.
#[derive(Debug, Default)]
pub enum Stdin {
    /// End of file at once.
    #[default]
    Empty,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Bytes that arrive during the run. Dropping the sender ends the input.
    Stream(mpsc::Receiver<Vec<u8>>),
    /// The same. The caller is told each time the program waits for input (`RunEvent::InputWanted`).
    Prompted(mpsc::Receiver<Vec<u8>>),
}

/// A file placed in the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputFile {
    /// The path relative to the workspace.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Whether it is an archive that is unpacked in the sandbox, into its own folder, and removed.
    pub unpack: bool,
}

impl RunRequest {
    /// Checks everything that does not depend on the machine, and moves the variables that set the environment
    /// to [`Self::given`].
    pub(crate) fn check(&mut self) -> Result<(), RunError> {
        bounded("code", self.code.len(), CODE_BYTES_MAX)?;
        if self.code.contains('\0') {
            return Err(RunError::bad(
                "code",
                "code contains a NUL character",
                "remove it; no language allows it",
            ));
        }
        self.check_args()?;
        self.check_terminal()?;
        self.check_variables()?;
        self.check_inputs()?;
        bounded("grants", self.grants.len(), GRANTS_MAX)?;
        if let Stdin::Bytes(bytes) = &self.stdin {
            bounded("stdin", bytes.len(), INPUT_BYTES_MAX)?;
        }
        Ok(())
    }

    fn check_args(&self) -> Result<(), RunError> {
        bounded("args", self.args.len(), ARGS_MAX)?;
        bounded("args", self.args.iter().map(String::len).sum(), ARGS_BYTES_MAX)?;
        match self.args.iter().any(|argument| argument.contains('\0')) {
            true => Err(RunError::bad(
                "args",
                "an argument contains a NUL character",
                "pass such data by stdin or inputs",
            )),
            false => Ok(()),
        }
    }

    fn check_terminal(&self) -> Result<(), RunError> {
        let Some(terminal) = &self.terminal else { return Ok(()) };
        if self.sandbox.is_none() {
            let remedy = "open one with sandbox_open";
            return Err(RunError::bad("terminal", "a terminal needs a persistent sandbox", remedy));
        }
        bounded("command", terminal.command.len(), ARGS_MAX)?;
        bounded("command", terminal.command.iter().map(String::len).sum(), ARGS_BYTES_MAX)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-+._".contains(&byte);
        let kind = terminal.kind.as_bytes();
        let is_kind = kind.len() <= TERMINAL_KIND_BYTES_MAX && kind.iter().copied().all(is_name);
        let is_text = terminal.command.iter().all(|word| !word.contains('\0'));
        match (terminal.command.is_empty(), is_kind && is_text) {
            (false, true) => Ok(()),
            (true, _) => Err(RunError::bad("command", "the command is missing", "name a program")),
            (false, false) => {
                let remedy = "leave out control characters and NUL";
                Err(RunError::bad("command", "the command or the kind of the terminal is no name", remedy))
            }
        }
    }

    fn check_variables(&mut self) -> Result<(), RunError> {
        let bytes = serde_json::to_string(&self.variables).map_or(usize::MAX, |text| text.len());
        bounded("variables", bytes, VARIABLES_BYTES_MAX)?;
        self.given.take_marked(&mut self.variables)?;
        for name in self.variables.keys() {
            if let Some(rule) = variables::broken_rule(name) {
                let message = format!("`{}` cannot be a variable: {rule}", name.escape_debug());
                return Err(RunError::bad("variables", &message, "rename it"));
            }
        }
        self.given.check()
    }

    fn check_inputs(&self) -> Result<(), RunError> {
        bounded("inputs", self.inputs.len(), INPUTS_MAX)?;
        bounded("inputs", self.inputs.iter().map(|input| input.content.len()).sum(), INPUT_BYTES_MAX)?;
        for input in &self.inputs {
            unpack::check(input)?;
            if !is_plain_path(&input.path) {
                let message = format!("`{}` is not a path beneath the workspace", input.path.escape_debug());
                return Err(RunError::bad(
                    "inputs",
                    &message,
                    "give a relative path without `..`, for example data/in.csv",
                ));
            }
        }
        self.check_places()
    }

    /// Two inputs cannot have one place, and a file has no files beneath it.
    fn check_places(&self) -> Result<(), RunError> {
        let paths: BTreeSet<&str> = self.inputs.iter().map(|input| input.path.as_str()).collect();
        let bad = |message: String| RunError::bad("inputs", &message, "give each input a path of its own");
        if paths.len() < self.inputs.len() {
            return Err(bad("two inputs have the same path".to_owned()));
        }
        for path in &paths {
            let folders = path.match_indices('/').map(|(end, _)| &path[..end]);
            if let Some(file) = folders.into_iter().find(|folder| paths.contains(folder)) {
                return Err(bad(format!("`{}` is a file and a folder", file.escape_debug())));
            }
        }
        Ok(())
    }
}

impl RunRequest {
    /// The file name of the program in the sandbox.
    pub(crate) fn source_in<'a>(&'a self, runtime: &'a Runtime) -> &'a str {
        let chosen = self.source_name.as_deref().filter(|name| is_source_name(name));
        chosen.filter(|name| runtime.takes_name(name)).unwrap_or(runtime.source())
    }
}

/// Whether a program can have that file name. Names with a dot in front are Palisade's own.
fn is_source_name(name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 200;
    is_plain_path(name) && !name.contains('/') && !name.starts_with('.') && name.len() <= NAME_BYTES_MAX
}

fn bounded(what: &str, found: usize, most: usize) -> Result<(), RunError> {
    if found <= most {
        return Ok(());
    }
    let message = format!("{what} is too large: {found}, and {most} is the most");
    Err(RunError::bad(what, &message, "send less, or pass large data as files"))
}

/// Whether a path is relative and consists of plain names only.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let names = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    !path.is_empty() && path.len() <= PATH_BYTES_MAX && !path.contains('\0') && names
}

/// Refuses names that the language reserves, and environment variables that cannot take effect.
pub(crate) fn check_names(request: &RunRequest, runtime: &Runtime) -> Result<(), RunError> {
    if let Some(name) = request.variables.keys().find(|name| runtime.reserves(name)) {
        let message =
            format!("`{name}` cannot be a variable: {} keeps that name for itself", request.language);
        return Err(RunError::bad("variables", &message, "rename it"));
    }
    request.given.check_for(runtime, request.sandbox.is_some() && runtime.is_live())?;
    let source = request.source_in(runtime);
    if request.inputs.iter().any(|input| input.path == source) {
        let message = format!("`{source}` is where the program itself goes");
        return Err(RunError::bad("inputs", &message, "give the input another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RunRequest {
        RunRequest { language: "python".to_owned(), code: "1".to_owned(), ..RunRequest::default() }
    }

    fn code_of(mut request: RunRequest) -> String {
        request.check().unwrap_err().code
    }

    #[test]
    fn only_a_plain_name_becomes_the_name_of_the_program() {
        assert!(is_source_name("a.py") && is_source_name("my script"));
        for bad in ["", ".", "..", "a/b", "/a", ".palisade-main.py", "a\0", &"x".repeat(201)] {
            assert!(!is_source_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn an_ordinary_request_passes() {
        request().check().unwrap();
    }

    #[test]
    fn too_much_and_malformed_is_refused_by_name() {
        assert_eq!(code_of(RunRequest { code: "x".repeat(CODE_BYTES_MAX + 1), ..request() }), "bad_code");
        assert_eq!(code_of(RunRequest { code: "a\0b".to_owned(), ..request() }), "bad_code");
        assert_eq!(code_of(RunRequest { args: vec!["a\0".to_owned()], ..request() }), "bad_args");
        assert_eq!(code_of(RunRequest { args: vec![String::new(); ARGS_MAX + 1], ..request() }), "bad_args");
        let variables = Map::from_iter([("a b".to_owned(), Value::Null)]);
        assert_eq!(code_of(RunRequest { variables, ..request() }), "bad_variables");
        let variables = Map::from_iter([("$A B".to_owned(), Value::from("x"))]);
        assert_eq!(code_of(RunRequest { variables, ..request() }), "bad_variables");
        for path in ["/etc/passwd", "../x", "a/../../b", "", "x\0y"] {
            let inputs = vec![InputFile { path: path.to_owned(), ..InputFile::default() }];
            assert_eq!(code_of(RunRequest { inputs, ..request() }), "bad_inputs", "{path:?}");
        }
        let inputs = vec![InputFile { path: "a.txt".to_owned(), unpack: true, ..InputFile::default() }];
        assert_eq!(code_of(RunRequest { inputs, ..request() }), "bad_inputs");
    }
}
