//! `validate_code`: syntax without running. Published once the engine can answer ([`Validate`]).

use engine::RunError;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use sandbox::BoxFuture;
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

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Validation {
    /// Syntax errors.
    pub(crate) problems: Vec<Problem>,
    /// Imports that are not available.
    pub(crate) imports_missing: Vec<String>,
}

/// One syntax error.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Problem {
    /// What is wrong.
    pub(crate) message: String,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// Where in the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
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
    let is_valid = found.problems.is_empty();
    let mut lines: Vec<String> = found.problems.iter().map(line).collect();
    if is_valid {
        lines.push("no syntax errors".to_owned());
    }
    if !found.imports_missing.is_empty() {
        lines.push(format!("imports not available here: {}", found.imports_missing.join(", ")));
    }
    let structured =
        json!({ "valid": is_valid, "problems": found.problems, "imports_missing": found.imports_missing });
    answer(structured, lines.join("\n"), false)
}

fn line(problem: &Problem) -> String {
    match (problem.line, problem.column) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: {}", problem.message),
        (Some(line), None) => format!("line {line}: {}", problem.message),
        _ => problem.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Validate for Fake {
        fn validate<'a>(&'a self, _: &'a str, code: &'a str) -> BoxFuture<'a, Result<Validation, RunError>> {
            let problems = match code {
                "(" => vec![Problem { message: "never closed".to_owned(), line: Some(1), column: Some(1) }],
                _ => Vec::new(),
            };
            Box::pin(async { Ok(Validation { problems, imports_missing: vec!["nothere".to_owned()] }) })
        }
    }

    async fn of(code: &str) -> serde_json::Value {
        let given = JsonObject::from_iter([
            ("language".to_owned(), json!("python")),
            ("code".to_owned(), json!(code)),
        ]);
        call(&Fake, given).await.structured_content.unwrap()
    }

    #[tokio::test]
    async fn problems_have_places() {
        let found = of("(").await;
        assert_eq!((&found["valid"], &found["problems"][0]["line"]), (&json!(false), &json!(1)));
        assert_eq!(of("1").await, json!({"valid": true, "problems": [], "imports_missing": ["nothere"]}));
    }

    #[tokio::test]
    async fn bad_arguments_are_refused() {
        let result = call(&Fake, JsonObject::new()).await;
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content.unwrap()["error"]["code"], "bad_arguments");
    }
}
