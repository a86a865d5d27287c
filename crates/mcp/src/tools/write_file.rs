//! `write_file`: writes a whole file, appends to one, or returns a URL for uploading a large one.

use engine::INPUT_BYTES_MAX;
use engine::workspace::{FileError, FilePath};
use engine::{RunError, SandboxId};
use rmcp::model::{CallToolResult, JsonObject};
use serde::Serialize;
use serde_json::json;

use super::files::{FileAccess, decoded, path};
use super::{Effects, Needs, Offer, Scope, ToolEntry, answer, refused};
use crate::arguments::{Refusal, refusal};
use crate::file_urls::TRANSFER_BYTES_MAX;
use crate::{render, resources, schema};

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "write_file",
    title: "Write a file",
    description: "Write a file in a sandbox's /workspace; folders above it are made.",
    effects: Effects::Destroys,
    scope: Scope::Sandbox,
    needs: Needs::Language,
    properties: &["sandbox_id", "path", "text", "base64", "append"],
    input,
    output,
    call: |call| Box::pin(async move { write(&call.files(), call.given).await.into() }),
};

/// The written file, or the URL for uploading it.
#[derive(Default, Serialize)]
struct WriteView<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

struct WriteArguments {
    sandbox: SandboxId,
    path: FilePath,
    what: What,
}

enum What {
    Whole(Vec<u8>),
    More(Vec<u8>),
    /// The caller uploads the content by HTTP.
    Url,
}

/// Answers the tool.
pub(super) async fn write(caller: &FileAccess<'_>, given: JsonObject) -> CallToolResult {
    let answered = async {
        let asked = asked(given)?;
        write_asked(caller, asked).await
    };
    answered.await.unwrap_or_else(|error| refused(&error))
}

fn asked(given: JsonObject) -> Result<WriteArguments, Refusal> {
    let mut given = TOOL.arguments(given)?;
    let is_more = given.truth("append")?.unwrap_or(false);
    let content = match (given.text("text")?, given.text("base64")?) {
        (Some(text), None) => Some(text.into_bytes()),
        (None, Some(text)) => Some(decoded("base64", &text)?),
        (None, None) => None,
        (Some(_), Some(_)) => {
            return Err(refusal("both `text` and `base64` are given".to_owned(), "give one of the two"));
        }
    };
    if content.as_ref().is_some_and(|content| content.len() > INPUT_BYTES_MAX) {
        let error = FileError::TooLarge { bytes_max: INPUT_BYTES_MAX as u64 };
        return Err(Box::new(error.into()));
    }
    let what = match (content, is_more) {
        (Some(content), false) => What::Whole(content),
        (Some(content), true) => What::More(content),
        (None, false) => What::Url,
        (None, true) => return Err(refusal("`append` needs content".to_owned(), "give text or base64")),
    };
    let sandbox = given.required_sandbox()?.id;
    let asked = given.required_text("path")?;
    if asked.ends_with('/') {
        let reason = "the path ends with `/`, which names a folder: add the name of a file";
        return Err(Box::new(FileError::BadPath(reason.into()).into()));
    }
    Ok(WriteArguments { sandbox, path: path(&asked)?, what })
}

async fn write_asked(caller: &FileAccess<'_>, asked: WriteArguments) -> Result<CallToolResult, Refusal> {
    let WriteArguments { sandbox, path, what } = asked;
    let workspace = caller.workspace(&sandbox).await?;
    let written = match what {
        What::Whole(content) => workspace.write(&path, content).await,
        What::More(content) => workspace.append(&path, content).await,
        What::Url => return upload(caller, &sandbox, &path),
    };
    let size = written.map_err(RunError::from)?.size_bytes;
    let uri = Some(resources::file_uri(sandbox.as_str(), &path));
    let view = WriteView { path: path.as_str(), uri, size_bytes: Some(size), ..WriteView::default() };
    Ok(answer(&view, format!("{path} has {size} bytes now"), false))
}

fn upload(caller: &FileAccess<'_>, sandbox: &SandboxId, path: &FilePath) -> Result<CallToolResult, Refusal> {
    let link = caller.upload_url(sandbox, path).ok_or_else(|| {
        let message = "there is no content, and this server is not reached over HTTP, so it has no links";
        refusal(message.to_owned(), "give text or base64; write more with append")
    })?;
    let expires_at = render::timestamp(link.expires_ms);
    let said = format!(
        "PUT the content to {} until {expires_at}, for example: curl -T FILE '{}'",
        link.url, link.url
    );
    let view = WriteView {
        path: path.as_str(),
        upload_url: Some(link.url),
        size_bytes_max: Some(TRANSFER_BYTES_MAX),
        expires_at: Some(expires_at),
        ..WriteView::default()
    };
    Ok(answer(&view, said, false))
}

/// Schema of the arguments of `write_file`.
fn input(_: &Offer<'_>) -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "path": { "type": "string" },
            "text": { "type": "string", "description": "Content; or give base64; neither: a link to PUT a large file to" },
            "base64": { "type": "string" },
            "append": { "type": "boolean" }
        },
        "required": ["sandbox_id", "path"],
        "additionalProperties": false
    }))
}

/// Schema of the result of `write_file`.
fn output() -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "uri": { "type": "string" },
            "size_bytes": { "type": "integer" },
            "upload_url": { "type": "string" },
            "size_bytes_max": { "type": "integer" },
            "expires_at": { "type": "string" },
            "outcome": { "type": "string" },
            "error": schema::error()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_every_field_of_the_result() {
        let text = || Some(String::new());
        let view = WriteView {
            path: "",
            uri: text(),
            size_bytes: Some(1),
            upload_url: text(),
            size_bytes_max: Some(1),
            expires_at: text(),
        };
        schema::assert_same_fields(&output(), &view);
    }
}
