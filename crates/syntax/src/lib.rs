//! Reads JavaScript and TypeScript: makes a program ready to run, or says what is wrong with it.
//!
//! A parser of untrusted text belongs behind the wall: the binary starts itself inside the sandbox in this role
//! ([`role`]), where deep nesting that overflows its stack kills that process and nothing else. Nothing here runs the
//! program, and nothing it says is believed.
//!
//! Lines of the product are lines of the source; columns are, except where `shifts` says otherwise.

mod console;
mod edits;
mod program;
pub mod role;
mod types;
mod values;

use std::collections::BTreeMap;

use oxc_allocator::Allocator;
use oxc_span::Span;
use serde::Serialize;

use crate::console::Console;
use crate::edits::{Edits, Shift};
use crate::program::{Analysis, Kind, last_expression};
use crate::types::Strip;

pub use crate::program::Problem;

/// The function of the driver that is handed the last expression.
const VALUE: &str = "__palisade_value";

/// What a text is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// ECMAScript, as Node reads it.
    JavaScript,
    /// The same with types.
    TypeScript,
}

/// What a program is made ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One run; the process ends with it.
    Last,
    /// A run of a live interpreter.
    Keep,
    /// A file that programs import.
    File,
}

/// A program made ready, as the driver reads it.
#[derive(Debug, Serialize)]
pub struct Prepared {
    kind: Kind,
    code: String,
    /// A line to put before the first.
    #[serde(skip_serializing_if = "String::is_empty")]
    before: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shifts: Vec<Shift>,
    /// Names of CommonJS it uses.
    uses: Vec<&'static str>,
    /// Whether it ends in an expression.
    value: bool,
    /// Files beside it that Node cannot read by itself, by path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, File>,
    /// The source itself.
    source: String,
}

/// A file that programs import.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum File {
    Ready(Box<Prepared>),
    Wrong { error: String },
}

/// What there is to say about a program without running it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Modules it imports, with lines.
    pub imports: Vec<(String, u32)>,
}

/// Makes a program ready to run.
pub fn prepare(source: &str, language: Language, mode: Mode) -> Result<Prepared, Vec<Problem>> {
    let allocator = Allocator::default();
    // Node finds out for itself what is wrong with the names of JavaScript.
    let analysis = if language == Language::TypeScript { Analysis::Names } else { Analysis::Grammar };
    let parsed = program::parse(&allocator, source, language, analysis)?;
    let mut edits = Edits::new(source);
    if let Some(hashbang) = &parsed.program.hashbang {
        edits.blank(hashbang.span.start, hashbang.span.end);
    }
    let last = last_expression(parsed.program);
    let mut before = String::new();
    let value = last.is_some();
    let mut behind = "";
    if let Some(last) = last.as_ref().filter(|_| mode == Mode::Last) {
        let (head, tail) = last.around(VALUE);
        match last.after {
            Some(after) => edits.insert(after, format!(";{head}")),
            None => before = head,
        }
        behind = tail;
        without_semicolon(&mut edits, last.span);
    }
    if mode == Mode::Keep {
        Console { edits: &mut edits }.rewrite(parsed.program);
    }
    if let Some(scoping) = &parsed.scoping {
        let mut strip = Strip::new(&mut edits, scoping);
        strip.handed_over = last.as_ref().filter(|_| mode == Mode::Last).map(|last| last.span);
        oxc_ast_visit::Visit::visit_program(&mut strip, parsed.program);
        if !strip.problems.is_empty() {
            return Err(strip.problems);
        }
    }
    let (mut code, shifts) = edits.apply();
    code.push_str(behind);
    let kind = if mode == Mode::Keep { Kind::Repl } else { parsed.kind };
    let uses = parsed.facts.uses;
    Ok(Prepared {
        kind,
        code,
        before,
        shifts,
        uses,
        value,
        files: BTreeMap::new(),
        source: source.to_owned(),
    })
}

fn without_semicolon(edits: &mut Edits<'_>, span: Span) {
    if edits.text(span.start, span.end).ends_with(';') {
        edits.blank(span.end - 1, span.end);
    }
}

/// Looks at a program.
pub fn check(source: &str, language: Language) -> Findings {
    let allocator = Allocator::default();
    let parsed = match program::parse(&allocator, source, language, Analysis::Names) {
        Ok(parsed) => parsed,
        Err(problems) => return Findings { problems, imports: Vec::new() },
    };
    let mut edits = Edits::new(source);
    let problems = match &parsed.scoping {
        Some(scoping) if language == Language::TypeScript => {
            let mut strip = Strip::new(&mut edits, scoping);
            oxc_ast_visit::Visit::visit_program(&mut strip, parsed.program);
            strip.problems
        }
        _ => Vec::new(),
    };
    let imports =
        parsed.facts.imports.iter().map(|(name, span)| ((*name).to_owned(), parsed.facts.line(*span)));
    Findings { problems, imports: imports.collect() }
}

#[cfg(test)]
mod tests;
