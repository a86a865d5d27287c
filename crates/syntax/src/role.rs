//! The role itself: `palisade __parse prepare|check LANGUAGE ...`, started by the guest inside a sandbox.
//!
//! ```text
//! prepare LANGUAGE MODE SOURCE PREPARED   reads SOURCE, writes PREPARED; status 1 and a `done` message on failure
//! check   LANGUAGE SOURCE                 reads SOURCE; says what it found
//! ```
//! Messages go to standard output in the form of docs/DRIVERS.md: counted fields, each ended by NUL.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{File, Findings, Language, Mode, Prepared, Problem};

/// The first argument that makes a process this role.
pub const NAME: &str = "__parse";
/// Programs are nested a few hundred levels deep at most; what needs more than this is an attack or a mistake.
const STACK_BYTES: usize = 64 << 20;
/// Files beside the program that are made ready with it.
const FILES_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 4 << 20;
const FOLDERS_DEEP_MAX: usize = 8;
const PROBLEMS_MAX: usize = 100;

/// Plays the role with the arguments that follow its name.
pub fn main(arguments: &[String]) -> ExitCode {
    let arguments = arguments.to_vec();
    let parser = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || play(&arguments));
    match parser.map(std::thread::JoinHandle::join) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn play(arguments: &[String]) -> bool {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["prepare", language, mode, source, prepared] => match (language_of(language), mode_of(mode)) {
            (Some(language), Some(mode)) => prepare(language, mode, Path::new(source), Path::new(prepared)),
            _ => false,
        },
        ["check", language, source] => {
            language_of(language).is_some_and(|language| check(language, Path::new(source)))
        }
        _ => false,
    }
}

fn language_of(name: &str) -> Option<Language> {
    match name {
        "javascript" => Some(Language::JavaScript),
        "typescript" => Some(Language::TypeScript),
        _ => None,
    }
}

fn mode_of(name: &str) -> Option<Mode> {
    match name {
        "last" => Some(Mode::Last),
        "keep" => Some(Mode::Keep),
        _ => None,
    }
}

fn prepare(language: Language, mode: Mode, source: &Path, product: &Path) -> bool {
    let Ok(text) = fs::read_to_string(source) else {
        return fail(&Problem { line: 0, column: 0, message: "the program is not UTF-8 text".to_owned() });
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut prepared = match crate::prepare(text, language, mode) {
        Ok(prepared) => prepared,
        Err(problems) => return problems.first().is_some_and(fail),
    };
    if language == Language::TypeScript {
        let folder = source.parent().unwrap_or(Path::new("/"));
        add_files(&mut prepared, folder, source);
    }
    // Beside and renamed: a driver never sees half of it.
    let beside = product.with_extension("part");
    let written = serde_json::to_vec(&prepared)
        .map_err(io::Error::from)
        .and_then(|bytes| fs::write(&beside, bytes))
        .and_then(|()| fs::rename(&beside, product));
    written.is_ok()
}

fn fail(problem: &Problem) -> bool {
    let place = |number: u32| if number == 0 { String::new() } else { number.to_string() };
    let message = format!("SyntaxError: {}", problem.message);
    say(&["done", "", "error", "1", &message, &place(problem.line), &place(problem.column), "", "", ""]);
    false
}

/// Every TypeScript file beneath the folder, so that the program can import it.
fn add_files(prepared: &mut Prepared, folder: &Path, source: &Path) {
    let mut found = Vec::new();
    walk(folder, FOLDERS_DEEP_MAX, &mut found);
    found.sort();
    for path in found.into_iter().filter(|path| path != source) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let file = match crate::prepare(text, Language::TypeScript, Mode::File) {
            Ok(ready) => File::Ready(Box::new(ready)),
            Err(problems) => File::Wrong { error: problems.first().map(described).unwrap_or_default() },
        };
        prepared.files.insert(path.to_string_lossy().into_owned(), file);
    }
}

fn described(problem: &Problem) -> String {
    format!("{}:{}: {}", problem.line, problem.column, problem.message)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 && !name.starts_with('.') && name != "node_modules" {
            walk(&entry.path(), depth - 1, found);
        }
        let is_typed =
            [".ts", ".mts", ".cts"].iter().any(|end| name.ends_with(end)) && !name.ends_with(".d.ts");
        let is_short = entry.metadata().is_ok_and(|data| data.len() <= FILE_BYTES_MAX);
        if kind.is_file() && is_typed && is_short && found.len() < FILES_MAX {
            found.push(entry.path());
        }
    }
}

fn check(language: Language, source: &Path) -> bool {
    let Ok(text) = fs::read_to_string(source) else { return false };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let Findings { problems, imports } = crate::check(text, language);
    for problem in problems.iter().take(PROBLEMS_MAX) {
        say(&["error", &problem.line.to_string(), &problem.column.to_string(), &problem.message]);
    }
    for (module, line) in imports.iter().take(PROBLEMS_MAX) {
        say(&["import", module, &line.to_string()]);
    }
    true
}

fn say(fields: &[&str]) {
    let mut bytes = fields.len().to_string().into_bytes();
    bytes.push(0);
    for field in fields {
        bytes.extend(field.replace('\0', "\u{fffd}").bytes());
        bytes.push(0);
    }
    // Whoever asked may be gone; then nobody waits for the answer.
    io::stdout().write_all(&bytes).ok();
}
