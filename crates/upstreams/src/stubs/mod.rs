//! Tools as programs write them: signatures for a model, declarations for an editor or a type checker.
//!
//! All names and texts in a definition are a stranger's. Names that are no identifiers are quoted, texts are cleaned, and
//! everything is bounded.

mod types;

use serde_json::{Map, Value};

use self::types::{Style, type_of};
use crate::catalogue::{Catalogue, Pin, Tool};
use crate::clean;
use crate::host::Dialect;

/// The longest signature; a longer one is outlined.
const SIGNATURE_CHARACTERS_MAX: usize = 500;
const PARAMETERS_MAX: usize = 24;
const PARAMETER_ABOUT_CHARACTERS_MAX: usize = 120;
/// The largest file of declarations.
const DECLARATIONS_BYTES_MAX: usize = 1 << 20;

/// One parameter of a tool.
struct Parameter<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
}

/// The parameters, required ones first.
fn parameters(schema: &Value) -> Vec<Parameter<'_>> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut all: Vec<Parameter<'_>> = properties
        .map(|(name, schema)| Parameter { name, schema, is_required: required.contains(&name.as_str()) })
        .collect();
    all.sort_by_key(|parameter| !parameter.is_required);
    all
}

/// The signature of a tool, as a program calls it.
pub(crate) fn signature(
    server: &str,
    tool: &Tool,
    definition: &Map<String, Value>,
    dialect: Dialect,
) -> String {
    if is_kept_back(tool) {
        return format!("{}.{}(...)", server_name(server), tool.facts.alias);
    }
    let whole = written(server, tool, definition, dialect, Style::Readable);
    match whole.chars().count() > SIGNATURE_CHARACTERS_MAX {
        true => {
            let outline = written(server, tool, definition, dialect, Style::Outline);
            clean::line(&outline, SIGNATURE_CHARACTERS_MAX)
        }
        false => whole,
    }
}

fn written(
    server: &str,
    tool: &Tool,
    definition: &Map<String, Value>,
    dialect: Dialect,
    style: Style,
) -> String {
    let schema = definition.get("inputSchema").unwrap_or(&Value::Null);
    let given = match dialect {
        Dialect::Python => python_parameters(schema, style),
        Dialect::TypeScript => typescript_parameters(schema, style),
    };
    let (result, note) = result_of(tool, definition, dialect, style);
    let name = format!("{}.{}", server_name(server), tool.facts.alias);
    match dialect {
        Dialect::Python => format!("{name}({given}) -> {result}{note}"),
        Dialect::TypeScript => format!("{name}({given}): Promise<{result}>{note}"),
    }
}

/// Whether the text of a tool is shown to the operator only.
fn is_kept_back(tool: &Tool) -> bool {
    matches!(tool.pin(), Pin::Suspicious(_))
}

/// How a program spells the server.
fn server_name(server: &str) -> String {
    server.replace('-', "_")
}

fn python_parameters(schema: &Value, style: Style) -> String {
    let all = parameters(schema);
    let mut written: Vec<String> = Vec::new();
    for Parameter { name, schema: own, is_required } in all.iter().take(PARAMETERS_MAX) {
        let kind = type_of(own, schema, Dialect::Python, style);
        let given = match is_identifier(name) {
            true => format!("{name}: {kind}"),
            false => format!("**{{{}: {kind}}}", quoted(name)),
        };
        written.push(match (is_required, is_identifier(name)) {
            (true, _) | (_, false) => given,
            (false, true) => format!("{given} = {}", default_of(own)),
        });
    }
    if all.len() > PARAMETERS_MAX {
        written.push("**more".to_owned());
    }
    written.join(", ")
}

fn typescript_parameters(schema: &Value, style: Style) -> String {
    let all = parameters(schema);
    if all.is_empty() {
        return String::new();
    }
    let mut written: Vec<String> = all
        .iter()
        .take(PARAMETERS_MAX)
        .map(|Parameter { name, schema: own, is_required }| {
            let name = if is_identifier(name) { (*name).to_owned() } else { quoted(name) };
            let mark = if *is_required { "" } else { "?" };
            format!("{name}{mark}: {}", type_of(own, schema, Dialect::TypeScript, style))
        })
        .collect();
    if all.len() > PARAMETERS_MAX {
        written.push("[more: string]: unknown".to_owned());
    }
    let is_all_optional = all.iter().all(|parameter| !parameter.is_required);
    format!("args{}: {{{}}}", if is_all_optional { "?" } else { "" }, written.join(", "))
}

/// The type of the result, and where it is from if the server did not say.
fn result_of(
    tool: &Tool,
    definition: &Map<String, Value>,
    dialect: Dialect,
    style: Style,
) -> (String, String) {
    if let Some(schema) = definition.get("outputSchema").filter(|schema| schema.is_object()) {
        return (type_of(schema, schema, dialect, style), String::new());
    }
    match (&tool.facts.shape, style, dialect) {
        (Some(shape), Style::Readable, _) | (Some(shape), Style::Valid, Dialect::TypeScript) => {
            let mark = if dialect == Dialect::Python { "#" } else { "//" };
            (shape.render(dialect), format!("  {mark} seen {}x", tool.facts.seen))
        }
        (_, _, Dialect::Python) => ("Any".to_owned(), String::new()),
        (_, _, Dialect::TypeScript) => ("unknown".to_owned(), String::new()),
    }
}

/// A default that is a plain value, or `...`.
fn default_of(schema: &Value) -> String {
    match schema.get("default") {
        Some(Value::Bool(true)) => "True".to_owned(),
        Some(Value::Bool(false)) => "False".to_owned(),
        Some(Value::Null) => "None".to_owned(),
        Some(Value::Number(number)) if number.to_string().len() <= 20 => number.to_string(),
        Some(Value::String(text)) if text.len() <= 24 => quoted(text),
        _ => "...".to_owned(),
    }
}

fn is_identifier(name: &str) -> bool {
    const KEYWORDS: [&str; 12] =
        ["from", "import", "class", "in", "is", "not", "and", "or", "if", "for", "with", "lambda"];
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let first = name.bytes().next().unwrap_or(b'0');
    is_plain && !first.is_ascii_digit() && name.len() <= 64 && !KEYWORDS.contains(&name)
}

/// A text as a literal of JSON, which all languages here understand.
fn quoted(text: &str) -> String {
    Value::from(clean::line(text, 80)).to_string()
}

/// Declarations of all tools of a server.
pub(crate) fn declarations(server: &str, catalogue: &Catalogue, dialect: Dialect) -> String {
    let mut text = match dialect {
        Dialect::Python => "from typing import Any, Literal\n\n".to_owned(),
        Dialect::TypeScript => String::new(),
    };
    let name = server_name(server);
    text.push_str(&match dialect {
        Dialect::Python => format!("class {name}:\n"),
        Dialect::TypeScript => format!("declare namespace {name} {{\n"),
    });
    let mut left_out = 0;
    for tool in catalogue.tools.iter().filter(|tool| !is_kept_back(tool)) {
        if text.len() > DECLARATIONS_BYTES_MAX {
            left_out += 1;
            continue;
        }
        text.push_str(&declaration(tool, dialect));
    }
    if catalogue.tools.is_empty() && dialect == Dialect::Python {
        text.push_str("    pass\n");
    }
    if dialect == Dialect::TypeScript {
        text.push_str("}\n");
    }
    if left_out > 0 {
        let mark = if dialect == Dialect::Python { "#" } else { "//" };
        text.push_str(&format!("{mark} {left_out} more tools: use tools.find\n"));
    }
    text
}

fn declaration(tool: &Tool, dialect: Dialect) -> String {
    let definition = tool.parsed();
    let schema = definition.get("inputSchema").unwrap_or(&Value::Null);
    let (result, note) = result_of(tool, &definition, dialect, Style::Valid);
    let about = tool.facts.about.replace("*/", "* /").replace("\"\"\"", "\"\"").replace('\\', "/");
    let mut lines: Vec<String> = vec![about];
    for parameter in parameters(schema).iter().take(PARAMETERS_MAX) {
        let about = parameter.schema.get("description").and_then(Value::as_str).unwrap_or_default();
        if !about.is_empty() {
            let about = clean::line(about, PARAMETER_ABOUT_CHARACTERS_MAX);
            let about = about.replace("*/", "* /").replace("\"\"\"", "\"\"").replace('\\', "/");
            lines.push(format!("{}: {about}", clean::line(parameter.name, 64)));
        }
    }
    let alias = &tool.facts.alias;
    match dialect {
        Dialect::Python => {
            if let Some(shape) = &tool.facts.shape {
                lines.push(format!("Seen {} times: {}", tool.facts.seen, shape.render(dialect)));
            }
            let given = python_valid(schema);
            let body = lines.join("\n        ");
            format!(
                "    @staticmethod\n    def {alias}({given}) -> {result}:\n        \"\"\"{body} \"\"\"\n        ...\n"
            )
        }
        Dialect::TypeScript => {
            let given = typescript_parameters(schema, Style::Valid);
            let body = lines.join("\n   * ");
            format!("  /**\n   * {body}\n   */\n  function {alias}({given}): Promise<{result}>;{note}\n")
        }
    }
}

/// Parameters as a `.pyi` file may have them: keywords only, others as `**more`.
fn python_valid(schema: &Value) -> String {
    let all = parameters(schema);
    let mut written: Vec<String> = Vec::new();
    for Parameter { name, schema: own, is_required } in all.iter().filter(|one| is_identifier(one.name)) {
        let kind = type_of(own, schema, Dialect::Python, Style::Valid);
        written.push(format!("{name}: {kind}{}", if *is_required { "" } else { " = ..." }));
    }
    if !written.is_empty() {
        written.insert(0, "*".to_owned());
    }
    if written.len() <= all.len() && all.iter().any(|one| !is_identifier(one.name)) {
        written.push("**more: Any".to_owned());
    }
    written.join(", ")
}

#[cfg(test)]
mod tests;
