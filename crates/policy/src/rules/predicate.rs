//! Predicates over the arguments of a call.
//!
//! A predicate has four findings, not two: an absent path and a value of the wrong type are told apart from a
//! comparison that fails, because `require` and `deny_if` treat them differently (see [`Finding`]).

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::decimal::Decimal;
use crate::document::{Entry, Flaw, Node, NodeValue, Position};

/// Memory of one compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Steps of a path.
const STEPS_MAX: usize = 16;

/// What a predicate says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is true.
    Holds,
    /// It is false.
    Fails,
    /// The path leads to nothing. Fails `require`, and does not match `deny_if`.
    Absent,
    /// The value has a type that cannot be compared. Counts against the caller in both.
    Unfit,
}

/// A path into the arguments: `args.limits.timeout_ms`. A step into a list is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path(Vec<String>);

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Neq,
    In,
    NotIn,
    Lt,
    Lte,
    Gt,
    Gte,
    Regex,
    Contains,
    Exists,
}

/// A comparison of an argument with a value of the policy.
#[derive(Debug, Clone)]
pub(crate) struct Predicate {
    pub(crate) path: Path,
    pub(crate) op: Op,
    /// Where the file has its value.
    pub(crate) at: Position,
    operand: Operand,
}

#[derive(Debug, Clone)]
enum Operand {
    One(Scalar),
    List(Vec<Scalar>),
    Number(Decimal),
    Pattern(Regex),
    Presence(bool),
}

#[derive(Debug, Clone, PartialEq)]
enum Scalar {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
}

/// Where a path leads.
enum Reached<'v> {
    Value(&'v Value),
    Nothing,
    /// A step goes into something that has no such steps.
    Unfit,
}

impl Path {
    /// Reads what follows `args.`.
    pub(crate) fn parse(text: &str, at: Position) -> Result<Self, Flaw> {
        let Some(rest) = text.strip_prefix("args.") else {
            let message = format!("the path `{}` must start with `args.` or `state.`", text.escape_debug());
            return Err(Flaw::new(at, message));
        };
        let steps: Vec<String> = rest.split('.').map(str::to_owned).collect();
        if steps.len() > STEPS_MAX || steps.iter().any(String::is_empty) {
            return Err(Flaw::new(
                at,
                format!("the path `{}` has an empty step or too many", text.escape_debug()),
            ));
        }
        Ok(Self(steps))
    }

    /// The number at this path.
    pub(crate) fn number(&self, arguments: &Value) -> Option<Decimal> {
        match self.find(arguments) {
            Reached::Value(Value::Number(number)) => Decimal::parse(number.as_str()),
            _ => None,
        }
    }

    fn find<'v>(&self, arguments: &'v Value) -> Reached<'v> {
        let mut value = arguments;
        for step in &self.0 {
            let next = match value {
                Value::Object(map) => map.get(step),
                Value::Array(list) => match step.parse::<usize>() {
                    Ok(index) => list.get(index),
                    Err(_) => return Reached::Unfit,
                },
                _ => return Reached::Unfit,
            };
            match next {
                Some(next) => value = next,
                None => return Reached::Nothing,
            }
        }
        Reached::Value(value)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "args.{}", self.0.join("."))
    }
}

impl Op {
    const NAMES: [(&'static str, Self); 11] = [
        ("eq", Self::Eq),
        ("neq", Self::Neq),
        ("in", Self::In),
        ("not_in", Self::NotIn),
        ("lt", Self::Lt),
        ("lte", Self::Lte),
        ("gt", Self::Gt),
        ("gte", Self::Gte),
        ("regex", Self::Regex),
        ("contains", Self::Contains),
        ("exists", Self::Exists),
    ];

    pub(crate) fn parse(name: &str, at: Position) -> Result<Self, Flaw> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, op)| *op).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            let message =
                format!("`{}` is not an operator; use one of {}", name.escape_debug(), names.join(", "));
            Flaw::new(at, message)
        })
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }

    /// Whether a number stands in this relation to another; `None` for operators that compare no numbers.
    pub(crate) fn compare(self, left: Decimal, right: Decimal) -> Option<bool> {
        Some(match self {
            Self::Eq => left == right,
            Self::Neq => left != right,
            Self::Lt => left < right,
            Self::Lte => left <= right,
            Self::Gt => left > right,
            Self::Gte => left >= right,
            Self::In | Self::NotIn | Self::Regex | Self::Contains | Self::Exists => return None,
        })
    }
}

impl Predicate {
    /// A predicate of these parts.
    pub(crate) fn new(path: Path, op: Op, value: &Node) -> Result<Self, Flaw> {
        Ok(Self { path, op, at: value.at, operand: Operand::read(op, value)? })
    }

    /// The end of the rule's identifier, as proxy logs write it: `args.amount-gt`.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", self.path, self.op.name())
    }

    /// The texts that it compares an argument with as a whole.
    pub(crate) fn texts(&self) -> Vec<&str> {
        let all: &[Scalar] = match &self.operand {
            Operand::One(one) if self.op != Op::Contains => std::slice::from_ref(one),
            Operand::List(all) => all,
            _ => &[],
        };
        let texts = all.iter().filter_map(|one| match one {
            Scalar::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// What it says about these arguments.
    pub(crate) fn find(&self, arguments: &Value) -> Finding {
        let value = match (self.path.find(arguments), &self.operand) {
            (Reached::Unfit, _) | (Reached::Value(Value::Null), Operand::Presence(_)) => {
                return Finding::Unfit;
            }
            (found, Operand::Presence(wanted)) => {
                return truth(matches!(found, Reached::Value(_)) == *wanted);
            }
            (Reached::Nothing, _) => return Finding::Absent,
            (Reached::Value(value), _) => value,
        };
        let holds = match (&self.operand, self.op) {
            (Operand::One(wanted), Op::Contains) => contains(value, wanted),
            (Operand::One(wanted), _) => equal(value, wanted),
            (Operand::List(wanted), _) => any(wanted.iter().map(|one| equal(value, one))),
            (Operand::Number(wanted), op) => match value {
                Value::Number(number) => {
                    Decimal::parse(number.as_str()).and_then(|number| op.compare(number, *wanted))
                }
                _ => None,
            },
            (Operand::Pattern(pattern), _) => value.as_str().map(|text| pattern.is_match(text)),
            (Operand::Presence(_), _) => None,
        };
        match (holds, self.op) {
            (None, _) => Finding::Unfit,
            (Some(holds), Op::Neq | Op::NotIn) => truth(!holds),
            (Some(holds), _) => truth(holds),
        }
    }
}

impl Operand {
    fn read(op: Op, value: &Node) -> Result<Self, Flaw> {
        let wanted = |what: &str| {
            Flaw::new(value.at, format!("`{}` takes {what}, not {}", op.name(), value.value.kind()))
        };
        Ok(match (op, &value.value) {
            (Op::In | Op::NotIn, NodeValue::List(list)) => {
                Self::List(list.iter().map(|node| scalar(op, node)).collect::<Result<_, _>>()?)
            }
            (Op::In | Op::NotIn, _) => return Err(wanted("a list")),
            (Op::Lt | Op::Lte | Op::Gt | Op::Gte, NodeValue::Number(number)) => Self::Number(*number),
            (Op::Lt | Op::Lte | Op::Gt | Op::Gte, _) => return Err(wanted("a number")),
            (Op::Regex, NodeValue::Text(pattern)) => Self::Pattern(compile(pattern, value.at)?),
            (Op::Regex, _) => return Err(wanted("a pattern as text")),
            (Op::Exists, NodeValue::Bool(truth)) => Self::Presence(*truth),
            (Op::Exists, _) => return Err(wanted("true or false")),
            (Op::Eq | Op::Neq | Op::Contains, _) => Self::One(scalar(op, value)?),
        })
    }
}

fn compile(pattern: &str, at: Position) -> Result<Regex, Flaw> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Flaw::new(at, format!("the pattern cannot be used: {reason}"))
        })
}

fn scalar(op: Op, node: &Node) -> Result<Scalar, Flaw> {
    Ok(match &node.value {
        NodeValue::Null => Scalar::Null,
        NodeValue::Bool(truth) => Scalar::Bool(*truth),
        NodeValue::Number(number) => Scalar::Number(*number),
        NodeValue::Text(text) => Scalar::Text(text.clone()),
        other => {
            let message =
                format!("`{}` compares with a text, a number or a boolean, not {}", op.name(), other.kind());
            return Err(Flaw::new(node.at, message));
        }
    })
}

fn truth(holds: bool) -> Finding {
    if holds { Finding::Holds } else { Finding::Fails }
}

/// `None` if the two cannot be compared. Everything can be compared with null.
fn equal(value: &Value, wanted: &Scalar) -> Option<bool> {
    match (value, wanted) {
        (Value::String(text), Scalar::Text(wanted)) => Some(text == wanted),
        (Value::Bool(truth), Scalar::Bool(wanted)) => Some(truth == wanted),
        (Value::Number(number), Scalar::Number(wanted)) => Some(Decimal::parse(number.as_str())? == *wanted),
        (value, Scalar::Null) => Some(value.is_null()),
        _ => None,
    }
}

fn contains(value: &Value, wanted: &Scalar) -> Option<bool> {
    match (value, wanted) {
        (Value::String(text), Scalar::Text(part)) => Some(text.contains(part.as_str())),
        (Value::Array(list), wanted) => {
            let mut are_fit = true;
            for element in list {
                match equal(element, wanted) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => are_fit = false,
                }
            }
            are_fit.then_some(false)
        }
        _ => None,
    }
}

/// Whether one of them holds; `None` if none holds and none could be compared. Nothing is in an empty list.
fn any(findings: impl ExactSizeIterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = (findings.len() == 0).then_some(false);
    for finding in findings.flatten() {
        result = Some(result.unwrap_or(false) || finding);
    }
    result
}

/// Reads a list of predicates: `[{path, op, value, on_deny}]`, or `{"args.amount": {"gt": 1}}`, also in a list.
pub(crate) fn read_list(node: &Node) -> Result<Vec<(Predicate, Option<String>)>, Flaw> {
    match &node.value {
        NodeValue::List(list) => {
            let each = list.iter().map(read_item).collect::<Result<Vec<_>, _>>()?;
            Ok(each.into_iter().flatten().collect())
        }
        NodeValue::Map(_) => read_item(node),
        other => Err(Flaw::new(node.at, format!("expected a list of predicates, found {}", other.kind()))),
    }
}

fn read_item(node: &Node) -> Result<Vec<(Predicate, Option<String>)>, Flaw> {
    let NodeValue::Map(map) = &node.value else {
        return Err(Flaw::new(node.at, format!("expected a predicate, found {}", node.value.kind())));
    };
    match map.iter().any(|entry| entry.key == "path") {
        true => Ok(vec![read_triple(node, map)?]),
        false => read_keyed(map),
    }
}

/// `{path, op, value, on_deny?}`.
fn read_triple(node: &Node, map: &[Entry]) -> Result<(Predicate, Option<String>), Flaw> {
    let (mut path, mut op, mut value, mut on_deny) = (None, None, None, None);
    for Entry { at, key, value: given } in map {
        match (key.as_str(), &given.value) {
            ("path", NodeValue::Text(text)) => path = Some(Path::parse(text, given.at)?),
            ("op", NodeValue::Text(text)) => op = Some(Op::parse(text, given.at)?),
            ("value", _) => value = Some(given),
            ("on_deny" | "reason", NodeValue::Text(text)) => on_deny = Some(text.clone()),
            ("path" | "op" | "on_deny" | "reason", other) => {
                return Err(Flaw::new(given.at, format!("`{key}` is a text, not {}", other.kind())));
            }
            _ => {
                let message = format!(
                    "`{}` is not a field of a predicate; it has path, op, value, on_deny",
                    key.escape_debug()
                );
                return Err(Flaw::new(*at, message));
            }
        }
    }
    let missing = |name: &str| Flaw::new(node.at, format!("the predicate has no `{name}`"));
    let (path, op) = (path.ok_or_else(|| missing("path"))?, op.ok_or_else(|| missing("op"))?);
    let present = Node { at: node.at, value: NodeValue::Bool(true) };
    let value = match (value, op) {
        (Some(value), _) => value,
        (None, Op::Exists) => &present,
        (None, _) => return Err(missing("value")),
    };
    Ok((Predicate::new(path, op, value)?, on_deny))
}

/// `{"args.amount": {"gt": 1, "lt": 10}, "on_deny": "..."}`.
fn read_keyed(map: &[Entry]) -> Result<Vec<(Predicate, Option<String>)>, Flaw> {
    let mut predicates = Vec::new();
    let mut on_deny = None;
    for Entry { at, key, value } in map {
        match (key.as_str(), &value.value) {
            ("on_deny" | "reason", NodeValue::Text(text)) => on_deny = Some(text.clone()),
            (_, NodeValue::Map(ops)) => {
                let path = Path::parse(key, *at)?;
                for Entry { at, key: op, value } in ops {
                    predicates.push(Predicate::new(path.clone(), Op::parse(op, *at)?, value)?);
                }
            }
            (_, other) => {
                let message = format!(
                    "`{}` takes an object such as {{\"gt\": 1}}, not {}",
                    key.escape_debug(),
                    other.kind()
                );
                return Err(Flaw::new(value.at, message));
            }
        }
    }
    Ok(predicates.into_iter().map(|predicate| (predicate, on_deny.clone())).collect())
}

#[cfg(test)]
#[path = "predicate_tests.rs"]
mod tests;
