//! Policy files as trees with positions.
//!
//! Every node has its line and column, so a refusal can name the place. A key that occurs twice is refused,
//! because readers disagree about which one counts. Aliases of YAML are expanded up to a bound.

mod json;
mod yaml;

use std::collections::HashMap;
use std::fmt;

use crate::decimal::Decimal;

/// The largest policy file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Most nodes of a file, after aliases are expanded.
const NODES_MAX: usize = 100_000;
/// Deepest nesting. A policy needs eight levels.
const DEPTH_MAX: usize = 32;

/// A place in a file, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// Why a file is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Where.
    pub at: Position,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Flaw {
    pub(crate) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.at.line, self.at.column, self.message)
    }
}

impl std::error::Error for Flaw {}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, strictly.
    Json,
    /// YAML 1.2 with its core schema.
    Yaml,
}

impl Syntax {
    /// The syntax of a file with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1 {
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: NodeValue,
}

/// A value in a policy file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeValue {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a map with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) at: Position,
    pub(crate) key: String,
    pub(crate) value: Node,
}

impl NodeValue {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }
}

/// Reads a file.
pub(crate) fn read(text: &str, syntax: Syntax) -> Result<Node, Flaw> {
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        return Err(Flaw::new(Position { line: 1, column: 1 }, message));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match syntax {
        Syntax::Json => json::read(text),
        Syntax::Yaml => yaml::read(text),
    }
}

/// A map, unless one of its keys occurs twice.
fn unique(map: Vec<Entry>) -> Result<Vec<Entry>, Flaw> {
    let mut lines: HashMap<&str, usize> = HashMap::with_capacity(map.len());
    for entry in &map {
        if let Some(line) = lines.insert(&entry.key, entry.at.line) {
            let key = entry.key.escape_debug();
            let message = format!("`{key}` is here a second time; the first is in line {line}");
            return Err(Flaw::new(entry.at, message));
        }
    }
    Ok(map)
}

/// Counts the nodes of a file.
#[derive(Default)]
struct Budget {
    nodes: usize,
}

impl Budget {
    fn take(&mut self, at: Position, nodes: usize) -> Result<(), Flaw> {
        self.nodes = self.nodes.saturating_add(nodes);
        match self.nodes > NODES_MAX {
            true => Err(Flaw::new(at, format!("the file has more than {NODES_MAX} values"))),
            false => Ok(()),
        }
    }
}

fn too_deep(at: Position) -> Flaw {
    Flaw::new(at, format!("values are nested deeper than {DEPTH_MAX}"))
}

fn bad_number(at: Position, text: &str) -> Flaw {
    let text: String = text.chars().take(60).collect();
    Flaw::new(at, format!("`{}` cannot be compared exactly: it has too many digits", text.escape_debug()))
}

#[cfg(test)]
mod tests;
