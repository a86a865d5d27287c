//! All workspaces of a state directory: `sandboxes/<id>/workspace`, and beside each the lock of its user.
//!
//! While a server uses a workspace it holds a lock on its folder. Another server with the same state directory
//! therefore cannot use it a second time. The kernel releases the lock when the process ends.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sandbox::workspace::{FileError, Held, NotHeld, Quota, Workspace, WorkspaceRef, WorkspaceStore};
use sandbox::{BoxFuture, FailureKind, Failures};

use super::errno::told;
use super::{HostWorkspace, Owner, removal, tracker};

const SANDBOXES: &str = "sandboxes";
/// When another attempt to hold a workspace may succeed.
const HOLD_RETRY_MS: u64 = 500;
pub(super) const LOCK: &str = "lock";
pub(super) const WORKSPACE: &str = "workspace";

/// Finds the owner of the files of an identity.
type Owners = Box<dyn Fn(u32) -> Owner + Send + Sync>;

/// The workspaces of one state directory.
pub struct HostWorkspaces {
    folder: PathBuf,
    owners: Owners,
    failures: Arc<Failures>,
}

/// A locked file.
#[derive(Debug)]
struct Lock {
    _file: File,
}

impl Held for Lock {}

impl HostWorkspaces {
    /// The workspaces below that state directory. `owners` tells which user of the host owns the files of an
    /// identity.
    pub fn new(
        state_dir: &Path,
        owners: impl Fn(u32) -> Owner + Send + Sync + 'static,
        failures: Arc<Failures>,
    ) -> Self {
        Self { folder: state_dir.join(SANDBOXES), owners: Box::new(owners), failures }
    }

    /// The directory that contains all of them.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The directory that a program sees as its workspace.
    pub fn path(&self, of: &WorkspaceRef) -> Result<PathBuf, FileError> {
        Ok(self.place(of)?.join(WORKSPACE))
    }

    /// The owner of its files.
    pub fn owner(&self, of: &WorkspaceRef) -> Owner {
        (self.owners)(of.identity)
    }

    /// Ensures that the top directory of a workspace belongs to its identity. That identity created everything
    /// beneath it.
    pub(crate) fn adopt(&self, of: &WorkspaceRef, path: &Path) -> io::Result<()> {
        use rustix::fs::{Gid, Mode, OFlags, Uid};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let Owner { uid, gid } = self.owner(of);
        let found = rustix::fs::fstat(&directory)?;
        if (found.st_uid, found.st_gid) != (uid, gid) {
            rustix::fs::fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(())
    }

    fn place(&self, of: &WorkspaceRef) -> Result<PathBuf, FileError> {
        Ok(self.folder.join(of.plain_id()?))
    }

    fn open_now(&self, of: &WorkspaceRef, quota: Quota) -> Result<Arc<dyn Workspace>, FileError> {
        Ok(Arc::new(HostWorkspace::open(&self.path(of)?, quota, Some(self.owner(of)))?))
    }

    fn create_now(&self, of: &WorkspaceRef) -> Result<(), FileError> {
        // The directories above are closed to other users. The identity of the files enters by the mount alone.
        DirBuilder::new().recursive(true).mode(0o700).create(self.path(of)?).map_err(told)
    }

    fn hold_now(&self, of: &WorkspaceRef) -> Result<Box<dyn Held>, NotHeld> {
        let place = self.place(of).map_err(|error| NotHeld::Broken(error.to_string()))?;
        Ok(Box::new(Lock { _file: lock(&place)? }))
    }

    fn remove_now(&self, of: &WorkspaceRef) -> Result<(), FileError> {
        tracker::forget(&self.path(of)?);
        let trash = removal::set_aside(&self.place(of)?).map_err(|error| {
            self.failures.report(FailureKind::Sweep, removal::SUBJECT, &error);
            told(error)
        })?;
        let failures = Arc::clone(&self.failures);
        drop(tokio::task::spawn_blocking(move || removal::remove_told(&trash, &failures)));
        Ok(())
    }
}

impl WorkspaceStore for HostWorkspaces {
    fn create<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        Box::pin(async { self.create_now(of) })
    }

    fn open<'a>(
        &'a self,
        of: &'a WorkspaceRef,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Arc<dyn Workspace>, FileError>> {
        Box::pin(async move { self.open_now(of, quota) })
    }

    fn hold<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<Box<dyn Held>, NotHeld>> {
        Box::pin(async { self.hold_now(of) })
    }

    fn remove<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        Box::pin(async { self.remove_now(of) })
    }

    fn is_empty(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { !self.folder.is_dir() })
    }

    fn remove_strangers(&self, known: HashSet<String>) -> BoxFuture<'_, ()> {
        let (folder, failures, now) = (self.folder.clone(), Arc::clone(&self.failures), SystemTime::now());
        Box::pin(async move {
            drop(tokio::task::spawn_blocking(move || {
                removal::remove_strangers(&folder, &known, now, &failures);
            }));
        })
    }
}

/// Takes the lock of a workspace's folder.
pub(super) fn lock(place: &Path) -> Result<File, NotHeld> {
    let path = place.join(LOCK);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(not_held)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(NotHeld::Elsewhere),
        Err(TryLockError::Error(error)) => return Err(not_held(error)),
    }
    // A server that closes a sandbox removes the folder while it holds the lock.
    let (open, named) = (file.metadata().map_err(not_held)?, fs::metadata(&path).map_err(not_held)?);
    if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
        return Err(NotHeld::Missing);
    }
    Ok(file)
}

/// Whether the same attempt may succeed later.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOLCK, Errno::IO, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

fn not_held(error: io::Error) -> NotHeld {
    match error.kind() {
        io::ErrorKind::NotFound => NotHeld::Missing,
        // These pass: the host has too few descriptors or too little memory now, or its disk did not answer.
        _ if is_passing(&error) => NotHeld::Unavailable { retry_after_ms: HOLD_RETRY_MS },
        _ => NotHeld::Broken(error.to_string()),
    }
}
