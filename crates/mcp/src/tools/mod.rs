//! The tools: what is published, and which function answers.
//!
//! One file each. A tool that cannot work here is not published.

pub(crate) mod capabilities;
pub(crate) mod files;
mod following;
pub(crate) mod list_files;
pub(crate) mod read_file;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sandboxes;
pub(crate) mod validate;
pub(crate) mod wait;
pub(crate) mod write_file;

use engine::RunError;
use policy::{Ask, Policy};
use rmcp::model::{CallToolResult, ContentBlock, Tool};
use sandbox::Outcome;
use serde_json::{Value, json};

use super::arguments::{Arguments, Refusal};
use super::text;

/// All tools that work here, by name.
pub(crate) fn published(languages: &[String], policy: &Policy) -> Vec<Tool> {
    let mut tools = vec![capabilities::tool()];
    if !languages.is_empty() {
        tools.extend([run::tool(languages, policy), validate::tool(languages), wait::tool()]);
        tools.extend(sandboxes::tools());
        tools.extend([list_files::tool(), read_file::tool(), write_file::tool()]);
    }
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools
}

/// Limits as tools take them.
fn limits_of(limits: &mut Arguments, timeout_ms: Option<u64>) -> Result<Ask, Refusal> {
    Ok(Ask {
        timeout_ms,
        memory_mb: limits.whole("memory_mb")?,
        cpus: limits.number("cpus")?,
        processes: limits.whole("processes")?,
        disk_mb: limits.whole("disk_mb")?,
        open_files: limits.whole("open_files")?,
        output_kb: limits.whole("output_kb")?,
    })
}

/// A tool's result with its text and its structure.
fn answer(structured: Value, text: String, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result.is_error = Some(is_error);
    result
}

/// The result of a call that came to nothing.
fn refused(error: &RunError) -> CallToolResult {
    let outcome = if error.retryable { Outcome::Unavailable } else { Outcome::Refused }.name();
    let text = format!("outcome: {outcome}\n{}", text::of_error(error));
    answer(json!({ "outcome": outcome, "error": error }), text, true)
}

#[cfg(test)]
#[path = "published_tests.rs"]
mod tests;
