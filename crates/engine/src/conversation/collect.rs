//! Collects files from a fresh sandbox after its program ended by itself. `run` calls it when the caller asked
//! for files.

use std::time::Duration;

use wire::{FileKind, ToGuest};

use super::Conversation;
use crate::InputFile;
use crate::guest_client;
use crate::request::is_plain_path;
use crate::result::Artifact;

/// How many files are examined after a run. The next constant limits the bytes that are collected.
const ARTIFACTS_MAX: u32 = 4096;
const ARTIFACT_BYTES_MAX: usize = 64 << 20;
/// How many omitted files a warning names one by one.
const LEFT_OUT_MAX: usize = 20;
/// How long collecting the artifacts may take.
const COLLECT_PATIENCE: Duration = Duration::from_secs(10);

impl Conversation<'_> {
    /// Collects the files that the run created or changed, as far as they fit and within a bounded time, with
    /// warnings about those that are missing.
    pub(crate) async fn collect(
        &mut self,
        inputs: &[InputFile],
        source: &str,
    ) -> (Vec<Artifact>, Vec<String>) {
        let late = || (Vec::new(), vec!["the program's files could not be brought back in time".to_owned()]);
        tokio::time::timeout(COLLECT_PATIENCE, self.collect_all(inputs, source))
            .await
            .unwrap_or_else(|_| late())
    }

    async fn collect_all(&mut self, inputs: &[InputFile], source: &str) -> (Vec<Artifact>, Vec<String>) {
        let (reader, writer) = (&mut self.channel.reader, &mut self.channel.writer);
        // Processes that the program left behind must stop writing, and must not keep the guest waiting for a
        // processor.
        writer.send(&ToGuest::KillRest).await.ok();
        let listed = guest_client::list_files(reader, writer, ARTIFACTS_MAX).await.unwrap_or_default();
        let mut warnings = Vec::new();
        if listed.len() >= ARTIFACTS_MAX as usize {
            warnings.push(format!("only the first {ARTIFACTS_MAX} files were looked at"));
        }
        let mut room = ARTIFACT_BYTES_MAX;
        let mut artifacts = Vec::new();
        for entry in
            listed.into_iter().filter(|entry| entry.kind == FileKind::Regular && entry.path != source)
        {
            let left_out = |reason: &str| format!("{} was left out: {reason}", entry.path.escape_debug());
            if entry.size_bytes > room as u64 {
                warnings.push(left_out("it does not fit what is brought back from one run"));
                continue;
            }
            if !is_plain_path(&entry.path) {
                warnings.push(left_out("its name is not plain text"));
                continue;
            }
            match guest_client::read_file(reader, writer, &entry.path, room).await {
                Ok(content)
                    if inputs.iter().any(|input| input.path == entry.path && input.content == content) => {}
                Ok(content) => {
                    room -= content.len().min(room);
                    artifacts.push(Artifact { path: entry.path, content });
                }
                Err(_) => warnings.push(left_out("it cannot be read")),
            }
            if warnings.len() > LEFT_OUT_MAX {
                break;
            }
        }
        (artifacts, warnings)
    }
}
