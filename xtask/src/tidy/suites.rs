//! Suites: the tests of a folder are one binary, and every file belongs to it.
//!
//! By default Cargo links every file of `tests/` as a separate program; with one `main.rs` per suite a build
//! links once. The compiler does not report a file that no `mod` names, so this rule does.

use super::Violation;
use crate::tree::{File, Tree};

const RULE: &str = "suites";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_files().filter(|file| is_test(&file.path)).filter_map(|file| judge(tree, file)).collect()
}

/// Whether the file belongs to a suite: under `tests/` or the `tests/` of a crate, and not a library of a
/// suite.
fn is_test(path: &str) -> bool {
    let of_crate = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    let inside = of_crate.map_or(path, |(_, rest)| rest);
    inside.starts_with("tests/") && !inside.contains("/src/")
}

fn judge(tree: &Tree, file: &File) -> Option<Violation> {
    let (folder, name) = file.path.rsplit_once('/')?;
    let (module, parent) = match name {
        "main.rs" => return None,
        "mod.rs" => {
            let (parent, module) = folder.rsplit_once('/')?;
            (module, parent)
        }
        _ => (name.strip_suffix(".rs")?, folder),
    };
    let Some(root) = root_of(tree, parent) else {
        let alone =
            tree.under(&format!("{folder}/")).filter(|other| other.path.ends_with(".rs")).count() == 1;
        let message = "several programs in one folder: make them modules of one `main.rs`";
        return (!alone).then(|| Violation::new(&file.path, 1, RULE, message));
    };
    let message = format!("no `mod {module};` in {}: nothing compiles this file", root.path);
    (!declares(root, module)).then(|| Violation::new(&file.path, 1, RULE, message))
}

/// The file that names the modules of a folder.
fn root_of<'a>(tree: &'a Tree, folder: &str) -> Option<&'a File> {
    ["main.rs", "mod.rs"].iter().find_map(|name| tree.get(&format!("{folder}/{name}")))
}

fn declares(root: &File, module: &str) -> bool {
    root.lexed.tokens.windows(2).any(|pair| match pair {
        [keyword, name] => keyword.is_word("mod") && name.is_word(module),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        places(&check(&Tree::of(files)))
    }

    #[test]
    fn a_suite_with_every_module_declared_passes() {
        let files = [
            ("tests/a/main.rs", "mod one;\nmod deep;\n"),
            ("tests/a/one.rs", ""),
            ("tests/a/deep/mod.rs", "mod two;\n"),
            ("tests/a/deep/two.rs", ""),
            ("tests/a/src/lib.rs", ""),
            ("crates/b/tests/only.rs", ""),
            ("crates/b/src/tests/c.rs", ""),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn a_file_that_no_module_names_is_reported() {
        let files =
            [("tests/a/main.rs", "// mod one;\n"), ("tests/a/one.rs", ""), ("tests/a/deep/mod.rs", "")];
        assert_eq!(found(&files), ["tests/a/deep/mod.rs:1: suites", "tests/a/one.rs:1: suites"]);
    }

    #[test]
    fn several_programs_in_one_folder_are_reported() {
        let files = [("crates/b/tests/one.rs", ""), ("crates/b/tests/two.rs", "")];
        assert_eq!(found(&files).len(), 2);
    }
}
