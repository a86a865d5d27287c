//! A run as the answer of a tool: text, structured content, and links to content that did not fit.

use engine::{Caller, FinishedRun, Gatekeeper, Lasting, LiveRun, LogRange, RunError, RunResult};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use sandbox::Outcome;
use serde_json::json;
use wire::Stream;

use super::files::{self, FileAccess};
use super::{answer, install};
use crate::displays::Shown;
use crate::doors::Door;
use crate::file_urls::FileUrls;
use crate::render::{self, INLINE_BYTES_MAX};
use crate::view::{ArtifactView, KnownBy, RunView};
use crate::{Server, resources, text};

/// Maximum number of files in the text and as resource links. The structured content has all files.
const FILES_TOLD_MAX: usize = 20;
const FILE_LINKS_MAX: usize = 50;

/// The answer for a finished run.
pub(crate) async fn finished(
    server: &Server,
    caller: &Caller,
    run: &FinishedRun,
    file_urls: Option<&FileUrls>,
) -> CallToolResult {
    let result = &run.result;
    if result.installed.is_some() {
        return install::finished(run);
    }
    let is_cut = render::is_cut(result, INLINE_BYTES_MAX);
    let uri = resources::log_uri(&run.id);
    let shown = Shown::new(&run.id, &result.execution().displays);
    let display_uris = shown.uris();
    let mut view = RunView::of(result, INLINE_BYTES_MAX).known_by(KnownBy {
        run_id: run.id.as_str(),
        log_uri: &uri,
        display_uris,
    });
    let mut lines = vec![text::of_run(result, INLINE_BYTES_MAX)];
    lines.retain(|text| !text.is_empty());
    lines.extend(shown.lines());
    if is_cut {
        lines.push(format!("note: output was cut; the whole log is {uri}"));
    }
    let made = match &result.lasting {
        Some(lasting) => {
            let access = FileAccess { workspaces: server.workspaces(), caller, file_urls };
            made(&access, server.engine.gatekeeper(), (result, lasting)).await
        }
        None => Made::default(),
    };
    if let Some(lasting) = &result.lasting {
        view = view.in_sandbox(lasting, made.listed);
        lines.extend(lasting.files.iter().take(FILES_TOLD_MAX).map(|file| {
            format!("file: {} ({}, {} bytes)", file.path.as_str(), file.media_type, file.size_bytes)
        }));
    }
    let mut answer = answer(&view, lines.join("\n"), result.outcome.is_error());
    answer.content.extend(shown.blocks());
    answer.content.extend(made.blocks);
    if is_cut {
        answer
            .content
            .push(log_link(uri, (result.execution().stdout.len() + result.execution().stderr.len()) as u64));
    }
    answer
}

/// Files that a run created or changed.
#[derive(Default)]
struct Made<'a> {
    listed: Vec<ArtifactView<'a>>,
    blocks: Vec<ContentBlock>,
}

async fn made<'a>(
    access: &FileAccess<'_>,
    gatekeeper: &Gatekeeper,
    (result, lasting): (&RunResult, &'a Lasting),
) -> Made<'a> {
    let (mut listed, mut blocks) = files::artifacts(access, &lasting.sandbox, &lasting.files);
    for file in listed.iter_mut().filter(|file| file.download_url.is_some()) {
        let asked = json!({ "sandbox_id": lasting.sandbox.as_str(), "path": file.path });
        if !Door::Download.may_give(gatekeeper, access.caller, &asked) {
            file.download_url = None;
        }
    }
    blocks.truncate(FILE_LINKS_MAX);
    // The answer already has a program's displays. For a run without displays, it shows the pictures that the
    // program saved.
    if result.execution().displays.is_empty()
        && let Ok(workspace) = access.workspace(&lasting.sandbox).await
    {
        blocks.extend(files::pictures(&*workspace, &lasting.files).await);
    }
    Made { listed, blocks }
}

/// The answer for a run that was refused before it got an id.
pub(crate) fn unstarted(server: &Server, outcome: Outcome, error: RunError) -> CallToolResult {
    let result = RunResult::not_started(outcome, server.engine.backend().name(), error);
    let text = text::of_run(&result, INLINE_BYTES_MAX);
    answer(&RunView::of(&result, INLINE_BYTES_MAX), text, outcome.is_error())
}

/// The answer for a run that continues, with its output so far.
pub(crate) async fn running(server: &Server, caller: &Caller, run: &LiveRun) -> CallToolResult {
    let id = run.id();
    let stdout = written(server, caller, run, Stream::Stdout).await;
    if run.is_installation() {
        return install::installing(id, &stdout);
    }
    let stderr = written(server, caller, run, Stream::Stderr).await;
    let mut said =
        format!("still running: call wait with run_id {} to follow it, or to cancel it", id.as_str());
    for (label, output) in [("stdout", &stdout), ("stderr", &stderr)] {
        if !output.is_empty() {
            said.push_str(&format!("\n{label} so far:\n{}", output.trim_end_matches('\n')));
        }
    }
    let view = RunView::running(id.as_str(), Some((stdout, stderr)), Some(resources::log_uri(id)));
    answer(&view, said, false)
}

/// The answer for a run that continues in another server.
pub(crate) fn elsewhere(id: &engine::RunId) -> CallToolResult {
    let said = "still running in another server that shares this state directory; ask again later".to_owned();
    answer(&RunView::running(id.as_str(), None, None), said, false)
}

/// Head and tail of a live run's output.
async fn written(server: &Server, caller: &Caller, run: &LiveRun, stream: Stream) -> String {
    let read = async |offset, limit| {
        let range = LogRange { stream: Some(stream), offset, limit };
        // Output that cannot be read now can be read later at its address.
        server.runs.log(caller, run.id(), range).await.ok().flatten()
    };
    let Some(head) = read(0, INLINE_BYTES_MAX).await else { return String::new() };
    if head.total <= INLINE_BYTES_MAX as u64 {
        return render::visible(&head.bytes);
    }
    let half = INLINE_BYTES_MAX / 2;
    let Some(tail) = read(head.total - half as u64, half).await else { return String::new() };
    let head = &head.bytes[..render::whole_characters(&head.bytes[..half.min(head.bytes.len())])];
    let left_out = tail.total.saturating_sub((head.len() + tail.bytes.len()) as u64);
    let tail = render::from_character(&tail.bytes);
    format!("{}\n[... {left_out} bytes left out ...]\n{}", render::visible(head), render::visible(tail))
}

fn log_link(uri: String, bytes: u64) -> ContentBlock {
    let link = Resource::new(uri, "run_log")
        .with_title("What the run wrote")
        .with_mime_type("text/plain")
        .with_size(bytes);
    ContentBlock::resource_link(link)
}
