//! What is told about a tool: whether it may be called, and what programs and models see of it.

use serde_json::{Map, Value};

use crate::catalogue::{Catalogue, Pin, Tool};
use crate::host::{Dialect, FoundTool, LearnedShape, ToolAccess, ToolDefinition, ToolError, ToolErrorCode};
use crate::spec::ServerSpec;
use crate::stubs;

/// Whether a tool may be called: the operator's word, then the pin.
pub(crate) fn access(spec: &ServerSpec, tool: &Tool) -> ToolAccess {
    match spec.rules.judge([&tool.facts.name, &tool.facts.alias], tool.facts.effect) {
        ToolAccess::Deny => ToolAccess::Deny,
        _ if tool.pin() != Pin::Accepted => ToolAccess::Held,
        judged => judged,
    }
}

/// What is shown of a description: nothing of one that is held for its text.
pub(crate) fn about(tool: &Tool) -> String {
    match tool.pin() {
        Pin::Suspicious(_) => String::new(),
        _ => tool.facts.about.clone(),
    }
}

/// A tool as a search shows it.
pub(crate) fn found(spec: &ServerSpec, tool: &Tool, dialect: Dialect) -> FoundTool {
    FoundTool {
        name: format!("{}.{}", spec.name, tool.facts.alias),
        own_name: format!("{}.{}", spec.name, tool.facts.name),
        signature: stubs::signature(&spec.name, tool, &tool.parsed(), dialect),
        about: about(tool),
        effect: tool.facts.effect,
        access: access(spec, tool),
    }
}

/// The error for a tool that there is not, with near names.
pub(crate) fn unknown_tool(server: &str, tool: &str, catalogue: &Catalogue) -> ToolError {
    let shown: String = tool.chars().take(64).collect();
    let message = format!("the server `{server}` has no tool `{}`", shown.escape_debug());
    let near: Vec<&str> = catalogue
        .tools
        .iter()
        .map(|tool| tool.facts.alias.as_str())
        .filter(|alias| alias.contains(&shown) || shown.contains(alias))
        .take(5)
        .collect();
    let remedy = match near.as_slice() {
        [] => {
            format!("find tools with tools.find or `palisade tools find`, of {} there", catalogue.tools.len())
        }
        near => format!("near names are {}", near.join(", ")),
    };
    ToolError::new(ToolErrorCode::UnknownTool, message).with_remedy(remedy)
}

/// Refuses what the operator denies and what is held.
pub(crate) fn check(spec: &ServerSpec, tool: &Tool) -> Result<(), ToolError> {
    let name = format!("{}.{}", spec.name, tool.facts.name);
    match access(spec, tool) {
        ToolAccess::Allow | ToolAccess::Ask => Ok(()),
        ToolAccess::Deny => {
            Err(ToolError::new(ToolErrorCode::ToolDenied, format!("the operator denies `{name}`")))
        }
        ToolAccess::Held => {
            let reason = tool.pin().reason().unwrap_or_default();
            let remedy = format!(
                "the operator can look with `palisade tools diff {0}` and accept with `palisade tools accept {0}`",
                spec.name
            );
            Err(ToolError::new(ToolErrorCode::ToolHeld, format!("`{name}` is held: {reason}"))
                .with_remedy(remedy))
        }
    }
}

/// Everything about a tool.
pub(crate) fn definition(spec: &ServerSpec, tool: &Tool) -> ToolDefinition {
    let mut parsed = tool.parsed();
    let (python, typescript) = (
        stubs::signature(&spec.name, tool, &parsed, Dialect::Python),
        stubs::signature(&spec.name, tool, &parsed, Dialect::TypeScript),
    );
    let learned = tool.facts.shape.as_ref().map(|shape| LearnedShape {
        python: shape.render(Dialect::Python),
        typescript: shape.render(Dialect::TypeScript),
        seen: tool.facts.seen,
    });
    let access = access(spec, tool);
    let reason = match access {
        ToolAccess::Held => tool.pin().reason().unwrap_or_default(),
        ToolAccess::Deny => "the operator denies it".to_owned(),
        ToolAccess::Allow | ToolAccess::Ask => String::new(),
    };
    // The text of a suspicious definition is for the operator only.
    let is_suspicious = matches!(tool.pin(), Pin::Suspicious(_));
    ToolDefinition {
        server: spec.name.clone(),
        tool: tool.facts.name.clone(),
        alias: tool.facts.alias.clone(),
        title: if is_suspicious { String::new() } else { tool.facts.title.clone() },
        about: about(tool),
        python,
        typescript,
        input_schema: match parsed.remove("inputSchema") {
            Some(schema) if !is_suspicious => schema,
            _ => Value::Object(Map::new()),
        },
        output_schema: parsed.remove("outputSchema").filter(|_| !is_suspicious),
        learned,
        effect: tool.facts.effect,
        access,
        reason,
        digest: tool.facts.digest.clone(),
    }
}
