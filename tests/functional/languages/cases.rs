//! Every language does what every language must: `runtimes/<language>/cases/<case>.toml`, one program each, with what is
//! to come of it. A language without one of the required cases fails; docs/LANGUAGES.md has the keys, and the table of
//! all languages that is made here (`PALISADE_BLESS=1` writes it).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use functional::is_quick;
use functional::languages::{Input, Language, Run, languages, top};
use harness::{User, users};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Map, Value};

const REQUIRED: [&str; 11] = [
    "hello",
    "args",
    "stdin",
    "variables",
    "environment",
    "files",
    "unicode",
    "exit",
    "failure",
    "timeout",
    "memory",
];
const REQUIRED_OF_COMPILED: &str = "compile_error";
const PAGE: &str = "docs/LANGUAGES.md";
const BEGIN: &str = "<!-- made by tests/functional/languages/cases.rs -->\n";
const END: &str = "<!-- end -->\n";

/// One file of `cases/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Why the language has no such case; then nothing else is there.
    absent: Option<String>,
    #[serde(default)]
    code: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    variables: Map<String, Value>,
    /// For what TOML cannot say: null, and integers beyond 64 bits.
    variables_json: Option<String>,
    #[serde(default)]
    inputs: Vec<Input>,
    timeout_ms: Option<u64>,
    memory_mb: Option<u64>,
    #[serde(default)]
    expect: Expect,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    outcome: Option<String>,
    stdout: Option<String>,
    stdout_contains: Option<String>,
    stderr_contains: Option<String>,
    exit_code: Option<i64>,
    line: Option<u64>,
    column: Option<u64>,
    message_contains: Option<String>,
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let users = users();
    for language in languages().iter().filter(|language| language.folder.join("cases").is_dir()) {
        let complete = language.clone();
        trials
            .push(Trial::test(format!("{}::has_all_cases", language.name), move || has_all_cases(&complete)));
        for user in &users {
            let what = match user {
                User::Root => "cases_as_root",
                User::Ordinary => "cases_as_an_ordinary_user",
            };
            trials.push(language.trial(what, *user, run_cases));
        }
    }
    trials.push(Trial::test("every_language_has_cases", every_language_has_cases));
    trials.push(Trial::test("the_page_has_the_table", the_page_has_the_table));
    trials
}

fn cases(language: &Language) -> BTreeMap<String, Case> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(language.folder.join("cases")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let case = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found.insert(path.file_stem().unwrap().to_string_lossy().into_owned(), case);
    }
    found
}

fn required(language: &Language) -> impl Iterator<Item = &'static str> {
    REQUIRED.into_iter().chain(language.is_compiled.then_some(REQUIRED_OF_COMPILED))
}

fn every_language_has_cases() -> Result<(), Failed> {
    let without: Vec<String> = languages()
        .into_iter()
        .filter(|language| !language.folder.join("cases").is_dir())
        .map(|language| language.name)
        .collect();
    if without.is_empty() { Ok(()) } else { Err(format!("no cases: {without:?}").into()) }
}

fn has_all_cases(language: &Language) -> Result<(), Failed> {
    let cases = cases(language);
    let missing: Vec<&str> = required(language).filter(|name| !cases.contains_key(*name)).collect();
    let unsure = |case: &Case| case.absent.is_none() && case.expect.outcome.is_none();
    let silent: Vec<&String> = cases.iter().filter(|(_, case)| unsure(case)).map(|(name, _)| name).collect();
    if missing.is_empty() && silent.is_empty() {
        return Ok(());
    }
    Err(format!("{}: missing {missing:?}; without an expected outcome {silent:?}", language.name).into())
}

/// Runs all cases (for an ordinary user in a quick suite only the first) and tells all that fail.
fn run_cases(language: &Language, user: User) -> Result<(), Failed> {
    let is_short = user == User::Ordinary && is_quick();
    let cases = cases(language);
    let wanted = cases.iter().filter(|(name, case)| case.absent.is_none() && (!is_short || *name == "hello"));
    let wrong: Vec<String> = wanted
        .filter_map(|(name, case)| case.failure(user, language).map(|why| format!("{name}: {why}")))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n\n").into()) }
}

impl Case {
    fn run(&self) -> Run {
        let mut variables = self.variables.clone();
        if let Some(text) = &self.variables_json {
            let more: Map<String, Value> = serde_json::from_str(text).unwrap();
            variables.extend(more);
        }
        let mut options = Vec::new();
        if let Some(limit) = self.timeout_ms {
            options.extend(["--timeout".to_owned(), format!("{limit}ms")]);
        }
        if let Some(limit) = self.memory_mb {
            options.extend(["--memory-mb".to_owned(), limit.to_string()]);
        }
        Run {
            code: self.code.clone(),
            args: self.args.clone(),
            stdin: self.stdin.clone(),
            variables,
            inputs: self.inputs.clone(),
            options,
        }
    }

    /// What is not as expected, with the whole result.
    fn failure(&self, user: User, language: &Language) -> Option<String> {
        let result = self.run().result(user, &language.name);
        let expect = &self.expect;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (stdout, stderr) = (text(&result["stdout"]), text(&result["stderr"]));
        let message = text(&result["error"]["message"]);
        let has = |wanted: &Option<String>, whole: &str| {
            wanted.as_ref().is_none_or(|part| whole.contains(part.as_str()))
        };
        let checks = [
            ("outcome", expect.outcome.as_ref().is_none_or(|wanted| *wanted == text(&result["outcome"]))),
            ("stdout", expect.stdout.as_ref().is_none_or(|wanted| *wanted == stdout)),
            ("stdout_contains", has(&expect.stdout_contains, &stdout)),
            ("stderr_contains", has(&expect.stderr_contains, &stderr)),
            ("exit_code", expect.exit_code.is_none_or(|wanted| result["exit_code"] == wanted)),
            ("line", expect.line.is_none_or(|wanted| result["error"]["line"] == wanted)),
            ("column", expect.column.is_none_or(|wanted| result["error"]["column"] == wanted)),
            ("message_contains", has(&expect.message_contains, &message)),
        ];
        let wrong: Vec<&str> =
            checks.iter().filter(|(_, is_right)| !is_right).map(|(name, _)| *name).collect();
        (!wrong.is_empty())
            .then(|| format!("as {user:?}, {wrong:?} is not as expected\n{expect:#?}\n{result:#}"))
    }
}

/// The table of the page says what the cases say, and those pass or their tests fail.
fn the_page_has_the_table() -> Result<(), Failed> {
    let path = top().join(PAGE);
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(BEGIN).ok_or("the page has no place for the table")?;
    let (_, after) = rest.split_once(END).ok_or("the place for the table has no end")?;
    let right = format!("{before}{BEGIN}{}{END}{after}", table());
    if right == page {
        return Ok(());
    }
    if std::env::var_os("PALISADE_BLESS").is_some_and(|value| value == "1") {
        fs::write(path, right)?;
        return Ok(());
    }
    Err(format!("{PAGE} is not what the cases say: run this test with PALISADE_BLESS=1").into())
}

fn table() -> String {
    let names = || REQUIRED.into_iter().chain([REQUIRED_OF_COMPILED]);
    let mut text = format!("| language | {} |\n|---|", names().collect::<Vec<_>>().join(" | "));
    text.push_str(&names().map(|_| "---|").collect::<String>());
    text.push('\n');
    let mut reasons = String::new();
    for language in languages() {
        let cases = cases(&language);
        let cell = |name: &str| match cases.get(name) {
            Some(Case { absent: Some(_), .. }) => "no",
            Some(Case { expect: Expect { column: Some(_), .. }, .. }) => "line, column",
            Some(Case { expect: Expect { line: Some(_), .. }, .. }) => "line",
            Some(_) => "yes",
            None => "-",
        };
        let cells: Vec<&str> = names().map(cell).collect();
        writeln!(text, "| {} | {} |", language.name, cells.join(" | ")).unwrap();
        for (name, case) in &cases {
            if let Some(why) = &case.absent {
                writeln!(reasons, "- {}, {name}: {why}", language.name).unwrap();
            }
        }
    }
    if !reasons.is_empty() {
        text.push('\n');
        text.push_str(&reasons);
    }
    text
}
