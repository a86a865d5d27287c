//! `validate_code`: syntax and missing imports, found behind the wall without running the program.

use engine::{Engine, Finding, Validation};
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::json;

use super::{answer, refused};
use crate::arguments::Arguments;
use crate::schema;

/// Its name.
pub(crate) const NAME: &str = "validate_code";

const DESCRIPTION: &str = "Check a program for syntax errors, with line and column, and for imports that are not \
available here, without running it.";

/// What clients see.
pub(crate) fn tool(languages: &[String]) -> Tool {
    let annotations =
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    Tool::new(NAME, DESCRIPTION, schema::validate_input(languages))
        .with_title("Check a program")
        .with_raw_output_schema(schema::validate_output().into())
        .with_annotations(annotations)
}

/// Answers the tool.
pub(crate) async fn call(engine: &Engine, given: JsonObject) -> CallToolResult {
    let taken = Arguments::new("", &["language", "code"], given)
        .and_then(|mut given| Ok((given.required_text("language")?, given.required_text("code")?)));
    let validated = match taken {
        Ok((language, code)) => engine.validate(&language, &code).await,
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
    answer(json!(found), lines.join("\n"), false)
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

#[cfg(test)]
mod tests {
    use engine::MissingImport;

    use super::*;

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
