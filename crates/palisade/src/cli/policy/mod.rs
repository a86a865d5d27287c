//! `palisade policy`: checks and tests policy files, explains what they say about a call, and learns them from calls.

mod diff;
mod explain;
mod learn;
mod test;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::policy::{Book, Flaw, Rules, Syntax};
use clap::{Args, Subcommand};
use engine::admin::caller_named;
use engine::{Caller, Key, Keys};
use terminal::{BAD_USAGE, complain, plain};

use crate::config::{self, Settings};
use crate::options::Options;
use crate::state;

const WRONG: u8 = 1;
const EXIT_CODES: &str = "\
Exit status: 0 when the call is allowed, 1 when it is denied, needs an approval or a file is refused, 2 when the command is wrong.";

/// Arguments of `policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the policies, and which callers they bind
    List,
    /// Say whether policy files are sound, and whether their examples come true
    Check {
        /// The files; none: those that are in force
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Say which rules decide about a call, without counting it
    #[command(after_help = EXIT_CODES)]
    Explain(explain::ExplainArguments),
    /// Check that calls are allowed and denied as expected
    #[command(after_help = test::AFTER_HELP)]
    Test {
        /// A file of cases; none: the examples of the policies in force
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print the policy that allows exactly what was called
    #[command(after_help = learn::AFTER_HELP)]
    Learn(learn::LearnArguments),
}

pub(crate) fn main(options: &Options, arguments: &PolicyArguments) -> ExitCode {
    match &arguments.verb {
        Verb::List => answer(in_force(options).map(|book| (list(&book), true))),
        Verb::Check { files } if files.is_empty() => {
            let told = |book: Book| {
                let notes: String = book.names().into_iter().map(|name| notes(&book, name)).collect();
                format!("the policies in force are sound: {}\n{notes}", book.names().join(", "))
            };
            answer(in_force(options).map(|book| (told(book), true)))
        }
        Verb::Check { files } => {
            let mut refused = Vec::new();
            for file in files {
                match read(file) {
                    Ok(rules) => notes_of(&rules).iter().for_each(|note| {
                        complain(&format!("{}: {}", file.display(), plain(&note.to_string())), None);
                    }),
                    Err(message) => refused.push(message),
                }
            }
            refused.iter().for_each(|message| complain(message, None));
            match refused.is_empty() {
                true => answer(Ok((format!("{} sound", files.len()), true))),
                false => ExitCode::from(WRONG),
            }
        }
        Verb::Explain(asked) => match asked.given() {
            Ok(given) => answer(explain::explain(options, asked, given)),
            Err(message) => usage(&message),
        },
        Verb::Test { file } => answer(test::test(options, file.as_deref())),
        Verb::Learn(asked) => answer(learn::learn(options, asked).map(|text| (text, true))),
    }
}

fn usage(message: &str) -> ExitCode {
    complain(message, None);
    ExitCode::from(BAD_USAGE)
}

/// Prints a text; the truth says whether all is well.
fn answer(told: Result<(String, bool), String>) -> ExitCode {
    match told {
        Ok((text, is_well)) => {
            // The reader of standard output may be gone.
            writeln!(std::io::stdout().lock(), "{}", text.trim_end()).ok();
            if is_well { ExitCode::SUCCESS } else { ExitCode::from(WRONG) }
        }
        Err(message) => {
            message.lines().for_each(|line| complain(line, None));
            ExitCode::from(WRONG)
        }
    }
}

fn in_force(options: &Options) -> Result<Book, String> {
    with_settings(options).map(|(book, _)| book)
}

fn with_settings(options: &Options) -> Result<(Book, Settings), String> {
    let loaded = config::load(options).map_err(|error| error.to_string())?;
    let book = config::policies::load(&loaded.settings).map_err(|error| error.to_string())?;
    Ok((book, loaded.settings))
}

/// What a policy says and is not enforced, and what it compares that no call has.
fn notes_of(rules: &Rules) -> Vec<Flaw> {
    let doubted = rules.doubts("args.language", |text| match mcp::languages::canonical(text) {
        Ok(name) if name == text => None,
        Ok(name) => {
            Some(format!("rules see the name `{name}` of this language: write it instead of `{text}`"))
        }
        Err(error) => Some(format!("{}: no call can have it", error.message)),
    });
    rules.notes().iter().cloned().chain(doubted).collect()
}

fn notes(book: &Book, name: &str) -> String {
    let notes = book.get(name).map(|named| notes_of(&named.rules)).unwrap_or_default();
    notes.iter().map(|note| format!("{name}: {}\n", plain(&note.to_string()))).collect()
}

/// The keys of the state directory, so that a caller named after a key has its principal and its policy.
fn keys(settings: &Settings) -> Vec<Key> {
    let state_dir = settings.state_dir.value.clone().or_else(state::expected);
    let found = state_dir.filter(|path| path.is_dir()).map(|path| Keys::new(&path).list());
    // Without keys, a caller is its label.
    found.and_then(Result::ok).unwrap_or_default()
}

/// The caller with that label, as bindings see it.
fn caller(label: &str, keys: &[Key]) -> Result<Caller, String> {
    caller_named(label, keys).ok_or_else(|| "a caller is a name such as local or key:ci-main".to_owned())
}

fn read(path: &Path) -> Result<Rules, String> {
    let syntax = path.file_name().and_then(|name| Syntax::of_name(name.to_str()?));
    let syntax =
        syntax.ok_or_else(|| format!("{}: a policy file is named .json, .yaml or .yml", path.display()))?;
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    ::policy::read_rules(&text, syntax)
        .map_err(|flaw| format!("{}: {}", path.display(), plain(&flaw.to_string())))
}

fn list(book: &Book) -> String {
    let mut text = String::from("Policies:\n");
    for name in book.names() {
        let described =
            book.get(name).and_then(|named| named.rules.description.as_deref()).unwrap_or_default();
        text.push_str(&format!("  {name:14} {described}\n"));
    }
    text.push_str("\nBindings, of which the first that matches counts:\n");
    for binding in book.bindings() {
        text.push_str(&format!("  {} -> {}\n", plain(&binding.callers), binding.policy));
    }
    text.push_str(&book.names().into_iter().map(|name| notes(book, name)).collect::<String>());
    if book.bindings().is_empty() {
        text.push_str("  (none: the local user and the holder of the token may do everything)\n");
    }
    text
}
