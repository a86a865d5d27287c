//! `validate_code`: syntax without running. Published once the engine can answer ([`Validate`]).

use engine::RunError;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use sandbox::BoxFuture;
use serde::Serialize;
use serde_json::json;

use super::{answer, refused};
use crate::mcp::arguments::Arguments;
use crate::mcp::schema;

/// Its name.
pub(crate) const NAME: &str = "validate_code";

const DESCRIPTION: &str = "Check a program for syntax errors, with line and column, and for imports that are not \
available here, without running it.";

/// Whoever can read programs.
pub(crate) trait Validate: Send + Sync {
    /// Looks at one program behind the wall.
    fn validate<'a>(
        &'a self,
        language: &'a str,
        code: &'a str,
    ) -> BoxFuture<'a, Result<Validation, RunError>>;
}

/// What there is to say about a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Validation {
    /// Whether nothing is wrong with its syntax.
    pub(crate) valid: bool,
    /// What is wrong.
    pub(crate) errors: Vec<Finding>,
    /// Modules it imports that are not there.
    pub(crate) missing_imports: Vec<MissingImport>,
    /// What else may matter.
    pub(crate) notes: Vec<String>,
}

/// Something wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// Column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    /// What is wrong.
    pub(crate) message: String,
}

/// A module that an import would not find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MissingImport {
    /// Its name.
    pub(crate) module: String,
    /// Line of the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// What to do.
    pub(crate) remedy: String,
}

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
pub(crate) async fn call(validator: &dyn Validate, given: JsonObject) -> CallToolResult {
    let taken = Arguments::new("", &["language", "code"], given)
        .and_then(|mut given| Ok((given.required_text("language")?, given.required_text("code")?)));
    let validated = match taken {
        Ok((language, code)) => validator.validate(&language, &code).await,
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
    use super::*;

    struct Fake;

    impl Validate for Fake {
        fn validate<'a>(&'a self, _: &'a str, code: &'a str) -> BoxFuture<'a, Result<Validation, RunError>> {
            let wrong = Finding { line: Some(1), column: Some(2), message: "never closed".to_owned() };
            let missing =
                MissingImport { module: "gone".to_owned(), line: Some(3), remedy: "do without".to_owned() };
            let valid = code != "(";
            let errors = if valid { Vec::new() } else { vec![wrong] };
            let found = Validation { valid, errors, missing_imports: vec![missing], notes: Vec::new() };
            Box::pin(async { Ok(found) })
        }
    }

    async fn of(code: &str) -> CallToolResult {
        let given = [("language".to_owned(), json!("python")), ("code".to_owned(), json!(code))];
        call(&Fake, JsonObject::from_iter(given)).await
    }

    #[tokio::test]
    async fn findings_have_places() {
        let result = of("(").await;
        let found = result.structured_content.clone().unwrap();
        assert_eq!((&found["valid"], &found["errors"][0]["column"]), (&json!(false), &json!(2)));
        assert_eq!(result.is_error, Some(false), "an invalid program is a finding, not an error");
        let text = result.content[0].as_text().unwrap().text.clone();
        assert_eq!(
            text,
            "line 1, column 2: never closed\nline 3: `gone` cannot be imported here: do without"
        );
        assert_eq!(of("1").await.structured_content.unwrap()["valid"], true);
    }

    #[tokio::test]
    async fn bad_arguments_are_refused() {
        let result = call(&Fake, JsonObject::new()).await;
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content.unwrap()["error"]["code"], "bad_arguments");
    }
}
