//! Paths in a Rust file: those in expressions and those of `use` trees.
//!
//! `use std::{fs, time::Instant as T}` gives `std::fs` and `std::time::Instant`, so that grouped imports
//! cannot hide a path from a rule. Names are not resolved: later uses of an alias are not seen, but the line
//! that defines it is.

use crate::lexer::{Kind, Token};

/// Segments of one path and the line of its last segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedPath {
    pub(super) line: usize,
    pub(super) segments: Vec<String>,
}

/// Every path in `tokens`; a lone word is a path of one segment.
pub(super) fn named_paths(tokens: &[Token]) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = read_tree(tokens, at, &[], &mut found).max(at + 1);
    }
    found
}

/// Reads the path at `at`, including `::{ ... }` groups; returns the index after it.
fn read_tree(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<NamedPath>) -> usize {
    let mut segments = prefix.to_vec();
    let mut line = None;
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Word(word) => {
                segments.push(word.clone());
                line = Some(token.line);
                at += 1;
                if tokens.get(at).map(|next| &next.kind) != Some(&Kind::PathSeparator) {
                    break;
                }
            }
            Kind::PathSeparator => at += 1,
            Kind::Punctuation('{') if segments.len() > prefix.len() => {
                return read_group(tokens, at + 1, &segments, found);
            }
            _ => break,
        }
    }
    if let Some(line) = line {
        found.push(NamedPath { line, segments });
    }
    at
}

fn read_group(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<NamedPath>) -> usize {
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Punctuation('}') => return at + 1,
            Kind::Word(word) if word == "as" => at += 2,
            _ => at = read_tree(tokens, at, prefix, found).max(at + 1),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::lex;

    fn paths(source: &str) -> Vec<String> {
        named_paths(&lex(source).tokens).into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn plain_paths_are_read() {
        assert_eq!(paths("a::b(c)"), ["a::b", "c"]);
        assert_eq!(paths("::std::fs::read(x)"), ["std::fs::read", "x"]);
        assert_eq!(paths("if x { y }"), ["if", "x", "y"]);
    }

    #[test]
    fn grouped_imports_are_spelled_out() {
        let source = "use std::{fs, io::{self, Read}, time::Instant as T};";
        assert_eq!(paths(source), ["use", "std::fs", "std::io::self", "std::io::Read", "std::time::Instant"]);
    }

    #[test]
    fn unclosed_groups_end_with_the_file() {
        assert_eq!(paths("use a::{b, c::{"), ["use", "a::b"]);
    }
}
