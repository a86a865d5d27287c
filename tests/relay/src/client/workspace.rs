//! The files of persistent sandboxes at the other end of the stream. Open files, uploads, snapshots and holds
//! are objects of the relay, which end when they are dropped here.

use std::collections::HashSet;
use std::sync::Arc;

use ::sandbox::BoxFuture;
use ::sandbox::workspace::{
    Changes, FileError, FilePart, FilePath, Held, Listing, NotHeld, OpenFile, Pace, Quota, READ_BYTES_MAX,
    Reach, Snapshot, Upload, Used, Workspace, WorkspaceRef, WorkspaceStore, Written,
};
use serde::de::DeserializeOwned;

use super::RETRY_MS;
use super::connection::{Connection, Object};
use crate::link::Lost;
use crate::protocol::{Call, FileAbout, StoreCall, WorkspaceCall};

/// The workspaces of the relay.
pub(super) struct RelayStore {
    connection: Arc<Connection>,
}

impl RelayStore {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::clone(connection) }
    }

    async fn ask<T: DeserializeOwned>(&self, call: StoreCall) -> Result<T, Lost> {
        self.connection.call(&Call::Store(call)).await
    }
}

impl WorkspaceStore for RelayStore {
    fn create<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        Box::pin(async { self.ask(StoreCall::Create(of.clone())).await? })
    }

    fn open<'a>(
        &'a self,
        of: &'a WorkspaceRef,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Arc<dyn Workspace>, FileError>> {
        Box::pin(async move {
            let call = Call::Store(StoreCall::Open(of.clone(), quota));
            let (object, opened): (_, Result<(), FileError>) = self.connection.make(&call).await?;
            opened?;
            Ok(Arc::new(RelayWorkspace { object, quota }) as Arc<dyn Workspace>)
        })
    }

    fn hold<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<Box<dyn Held>, NotHeld>> {
        Box::pin(async {
            let call = Call::Store(StoreCall::Hold(of.clone()));
            let lost = |_| NotHeld::Unavailable { retry_after_ms: RETRY_MS };
            let (object, held): (_, Result<(), NotHeld>) = self.connection.make(&call).await.map_err(lost)?;
            held?;
            Ok(Box::new(RelayHeld { _object: object }) as Box<dyn Held>)
        })
    }

    fn remove<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        Box::pin(async { self.ask(StoreCall::Remove(of.clone())).await? })
    }

    fn is_empty(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.ask(StoreCall::IsEmpty).await.unwrap_or(false) })
    }

    fn remove_strangers(&self, known: HashSet<String>) -> BoxFuture<'_, ()> {
        // If the relay is gone, the next start removes them.
        Box::pin(async {
            self.ask(StoreCall::RemoveStrangers(known.into_iter().collect())).await.unwrap_or(());
        })
    }
}

#[derive(Debug)]
struct RelayHeld {
    _object: Object,
}

impl Held for RelayHeld {}

#[derive(Debug)]
struct RelayWorkspace {
    object: Object,
    quota: Quota,
}

impl RelayWorkspace {
    /// Asks for something whose error is a [`FileError`].
    async fn ask<T: DeserializeOwned>(&self, call: WorkspaceCall) -> Result<T, FileError> {
        self.tell::<Result<T, FileError>>(call).await?
    }

    async fn tell<T: DeserializeOwned>(&self, call: WorkspaceCall) -> Result<T, Lost> {
        self.object.connection().call(&Call::Workspace(self.object.id(), call)).await
    }

    async fn make<T: DeserializeOwned>(&self, call: WorkspaceCall) -> Result<(Object, T), FileError> {
        let call = Call::Workspace(self.object.id(), call);
        let (object, made): (_, Result<T, FileError>) = self.object.connection().make(&call).await?;
        Ok((object, made?))
    }
}

impl Workspace for RelayWorkspace {
    fn quota(&self) -> Quota {
        self.quota
    }

    fn file<'a>(&'a self, path: &'a FilePath) -> BoxFuture<'a, Result<Box<dyn OpenFile>, FileError>> {
        Box::pin(async {
            let (object, about) = self.make(WorkspaceCall::File(path.clone())).await?;
            Ok(Box::new(RelayFile { object, about }) as Box<dyn OpenFile>)
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a FilePath,
        offset: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<FilePart, FileError>> {
        let limit = limit.min(READ_BYTES_MAX) as u64;
        Box::pin(self.ask(WorkspaceCall::Read(path.clone(), offset, limit)))
    }

    fn write<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        Box::pin(self.ask(WorkspaceCall::Write(path.clone(), content)))
    }

    fn append<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        Box::pin(self.ask(WorkspaceCall::Append(path.clone(), content)))
    }

    fn upload<'a>(
        &'a self,
        path: &'a FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, FileError>> {
        Box::pin(async move {
            let call = WorkspaceCall::Upload(path.clone(), bytes_max, announced);
            let (object, ()) = self.make(call).await?;
            Ok(Box::new(RelayUpload { object }) as Box<dyn Upload>)
        })
    }

    fn list<'a>(
        &'a self,
        path: Option<&'a FilePath>,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Listing, FileError>> {
        Box::pin(self.ask(WorkspaceCall::List(path.cloned(), reach)))
    }

    fn usage(&self) -> BoxFuture<'_, Result<Used, FileError>> {
        Box::pin(self.ask(WorkspaceCall::Usage))
    }

    fn remove_abandoned_drafts(&self) -> BoxFuture<'_, Result<usize, FileError>> {
        Box::pin(async {
            let removed: u64 = self.ask(WorkspaceCall::RemoveAbandonedDrafts).await?;
            Ok(usize::try_from(removed).unwrap_or(usize::MAX))
        })
    }

    fn snapshot(&self, pace: Pace) -> BoxFuture<'_, Result<Box<dyn Snapshot>, FileError>> {
        Box::pin(async move {
            let (object, used) = self.make(WorkspaceCall::Snapshot(pace)).await?;
            Ok(Box::new(RelaySnapshot { object, used }) as Box<dyn Snapshot>)
        })
    }

    fn holds_any<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, bool> {
        Box::pin(async { self.tell(WorkspaceCall::HoldsAny(names.to_vec())).await.unwrap_or(false) })
    }

    fn tidy<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, ()> {
        Box::pin(async { self.tell(WorkspaceCall::Tidy(names.to_vec())).await.unwrap_or(()) })
    }

    fn open_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.tell(WorkspaceCall::OpenUp).await.unwrap_or(()) })
    }
}

#[derive(Debug)]
struct RelayFile {
    object: Object,
    about: FileAbout,
}

impl OpenFile for RelayFile {
    fn size_bytes(&self) -> u64 {
        self.about.size_bytes
    }

    fn modified_ms(&self) -> u64 {
        self.about.modified_ms
    }

    fn media_type(&self) -> &str {
        &self.about.media_type
    }

    fn read(&self, offset: u64, limit: usize) -> BoxFuture<'_, Result<FilePart, FileError>> {
        let call = Call::FileRead { file: self.object.id(), offset, limit: limit.min(READ_BYTES_MAX) as u64 };
        Box::pin(async move { self.object.connection().call::<Result<_, _>>(&call).await? })
    }
}

#[derive(Debug)]
struct RelayUpload {
    object: Object,
}

impl Upload for RelayUpload {
    fn write(&mut self, piece: Vec<u8>) -> BoxFuture<'_, Result<(), FileError>> {
        let call = Call::UploadPiece { upload: self.object.id(), piece };
        Box::pin(async move { self.object.connection().call::<Result<_, _>>(&call).await? })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Written, FileError>> {
        let call = Call::UploadFinish { upload: self.object.id() };
        Box::pin(async move { self.object.connection().call::<Result<_, _>>(&call).await? })
    }
}

#[derive(Debug)]
struct RelaySnapshot {
    object: Object,
    used: Used,
}

impl Snapshot for RelaySnapshot {
    fn used(&self) -> Used {
        self.used
    }

    fn changes(self: Box<Self>, pace: Pace) -> BoxFuture<'static, Result<Changes, FileError>> {
        let call = Call::Changes { snapshot: self.object.id(), pace };
        Box::pin(async move { self.object.connection().call::<Result<_, _>>(&call).await? })
    }
}
