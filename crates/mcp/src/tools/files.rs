//! Shared by the file tools: the workspace of a sandbox, and addresses and URLs of its files.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD as STANDARD_ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use engine::is_whole_image;
use engine::workspace::{ChangedFile, FilePath, Workspace, Workspaces, is_image};
use engine::{Caller, SandboxId, unknown_sandbox};
use rmcp::model::{ContentBlock, Resource};

use crate::arguments::{Refusal, refusal};
use crate::file_urls::{FileAction, FileUrl, FileUrls, TRANSFER_BYTES_MAX};
use crate::resources;
use crate::view::ArtifactView;

/// Maximum size of a picture that an answer shows.
pub(super) const IMAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of pictures that a run's answer shows.
const PICTURES_MAX: usize = 4;
/// Number of files examined per picture, because some files turn out not to be pictures.
const LOOKS_PER_PICTURE: usize = 4;

/// The caller, the workspaces that it may own, and its URLs for transferring files by HTTP.
#[derive(Clone, Copy)]
pub(crate) struct FileAccess<'a> {
    pub(crate) workspaces: &'a dyn Workspaces,
    pub(crate) caller: &'a Caller,
    pub(crate) file_urls: Option<&'a FileUrls>,
}

impl FileAccess<'_> {
    /// The workspace of that sandbox, if the caller owns it.
    pub(super) async fn workspace(&self, sandbox: &SandboxId) -> Result<Arc<dyn Workspace>, Refusal> {
        let found = self.workspaces.workspace(self.caller, sandbox.as_str()).await?;
        found.ok_or_else(|| Box::new(unknown_sandbox()))
    }

    pub(super) fn upload_url(&self, sandbox: &SandboxId, path: &FilePath) -> Option<FileUrl> {
        self.file_urls?.make(FileAction::Upload, &self.caller.principal, sandbox.as_str(), path)
    }

    /// A URL for a file within the size limit of transfers.
    pub(super) fn download_url(
        &self,
        sandbox: &SandboxId,
        path: &FilePath,
        size_bytes: u64,
    ) -> Option<FileUrl> {
        let file_urls = self.file_urls.filter(|_| size_bytes <= TRANSFER_BYTES_MAX)?;
        file_urls.make(FileAction::Download, &self.caller.principal, sandbox.as_str(), path)
    }
}

/// Files that a run created or changed: `artifacts` of its result, and a content block for each.
pub(crate) fn artifacts<'a>(
    access: &FileAccess<'_>,
    sandbox: &SandboxId,
    files: &'a [ChangedFile],
) -> (Vec<ArtifactView<'a>>, Vec<ContentBlock>) {
    let describe = |file: &'a ChangedFile| {
        let uri = resources::file_uri(sandbox.as_str(), &file.path);
        let link = Resource::new(uri.clone(), file.path.name())
            .with_mime_type(file.media_type.as_ref())
            .with_size(file.size_bytes);
        let download = access.download_url(sandbox, &file.path, file.size_bytes);
        let view = ArtifactView {
            path: file.path.as_str(),
            uri: Some(uri),
            mime_type: Some(&file.media_type),
            size_bytes: file.size_bytes,
            sha256: file.sha256.as_deref(),
            download_url: download.map(|file| file.url),
        };
        (view, ContentBlock::resource_link(link))
    };
    files.iter().map(describe).unzip()
}

/// The first few small pictures that a run created or changed, to be shown in the answer.
pub(crate) async fn pictures(workspace: &dyn Workspace, files: &[ChangedFile]) -> Vec<ContentBlock> {
    let is_shown =
        |file: &&ChangedFile| is_image(&file.media_type) && file.size_bytes <= IMAGE_BYTES_MAX as u64;
    let mut blocks = Vec::new();
    for file in files.iter().filter(is_shown).take(PICTURES_MAX * LOOKS_PER_PICTURE) {
        if blocks.len() >= PICTURES_MAX {
            break;
        }
        // A file that is no longer a complete picture is not shown. It is still among the artifacts.
        let Ok(part) = workspace.read(&file.path, 0, IMAGE_BYTES_MAX).await else { continue };
        let is_same = part.at_end && part.media_type == file.media_type;
        if is_same && is_whole_image(&part.media_type, &part.bytes) {
            blocks.push(ContentBlock::image(encoded(&part.bytes), part.media_type.as_ref()));
        }
    }
    blocks
}

pub(super) fn path(text: &str) -> Result<FilePath, Refusal> {
    FilePath::parse(text).map_err(|error| Box::new(error.into()))
}

/// Decodes base64 content as it is commonly written: with line breaks, without padding, as a `data:` URL.
pub(super) fn decoded(name: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let text = match text.trim().strip_prefix("data:").and_then(|url| url.split_once(";base64,")) {
        Some((_, data)) => data,
        None => text,
    };
    let joined: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
    let padding = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD_ALPHABET, padding).decode(joined).map_err(|error| {
        let message = format!("`{name}` is not base64: {error}");
        refusal(message, "encode the bytes with the standard alphabet; give plain text as `text`")
    })
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
