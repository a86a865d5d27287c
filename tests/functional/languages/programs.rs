//! Small real programs with known answers, the same in every language: `tests/functional/programs/<program>/<language>.*`
//! beside `expect.txt`, what each of them prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use functional::languages::{Language, Run, languages};
use harness::{User, users};
use libtest_mimic::{Failed, Trial};

/// Languages that have every program.
const LANGUAGES: [&str; 15] = [
    "bash",
    "c",
    "cpp",
    "csharp",
    "go",
    "java",
    "javascript",
    "lua",
    "perl",
    "php",
    "python",
    "r",
    "ruby",
    "rust",
    "typescript",
];
/// Programs for languages whose own library can do it.
const PARTIAL: [&str; 1] = ["json"];
const PROGRAMS_MIN: usize = 100;
const EXPECTED: &str = "expect.txt";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("every_language_has_every_program", every_language_has_every_program)];
    for name in sources().values().flat_map(BTreeMap::keys).cloned().collect::<BTreeSet<_>>() {
        match languages().into_iter().find(|language| language.name == name) {
            Some(language) => {
                trials.push(language.trial("programs", users()[0], programs_print_what_is_expected))
            }
            None => {
                eprintln!("SKIPPED: there is no language {name} in runtimes/");
                let skipped = Trial::test(format!("{name}::programs::skipped_no_such_language"), || Ok(()));
                trials.push(skipped.with_ignored_flag(true));
            }
        }
    }
    trials
}

/// Program, then language, to the file.
fn sources() -> BTreeMap<PathBuf, BTreeMap<String, PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let files =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let by_language = |program: &PathBuf| {
        let named = |file: PathBuf| Some((file.file_stem()?.to_str()?.to_owned(), file));
        let is_source = |file: &PathBuf| !file.ends_with(EXPECTED);
        files(program).into_iter().filter(is_source).filter_map(named).collect()
    };
    files(&folder).into_iter().map(|program| (program.clone(), by_language(&program))).collect()
}

fn every_language_has_every_program() -> Result<(), Failed> {
    let sources = sources();
    for (program, of) in
        sources.iter().filter(|(program, _)| !PARTIAL.iter().any(|name| program.ends_with(name)))
    {
        let missing: Vec<&str> =
            LANGUAGES.into_iter().filter(|language| !of.contains_key(*language)).collect();
        if !missing.is_empty() {
            return Err(format!("{} is not there in {missing:?}", program.display()).into());
        }
    }
    let count: usize = sources.values().map(BTreeMap::len).sum();
    if count < PROGRAMS_MIN { Err(format!("only {count} programs").into()) } else { Ok(()) }
}

fn programs_print_what_is_expected(language: &Language, user: User) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    for (program, of) in sources() {
        let Some(file) = of.get(&language.name) else { continue };
        let expected = fs::read_to_string(program.join(EXPECTED))?;
        let run = Run { code: fs::read_to_string(file)?, ..Run::default() };
        let result = run.result(user, &language.name);
        if result["outcome"] != "completed" || result["stdout"] != expected {
            wrong.push(format!("{}: expected\n{expected}\n{result:#}", file.display()));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n\n").into()) }
}
