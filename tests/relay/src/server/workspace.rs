//! The files of persistent sandboxes on the relay's machine: the calls of a store and of an open workspace.

use std::io;
use std::sync::Arc;

use ::sandbox::Backend;
use ::sandbox::workspace::{FileError, OpenFile, WorkspaceStore};
use tokio::sync::Mutex;

use super::Server;
use super::objects::{Made, Thing};
use crate::frame::{Id, malformed};
use crate::link::encode;
use crate::protocol::{FileAbout, StoreCall, WorkspaceCall};

impl Server {
    fn store(&self) -> io::Result<&dyn WorkspaceStore> {
        self.backend.workspaces().ok_or_else(|| malformed("a call for files that do not last here"))
    }

    pub(super) async fn answer_store(&self, call: StoreCall) -> io::Result<(Vec<u8>, Made)> {
        let store = self.store()?;
        match call {
            StoreCall::Create(of) => Ok((encode(&store.create(&of).await)?, None)),
            StoreCall::Open(of, quota) => made(store.open(&of, quota).await, |_| (), Thing::Workspace),
            StoreCall::Hold(of) => made(store.hold(&of).await, |_| (), Thing::Held),
            StoreCall::Remove(of) => Ok((encode(&store.remove(&of).await)?, None)),
            StoreCall::IsEmpty => Ok((encode(&store.is_empty().await)?, None)),
            StoreCall::RemoveStrangers(known) => {
                store.remove_strangers(known.into_iter().collect()).await;
                Ok((encode(&())?, None))
            }
        }
    }

    pub(super) async fn answer_workspace(&self, id: Id, call: WorkspaceCall) -> io::Result<(Vec<u8>, Made)> {
        let of = self.objects().workspace(id)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let body = match call {
            WorkspaceCall::File(path) => {
                let keep = |file: Box<dyn OpenFile>| Thing::File(Arc::from(file));
                return made(of.file(&path).await, |file| about(&**file), keep);
            }
            WorkspaceCall::Upload(path, bytes_max, announced) => {
                let upload = of.upload(&path, bytes_max, announced).await;
                return made(upload, |_| (), |upload| Thing::Upload(Arc::new(Mutex::new(Some(upload)))));
            }
            WorkspaceCall::Snapshot(pace) => {
                return made(of.snapshot(pace).await, |snapshot| snapshot.used(), Thing::Snapshot);
            }
            WorkspaceCall::Read(path, offset, limit) => encode(&of.read(&path, offset, size(limit)).await),
            WorkspaceCall::Write(path, content) => encode(&of.write(&path, content).await),
            WorkspaceCall::Append(path, content) => encode(&of.append(&path, content).await),
            WorkspaceCall::List(path, reach) => encode(&of.list(path.as_ref(), reach).await),
            WorkspaceCall::Usage => encode(&of.usage().await),
            WorkspaceCall::RemoveAbandonedDrafts => {
                let removed: Result<u64, FileError> =
                    of.remove_abandoned_drafts().await.map(|count| count as u64);
                encode(&removed)
            }
            WorkspaceCall::HoldsAny(names) => encode(&of.holds_any(&names).await),
            WorkspaceCall::Tidy(names) => {
                of.tidy(&names).await;
                encode(&())
            }
            WorkspaceCall::OpenUp => {
                of.open_up().await;
                encode(&())
            }
        };
        Ok((body?, None))
    }
}

fn about(file: &dyn OpenFile) -> FileAbout {
    FileAbout {
        size_bytes: file.size_bytes(),
        modified_ms: file.modified_ms(),
        media_type: file.media_type().to_owned(),
    }
}

/// The answer to a call that makes something, and the thing.
fn made<T, A: serde::Serialize, E: serde::Serialize>(
    result: Result<T, E>,
    about: impl Fn(&T) -> A,
    keep: impl Fn(T) -> Thing,
) -> io::Result<(Vec<u8>, Made)> {
    match result {
        Ok(thing) => Ok((encode(&Ok::<A, E>(about(&thing)))?, Some(keep(thing)))),
        Err(error) => Ok((encode(&Err::<A, E>(error))?, None)),
    }
}
