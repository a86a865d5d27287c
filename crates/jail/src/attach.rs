//! Shows a layer in a sandbox that exists: a short-lived child of the spawner mounts it there.
//!
//! The child joins the user namespace that owns the sandbox's mounts, because only there an ordinary user may
//! mount. It copies the layer in a private copy of the host's mounts, and enters the sandbox's mount namespace
//! with nothing but that copy. It stays outside of the sandbox's process namespace, so no program inside can see,
//! signal or trace it. It executes nothing of the sandbox and reads nothing from it.
//!
//! A child that is killed leaves nothing: the copy disappears with its file descriptor, and an attached one with
//! the sandbox.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::MoveMountFlags;
use rustix::thread::LinkNameSpaceType;
use serde::{Deserialize, Serialize};

use crate::raise::Steps;
use crate::report::{self, JailError, Message};
use crate::spawner::exit;
use crate::{privileges, root, sys};

/// The mount namespace of this process. See namespaces(7).
const OWN_MOUNTS: &str = "/proc/self/ns/mnt";

/// A layer to attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachPlan {
    /// Absolute path of the layer on the host.
    pub path: PathBuf,
    /// Absolute path inside: one of the directories of the sandbox's plan.
    pub target: PathBuf,
}

/// The spawner's part: forks the child and continues.
pub(crate) fn start(plan: &AttachPlan, descriptors: Vec<OwnedFd>) {
    let Ok([mounts, layer, socket]) = <[OwnedFd; 3]>::try_from(descriptors) else { return };
    let answer = match sys::fork_process() {
        Ok(Some(_)) => return,
        Ok(None) => attach(plan, &mounts, &layer),
        Err(error) => {
            let failed = Message::Failed(JailError::new("fork", &error));
            // If the server is gone, no process waits for this report.
            report::send(socket.as_fd(), &failed, None).ok();
            return;
        }
    };
    let (message, status) = match answer {
        Ok(()) => (Message::Attached, 0),
        Err(error) => (Message::Failed(error), 1),
    };
    report::send(socket.as_fd(), &message, None).ok();
    exit(status)
}

/// The child's part, in the required order.
fn attach(plan: &AttachPlan, mounts: &OwnedFd, layer: &OwnedFd) -> Result<(), JailError> {
    let mut steps = Steps::start();
    // All privileges over the sandbox's mounts, and none over anything of the host.
    let owner = steps.take("owner", || sys::owner_of(mounts.as_fd()))?;
    steps.take("user namespace", || join(&owner, LinkNameSpaceType::User))?;
    // After the change of credentials, which would clear this setting.
    steps.take("parent death", privileges::die_with_parent)?;
    // Only mounts of this process's own namespace can be copied, and there it may do so.
    steps.take("mount namespace", sys::unshare_mount_namespace)?;
    let tree = steps.take("layer", || copy_layer(&plan.path, layer))?;
    // Whoever gives up the last reference to a mount namespace waits until the kernel has taken it apart. This one is held
    // until the child has reported and ends.
    let held = steps
        .take("hold", || Ok(rustix::fs::open(OWN_MOUNTS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?));
    std::mem::forget(held?);
    // From here on paths are those of the sandbox. Its root is read-only, so no program can have put anything else
    // at the attach point.
    steps.take("sandbox", || join(mounts, LinkNameSpaceType::Mount))?;
    steps.take("attach", || put(tree.as_fd(), &plan.target))
}

fn join(namespace: &OwnedFd, kind: LinkNameSpaceType) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind))?)
}

/// Copies the mount of the layer, read-only, without devices and set-uid. The path must still lead to the
/// directory that the server opened.
fn copy_layer(path: &Path, opened: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    let (found, wanted) = (rustix::fs::fstat(&place)?, rustix::fs::fstat(opened)?);
    if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino) {
        return Err(io::Error::other("the directory was replaced"));
    }
    root::copy_read_only(place.as_fd())
}

/// Attaches the copy over whatever is shown at that place.
fn put(tree: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let place = rustix::fs::openat2(CWD, target, flags, Mode::empty(), resolve)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", place.as_fd(), "", both)?)
}
