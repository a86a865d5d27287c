//! The program of a command line: `FILE [ARGS]`, `-` for standard input, or `-c CODE`.
//!
//! `run`, `check` and `sandbox exec` read programs here. Everything behind FILE belongs to the program, also
//! words that begin with a hyphen.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use engine::RunError;

/// The program and its arguments.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    /// The program itself
    #[arg(short = 'c', value_name = "CODE")]
    code: Option<String>,
    /// File with the program, or - for standard input, and the program's arguments. Options behind FILE are
    /// the program's. With -c these are all arguments; behind -- they may begin with a hyphen
    #[arg(value_name = "FILE ARGS", trailing_var_arg = true)]
    rest: Vec<String>,
}

/// A program as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) code: String,
    pub(crate) args: Vec<String>,
    pub(crate) origin: ProgramOrigin,
}

/// Where a program came from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProgramOrigin {
    CommandLine,
    /// Standard input is used up.
    Stdin,
    File(PathBuf),
}

impl ProgramOrigin {
    /// The file of the program, if it has one.
    pub(crate) fn file(&self) -> Option<&Path> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

impl ProgramArguments {
    /// All words as those of a command, whose first is `first`.
    pub(crate) fn words(&self, first: &str) -> Vec<String> {
        std::iter::once(first.to_owned()).chain(self.rest.iter().cloned()).collect()
    }

    /// Reads the program. `language` is the word before it, for the remedy.
    pub(crate) fn read(&self, language: &str) -> Result<Program, RunError> {
        if let Some(code) = &self.code {
            let (code, args) = (code.clone(), self.rest.clone());
            return Ok(Program { code, args, origin: ProgramOrigin::CommandLine });
        }
        let Some((file, args)) = self.rest.split_first() else { return Err(no_program(language)) };
        let origin = match file.as_str() {
            "-" => ProgramOrigin::Stdin,
            file => ProgramOrigin::File(PathBuf::from(file)),
        };
        Ok(Program { code: read_text(file)?, args: args.to_vec(), origin })
    }
}

fn no_program(language: &str) -> RunError {
    let error = RunError::new("bad_code", "there is no program");
    let looks_like_file = Path::new(language).is_file();
    error.remedy(match (looks_like_file, mcp::languages::canonical(language).is_ok()) {
        (true, _) => format!("give the language before the file: palisade run python {language}"),
        (false, true) => "give a FILE, - for standard input, or -c CODE".to_owned(),
        (false, false) => {
            let command = terminal::plain(language);
            format!("`{command}` is not a language; a command of a shell is a program: bash -c '{command}'")
        }
    })
}

/// The text of a file, or of standard input for `-`, up to a little more than a program may have.
pub(crate) fn read_text(file: &str) -> Result<String, RunError> {
    let limit = engine::CODE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let (name, read) = match file {
        "-" => ("standard input", io::stdin().lock().take(limit).read_to_end(&mut bytes)),
        _ => (file, File::open(file).and_then(|open| open.take(limit).read_to_end(&mut bytes))),
    };
    read.map_err(|error| unreadable("bad_code", name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        RunError::new("bad_code", format!("{name} is not UTF-8 text")).remedy("convert it to UTF-8")
    })
}

/// The error for a file of the user that cannot be read.
pub(crate) fn unreadable(code: &str, file: &str, error: &io::Error) -> RunError {
    RunError::new(code, format!("{file} cannot be read: {error}"))
        .remedy("check the path and its permissions")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        language: String,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        program: ProgramArguments,
    }

    fn line(words: &[&str]) -> Result<Line, clap::Error> {
        Line::try_parse_from([&["palisade", "python"], words].concat())
    }

    #[test]
    fn options_behind_the_file_belong_to_the_program() {
        let folder = harness::TestFolder::new();
        let file = folder.file("a.py", "print(1)").to_string_lossy().into_owned();
        let parsed = line(&[&file, "--help", "--json", "-c", "x", "--", "-"]).unwrap();
        assert!(!parsed.json);
        let program = parsed.program.read("python").unwrap();
        assert_eq!(program.args, ["--help", "--json", "-c", "x", "--", "-"]);
        assert_eq!((program.code.as_str(), program.origin.file()), ("print(1)", Some(Path::new(&file))));
    }

    #[test]
    fn options_before_the_file_are_palisades_and_must_be_known() {
        assert!(line(&["--json", "-c", "1"]).unwrap().json);
        assert!(line(&["-c", "1", "--json"]).unwrap().json);
        assert!(line(&["--jsn", "a.py"]).is_err());
        let program = line(&["-c", "1", "a", "--json"]).unwrap().program.read("python").unwrap();
        assert_eq!(program.args, ["a", "--json"]);
        let program = line(&["-c", "1", "--", "--json"]).unwrap().program.read("python").unwrap();
        assert_eq!(program.args, ["--json"]);
    }

    #[test]
    fn a_file_in_the_place_of_the_language_is_noticed() {
        let folder = harness::TestFolder::new();
        let file = folder.file("a.py", "1").to_string_lossy().into_owned();
        let nothing = ProgramArguments { code: None, rest: Vec::new() };
        assert!(nothing.read(&file).unwrap_err().remedy.unwrap().ends_with("a.py"));
        assert!(nothing.read("python").unwrap_err().remedy.unwrap().contains("-c CODE"));
    }
}
