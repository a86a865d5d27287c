//! The role itself: `palisade __parse wait|prepare|check ...`, started by the guest inside a sandbox.
//!
//! ```text
//! wait                                    does what it is told on standard input: counted fields of
//!                                         `prepare` ID LANGUAGE MODE SOURCE PREPARED; answers each with a `done`;
//!                                         in mode `keep` removes SOURCE
//! prepare LANGUAGE MODE SOURCE PREPARED   reads SOURCE, writes PREPARED; status 1 and a `done` message on failure
//! check   LANGUAGE SOURCE                 reads SOURCE; says what it found
//! ```
//! One that waits is there before the program is, so that nobody waits for its start; in mode `last` there is one
//! program, and it ends after it.
//!
//! Messages go to standard output in the form of docs/DRIVERS.md: counted fields, each ended by NUL.

use std::fs;
use std::io::{self, BufRead, Read, Write};
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
/// An order: fields, and the longest of them.
const ORDER_FIELDS_MAX: usize = 16;
const ORDER_FIELD_BYTES_MAX: u64 = 64 << 10;

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
        ["wait"] => wait(&mut io::stdin().lock()),
        ["prepare", language, mode, source, prepared] => match (language_of(language), mode_of(mode)) {
            (Some(language), Some(mode)) => {
                let prepared = prepare(language, mode, Path::new(source), Path::new(prepared));
                if let Err(Unready::Wrong(problem)) = &prepared {
                    say_done("", Some(problem));
                }
                prepared.is_ok()
            }
            _ => false,
        },
        ["check", language, source] => {
            language_of(language).is_some_and(|language| check(language, Path::new(source)))
        }
        _ => false,
    }
}

/// Does what it is told until nobody tells it anything; `false` when it was told nonsense.
fn wait(orders: &mut impl BufRead) -> bool {
    while let Some(fields) = next_order(orders) {
        let words: Vec<&str> = fields.iter().map(String::as_str).collect();
        let ["prepare", id, language, mode, source, product] = words.as_slice() else { return false };
        let (Some(language), Some(mode)) = (language_of(language), mode_of(mode)) else { return false };
        let prepared = prepare(language, mode, Path::new(source), Path::new(product));
        if mode == Mode::Keep {
            // The file was for this process only, and the program must not find it. The host removes what is
            // left.
            fs::remove_file(source).ok();
        }
        match prepared {
            Ok(()) => say(&["done", id, "ok", "0", "", "", "", "", "", ""]),
            Err(Unready::Wrong(problem)) => say_done(id, Some(&problem)),
            Err(Unready::Unwritten) => say_done(id, None),
        }
        if mode == Mode::Last {
            return true;
        }
    }
    true
}

/// A count and so many fields, each ended by NUL; nothing at the end, or when it makes no sense.
fn next_order(orders: &mut impl BufRead) -> Option<Vec<String>> {
    let count = next_field(orders)?.parse::<usize>().ok().filter(|count| *count <= ORDER_FIELDS_MAX)?;
    (0..count).map(|_| next_field(orders)).collect()
}

fn next_field(orders: &mut impl BufRead) -> Option<String> {
    let mut field = Vec::new();
    orders.take(ORDER_FIELD_BYTES_MAX).read_until(0, &mut field).ok()?;
    field.pop().filter(|last| *last == 0)?;
    String::from_utf8(field).ok()
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

/// Why a program was not made ready.
enum Unready {
    /// It is no program of its language.
    Wrong(Problem),
    /// The product could not be written.
    Unwritten,
}

fn prepare(language: Language, mode: Mode, source: &Path, product: &Path) -> Result<(), Unready> {
    let no_text = Problem { line: 0, column: 0, message: "the program is not UTF-8 text".to_owned() };
    let text = fs::read_to_string(source).map_err(|_| Unready::Wrong(no_text))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut prepared = crate::prepare(text, language, mode)
        .map_err(|problems| problems.into_iter().next().map_or(Unready::Unwritten, Unready::Wrong))?;
    if language == Language::TypeScript {
        let folder = source.parent().unwrap_or(Path::new("/"));
        add_files(&mut prepared, folder, source);
    }
    // Beside and renamed: a driver never sees half of it.
    let beside = product.with_extension("part");
    serde_json::to_vec(&prepared)
        .map_err(io::Error::from)
        .and_then(|bytes| fs::write(&beside, bytes))
        .and_then(|()| fs::rename(&beside, product))
        .map_err(|_| Unready::Unwritten)
}

/// That a program could not be made ready, and what is wrong with it.
fn say_done(id: &str, problem: Option<&Problem>) {
    let place = |number: u32| if number == 0 { String::new() } else { number.to_string() };
    let message = problem.map(|problem| format!("SyntaxError: {}", problem.message)).unwrap_or_default();
    let (line, column) = problem.map_or((0, 0), |problem| (problem.line, problem.column));
    say(&["done", id, "error", "1", &message, &place(line), &place(column), "", "", ""]);
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
    let mut stdout = io::stdout().lock();
    stdout.write_all(&bytes).and_then(|()| stdout.flush()).ok();
}

#[cfg(test)]
mod tests {
    use super::{next_order, wait};

    #[test]
    fn orders_are_counted_fields() {
        let mut words = &b"3\0a\0\0\xc3\xa9\x001\0b\0"[..];
        assert_eq!(next_order(&mut words), Some(vec!["a".to_owned(), String::new(), "é".to_owned()]));
        assert_eq!(next_order(&mut words), Some(vec!["b".to_owned()]));
        assert_eq!(next_order(&mut words), None);
    }

    #[test]
    fn nonsense_is_no_order() {
        for words in [&b"99999\0a\0"[..], b"x\0", b"2\0a\0", b"1\0\xff\0", b"-1\0", b"1\0a"] {
            assert_eq!(next_order(&mut &*words), None, "{words:?}");
        }
        assert!(!wait(&mut &b"1\0dance\0"[..]), "an unknown word");
    }
}
