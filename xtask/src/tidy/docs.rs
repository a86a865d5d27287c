//! Rules for the documents: guarantees name existing tests, decisions are numbered, and no page has a path of
//! an author's machine.
//!
//! A row of docs/GUARANTEES.md names its tests in backticks, in a column whose heading has the word "test". A
//! test is a path of the repository (`tests/escape/attacks/x.py`, also `path.rs::name`) or a test function,
//! alone or with its crate (`jail::seccomp::name`). Reviewers judge whether the test proves the guarantee.

use super::Violation;
use crate::tree::{File, Tree};

const GUARANTEES: &str = "docs/GUARANTEES.md";
const DECISIONS: &str = "docs/decisions/";

/// First folders of absolute paths that exist only on the machines of some authors.
const PRIVATE_ROOTS: [&str; 2] = ["work", "farm"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = guarantees(tree);
    violations.extend(tree.under(DECISIONS).filter_map(decision_name));
    let pages = tree.files().filter(|file| {
        file.path == "README.md" || file.path.starts_with("docs/") && file.path.ends_with(".md")
    });
    violations.extend(pages.flat_map(private_paths));
    violations
}

fn guarantees(tree: &Tree) -> Vec<Violation> {
    const RULE: &str = "guarantees";
    let Some(page) = tree.get(GUARANTEES) else {
        return vec![Violation::new(GUARANTEES, 1, RULE, "the page is missing")];
    };
    let mut violations = Vec::new();
    for (line, cell) in test_cells(&page.text) {
        let names = backticked(&cell);
        if names.is_empty() {
            violations.push(Violation::new(GUARANTEES, line, RULE, "the row names no test"));
        }
        for name in names.into_iter().filter(|name| !test_exists(tree, name)) {
            violations.push(Violation::new(GUARANTEES, line, RULE, format!("no test `{name}` exists")));
        }
    }
    violations
}

/// The cells under headings with the word "test", of every table of the page, joined per row.
fn test_cells(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut heading: Option<Vec<usize>> = None;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = row_cells(line) else {
            heading = None;
            continue;
        };
        match &heading {
            None => {
                let columns = cells.iter().enumerate().filter(|(_, cell)| names_tests(cell));
                heading = Some(columns.map(|(column, _)| column).collect());
            }
            Some(columns) if !columns.is_empty() && !is_ruler(&cells) => {
                let wanted = columns.iter().filter_map(|column| cells.get(*column));
                found.push((index + 1, wanted.cloned().collect::<Vec<_>>().join(" ")));
            }
            Some(_) => {}
        }
    }
    found
}

fn names_tests(heading: &str) -> bool {
    let words = heading.split(|c: char| !c.is_alphanumeric());
    words.map(str::to_lowercase).any(|word| word == "test" || word == "tests")
}

fn is_ruler(cells: &[String]) -> bool {
    cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':'))
}

/// Cells of a table row; `\|` is a bar inside a cell.
fn row_cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.replace("\\|", "\u{1}");
    let inner = inner.strip_suffix('|').unwrap_or(&inner);
    Some(inner.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect())
}

/// The texts between pairs of backticks.
fn backticked(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).map(str::trim).filter(|name| !name.is_empty()).collect()
}

fn test_exists(tree: &Tree, name: &str) -> bool {
    let name = name.trim_end_matches("()");
    if !name.contains('/') {
        return function_exists(tree, name);
    }
    match name.split_once("::") {
        None => tree.has_path(name),
        Some((path, function)) => {
            let function = function.rsplit("::").next().unwrap_or(function);
            tree.get(path).is_some_and(|file| defines(file, function))
        }
    }
}

/// Searches the crate that the path begins with, if there is one of that name, otherwise all crates.
fn function_exists(tree: &Tree, path: &str) -> bool {
    let function = path.rsplit("::").next().unwrap_or(path);
    let own = path.split_once("::").map(|(first, _)| format!("crates/{first}/"));
    match own.filter(|folder| tree.has_path(folder)) {
        Some(folder) => tree.under(&folder).any(|file| defines(file, function)),
        None => tree.under("crates/").chain(tree.under("tests/")).any(|file| defines(file, function)),
    }
}

fn defines(file: &File, function: &str) -> bool {
    file.lexed.tokens.windows(3).any(|tokens| match tokens {
        [keyword, name, open] => keyword.is_word("fn") && name.is_word(function) && open.is_punctuation('('),
        _ => false,
    })
}

fn decision_name(file: &File) -> Option<Violation> {
    let name = file.path.strip_prefix(DECISIONS)?;
    let zygote = name.strip_suffix(".md")?;
    let numbered = zygote.split_once('-').is_some_and(|(number, words)| {
        number.len() == 4
            && number.chars().all(|c| c.is_ascii_digit())
            && words.split('-').all(|word| !word.is_empty() && word.chars().all(is_plain))
    });
    let message = format!("`{name}` is not named like `0007-what-was-decided.md`");
    (!numbered).then(|| Violation::new(&file.path, 1, "decisions", message))
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn private_paths(file: &File) -> Vec<Violation> {
    let private: Vec<String> = PRIVATE_ROOTS.iter().map(|root| format!("/{root}/")).collect();
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let private = private.iter().any(|start| has_absolute(line, start));
        if private || has_absolute(line, "/root/.") {
            let message = "a path of somebody's machine: write what the reader has";
            violations.push(Violation::new(&file.path, index + 1, "private-path", message));
        }
    }
    violations
}

/// Whether `start` occurs in `line` as the start of a path, not in the middle of one.
fn has_absolute(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "_-./~}>*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const ATTACK: (&str, &str) = ("tests/escape/attacks/read_home.py", "");
    const TESTS: (&str, &str) =
        ("crates/jail/tests/walls.rs", "#[test]\nfn home_is_absent() {}\n// fn told() {}\n");

    fn rows(rows: &str) -> Vec<String> {
        let page =
            format!("# Promises\n\n| no | promise | seen failing | Tests |\n|---|:--|---|---|\n{rows}\n");
        places(&check(&Tree::of(&[ATTACK, TESTS, (GUARANTEES, &page)])))
    }

    #[test]
    fn rows_that_name_existing_tests_pass() {
        assert!(rows("| 1 | a | yes | `tests/escape/attacks/read_home.py`, `home_is_absent` |").is_empty());
        assert!(rows("| 1 | a | yes | `jail::walls::home_is_absent` |").is_empty());
        assert!(rows("| 1 | a | yes | `crates/jail/tests/walls.rs::home_is_absent` |").is_empty());
        assert!(rows("| 1 | a \\| b | yes | `home_is_absent()` |").is_empty());
    }

    #[test]
    fn rows_that_name_absent_tests_are_reported() {
        let at = ["docs/GUARANTEES.md:5: guarantees"];
        assert_eq!(rows("| 1 | a | yes | `tests/escape/attacks/gone.py` |"), at);
        assert_eq!(rows("| 1 | a | yes | `told` |"), at);
        assert_eq!(rows("| 1 | a | yes | `crates/jail/tests/walls.rs::gone` |"), at);
        assert_eq!(rows("| 1 | a | yes | `home_is` |"), at);
    }

    #[test]
    fn a_test_is_looked_for_in_the_crate_it_names() {
        let page = "| test |\n|---|\n| `wire::home_is_absent` |\n";
        let wire = ("crates/wire/src/lib.rs", "//! Wire.\n");
        assert_eq!(places(&check(&Tree::of(&[wire, TESTS, (GUARANTEES, page)]))).len(), 1);
    }

    #[test]
    fn a_row_without_a_test_is_reported() {
        assert_eq!(rows("| 1 | a | yes | pending |\n| 2 | b | yes |").len(), 2);
    }

    #[test]
    fn tables_without_a_test_column_are_left_alone() {
        let page = "| word | latest |\n|---|---|\n| a | `b` |\n";
        assert!(check(&Tree::of(&[(GUARANTEES, page)])).is_empty());
    }

    #[test]
    fn a_missing_page_is_a_violation() {
        assert_eq!(places(&check(&Tree::of(&[]))), ["docs/GUARANTEES.md:1: guarantees"]);
    }

    #[test]
    fn decisions_are_numbered_and_named() {
        let judge = |name: &str| {
            let path = format!("docs/decisions/{name}");
            let tree = Tree::of(&[(path.as_str(), ""), (GUARANTEES, "")]);
            check(&tree).is_empty()
        };
        assert!(judge("0001-one-binary.md"));
        for bad in ["1-one.md", "0001.md", "0001-.md", "0001-One.md", "0001_one.md", "README.md"] {
            assert!(!judge(bad), "{bad}");
        }
    }

    #[test]
    fn paths_of_a_machine_are_reported() {
        let judge = |path: &str, text: &str| check(&Tree::of(&[(path, text), (GUARANTEES, "")])).len();
        for root in PRIVATE_ROOTS {
            assert_eq!(judge("README.md", &format!("see `/{root}/main`")), 1);
            assert_eq!(judge("docs/deep/A.md", &format!("/{root}/x")), 1);
            assert_eq!(judge("README.md", &format!("tests/{root}/x, ./{root}/y")), 0);
            assert_eq!(judge("src/a.md", &format!("/{root}/x")), 0);
        }
        assert_eq!(judge("README.md", "in /root/.cache/x"), 1);
        assert_eq!(judge("README.md", "host secrets (/root) are absent, /root/x too"), 0);
    }
}
