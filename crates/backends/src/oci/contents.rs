//! Whether a container shows what was planned, and not only at the planned places: the examination of mounts sees where
//! something is mounted and how, this one sees what.
//!
//! The server looks through the root of a process of the sandbox, before any program runs there.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ::sandbox::BackendError;
use jail::{JailPlan, Wall};

use crate::native::verify::incomplete;

/// statfs(2): a memory file system.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Compares every bind and every writable directory with what the plan names.
pub(crate) fn examine(pid: i32, plan: &JailPlan, scratch: &OwnedFd) -> Result<(), BackendError> {
    if Wall::Verify.off() {
        return Ok(());
    }
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    // Below the sandbox's root: none of the planned places is a link there.
    let within = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    for bind in &plan.binds {
        let Ok(wanted) = fs::metadata(&bind.path) else {
            if bind.optional {
                continue;
            }
            return Err(incomplete(format!("{} is gone", bind.target.display())));
        };
        shows(&wanted, &within(&bind.target), &bind.target)?;
    }
    if let Some((path, inside)) = &plan.workspace {
        let wanted = fs::symlink_metadata(path).map_err(unread)?;
        shows(&wanted, &within(inside), inside)?;
    }
    let space = space(plan, scratch).map_err(unread)?;
    for (_, inside, _) in &plan.scratch.directories {
        if fs::symlink_metadata(within(inside)).map_err(unread)?.dev() != space {
            return Err(incomplete(format!("{} is not in the writable space", inside.display())));
        }
    }
    Ok(())
}

/// Whether that file of the sandbox is the wanted one.
fn shows(wanted: &fs::Metadata, at: &Path, inside: &Path) -> Result<(), BackendError> {
    let found = fs::symlink_metadata(at).map_err(unread)?;
    if (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()) {
        return Ok(());
    }
    Err(incomplete(format!("{} shows something else", inside.display())))
}

fn unread(error: io::Error) -> BackendError {
    incomplete(format!("its files cannot be read: {error}"))
}

/// The device of the writable space, which is a memory file system of the planned size.
fn space(plan: &JailPlan, scratch: &OwnedFd) -> io::Result<u64> {
    let (kind, size) = (rustix::fs::fstatfs(scratch)?.f_type, rustix::fs::fstatvfs(scratch)?);
    let bytes = size.f_blocks.saturating_mul(size.f_frsize);
    let wanted = plan.scratch.bytes.next_multiple_of(size.f_frsize.max(1));
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    let is_memory = kind as i64 == TMPFS_MAGIC;
    if !Wall::Scratch.off() && (!is_memory || bytes != wanted || size.f_files != plan.scratch.inodes) {
        return Err(io::Error::other("/tmp is not in the writable space"));
    }
    Ok(rustix::fs::fstat(scratch)?.st_dev)
}
