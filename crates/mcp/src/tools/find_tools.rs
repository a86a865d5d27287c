//! `find_tools`: searches the tools of other servers that programs can call. Published only where such servers are
//! configured.

use engine::access::{FoundTools, ListedTool, Notation, ToolQuery};
use engine::{Caller, RunError};
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::json;

use super::{Effects, Needs, Offer, Scope, ToolEntry, answer, refused};
use crate::Server;
use crate::schema;

/// Name of the tool.
pub(crate) const NAME: &str = "find_tools";
/// The most characters of an answer.
const CHARACTERS_MAX: usize = 6000;
const LIMIT_DEFAULT: u64 = 20;
const LIMIT_MAX: u64 = 100;

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: NAME,
    title: "Find tools for programs",
    description: "Find tools of other servers that a program in `run` can call as tools.SERVER.TOOL(name=value), with \
`access` naming the server. Give words, or one exact name for its schema.",
    effects: Effects::ReadsOnly,
    scope: Scope::Run,
    needs: Needs::ToolServers,
    properties: &["words", "servers", "language", "limit"],
    input,
    output,
    call: |call| Box::pin(async move { find(call.server, call.caller, call.given).await.into() }),
};

async fn find(server: &Server, caller: &Caller, given: JsonObject) -> CallToolResult {
    let asked = TOOL.arguments(given).and_then(|mut given| {
        let words = given.text("words")?.unwrap_or_default();
        let limit = given.whole("limit")?.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
        let notation = notation(given.text("language")?.as_deref());
        Ok((words, given.texts("servers")?, notation, usize::try_from(limit).unwrap_or(1)))
    });
    let (words, servers, notation, limit) = match asked {
        Ok(asked) => asked,
        Err(error) => return refused(&error),
    };
    let Some(index) = server.engine.tool_index() else {
        let error = RunError::new("no_tools", "no servers with tools are configured here");
        return refused(&error.remedy("write the program without them"));
    };
    let query = ToolQuery { caller, words: &words, servers: &servers, notation, limit };
    let mut found = index.find(query).await;
    fit(&mut found);
    answer(&found, text(&found), false)
}

/// The notation for a language.
pub(crate) fn notation(language: Option<&str>) -> Notation {
    match language {
        Some("typescript" | "javascript") => Notation::TypeScript,
        _ => Notation::Python,
    }
}

/// Leaves out what is too much: first schemas, then the last tools, then servers.
fn fit(found: &mut FoundTools) {
    let size = |found: &FoundTools| serde_json::to_string(found).map_or(0, |text| text.chars().count());
    if size(found) > CHARACTERS_MAX {
        found.tools.iter_mut().for_each(|tool| (tool.input, tool.output) = (None, None));
    }
    while size(found) > CHARACTERS_MAX && found.tools.len() > 1 {
        found.tools.pop();
        found.more += 1;
    }
    while size(found) > CHARACTERS_MAX && found.servers.pop().is_some() {}
    if size(found) > CHARACTERS_MAX {
        found.tools.iter_mut().for_each(|tool| {
            tool.signature = tool.signature.chars().take(CHARACTERS_MAX / 2).collect();
        });
    }
}

fn text(found: &FoundTools) -> String {
    let line = |tool: &ListedTool| {
        let ListedTool { name, signature, about, effect, access, .. } = tool;
        format!("{name}: {signature} [{effect}, {access}] {about}")
    };
    let servers = found
        .servers
        .iter()
        .map(|server| format!("{} ({} tools) {}", server.name, server.tools, server.about));
    let failed = found.failed.iter().map(|(server, why)| format!("{server} cannot be asked: {why}"));
    let more = (found.more > 0).then(|| format!("{} more; use other words", found.more));
    let lines: Vec<String> = servers.chain(found.tools.iter().map(line)).chain(failed).chain(more).collect();
    if lines.is_empty() { "no tool matches".to_owned() } else { lines.join("\n") }
}

/// Schema of the arguments.
fn input(_: &Offer<'_>) -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "words": { "type": "string", "description": "What it should do; absent: all servers" },
            "servers": { "type": "array", "items": { "type": "string" }, "description": "Only of these" },
            "language": { "type": "string", "enum": ["python", "typescript"], "description": "Of signatures" },
            "limit": { "type": "integer", "minimum": 1 }
        },
        "additionalProperties": false
    }))
}

/// Schema of the result.
fn output() -> JsonObject {
    let text = json!({ "type": "string" });
    let tool = json!({
        "type": "object",
        "properties": {
            "name": text, "signature": text, "about": text,
            "effect": { "type": "string", "enum": ["read", "write", "destructive", "unknown"] },
            "access": { "type": "string", "enum": ["allow", "ask", "deny", "held"] },
            "input": { "type": "object" }, "output": { "type": "object" }
        },
        "required": ["name", "signature", "about", "effect", "access"]
    });
    schema::object(json!({
        "type": "object",
        "properties": {
            "tools": { "type": "array", "items": tool },
            "total": { "type": "integer" },
            "more": { "type": "integer" },
            "servers": { "type": "array", "items": { "type": "object" } },
            "failed": { "type": "array", "items": { "type": "array" } },
            "outcome": text,
            "error": { "type": "object" }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: String, signature: &str) -> ListedTool {
        let input = Some(json!({ "type": "object" }));
        ListedTool {
            name,
            signature: signature.to_owned(),
            effect: "read",
            access: "allow",
            input,
            ..ListedTool::default()
        }
    }

    #[test]
    fn an_answer_has_at_most_6000_characters_and_says_what_is_left_out() {
        let tools: Vec<_> =
            (0..100).map(|number| tool(format!("x.tool_{number}"), &"é".repeat(100))).collect();
        let mut found = FoundTools { tools, total: 100, ..FoundTools::default() };
        fit(&mut found);
        assert!(serde_json::to_string(&found).unwrap().chars().count() <= CHARACTERS_MAX);
        assert!(found.more > 0 && found.tools.len() + found.more == 100 && found.tools.len() > 10);
        let mut one =
            FoundTools { tools: vec![tool("x.f".to_owned(), &"s".repeat(9000))], ..FoundTools::default() };
        fit(&mut one);
        assert!(one.tools.len() == 1 && serde_json::to_string(&one).unwrap().len() <= CHARACTERS_MAX);
    }
}
