//! Reads YAML with positions, from the events of the parser.
//!
//! Only the core schema: no tags, no merge keys, one document. An alias is replaced by what it names, and counts
//! as often as it is used, so a file whose aliases multiply is refused at the bound of values.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::{Budget, DEPTH_MAX, Entry, Flaw, Node, NodeValue, Position, bad_number, too_deep, unique};
use crate::decimal::Decimal;

pub(super) fn read(text: &str) -> Result<Node, Flaw> {
    let parser = Parser::new_from_str(text);
    let mut reader = Reader { parser, anchors: HashMap::new(), budget: Budget::default() };
    let mut document = None;
    loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentEnd | Event::Nothing, _) => {}
            (Event::DocumentStart(_), at) if document.is_some() => {
                return Err(Flaw::new(at, "a policy file holds one document"));
            }
            (Event::DocumentStart(_), _) => {
                let (event, at) = reader.next()?;
                document = Some(reader.node(event, at, 0)?);
            }
            (Event::StreamEnd, at) => return document.ok_or_else(|| Flaw::new(at, "the file is empty")),
            (_, at) => return Err(Flaw::new(at, "a value is not expected here")),
        }
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// What each anchor names, with its number of nodes.
    anchors: HashMap<usize, (Node, usize)>,
    budget: Budget,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Position), Flaw> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, position(span))),
            Some(Err(error)) => {
                let (line, column) = (error.marker().line(), error.marker().col() + 1);
                Err(Flaw::new(Position { line, column }, error.info()))
            }
            None => Ok((Event::StreamEnd, Position::default())),
        }
    }

    fn node(&mut self, event: Event<'t>, at: Position, depth: usize) -> Result<Node, Flaw> {
        if depth > DEPTH_MAX {
            return Err(too_deep(at));
        }
        let before = self.budget.nodes;
        self.budget.take(at, 1)?;
        let (value, anchor, tag) = match event {
            Event::Alias(anchor) => return self.alias(anchor, at, depth),
            Event::Scalar(text, style, anchor, tag) => (scalar(&text, style, at)?, anchor, tag),
            Event::SequenceStart(anchor, tag) => (NodeValue::List(self.list(depth)?), anchor, tag),
            Event::MappingStart(anchor, tag) => (NodeValue::Map(self.map(depth)?), anchor, tag),
            _ => return Err(Flaw::new(at, "a value is missing here")),
        };
        if tag.is_some() {
            return Err(Flaw::new(at, "tags are not allowed in a policy"));
        }
        let node = Node { at, value };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.budget.nodes - before));
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, at: Position, depth: usize) -> Result<Node, Flaw> {
        let (named, nodes) = self
            .anchors
            .get(&anchor)
            .ok_or_else(|| Flaw::new(at, "this alias names something that is not complete yet"))?;
        self.budget.take(at, *nodes)?;
        if depth + deepest(named) > DEPTH_MAX {
            return Err(too_deep(at));
        }
        Ok(named.clone())
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Flaw> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, at) => list.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Flaw> {
        let mut map = Vec::new();
        loop {
            let (at, key) = match self.next()? {
                (Event::MappingEnd, _) => return unique(map),
                (Event::Scalar(text, _, 0, None), at) => (at, text.into_owned()),
                (_, at) => return Err(Flaw::new(at, "a key is a plain or quoted text")),
            };
            if key == "<<" {
                return Err(Flaw::new(at, "merge keys are not allowed in a policy"));
            }
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1)?;
            map.push(Entry { at, key, value });
        }
    }
}

fn deepest(node: &Node) -> usize {
    match &node.value {
        NodeValue::List(list) => 1 + list.iter().map(deepest).max().unwrap_or(0),
        NodeValue::Map(map) => 1 + map.iter().map(|entry| deepest(&entry.value)).max().unwrap_or(0),
        _ => 0,
    }
}

fn position(span: Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

/// The core schema of YAML 1.2. Numbers in other bases, infinities and not-a-number are refused: no policy needs them.
fn scalar(text: &str, style: ScalarStyle, at: Position) -> Result<NodeValue, Flaw> {
    if style != ScalarStyle::Plain {
        return Ok(NodeValue::Text(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "true" | "True" | "TRUE" => NodeValue::Bool(true),
        "false" | "False" | "FALSE" => NodeValue::Bool(false),
        _ if is_number(text) => {
            let number = text.strip_prefix('+').unwrap_or(text);
            Decimal::parse(number).map(NodeValue::Number).ok_or_else(|| bad_number(at, text))?
        }
        _ if is_odd_number(text) => {
            return Err(Flaw::new(
                at,
                format!("`{text}` is not a number here; put it in quotes if it is a text"),
            ));
        }
        _ => NodeValue::Text(text.to_owned()),
    })
}

/// Whether the text is meant as a number. A long row of digits is one that cannot be held exactly; `1-2` or a date
/// is a text.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_row_of_digits = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    is_row_of_digits || Decimal::parse(text.strip_prefix('+').unwrap_or(text)).is_some()
}

fn is_odd_number(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let plain = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    matches!(plain, ".inf" | ".nan")
        || ["0x", "0o"].iter().any(|prefix| {
            plain.strip_prefix(prefix).is_some_and(|digits| {
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        })
}
