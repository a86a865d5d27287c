//! `validate_code`: finds syntax errors and missing imports in a sandbox, without running the program.

use engine::{Finding, Validation, WallDemand};
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::json;

use super::{Effects, Needs, Offer, Scope, ToolCall, ToolEntry, answer, refused};
use crate::{languages, program, schema};

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "validate_code",
    title: "Check a program",
    description: "Check a program for syntax errors, with line and column, and for imports that are not \
available here, without running it.",
    effects: Effects::ReadsOnly,
    scope: Scope::Run,
    needs: Needs::Language,
    properties: &["language", "code"],
    input,
    output,
    call: |call| Box::pin(async move { check(call).await.into() }),
};

async fn check(call: ToolCall<'_>) -> CallToolResult {
    let ToolCall { server, caller, given, wall_lists, .. } = call;
    let wall = WallDemand { wanted: None, lists: wall_lists };
    let taken = TOOL.arguments(given).and_then(|mut given| {
        let language = languages::take(&mut given)?;
        let code = program::as_meant(&language, given.required_text("code")?);
        Ok((language, code))
    });
    let validated = match taken {
        Ok((language, code)) => server.engine.validate(caller, &wall, &language, &code).await,
        Err(error) => Err(*error),
    };
    match validated {
        Ok(found) => render(&found),
        Err(error) => refused(&error),
    }
}

fn render(found: &Validation) -> CallToolResult {
    let mut lines: Vec<String> = found.errors.iter().map(error_line).collect();
    if found.valid {
        lines.push("no syntax errors".to_owned());
    }
    lines.extend(found.missing_imports.iter().map(|missing| {
        format!(
            "{}`{}` cannot be imported here: {}",
            place(missing.line, None),
            missing.module,
            missing.remedy
        )
    }));
    lines.extend(found.notes.iter().map(|note| format!("note: {note}")));
    answer(found, lines.join("\n"), false)
}

fn error_line(finding: &Finding) -> String {
    format!("{}{}", place(finding.line, finding.column), finding.message)
}

fn place(line: Option<u32>, column: Option<u32>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: "),
        (Some(line), None) => format!("line {line}: "),
        _ => String::new(),
    }
}

/// Schema of the arguments of `validate_code`.
fn input(offer: &Offer<'_>) -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "language": { "type": "string", "enum": offer.languages },
            "code": { "type": "string", "description": "The whole program" }
        },
        "required": ["language", "code"],
        "additionalProperties": false
    }))
}

/// Schema of the result of `validate_code`.
fn output() -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "valid": { "type": "boolean" },
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "line": { "type": "integer" },
                        "column": { "type": "integer" },
                        "message": { "type": "string" }
                    },
                    "required": ["message"]
                }
            },
            "missing_imports": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "module": { "type": "string" },
                        "line": { "type": "integer" },
                        "remedy": { "type": "string" }
                    },
                    "required": ["module"]
                }
            },
            "notes": { "type": "array", "items": { "type": "string" } },
            "outcome": { "type": "string" },
            "error": schema::error()
        }
    }))
}

#[cfg(test)]
mod tests {
    use engine::MissingImport;

    use super::*;

    #[test]
    fn the_schema_names_every_field_of_the_result() {
        let finding = Finding { line: Some(1), column: Some(1), message: String::new() };
        let missing = MissingImport { module: String::new(), line: Some(1), remedy: String::new() };
        let (errors, missing_imports) = (vec![finding], vec![missing]);
        schema::assert_same_fields(
            &output(),
            &Validation { errors, missing_imports, ..Validation::default() },
        );
    }

    #[test]
    fn findings_have_places() {
        let wrong = Finding { line: Some(1), column: Some(2), message: "never closed".to_owned() };
        let missing =
            MissingImport { module: "gone".to_owned(), line: Some(3), remedy: "do without".to_owned() };
        let found = Validation {
            valid: false,
            errors: vec![wrong],
            missing_imports: vec![missing],
            notes: Vec::new(),
        };
        let result = render(&found);
        let structured = result.structured_content.clone().unwrap();
        assert_eq!((&structured["valid"], &structured["errors"][0]["column"]), (&json!(false), &json!(2)));
        assert_eq!(result.is_error, Some(false), "an invalid program is a finding, not an error");
        let text = result.content[0].as_text().unwrap().text.clone();
        assert_eq!(
            text,
            "line 1, column 2: never closed\nline 3: `gone` cannot be imported here: do without"
        );
        let fine = render(&Validation { valid: true, ..Validation::default() });
        assert_eq!(fine.structured_content.unwrap()["valid"], true);
    }
}
