//! `read_file`: part of a file as text, base64 or a picture.

use engine::is_whole_image;
use engine::workspace::{FilePart, FilePath, READ_BYTES_MAX, is_image};
use engine::{RunError, SandboxId};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Serialize;
use serde_json::json;

use super::files::{FileAccess, IMAGE_BYTES_MAX, encoded, path};
use super::{Effects, Needs, Offer, Scope, ToolEntry, answer, refused};
use crate::arguments::{Refusal, refusal};
use crate::{render, resources, schema};

/// Bytes returned when the call has no limit.
const BYTES_DEFAULT: usize = render::INLINE_BYTES_MAX;

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "read_file",
    title: "Read a file",
    description: "Read a file of a sandbox's /workspace, whole or in parts; small images are shown.",
    effects: Effects::ReadsOnly,
    scope: Scope::Sandbox,
    needs: Needs::Language,
    properties: &["sandbox_id", "path", "offset", "limit", "encoding"],
    input,
    output,
    call: |call| Box::pin(async move { read(&call.files(), call.given).await.into() }),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Text,
    Base64,
}

/// Part of a file.
#[derive(Default, Serialize)]
struct ReadView<'a> {
    path: &'a str,
    uri: String,
    mime_type: &'a str,
    size_bytes: u64,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    download_url: Option<String>,
}

struct ReadArguments {
    sandbox: SandboxId,
    path: FilePath,
    offset: u64,
    limit: Option<usize>,
    /// `None` selects the encoding by content.
    encoding: Option<Encoding>,
}

/// Answers the tool.
pub(super) async fn read(caller: &FileAccess<'_>, given: JsonObject) -> CallToolResult {
    let answered = async {
        let asked = asked(given)?;
        let part = part(caller, &asked).await?;
        Ok::<_, Refusal>(shown(caller, &asked, &part))
    };
    answered.await.unwrap_or_else(|error| refused(&error))
}

fn asked(given: JsonObject) -> Result<ReadArguments, Refusal> {
    let mut given = TOOL.arguments(given)?;
    let encoding = match given.text("encoding")?.as_deref() {
        None => None,
        Some("text") => Some(Encoding::Text),
        Some("base64") => Some(Encoding::Base64),
        Some(_) => return Err(refusal("`encoding` is neither text nor base64".to_owned(), "leave it out")),
    };
    let limit = given.whole("limit")?.map(|limit| usize::try_from(limit).unwrap_or(READ_BYTES_MAX));
    Ok(ReadArguments {
        sandbox: given.required_sandbox()?.id,
        path: path(&given.required_text("path")?)?,
        offset: given.whole("offset")?.unwrap_or(0),
        limit: limit.map(|limit| limit.clamp(1, READ_BYTES_MAX)),
        encoding,
    })
}

async fn part(caller: &FileAccess<'_>, asked: &ReadArguments) -> Result<FilePart, Refusal> {
    let workspace = caller.workspace(&asked.sandbox).await?;
    let file = workspace.file(&asked.path).await.map_err(RunError::from)?;
    let is_picture = is_image(file.media_type()) && file.size_bytes() <= IMAGE_BYTES_MAX as u64;
    let is_shown = is_picture && asked.offset == 0 && asked.limit.is_none() && asked.encoding.is_none();
    let limit = if is_shown { IMAGE_BYTES_MAX } else { asked.limit.unwrap_or(BYTES_DEFAULT) };
    Ok(file.read(asked.offset, limit).await.map_err(RunError::from)?)
}

fn shown(caller: &FileAccess<'_>, asked: &ReadArguments, part: &FilePart) -> CallToolResult {
    let mut view = ReadView {
        path: asked.path.as_str(),
        uri: resources::file_uri(asked.sandbox.as_str(), &asked.path),
        mime_type: &part.media_type,
        size_bytes: part.size_bytes,
        offset: part.offset,
        ..ReadView::default()
    };
    let is_whole = part.offset == 0 && part.at_end;
    if is_whole
        && is_whole_image(&part.media_type, &part.bytes)
        && asked.encoding.is_none()
        && asked.limit.is_none()
    {
        let said = format!("{}: {}, {} bytes", asked.path, part.media_type, part.size_bytes);
        let mut result = answer(&view, said, false);
        result.content.push(ContentBlock::image(encoded(&part.bytes), part.media_type.as_ref()));
        return result;
    }
    let whole = if part.at_end { part.bytes.len() } else { render::whole_characters(&part.bytes) };
    let is_text = std::str::from_utf8(&part.bytes[..whole]).is_ok_and(|text| !text.contains('\0'));
    let encoding = asked.encoding.unwrap_or(if is_text { Encoding::Text } else { Encoding::Base64 });
    let (mut said, count) = match encoding {
        // A character longer than the limit is returned in pieces; otherwise it could never be read.
        Encoding::Text if whole > 0 => (render::visible(&part.bytes[..whole]), whole),
        Encoding::Text => (render::visible(&part.bytes), part.bytes.len()),
        Encoding::Base64 => (encoded(&part.bytes), part.bytes.len()),
    };
    match encoding {
        Encoding::Text => view.text = Some(said.clone()),
        Encoding::Base64 => view.base64 = Some(said.clone()),
    }
    let next = part.offset + count as u64;
    if !part.at_end {
        view.next_offset = Some(next);
        said.push_str(&format!(
            "\n[bytes {} to {next} of {}; offset {next} reads on]",
            part.offset, part.size_bytes
        ));
        if let Some(file) = caller.download_url(&asked.sandbox, &asked.path, part.size_bytes) {
            said.push_str(&format!("\n[the whole file: {}]", file.url));
            view.download_url = Some(file.url);
        }
    }
    if said.is_empty() {
        said =
            if part.size_bytes == 0 { "[the file is empty]" } else { "[nothing beyond its end]" }.to_owned();
    }
    answer(&view, said, false)
}

/// Schema of the arguments of `read_file`.
fn input(_: &Offer<'_>) -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "path": { "type": "string" },
            "offset": { "type": "integer", "minimum": 0, "description": "In bytes" },
            "limit": { "type": "integer", "minimum": 1, "description": "Bytes, default 20000" },
            "encoding": { "type": "string", "enum": ["text", "base64"] }
        },
        "required": ["sandbox_id", "path"],
        "additionalProperties": false
    }))
}

/// Schema of the result of `read_file`.
fn output() -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "uri": { "type": "string" },
            "mime_type": { "type": "string" },
            "size_bytes": { "type": "integer" },
            "offset": { "type": "integer" },
            "next_offset": { "type": "integer" },
            "text": { "type": "string" },
            "base64": { "type": "string" },
            "download_url": { "type": "string" },
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
        let (text, base64, url) = (Some(String::new()), Some(String::new()), Some(String::new()));
        let view = ReadView { text, base64, next_offset: Some(1), download_url: url, ..ReadView::default() };
        schema::assert_same_fields(&output(), &view);
    }
}
