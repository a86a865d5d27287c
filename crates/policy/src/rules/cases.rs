//! Calls with an expected verdict: the examples of a policy file, and files of cases for `palisade policy test`.

use serde_json::Value;

use super::read::{as_list, as_map, as_text, to_json, unknown};
use super::{Judgement, Rules};
use crate::document::{self, Entry, Flaw, Node, NodeValue, Position, Syntax};

const EXAMPLE_FIELDS: &str = "tool, args, expect, rule";
const CASE_FIELDS: &str = "principal, policy, tool, args, expect, rule";

/// A call and what the rules should say about it.
#[derive(Debug, Clone)]
pub struct Case {
    /// Where the file has it.
    pub at: Position,
    /// Whose policy it is about.
    pub subject: Subject,
    /// The tool that is called.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// The expected verdict.
    pub expectation: Expectation,
    /// The expected rule, if the case names one.
    pub rule: Option<String>,
}

/// Whose policy a case is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The policy that contains the example.
    Own,
    /// The policy of that name.
    Policy(String),
    /// The policy that binds this caller.
    Principal(String),
}

/// What a case expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// The call is allowed.
    Allow,
    /// The call is denied.
    Deny,
    /// The call needs an approval.
    Approval,
}

/// Reads the examples of a policy.
pub(super) fn read_examples(node: &Node) -> Result<Vec<Case>, Flaw> {
    as_list(node, "examples")?.iter().map(|example| Case::read(example, false)).collect()
}

/// Reads a file of cases: a list, or an object with the list `cases`.
pub fn read_cases(text: &str, syntax: Syntax) -> Result<Vec<Case>, Flaw> {
    let root = document::read(text, syntax)?;
    let list = match &root.value {
        NodeValue::Map(map) => match map.as_slice() {
            [Entry { key, value, .. }] if key == "cases" => value,
            _ => return Err(Flaw::new(root.at, "a file of cases is a list, or has the field `cases` alone")),
        },
        _ => &root,
    };
    as_list(list, "cases")?.iter().map(|case| Case::read(case, true)).collect()
}

impl Case {
    fn read(node: &Node, has_subject: bool) -> Result<Self, Flaw> {
        let mut case = Self {
            at: node.at,
            subject: Subject::Own,
            tool: String::new(),
            arguments: Value::Object(serde_json::Map::new()),
            expectation: Expectation::Allow,
            rule: None,
        };
        let mut has_expectation = false;
        for Entry { at, key, value } in as_map(node, "an example")? {
            match key.as_str() {
                "policy" if has_subject => case.subject = Subject::Policy(as_text(value, key)?.to_owned()),
                "principal" if has_subject => {
                    case.subject = Subject::Principal(as_text(value, key)?.to_owned());
                }
                "tool" => as_text(value, key)?.clone_into(&mut case.tool),
                "args" => case.arguments = to_json(value),
                "rule" => case.rule = Some(as_text(value, key)?.to_owned()),
                "expect" => {
                    has_expectation = true;
                    case.expectation = Expectation::parse(as_text(value, key)?).ok_or_else(|| {
                        Flaw::new(value.at, "`expect` is \"allow\", \"deny\" or \"approval\"")
                    })?;
                }
                _ if has_subject => return Err(unknown(*at, key, "a case", CASE_FIELDS)),
                _ => return Err(unknown(*at, key, "an example", EXAMPLE_FIELDS)),
            }
        }
        match has_expectation && !case.tool.is_empty() {
            true => Ok(case),
            false => Err(Flaw::new(node.at, "an example needs `tool` and `expect`")),
        }
    }

    /// Says how the rules differ from what is expected.
    pub fn check(&self, rules: &Rules) -> Result<(), String> {
        let (found, rule) = match rules.judge(&[&self.tool], &self.arguments) {
            Judgement::Denied(denied) => (Expectation::Deny, Some(denied.rule)),
            Judgement::Allowed { approval: Some(approval), .. } => {
                (Expectation::Approval, Some(approval.rule.clone()))
            }
            Judgement::Allowed { approval: None, .. } => (Expectation::Allow, None),
        };
        let by = |rule: &Option<String>| rule.as_ref().map(|rule| format!(" by {rule}")).unwrap_or_default();
        if found == self.expectation && (self.rule.is_none() || self.rule == rule) {
            return Ok(());
        }
        Err(format!(
            "expects `{}`{}, but the rules say `{}`{}",
            self.expectation.name(),
            by(&self.rule),
            found.name(),
            by(&rule)
        ))
    }
}

impl Expectation {
    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Approval => "approval",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::Approval].into_iter().find(|one| one.name() == name)
    }
}
