//! Compiles a policy file. Both formats share the outer fields; a tool's entry may use either (`read_native`,
//! `read_intercept`).

use std::collections::HashSet;

use sandbox::{OWN_KERNEL, WALLS};
use serde_json::Value;

use super::read_intercept::{Context, Counters};
use super::{Limit, Rules, ToolRules, cases, read_intercept, read_native};
use crate::document::{self, Entry, Flaw, Node, NodeValue, Syntax};

/// Fields of a policy file.
const FIELDS: &str = "version, description, default, hide, all_tools, tools, access, walls, examples";
/// The entry of `tools` that stands for all tools.
const ALL: &str = "*";
/// Most tools, and most hidden names, of one file.
const TOOLS_MAX: usize = 10_000;
/// Most patterns of one file. Each may take a megabyte.
const PATTERNS_MAX: usize = 1000;

/// Reads a policy, and checks its examples.
pub fn read_rules(text: &str, syntax: Syntax) -> Result<Rules, Flaw> {
    let root = document::read(text, syntax)?;
    let rules = compile(&root)?;
    for example in &rules.examples {
        example.check(&rules).map_err(|message| Flaw::new(example.at, format!("the example {message}")))?;
    }
    Ok(rules)
}

fn compile(root: &Node) -> Result<Rules, Flaw> {
    let map = as_map(root, "a policy")?;
    let mut rules = Rules::default();
    let (mut version, mut default, mut tools) = (None, None, None);
    for Entry { at, key, value } in map {
        match key.as_str() {
            "version" => version = Some(value),
            "description" => rules.description = Some(as_text(value, key)?.to_owned()),
            "default" => {
                rules.default_at = *at;
                default = Some(as_text(value, key)?).map(|text| (text, value));
            }
            "hide" => {
                rules.hide_at = *at;
                read_hide(value, &mut rules)?;
            }
            "access" | "walls" => read_native::read_declared(key, value, &mut rules.all)?,
            "all_tools" => {
                let counters = Counters::default();
                let context =
                    Context { pointer: "/all_tools", tool: Limit::OF_ALL_TOOLS, counters: &counters };
                read_tool(value, &context, &mut rules.all)?;
            }
            "tools" => tools = Some(value),
            "examples" => rules.examples = cases::read_examples(value)?,
            "approvals" => {
                as_map(value, "`approvals`")?;
                rules
                    .notes
                    .push(Flaw::new(*at, "`approvals` is not used: nobody is notified of waiting calls"));
            }
            _ => return Err(unknown(*at, key, "a policy", FIELDS)),
        }
    }
    check_version(version, root)?;
    check_patterns(root)?;
    let is_intercept = tools.map(|node| read_tools(node, &mut rules)).transpose()?.unwrap_or(false);
    rules.allows_unlisted = match default {
        Some(("allow", _)) => true,
        Some(("deny", _)) => false,
        Some((_, node)) => return Err(Flaw::new(node.at, "`default` is \"allow\" or \"deny\"")),
        None if is_intercept => true,
        None => return Err(Flaw::new(root.at, "`default` is missing: \"allow\" or \"deny\"")),
    };
    check_counters(&rules)?;
    let mut unknown: Vec<_> = rules
        .tools
        .values()
        .chain([&rules.all])
        .flat_map(|tool| tool.unknown_walls.iter().cloned())
        .collect();
    unknown.sort_unstable_by_key(|(at, _)| (at.line, at.column));
    let note = |(at, name): (document::Position, String)| {
        let known = WALLS.map(|wall| wall.name).join(", ");
        let name = name.escape_debug();
        Flaw::new(
            at,
            format!(
                "no wall `{name}` is known; a server without it refuses what only this name allows. Known: {known}, {OWN_KERNEL}"
            ),
        )
    };
    rules.notes.extend(unknown.into_iter().map(note));
    Ok(rules)
}

fn check_version(version: Option<&Node>, root: &Node) -> Result<(), Flaw> {
    match version.map(|node| (&node.value, node.at)) {
        Some((NodeValue::Text(text), _)) if text == "1" => Ok(()),
        // Written without quotes.
        Some((NodeValue::Number(number), _)) if *number == crate::Decimal::ONE => Ok(()),
        Some((_, at)) => Err(Flaw::new(at, "`version` must be \"1\"")),
        None => Err(Flaw::new(root.at, "`version` is missing; it must be \"1\"")),
    }
}

/// Counts the patterns before the first is compiled.
fn check_patterns(root: &Node) -> Result<(), Flaw> {
    fn count(node: &Node) -> usize {
        match &node.value {
            NodeValue::Text(text) => usize::from(text == "regex"),
            NodeValue::List(list) => list.iter().map(count).sum(),
            NodeValue::Map(map) => {
                map.iter().map(|entry| usize::from(entry.key == "regex") + count(&entry.value)).sum()
            }
            _ => 0,
        }
    }
    match count(root) > PATTERNS_MAX {
        true => Err(Flaw::new(root.at, format!("the file has more than {PATTERNS_MAX} patterns"))),
        false => Ok(()),
    }
}

fn read_hide(node: &Node, rules: &mut Rules) -> Result<(), Flaw> {
    for entry in as_list(node, "hide")? {
        let name = as_text(entry, "hide")?;
        if name.is_empty() {
            return Err(Flaw::new(entry.at, "an entry of `hide` is empty"));
        }
        if name == ALL {
            rules.hides_all = true;
        } else if !rules.hidden.insert(name.to_owned()) {
            return Err(Flaw::new(entry.at, format!("`{}` is hidden twice", name.escape_debug())));
        }
        if rules.hidden.len() > TOOLS_MAX {
            return Err(Flaw::new(entry.at, format!("more than {TOOLS_MAX} names are hidden")));
        }
    }
    Ok(())
}

/// Reads the tools. Tells whether one is written in Intercept's format, which has a default.
fn read_tools(node: &Node, rules: &mut Rules) -> Result<bool, Flaw> {
    // All entries of a scaffold may be commented out.
    let map = if node.value == NodeValue::Null { &[] } else { as_map(node, "`tools`")? };
    if map.len() > TOOLS_MAX {
        return Err(Flaw::new(node.at, format!("more than {TOOLS_MAX} tools are listed")));
    }
    let counters = counters_of(map)?;
    let mut is_intercept = false;
    for Entry { at, key, value } in map {
        let pointer = format!("/tools/{}", escape(key));
        is_intercept |=
            matches!(&value.value, NodeValue::Map(map) if map.iter().any(|entry| entry.key == "rules"));
        if key.is_empty() {
            return Err(Flaw::new(*at, "a tool has no name"));
        }
        if key == ALL {
            read_tool(
                value,
                &Context { pointer: &pointer, tool: Limit::OF_ALL_TOOLS, counters: &counters },
                &mut rules.all,
            )?;
        } else {
            let mut tool = ToolRules::default();
            read_tool(value, &Context { pointer: &pointer, tool: key, counters: &counters }, &mut tool)?;
            rules.tools.insert(key.clone(), tool);
        }
    }
    Ok(is_intercept)
}

/// Reads the entry of one tool. An empty one allows the tool.
fn read_tool(node: &Node, context: &Context<'_>, into: &mut ToolRules) -> Result<(), Flaw> {
    if node.value == NodeValue::Null {
        return Ok(());
    }
    let map = as_map(node, "a tool's entry")?;
    read_native::read(map, context.pointer, context.tool, into)?;
    if let Some(rules) = map.iter().find(|entry| entry.key == "rules") {
        read_intercept::read(&rules.value, context, into)?;
    }
    Ok(())
}

fn counters_of(tools: &[Entry]) -> Result<Counters, Flaw> {
    let mut counters = Counters::default();
    for Entry { key, value, .. } in tools {
        let NodeValue::Map(map) = &value.value else { continue };
        let tool = if key == ALL { Limit::OF_ALL_TOOLS } else { key };
        if let Some(rules) = map.iter().find(|entry| entry.key == "rules") {
            read_intercept::collect(&rules.value, tool, &mut counters)?;
        }
    }
    Ok(counters)
}

/// One counter is counted by one rule, else a call would count twice.
fn check_counters(rules: &Rules) -> Result<(), Flaw> {
    let mut counted = HashSet::new();
    let all = rules.tools.values().chain([&rules.all]).flat_map(|tool| &tool.limits);
    for limit in all.filter(|limit| !limit.only_reads) {
        if !counted.insert((&limit.tool, &limit.counter, limit.window)) {
            let message = format!("the counter `{}` is counted by two rules ({})", limit.counter, limit.rule);
            return Err(Flaw::new(limit.at, message));
        }
    }
    Ok(())
}

pub(super) fn to_json(node: &Node) -> Value {
    match &node.value {
        NodeValue::Null => Value::Null,
        NodeValue::Bool(truth) => Value::Bool(*truth),
        NodeValue::Number(number) => {
            number.to_string().parse().map_or(Value::Null, |number: serde_json::Number| Value::Number(number))
        }
        NodeValue::Text(text) => Value::String(text.clone()),
        NodeValue::List(list) => Value::Array(list.iter().map(to_json).collect()),
        NodeValue::Map(map) => {
            Value::Object(map.iter().map(|entry| (entry.key.clone(), to_json(&entry.value))).collect())
        }
    }
}

/// A step of a JSON pointer.
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

pub(super) fn unknown(at: document::Position, key: &str, of: &str, fields: &str) -> Flaw {
    Flaw::new(at, format!("`{}` is not a field of {of}; it has {fields}", key.escape_debug()))
}

pub(super) fn as_map<'n>(node: &'n Node, what: &str) -> Result<&'n [Entry], Flaw> {
    match &node.value {
        NodeValue::Map(map) => Ok(map),
        other => Err(Flaw::new(node.at, format!("{what} is an object, not {}", other.kind()))),
    }
}

/// A list; nothing is an empty one, as a scaffold whose entries are commented out has it.
pub(super) fn as_list<'n>(node: &'n Node, key: &str) -> Result<&'n [Node], Flaw> {
    match &node.value {
        NodeValue::List(list) => Ok(list),
        NodeValue::Null => Ok(&[]),
        other => Err(Flaw::new(node.at, format!("`{key}` is a list, not {}", other.kind()))),
    }
}

/// A list of texts, or one text.
pub(super) fn texts(node: &Node, key: &str) -> Result<Vec<String>, Flaw> {
    match &node.value {
        NodeValue::Text(text) => Ok(vec![text.clone()]),
        _ => as_list(node, key)?.iter().map(|one| as_text(one, key).map(str::to_owned)).collect(),
    }
}

pub(super) fn as_text<'n>(node: &'n Node, key: &str) -> Result<&'n str, Flaw> {
    match &node.value {
        NodeValue::Text(text) => Ok(text),
        other => Err(Flaw::new(node.at, format!("`{key}` is a text, not {}", other.kind()))),
    }
}
