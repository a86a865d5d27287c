//! What a command of the configuration starts behind the wall: an interpreter of a language, a program with the files that
//! it consists of, or a package that `npx` or `uvx` would fetch.
//!
//! A program outside of the system's directories is shown with the smallest directory that it needs: a virtual environment,
//! a `node_modules`, the package that it belongs to, or the file alone. Everything else is `read` of the configuration.
//! What a file names that a server could have made is bounded by [`super::named`].

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use backends::host::inventory::is_program;

use super::folders::Around;
use super::named::{Named, Places, is_system};
use super::packaged::{self, PackagedCommand};

/// How many interpreters of scripts are followed.
const DEPTH_MAX: usize = 4;
/// How many links are followed.
const LINKS_MAX: usize = 8;
const HEAD_BYTES: u64 = 512;

/// What a command starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A program of this machine.
    Program(Launch),
    /// A package.
    Packaged(PackagedCommand),
}

/// A program, and what it consists of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// The language whose interpreter runs it. The first argument is empty then.
    pub(super) language: Option<&'static str>,
    pub(super) argv: Vec<String>,
    pub(super) binds: Vec<PathBuf>,
}

/// Resolves a command line of the configuration.
pub(super) fn resolve(words: &[String], around: &Around<'_>) -> Result<Command, String> {
    let (program, args) = words.split_first().ok_or("there is no command")?;
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    if let Some(wanted) = packaged::parse(name, args)? {
        return Ok(Command::Packaged(wanted));
    }
    if name == "docker" || name == "podman" {
        return Err(format!("{name} cannot start containers behind the wall"));
    }
    let (mut launch, mut args, places) = (Launch::default(), args.to_vec(), Places::new(around));
    match language_of(name).filter(|_| !program.contains('/')) {
        // By name alone it is the language, whatever a version manager puts on the PATH.
        Some(language) => {
            launch.language = Some(language);
            launch.argv.push(String::new());
            args = launch.show_script(args, &places)?;
        }
        None => {
            let path = locate(program).ok_or_else(|| format!("`{program}` is no program here"))?;
            launch.start(&path, (&mut Named::default(), &places), 0)?;
            if language_of(name).is_some() {
                args = launch.show_script(args, &places)?;
            }
        }
    }
    launch.argv.extend(args);
    launch.binds.sort();
    launch.binds.dedup();
    launch.binds.iter().try_for_each(|path| places.check(path))?;
    Ok(Command::Program(launch))
}

/// The language that a command name stands for.
fn language_of(name: &str) -> Option<&'static str> {
    let plain = name.trim_end_matches(|one: char| one.is_ascii_digit() || one == '.');
    match plain {
        "python" => Some("python"),
        "node" | "nodejs" => Some("javascript"),
        _ => None,
    }
}

/// The file that a command word names.
pub(super) fn locate(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        let path = PathBuf::from(word);
        return (path.is_absolute() && is_program(&path)).then(|| without_dots(&path));
    }
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    candidates.find_map(|folder| Some(folder.join(word)).filter(|file| is_program(file)))
}

/// A path without `.` and `..`, whose parts need not exist inside.
fn without_dots(path: &Path) -> PathBuf {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let folder = path.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
    match folder.zip(path.file_name()).filter(|_| !is_plain) {
        Some((folder, name)) => folder.join(name),
        None => path.to_owned(),
    }
}

impl Launch {
    /// Adds a program and its interpreters.
    fn start(
        &mut self,
        path: &Path,
        (named, places): (&mut Named, &Places<'_>),
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("{} has too many interpreters", path.display()));
        }
        let real = named.follow(path, places)?;
        self.show_chain(path, places);
        self.show(&real, places);
        named.names_the_next(&real, places);
        let mut head = Vec::new();
        File::open(&real)
            .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
            .map_err(|error| format!("{}: {error}", real.display()))?;
        let text = path.to_str().ok_or_else(|| format!("{} is no text", path.display()))?;
        let interpreter = interpreter(&head).map_err(|why| format!("{}: {why}", real.display()))?;
        match interpreter {
            // A name is looked for on a PATH that differs inside.
            Some(Interpreter::Named(name)) if depth == 0 && language_of(&name).is_some() => {
                self.language = language_of(&name);
                let script = real.to_str().ok_or_else(|| format!("{} is no text", real.display()))?;
                self.argv = vec![String::new(), script.to_owned()];
            }
            Some(Interpreter::Named(name)) => {
                let found = locate(&name).ok_or_else(|| format!("`{name}` is no program here"))?;
                self.start(&found, (named, places), depth + 1)?;
            }
            Some(Interpreter::At(interpreter)) => self.start(&interpreter, (named, places), depth + 1)?,
            None => self.show_libraries(&real, (named, places))?,
        }
        if depth == 0 && self.argv.is_empty() {
            self.argv = vec![text.to_owned()];
        }
        Ok(())
    }

    /// Shows the script that an interpreter is given. Returns the arguments, with a path that exists inside.
    fn show_script(&mut self, mut args: Vec<String>, places: &Places<'_>) -> Result<Vec<String>, String> {
        let script = args.iter_mut().find(|word| !word.starts_with('-'));
        let Some(word) = script.filter(|word| word.starts_with('/') && Path::new(word.as_str()).is_file())
        else {
            return Ok(args);
        };
        let path = without_dots(Path::new(word.as_str()));
        let real = Named::default().follow(&path, places)?;
        self.show_chain(&path, places);
        self.show(&real, places);
        if let Some(text) = path.to_str() {
            text.clone_into(word);
        }
        Ok(args)
    }

    /// Shows a file and every link on the way to it: an interpreter of a virtual environment is a chain of links.
    fn show_chain(&mut self, path: &Path, places: &Places<'_>) {
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            self.show(&at, places);
            let Ok(target) = std::fs::read_link(&at) else { return };
            let next = at.parent().unwrap_or(Path::new("/")).join(target);
            let Some((Ok(folder), name)) = next.parent().map(std::fs::canonicalize).zip(next.file_name())
            else {
                return;
            };
            at = folder.join(name);
        }
    }

    fn show(&mut self, path: &Path, places: &Places<'_>) {
        if is_system(path) {
            return;
        }
        let folder = path.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
        let real = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
        let writable = real.as_deref().and_then(|real| places.writable_around(real));
        self.binds.push(match writable {
            None => belongs_to(path, Path::new("/")),
            // A server that writes there decides which files are around this one.
            Some(folder) if path.starts_with(folder) => belongs_to(path, folder),
            Some(_) => path.to_owned(),
        });
    }

    /// Shows the libraries beside a program that has its own: an interpreter of a version manager.
    fn show_libraries(
        &mut self,
        real: &Path,
        (named, places): (&mut Named, &Places<'_>),
    ) -> Result<(), String> {
        let folder = real.parent().filter(|folder| folder.file_name() == Some(OsStr::new("bin")));
        let libraries = folder.and_then(Path::parent).map(|prefix| prefix.join("lib"));
        if let Some(libraries) = libraries.filter(|path| path.is_dir()) {
            named.follow(&libraries, places)?;
            self.show(&libraries, places);
        }
        Ok(())
    }
}

/// The smallest directory beneath `top` that a file needs.
fn belongs_to(path: &Path, top: &Path) -> PathBuf {
    let mut walked = PathBuf::new();
    for part in path.components() {
        walked.push(part);
        if part == Component::Normal(OsStr::new("node_modules")) && walked.starts_with(top) {
            return walked;
        }
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    // Neither a home directory nor anything above it, and no directory at the top.
    let is_own = |folder: &&Path| {
        folder.components().count() > 2 && !home.starts_with(folder) && folder.starts_with(top)
    };
    let has = |folder: &Path, name: &str| folder.join(name).is_file();
    let folders = || path.ancestors().skip(1).filter(is_own).take(6);
    let whole = folders().find(|folder| has(folder, "pyvenv.cfg"));
    let whole = whole
        .or_else(|| folders().find(|folder| has(folder, "package.json") || has(folder, "pyproject.toml")));
    whole.unwrap_or(path).to_owned()
}

#[derive(Debug, PartialEq, Eq)]
enum Interpreter {
    /// A path.
    At(PathBuf),
    /// A name that env(1) looks for.
    Named(String),
}

/// The interpreter that the first line of a script names. See execve(2), "Interpreter scripts".
fn interpreter(head: &[u8]) -> Result<Option<Interpreter>, String> {
    let line = head.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let mut words = line.split_whitespace().peekable();
    let Some(first) = words.next().map(PathBuf::from) else { return Ok(None) };
    if first.file_name() != Some(OsStr::new("env")) {
        return match first.is_absolute() {
            true => Ok(Some(Interpreter::At(first))),
            false => Err("its first line names an interpreter without its path".to_owned()),
        };
    }
    words.next_if_eq(&"-S");
    match words.find(|word| word.starts_with('-') || !word.contains('=')) {
        // What an option takes could be mistaken for the interpreter.
        Some(option) if option.starts_with('-') => Err(format!(
            "its first line gives env(1) the option `{}`; only -S can be used",
            option.escape_debug()
        )),
        named => Ok(named.map(|name| Interpreter::Named(name.to_owned()))),
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
