//! Words that do not belong in the code: leftovers of unfinished work, and names without meaning.
//!
//! The rule checks code and comments but not strings, so that this file may contain the words.

use super::Violation;
use crate::lexer::Token;
use crate::tree::{File, Tree};

const LEFTOVER: &str = "leftover";
const NAME: &str = "empty-name";

/// Macros for code that is not written yet.
const UNFINISHED_MACROS: [&str; 2] = ["todo", "unimplemented"];

/// The mark of unfinished work in comments.
const UNFINISHED_MARK: &str = "FIXME";

/// Names of a crate or module that do not describe its content.
const EMPTY_NAMES: [&str; 5] = ["core", "common", "utils", "helpers", "manager"];

/// Names that were given up for the field's own words (docs/ARCHITECTURE.md, "Glossary"): identifiers of the product, not prose.
const RETIRED: [(&str, &str); 26] = [
    ("Room", "SandboxEntry, PoolShared or BodyBudget"),
    ("BodyRoom", "BodyBudget"),
    ("Living", "AwakeSandbox"),
    ("Inside", "GuestChannel"),
    ("Turn", "LiveRun"),
    ("Played", "KeptEnd"),
    ("Afterwards", "InterpreterFate"),
    ("Ears", "StopSignals"),
    ("Night", "IdleWatch"),
    ("Found", "the name of what was found"),
    ("Asked", "the arguments of that tool"),
    ("Goodbye", "SessionEnd"),
    ("Bond", "OnDisconnect"),
    ("DriverEar", "DriverDecoder"),
    ("is_deaf", "is_poisoned"),
    ("LastWord", "PublishOnDrop"),
    ("STILLBORN_MAX", "SPARE_DEATH_WINDOW"),
    ("Takes", "Handover"),
    ("Handed", "InheritedFds"),
    ("Luggage", "InterpreterMemory"),
    ("Life", "ServerMode"),
    ("Seats", "ConnectionSlots"),
    ("Stem", "Zygote"),
    ("Planted", "RunningZygote"),
    ("Bed", "ZygoteSlot"),
    ("Nursery", "ZygoteFactory"),
];

const ADVICE: &str = "could hold anything: name what it does";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.files() {
        if file.path.ends_with(".rs") {
            violations.extend(unfinished_code(file));
            violations.extend(empty_modules(file));
            violations.extend(retired_names(file));
        } else if [".py", ".sh", ".js", ".ts"].iter().any(|end| file.path.ends_with(end)) {
            violations
                .extend(marks(file, file.text.lines().enumerate().map(|(index, line)| (index + 1, line))));
        }
        violations.extend(empty_path(file));
        violations.extend(empty_crate_name(file));
    }
    violations
}

fn retired_names(file: &File) -> Vec<Violation> {
    if !file.path.starts_with("crates/") {
        return Vec::new();
    }
    let named = file.lexed.tokens.iter().filter_map(|token| {
        let (name, better) = RETIRED.iter().find(|(name, _)| token.is_word(name))?;
        let message = format!("`{name}` was given up: {better}");
        Some(Violation::new(&file.path, token.line, NAME, message))
    });
    named.collect()
}

fn marks<'a>(file: &File, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Violation> {
    lines
        .filter(|(_, text)| text.contains(UNFINISHED_MARK))
        .map(|(line, _)| {
            let message = format!("{UNFINISHED_MARK}: finish it, or write down the limit where users see it");
            Violation::new(&file.path, line, LEFTOVER, message)
        })
        .collect()
}

fn unfinished_code(file: &File) -> Vec<Violation> {
    let mut violations =
        marks(file, file.lexed.comments.iter().map(|comment| (comment.line, comment.text.as_str())));
    let tokens = &file.lexed.tokens;
    for (index, token) in tokens.iter().enumerate() {
        let behind = tokens.get(index + 1..).unwrap_or_default();
        if let Some(name) = UNFINISHED_MACROS.iter().find(|name| token.is_word(name) && calls_macro(behind)) {
            let message = format!("`{name}!` is work left undone");
            violations.push(Violation::new(&file.path, token.line, LEFTOVER, message));
        }
        if token.is_punctuation('#') && attribute_switches_test_off(behind) {
            let message = "a test that is switched off: make it pass or delete it";
            violations.push(Violation::new(&file.path, token.line, LEFTOVER, message));
        }
    }
    violations
}

/// Whether the tokens after a name make it a macro call, and not the left side of `!=`.
fn calls_macro(behind: &[Token]) -> bool {
    match behind {
        [bang, open, ..] => bang.is_punctuation('!') && "([{".chars().any(|c| open.is_punctuation(c)),
        _ => false,
    }
}

/// Whether the tokens after a `#` are `[ignore`, also conditionally (`[cfg_attr(..., ignore)]`).
fn attribute_switches_test_off(tokens: &[Token]) -> bool {
    let mut inside = tokens.iter().take_while(|token| !token.is_punctuation(']'));
    if !inside.next().is_some_and(|token| token.is_punctuation('[')) {
        return false;
    }
    match inside.next() {
        Some(first) if first.is_word("ignore") => true,
        Some(first) if first.is_word("cfg_attr") => inside.any(|token| token.is_word("ignore")),
        _ => false,
    }
}

fn empty_modules(file: &File) -> Vec<Violation> {
    let tokens = &file.lexed.tokens;
    tokens
        .windows(2)
        .filter_map(|pair| match pair {
            [keyword, name] if keyword.is_word("mod") => name.word().map(|word| (name.line, word)),
            _ => None,
        })
        .filter(|(_, word)| EMPTY_NAMES.contains(word))
        .map(|(line, word)| {
            Violation::new(&file.path, line, NAME, format!("a module called `{word}` {ADVICE}"))
        })
        .collect()
}

/// Checks the folders and the name of a Rust file, and the folder of a manifest.
fn empty_path(file: &File) -> Option<Violation> {
    if !file.path.ends_with(".rs") && !file.path.ends_with("/Cargo.toml") {
        return None;
    }
    let zygote = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let part = zygote.split('/').find(|part| EMPTY_NAMES.contains(part))?;
    Some(Violation::new(&file.path, 1, NAME, format!("a path with `{part}` in it {ADVICE}")))
}

/// Checks the names that a manifest gives to its package and targets.
fn empty_crate_name(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !file.path.ends_with("Cargo.toml") {
        return violations;
    }
    for (index, line) in file.text.lines().enumerate() {
        let value = line.trim().strip_prefix("name").and_then(|rest| rest.trim().strip_prefix('='));
        let name = value.and_then(|value| value.split('"').nth(1)).unwrap_or_default();
        if EMPTY_NAMES.contains(&name) {
            let message = format!("a crate called `{name}` {ADVICE}");
            violations.push(Violation::new(&file.path, index + 1, NAME, message));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn unfinished_code_is_reported() {
        assert_eq!(found("a.rs", "fn f() {\n    todo!()\n}"), ["a.rs:2: leftover"]);
        assert_eq!(found("a.rs", "fn f() { unimplemented!(\"later\") }"), ["a.rs:1: leftover"]);
        assert_eq!(found("a.rs", "x();\n// FIXME later"), ["a.rs:2: leftover"]);
        assert_eq!(found("a.py", "x = 1  # FIXME"), ["a.py:1: leftover"]);
    }

    #[test]
    fn tests_switched_off_are_reported() {
        assert_eq!(found("a.rs", "#[test]\n#[ignore]\nfn f() {}"), ["a.rs:2: leftover"]);
        assert_eq!(found("a.rs", "#[ignore = \"slow\"]\nfn f() {}"), ["a.rs:1: leftover"]);
        assert_eq!(found("a.rs", "#[cfg_attr(not(x), ignore)]\nfn f() {}"), ["a.rs:1: leftover"]);
    }

    #[test]
    fn the_same_words_elsewhere_pass() {
        let text =
            "//! A todo list.\nconst A: &str = \"FIXME todo!() #[ignore]\";\nlet ignore = todo != 1;\n";
        assert!(found("a.rs", text).is_empty());
        assert!(found("docs/a.md", "no FIXME in code").is_empty());
    }

    #[test]
    fn names_that_could_hold_anything_are_reported() {
        assert_eq!(found("crates/core/Cargo.toml", ""), ["crates/core/Cargo.toml:1: empty-name"]);
        let manifest = "[package]\nname = \"common\"\n";
        assert_eq!(found("crates/a/Cargo.toml", manifest), ["crates/a/Cargo.toml:2: empty-name"]);
        assert_eq!(found("crates/a/src/utils.rs", ""), ["crates/a/src/utils.rs:1: empty-name"]);
        assert_eq!(found("tests/common/mod.rs", ""), ["tests/common/mod.rs:1: empty-name"]);
        assert_eq!(found("crates/a/src/lib.rs", "\nmod helpers {}"), ["crates/a/src/lib.rs:2: empty-name"]);
    }

    #[test]
    fn longer_names_and_the_standard_library_pass() {
        assert!(found("crates/a/src/core_dump.rs", "use core::fmt;\nmod common_sense;").is_empty());
    }
}
