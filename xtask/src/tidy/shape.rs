//! Shape of the Rust files: each begins with its purpose, and none exceeds the maximum length.
//!
//! Clippy checks the length of functions. A file that must be longer is listed, with the reason, in the file
//! of allowances. An allowance that is no longer needed must be removed.

use super::Violation;
use crate::tree::{File, Tree};

const ALLOWANCES: &str = "xtask/size-allowances.txt";

/// Longest file that needs no allowance.
const FILE_LINES_MAX: usize = 500;

const ROOTS: [&str; 3] = ["crates/", "xtask/", "tests/"];

/// An allowance: the line in the list, the path, the reason.
type Allowance<'a> = (usize, &'a str, &'a str);

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let list = tree.get(ALLOWANCES).map(|file| file.text.as_str()).unwrap_or_default();
    let allowances = read_allowances(list);
    let mut violations: Vec<Violation> =
        allowances.iter().filter_map(|allowance| judge_allowance(tree, allowance)).collect();
    let ours = |file: &&File| ROOTS.iter().any(|root| file.path.starts_with(root));
    for file in tree.rust_files().filter(ours) {
        if !file.text.starts_with("//!") {
            let message = "the file does not open with `//!`: say what it is for";
            violations.push(Violation::new(&file.path, 1, "module-doc", message));
        }
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX && !allowances.iter().any(|(_, path, _)| *path == file.path) {
            let message = format!("{lines} lines, at most {FILE_LINES_MAX}: look for the seam");
            violations.push(Violation::new(&file.path, FILE_LINES_MAX + 1, "size", message));
        }
    }
    violations
}

fn read_allowances(text: &str) -> Vec<Allowance<'_>> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let (path, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            (number, path, reason.trim())
        })
        .collect()
}

fn judge_allowance(tree: &Tree, (line, path, reason): &Allowance<'_>) -> Option<Violation> {
    let message = match tree.get(path) {
        None => format!("`{path}` does not exist: drop the allowance"),
        Some(file) if file.text.lines().count() <= FILE_LINES_MAX => {
            format!("`{path}` is short enough: drop the allowance")
        }
        Some(_) if reason.is_empty() => format!("`{path}` is listed without a reason"),
        Some(_) => return None,
    };
    Some(Violation::new(ALLOWANCES, *line, "size", message))
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn long() -> String {
        format!("//! Long.\n{}", "\n".repeat(FILE_LINES_MAX))
    }

    #[test]
    fn a_file_says_first_what_it_is_for() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! Good.\n"),
            ("tests/b.rs", "\n//! Late.\n"),
            ("xtask/src/c.rs", "/// Of an item.\n"),
            ("fuzz/d.rs", "fn f() {}\n"),
        ]);
        assert_eq!(places(&check(&tree)), ["tests/b.rs:1: module-doc", "xtask/src/c.rs:1: module-doc"]);
    }

    #[test]
    fn a_long_file_needs_an_allowance_with_a_reason() {
        let text = long();
        let at =
            |list: &str| places(&check(&Tree::of(&[("crates/a/src/lib.rs", &text), (ALLOWANCES, list)])));
        assert_eq!(at("# none\n"), ["crates/a/src/lib.rs:501: size"]);
        assert!(at("crates/a/src/lib.rs  one table, read as a whole\n").is_empty());
        assert_eq!(at("\ncrates/a/src/lib.rs\n"), ["xtask/size-allowances.txt:2: size"]);
    }

    #[test]
    fn five_hundred_lines_are_enough_but_allowed() {
        let text = format!("//! Long.\n{}", "\n".repeat(FILE_LINES_MAX - 1));
        assert!(check(&Tree::of(&[("crates/a/src/lib.rs", &text)])).is_empty());
    }

    #[test]
    fn allowances_that_are_no_longer_needed_are_reported() {
        let list = "crates/a/src/lib.rs was long\ncrates/gone.rs moved\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", "//! Short.\n"), (ALLOWANCES, list)]);
        assert_eq!(
            places(&check(&tree)),
            ["xtask/size-allowances.txt:1: size", "xtask/size-allowances.txt:2: size"]
        );
    }
}
