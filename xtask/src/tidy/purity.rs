//! Purity: `wire`, `sandbox`, `policy` and `audit` do no I/O and read no clock, so that they can be tested by value.
//!
//! The conformance suite and the fake backend of `sandbox` are exempt, because they act as a backend. Unit
//! tests in `src` are not exempt; a test that needs files belongs in the crate's `tests/`.

use super::Violation;
use super::paths::named_paths;
use crate::tree::Tree;

const RULE: &str = "purity";

const PURE: [&str; 4] =
    ["crates/wire/src/", "crates/sandbox/src/", "crates/policy/src/", "crates/audit/src/"];

const EXEMPT: [&str; 2] = ["crates/sandbox/src/conformance/", "crates/sandbox/src/fake.rs"];

/// Adjacent segments that indicate an effect; a trailing `*` matches any end of the name.
const FORBIDDEN: [&[&str]; 7] = [
    &["std", "fs"],
    &["net", "Tcp*"],
    &["net", "UdpSocket"],
    &["std", "process"],
    &["SystemTime"],
    &["Instant", "now"],
    &["tokio"],
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let pure = |path: &str| {
        PURE.iter().any(|root| path.starts_with(root))
            && !EXEMPT.iter().any(|exempt| path.starts_with(exempt))
    };
    for file in tree.rust_files().filter(|file| pure(&file.path)) {
        for path in named_paths(&file.lexed.tokens) {
            if FORBIDDEN.iter().any(|pattern| holds(&path.segments, pattern)) {
                let message = format!("`{}` is I/O or a clock: pass the value in", path.segments.join("::"));
                violations.push(Violation::new(&file.path, path.line, RULE, message));
            }
        }
    }
    violations
}

fn holds(segments: &[String], pattern: &[&str]) -> bool {
    let matches = |segment: &String, wanted: &str| match wanted.strip_suffix('*') {
        Some(start) => segment.starts_with(start),
        None => segment == wanted,
    };
    segments
        .windows(pattern.len())
        .any(|window| window.iter().zip(pattern).all(|(segment, wanted)| matches(segment, wanted)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn found(path: &str, source: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, source)])))
    }

    #[test]
    fn effects_are_refused_however_they_are_imported() {
        for source in [
            "use std::fs;",
            "use std::{io, fs::File};",
            "fn f() { std::process::exit(1) }",
            "use std::net::{IpAddr, TcpStream};",
            "use std::net; fn f() { net::TcpListener::bind(a) }",
            "use std::time::{Duration, SystemTime};",
            "fn f() { let t = Instant::now(); }",
            "use std::time; fn f() { time::Instant::now() }",
            "async fn f() { tokio::task::yield_now().await }",
        ] {
            assert_eq!(
                found("crates/policy/src/a.rs", source),
                ["crates/policy/src/a.rs:1: purity"],
                "{source}"
            );
        }
    }

    #[test]
    fn values_of_the_same_modules_pass() {
        let source = "use std::net::IpAddr;\nuse std::time::{Duration, Instant};\nfn fs() {}\n// tokio\n";
        assert!(found("crates/wire/src/lib.rs", source).is_empty());
    }

    #[test]
    fn other_crates_and_the_exempt_files_are_free() {
        for path in
            ["crates/engine/src/a.rs", "crates/sandbox/src/fake.rs", "crates/sandbox/src/conformance/mod.rs"]
        {
            assert!(found(path, "use std::fs;").is_empty());
        }
        assert!(found("crates/policy/tests/shipped.rs", "use std::fs;").is_empty());
    }
}
