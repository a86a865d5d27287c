//! Quotas of persistent sandboxes: how many a principal has open, and how much disk all of them use together.
//!
//! The number is exact: the store tests it in the statement that adds the record. The disk is what was last measured: a
//! run is measured when it ends, a write from outside when it is done. A write that would exceed the quota is refused;
//! a run may exceed it by what its sandbox's own limit allows, and the next one is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::{Amount, Caller};
use sandbox::BoxFuture;
use sandbox::workspace::{
    FileError, FilePart, FilePath, Listing, OpenFile, Pace, Quota, Reach, Snapshot, Upload, Used, Workspace,
    Written,
};

use super::Sandboxes;
use super::entry::SandboxEntry;
use crate::gatekeeper::{Exceeded, QuotaUse};
use crate::result::RunError;
use crate::store::Store;

const MB: u64 = 1 << 20;

impl Sandboxes {
    /// All quotas of a caller, with what is used of them; empty for a caller without any.
    pub async fn quotas_in_use(&self, caller: &Caller) -> Result<Vec<QuotaUse>, RunError> {
        let gatekeeper = self.engine.gatekeeper();
        let quota = gatekeeper.quota(caller);
        let mut in_use = Vec::new();
        if quota.get(Amount::Sandboxes).or(quota.get(Amount::DiskMb)).is_some() {
            let totals =
                self.store.sandbox_totals(&caller.principal).await.map_err(|error| error.to_run_error())?;
            let used =
                [(Amount::Sandboxes, totals.own), (Amount::DiskMb, totals.own_disk_bytes.div_ceil(MB))];
            let limited = used
                .into_iter()
                .filter_map(|(amount, used)| quota.get(amount).map(|limit| QuotaUse { amount, limit, used }));
            in_use.extend(limited);
        }
        in_use.extend(gatekeeper.runs_in_use(caller).await?);
        Ok(in_use)
    }

    /// How many sandboxes a caller may have open. A new one is refused when the disk of the others is used up.
    pub(super) async fn room_for_sandbox(&self, caller: &Caller) -> Result<Option<u64>, RunError> {
        let quota = self.engine.gatekeeper().quota(caller);
        if let Some(limit) = quota.get(Amount::DiskMb) {
            let used = self.disk_of(caller, None).await?;
            if used >= limit.saturating_mul(MB) {
                return Err(disk_exceeded(limit, used).refusal(caller));
            }
        }
        Ok(quota.get(Amount::Sandboxes))
    }

    /// The largest disk that one sandbox of a caller may have.
    pub(super) fn disk_bytes_max(&self, caller: &Caller) -> u64 {
        let limit = self.engine.gatekeeper().quota(caller).get(Amount::DiskMb);
        limit.map_or(u64::MAX, |limit| limit.saturating_mul(MB))
    }

    /// Refuses a run in a sandbox whose files, with those of the caller's other sandboxes, use up the quota.
    pub(super) async fn check_disk_quota(
        &self,
        caller: &Caller,
        entry: &SandboxEntry,
        used_here: u64,
    ) -> Result<(), RunError> {
        let Some(limit) = self.engine.gatekeeper().quota(caller).get(Amount::DiskMb) else { return Ok(()) };
        let used = self.disk_of(caller, Some(entry)).await?.saturating_add(used_here);
        match used >= limit.saturating_mul(MB) {
            true => Err(disk_exceeded(limit, used).refusal(caller)),
            false => Ok(()),
        }
    }

    /// The files of a sandbox for its owner, who may write as much as the quota leaves.
    pub(super) async fn files_within_quota(
        &self,
        caller: &Caller,
        entry: Arc<SandboxEntry>,
    ) -> Result<Arc<dyn Workspace>, RunError> {
        let Some(limit) = self.engine.gatekeeper().quota(caller).get(Amount::DiskMb) else {
            return self.files(&entry, entry.quota()).await;
        };
        let others = self.disk_of(caller, Some(&entry)).await?;
        let own = entry.quota();
        let left = limit.saturating_mul(MB).saturating_sub(others);
        let files = self.files(&entry, Quota { bytes: own.bytes.min(left), ..own }).await?;
        let is_short = left < own.bytes;
        Ok(Arc::new(MeteredFiles(Arc::new(Metered {
            files,
            entry,
            store: self.store.clone(),
            others,
            limit_mb: limit,
            is_short,
        }))))
    }

    /// The bytes of a caller's sandboxes, except of that one.
    async fn disk_of(&self, caller: &Caller, except: Option<&SandboxEntry>) -> Result<u64, RunError> {
        let records = self.store.list_sandboxes(Some(&caller.principal)).await;
        let records = records.map_err(|error| error.to_run_error())?;
        let others = records.iter().filter(|record| except.is_none_or(|entry| entry.record.id != record.id));
        Ok(others.fold(0, |sum: u64, record| sum.saturating_add(record.disk_bytes)))
    }
}

fn disk_exceeded(limit: u64, used_bytes: u64) -> Exceeded {
    Exceeded { amount: Amount::DiskMb, limit, used: used_bytes.div_ceil(MB), retry_after: None }
}

/// The refusal of a sandbox beyond the number that a caller may have open.
pub(super) fn sandboxes_exceeded(limit: u64, caller: &Caller) -> RunError {
    Exceeded { amount: Amount::Sandboxes, limit, used: limit, retry_after: None }.refusal(caller)
}

/// Files whose size is noted after every change.
#[derive(Debug)]
struct MeteredFiles(Arc<Metered>);

struct Metered {
    files: Arc<dyn Workspace>,
    entry: Arc<SandboxEntry>,
    store: Store,
    /// The bytes of the caller's other sandboxes.
    others: u64,
    limit_mb: u64,
    /// Whether the quota leaves less than the sandbox's own limit.
    is_short: bool,
}

impl std::fmt::Debug for Metered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(f)
    }
}

impl Metered {
    /// Measures the files after a change. Returns the answer of the change.
    async fn noted<T>(&self, changed: Result<T, FileError>) -> Result<T, FileError> {
        match changed {
            Err(FileError::DiskFull) if self.is_short => Err(FileError::QuotaExceeded {
                limit_mb: self.limit_mb,
                used_mb: self.others.saturating_add(self.used().await).div_ceil(MB),
            }),
            Err(error) => Err(error),
            Ok(done) => {
                let used = self.used().await;
                // If this write is lost, the next run in the sandbox measures again.
                let noted = self.store.note_disk(self.entry.record.id.clone(), used).await;
                noted.unwrap_or_else(|error| self.store.tell(&error));
                Ok(done)
            }
        }
    }

    async fn used(&self) -> u64 {
        let known = self.entry.disk_bytes.load(Ordering::Relaxed);
        let used = self.files.usage().await.map_or(known, |used| used.bytes);
        self.entry.disk_bytes.store(used, Ordering::Relaxed);
        used
    }
}

impl Workspace for MeteredFiles {
    fn quota(&self) -> Quota {
        self.0.files.quota()
    }

    fn file<'a>(&'a self, path: &'a FilePath) -> BoxFuture<'a, Result<Box<dyn OpenFile>, FileError>> {
        self.0.files.file(path)
    }

    fn read<'a>(
        &'a self,
        path: &'a FilePath,
        offset: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<FilePart, FileError>> {
        self.0.files.read(path, offset, limit)
    }

    fn write<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        Box::pin(async move { self.0.noted(self.0.files.write(path, content).await).await })
    }

    fn append<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        Box::pin(async move { self.0.noted(self.0.files.append(path, content).await).await })
    }

    fn upload<'a>(
        &'a self,
        path: &'a FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, FileError>> {
        Box::pin(async move {
            let begun = self.0.files.upload(path, bytes_max, announced).await;
            let upload = if begun.is_ok() { begun } else { self.0.noted(begun).await }?;
            Ok(Box::new(MeteredUpload { upload, metered: Arc::clone(&self.0) }) as Box<dyn Upload>)
        })
    }

    fn list<'a>(
        &'a self,
        path: Option<&'a FilePath>,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Listing, FileError>> {
        self.0.files.list(path, reach)
    }

    fn usage(&self) -> BoxFuture<'_, Result<Used, FileError>> {
        self.0.files.usage()
    }

    fn remove_abandoned_drafts(&self) -> BoxFuture<'_, Result<usize, FileError>> {
        self.0.files.remove_abandoned_drafts()
    }

    fn snapshot(&self, pace: Pace) -> BoxFuture<'_, Result<Box<dyn Snapshot>, FileError>> {
        self.0.files.snapshot(pace)
    }

    fn holds_any<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, bool> {
        self.0.files.holds_any(names)
    }

    fn tidy<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, ()> {
        self.0.files.tidy(names)
    }

    fn open_up(&self) -> BoxFuture<'_, ()> {
        self.0.files.open_up()
    }
}

#[derive(Debug)]
struct MeteredUpload {
    upload: Box<dyn Upload>,
    metered: Arc<Metered>,
}

impl Upload for MeteredUpload {
    fn write(&mut self, piece: Vec<u8>) -> BoxFuture<'_, Result<(), FileError>> {
        Box::pin(async move {
            let written = self.upload.write(piece).await;
            if written.is_ok() { written } else { self.metered.noted(written).await }
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Written, FileError>> {
        Box::pin(async move {
            let Self { upload, metered } = *self;
            metered.noted(upload.finish().await).await
        })
    }
}
