//! The rules of this repository, each in its own module, each a pure function over the tree.
//!
//! A rule states an absence ("engine never names a backend"), finds the places that break it and says what to
//! do instead. Rules of clippy and rustfmt are not repeated here.

mod docs;
mod fence;
mod layers;
mod paths;
mod purity;
mod shape;
mod suites;
mod words;

use std::fmt;

use crate::tree::Tree;

/// One place that breaks one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// All violations of all rules, in the order of the tree.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let rules: [fn(&Tree) -> Vec<Violation>; 7] =
        [layers::check, fence::check, purity::check, shape::check, suites::check, words::check, docs::check];
    let mut violations: Vec<Violation> = rules.iter().flat_map(|rule| rule(tree)).collect();
    violations.sort();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `path:line: rule` of each violation, for tests.
    pub(super) fn places(violations: &[Violation]) -> Vec<String> {
        violations.iter().map(|v| format!("{}:{}: {}", v.path, v.line, v.rule)).collect()
    }

    #[test]
    fn a_violation_prints_as_path_line_rule_message() {
        let violation = Violation::new("a/b.rs", 7, "size", "too long");
        assert_eq!(violation.to_string(), "a/b.rs:7: size: too long");
    }

    #[test]
    fn violations_come_sorted_by_place() {
        let tree = Tree::of(&[
            ("crates/b/src/lib.rs", "fn f() { todo!() }\n"),
            ("crates/a/src/lib.rs", "//! A.\nunsafe fn f() {}\n"),
        ]);
        let found = places(&check(&tree));
        assert_eq!(
            found,
            [
                "crates/a/src/lib.rs:2: unsafe-fence",
                "crates/b/src/lib.rs:1: leftover",
                "crates/b/src/lib.rs:1: module-doc",
                "docs/GUARANTEES.md:1: guarantees",
            ]
        );
    }
}
