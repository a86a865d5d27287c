//! mount_setattr(2), the only mount call that rustix lacks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Attributes to set on a mount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MountAttributes {
    bits: u64,
}

impl MountAttributes {
    /// Nothing can be written through it.
    pub(crate) fn readonly(mut self) -> Self {
        self.bits |= libc::MOUNT_ATTR_RDONLY;
        self
    }

    /// Set-uid bits and file capabilities have no effect.
    pub(crate) fn nosuid(mut self) -> Self {
        self.bits |= libc::MOUNT_ATTR_NOSUID;
        self
    }

    /// Device nodes cannot be opened.
    pub(crate) fn nodev(mut self) -> Self {
        self.bits |= libc::MOUNT_ATTR_NODEV;
        self
    }
}

/// Adds attributes to a mount and all mounts beneath it, and makes it private (no propagation).
pub(crate) fn set_mount_attributes(mount: BorrowedFd<'_>, attributes: MountAttributes) -> io::Result<()> {
    change(mount, attributes, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE)
}

fn change(mount: BorrowedFd<'_>, attributes: MountAttributes, flags: libc::c_int) -> io::Result<()> {
    let request = libc::mount_attr {
        attr_set: attributes.bits,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    set(mount, &request, flags)
}

fn set(mount: BorrowedFd<'_>, request: &libc::mount_attr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the path is an empty C string and the request a valid block of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const *request,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Shows the owners of files as the user namespace maps them. The mount must not be attached yet. See mount_setattr(2),
/// MOUNT_ATTR_IDMAP.
pub(crate) fn set_mount_id_map(mount: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let request = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.as_raw_fd() as u64,
    };
    set(mount, &request, libc::AT_EMPTY_PATH)
}

/// Makes one mount read-only, leaving the mounts beneath it as they are.
pub(crate) fn set_root_readonly(mount: BorrowedFd<'_>) -> io::Result<()> {
    change(mount, MountAttributes::default().readonly().nosuid().nodev(), libc::AT_EMPTY_PATH)
}
