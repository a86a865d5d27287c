//! What a command of the configuration starts behind the wall: an interpreter of a language, a program with the files that
//! it consists of, or a package that `npx` or `uvx` would fetch.
//!
//! A program outside of the system's directories is shown with the smallest directory that it needs: a virtual environment,
//! a `node_modules`, the package that it belongs to, or the file alone. Everything else is `read` of the configuration.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use backends::host::inventory::is_program;

use super::packaged::{self, PackagedCommand};

/// How many interpreters of scripts are followed.
const DEPTH_MAX: usize = 4;
/// How many links are followed.
const LINKS_MAX: usize = 8;
const HEAD_BYTES: u64 = 512;
/// Directories that every sandbox shows.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"];

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
pub(super) fn resolve(words: &[String]) -> Result<Command, String> {
    let (program, args) = words.split_first().ok_or("there is no command")?;
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    if let Some(wanted) = packaged::parse(name, args)? {
        return Ok(Command::Packaged(wanted));
    }
    if name == "docker" || name == "podman" {
        return Err(format!("{name} cannot start containers behind the wall"));
    }
    let (mut launch, mut args) = (Launch::default(), args.to_vec());
    match language_of(name).filter(|_| !program.contains('/')) {
        // By name alone it is the language, whatever a version manager puts on the PATH.
        Some(language) => {
            launch.language = Some(language);
            launch.argv.push(String::new());
            args = launch.show_script(args);
        }
        None => {
            let path = locate(program).ok_or_else(|| format!("`{program}` is no program here"))?;
            launch.start(&path, 0)?;
            if language_of(name).is_some() {
                args = launch.show_script(args);
            }
        }
    }
    launch.argv.extend(args);
    launch.binds.sort();
    launch.binds.dedup();
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
    fn start(&mut self, path: &Path, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("{} has too many interpreters", path.display()));
        }
        let real = std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.show_chain(path);
        self.show(&real);
        let mut head = Vec::new();
        File::open(&real)
            .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
            .map_err(|error| format!("{}: {error}", real.display()))?;
        let text = path.to_str().ok_or_else(|| format!("{} is no text", path.display()))?;
        match interpreter(&head) {
            // A name is looked for on a PATH that differs inside.
            Some(Interpreter::Named(name)) if depth == 0 && language_of(&name).is_some() => {
                self.language = language_of(&name);
                let script = real.to_str().ok_or_else(|| format!("{} is no text", real.display()))?;
                self.argv = vec![String::new(), script.to_owned()];
            }
            Some(Interpreter::Named(name)) => {
                let found = locate(&name).ok_or_else(|| format!("`{name}` is no program here"))?;
                self.start(&found, depth + 1)?;
            }
            Some(Interpreter::At(interpreter)) => self.start(&interpreter, depth + 1)?,
            None => self.show_libraries(&real),
        }
        if depth == 0 && self.argv.is_empty() {
            self.argv = vec![text.to_owned()];
        }
        Ok(())
    }

    /// Shows the script that an interpreter is given. Returns the arguments, with a path that exists inside.
    fn show_script(&mut self, mut args: Vec<String>) -> Vec<String> {
        let script = args.iter_mut().find(|word| !word.starts_with('-'));
        let Some(word) = script.filter(|word| word.starts_with('/') && Path::new(word.as_str()).is_file())
        else {
            return args;
        };
        let path = without_dots(Path::new(word.as_str()));
        self.show_chain(&path);
        if let Ok(real) = std::fs::canonicalize(&path) {
            self.show(&real);
        }
        if let Some(text) = path.to_str() {
            text.clone_into(word);
        }
        args
    }

    /// Shows a file and every link on the way to it: an interpreter of a virtual environment is a chain of links.
    fn show_chain(&mut self, path: &Path) {
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            self.show(&at);
            let Ok(target) = std::fs::read_link(&at) else { return };
            let next = at.parent().unwrap_or(Path::new("/")).join(target);
            let Some((Ok(folder), name)) = next.parent().map(std::fs::canonicalize).zip(next.file_name())
            else {
                return;
            };
            at = folder.join(name);
        }
    }

    fn show(&mut self, path: &Path) {
        if !SYSTEM.iter().any(|system| path.starts_with(system)) {
            self.binds.push(belongs_to(path));
        }
    }

    /// Shows the libraries beside a program that has its own: an interpreter of a version manager.
    fn show_libraries(&mut self, real: &Path) {
        let folder = real.parent().filter(|folder| folder.file_name() == Some(OsStr::new("bin")));
        let libraries = folder.and_then(Path::parent).map(|prefix| prefix.join("lib"));
        if let Some(libraries) = libraries.filter(|path| path.is_dir()) {
            self.show(&libraries);
        }
    }
}

/// The smallest directory that a file needs.
fn belongs_to(path: &Path) -> PathBuf {
    let mut walked = PathBuf::new();
    for part in path.components() {
        walked.push(part);
        if part == Component::Normal(OsStr::new("node_modules")) {
            return walked;
        }
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    // Neither a home directory nor anything above it, and no directory at the top.
    let is_own = |folder: &&Path| folder.components().count() > 2 && !home.starts_with(folder);
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
fn interpreter(head: &[u8]) -> Option<Interpreter> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = PathBuf::from(words.next()?);
    if first.file_name() == Some(OsStr::new("env")) {
        let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
        return named.map(|name| Interpreter::Named(name.to_owned()));
    }
    Some(Interpreter::At(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(words: &[&str]) -> Launch {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match resolve(&words).unwrap() {
            Command::Program(launch) => launch,
            Command::Packaged(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_language_by_name_is_the_interpreter_of_that_language() {
        for (word, language) in [("python3.11", "python"), ("python", "python"), ("node", "javascript")] {
            let launch = launch(&[word, "-m", "x"]);
            assert_eq!((launch.language, launch.argv[0].as_str()), (Some(language), ""));
            assert_eq!(launch.argv[1..], ["-m", "x"]);
        }
    }

    #[test]
    fn a_script_is_shown_with_what_it_belongs_to() {
        let folder = harness::TestFolder::new();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let script = root.join("app/node_modules/x/cli.js");
        std::fs::create_dir_all(script.parent().unwrap()).unwrap();
        std::fs::write(&script, "#!/usr/bin/env node\n").unwrap();
        executable(&script);
        let found = launch(&[script.to_str().unwrap(), "--stdio"]);
        assert_eq!(found.language, Some("javascript"));
        assert_eq!(found.argv, ["", script.to_str().unwrap(), "--stdio"]);
        assert_eq!(found.binds, [root.join("app/node_modules")]);

        let venv = root.join("venv");
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        std::fs::write(venv.join("pyvenv.cfg"), "").unwrap();
        let script = venv.join("bin/server");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        executable(&script);
        let found = launch(&[script.to_str().unwrap()]);
        assert_eq!((found.language, found.binds), (None, vec![venv]));

        let alone = root.join("alone");
        std::fs::write(&alone, "#!/bin/sh\n").unwrap();
        executable(&alone);
        assert_eq!(launch(&[alone.to_str().unwrap()]).binds, std::slice::from_ref(&alone));
        let dotted = root.join("app/../alone");
        let found = launch(&["python3", "-u", dotted.to_str().unwrap()]);
        assert_eq!((&found.argv[2], found.binds), (&alone.to_str().unwrap().to_owned(), vec![alone]));
    }

    fn executable(path: &Path) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_cannot_be_started_is_told() {
        let fails = |words: &[&str]| {
            resolve(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap_err()
        };
        assert!(fails(&["no-such-program-here"]).contains("is no program"));
        assert!(fails(&["relative/path"]).contains("is no program"));
        assert!(fails(&["docker", "run", "x"]).contains("behind the wall"));
        assert!(fails(&[]).contains("no command"));
    }

    #[test]
    fn the_first_line_names_the_interpreter() {
        let named = |name: &str| Some(Interpreter::Named(name.to_owned()));
        assert_eq!(interpreter(b"#!/usr/bin/env node\nx"), named("node"));
        assert_eq!(interpreter(b"#! /usr/bin/env -S A=1 python3 -I\n"), named("python3"));
        assert_eq!(interpreter(b"#!/bin/sh -e\n"), Some(Interpreter::At("/bin/sh".into())));
        assert_eq!(interpreter(b"\x7fELF"), None);
    }
}
