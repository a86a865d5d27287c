//! The private root: a small memory file system, read-only binds, a minimal /dev. Its procfs is in `procfs`.
//!
//! The clone runs this in its own mount namespace, after the sources were opened. Everything of the host is
//! attached by file descriptor (open_tree, move_mount), so that no path can be swapped between check and
//! mount. What the clone itself created is bound by name, because no other process can reach it. Paths that
//! the plan does not name do not exist inside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::breach::Wall;
use crate::folders::FolderMount;
use crate::sys::{self, MountAttributes};
use crate::{Bind, JailPlan, Scratch};

/// The directory of the program's files.
const WORKSPACE: &str = "/workspace";

/// Space for the few small files and many mount points of the root itself.
const ROOT_BYTES: &str = "4m";
const ROOT_INODES: &str = "4096";

/// Existing directories of the host on which the new root and the writable space are attached during
/// construction. The mounts are visible only in this namespace and disappear with the old root.
const ROOT_AT: &str = "/tmp";
/// No bind may begin at or above these, or its copy would show the writable space. Sources are interpreters'
/// own folders and parts of the system that lie elsewhere.
const SCRATCH_AT: [&str; 4] = ["/srv", "/media", "/mnt", "/etc"];
/// In the root of a zygote process: where its sandboxes attach their writable space while they distribute its
/// directories.
const STAGING: &str = "/.staging";
/// In the root of a zygote process: the workspaces of persistent sandboxes. Each sandbox binds its own and
/// unmounts the directory.
const WORKSPACES: &str = "/.workspaces";

/// The host's terminals come from the same pool.
const TERMINALS_MAX: &str = "16";

/// The devices of every sandbox, in /dev.
pub const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// A bind whose source is open.
pub(crate) struct Source {
    target: PathBuf,
    tree: OwnedFd,
    is_directory: bool,
}

/// Opens every bind's source with the identity that may traverse its path. Magic links are never followed.
pub(crate) fn open_sources(binds: &[Bind]) -> io::Result<Vec<Source>> {
    let mut sources = Vec::with_capacity(binds.len());
    for bind in binds {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(CWD, &bind.path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Ok(place) => {
                let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
                sources.push(Source {
                    target: bind.target.clone(),
                    tree: place,
                    is_directory: kind.is_dir(),
                });
            }
            Err(rustix::io::Errno::NOENT) if bind.optional => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sources)
}

/// Opens the workspace of a persistent sandbox. No link in its path is followed.
pub(crate) fn open_workspace(planned: Option<&(PathBuf, PathBuf)>) -> io::Result<Option<Source>> {
    let Some((path, target)) = planned else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tree = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    Ok(Some(Source { target: target.clone(), tree, is_directory: true }))
}

fn new_tmpfs(bytes: &str, inodes: &str, mode: &str) -> io::Result<OwnedFd> {
    let options: &[(&str, &str)] = if Wall::Scratch.off() {
        &[("mode", mode)]
    } else {
        &[("size", bytes), ("nr_inodes", inodes), ("mode", mode)]
    };
    new_filesystem("tmpfs", options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

pub(crate) fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

pub(crate) fn attach(mount: BorrowedFd<'_>, parent: BorrowedFd<'_>, place: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", parent, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Copies the mount at a file descriptor or path, with all mounts beneath it.
pub(crate) fn copy_mount(parent: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(parent, path, flags)?)
}

/// The same, read-only, without devices and set-uid, and private.
pub(crate) fn copy_read_only(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let tree = copy_mount(place, Path::new(""))?;
    let mut attributes = MountAttributes::default().nosuid().nodev();
    if !Wall::Readonly.off() {
        attributes = attributes.readonly();
    }
    sys::set_mount_attributes(tree.as_fd(), attributes)?;
    Ok(tree)
}

/// The new root during construction.
pub(crate) struct Root {
    pub(crate) descriptor: OwnedFd,
    /// Where the writable space is attached while its directories are distributed.
    staging: PathBuf,
}

impl Root {
    /// An empty root, attached where no other process sees it.
    pub(crate) fn new() -> io::Result<Self> {
        // No mount made here may propagate to the host, and no later mount of the host may propagate into
        // this namespace.
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let descriptor = new_tmpfs(ROOT_BYTES, ROOT_INODES, "0755")?;
        attach(descriptor.as_fd(), CWD, Path::new(ROOT_AT))?;
        // Only an attached mount can be copied. The whole mount disappears with the old root.
        let staging = SCRATCH_AT.into_iter().find(|path| Path::new(path).is_dir()).unwrap_or("/etc");
        Ok(Self { descriptor, staging: PathBuf::from(staging) })
    }

    /// An empty root at a directory of this process's own mount namespace, for a runtime that enters it later.
    pub(crate) fn attached_at(at: &Path, staging: &Path) -> io::Result<Self> {
        let descriptor = new_tmpfs(ROOT_BYTES, ROOT_INODES, "0755")?;
        attach(descriptor.as_fd(), CWD, at)?;
        Ok(Self { descriptor, staging: staging.to_owned() })
    }

    /// The root that a zygote process made, in a copy of its mounts.
    pub(crate) fn of_zygote() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open("/", flags, Mode::empty())?;
        Ok(Self { descriptor, staging: PathBuf::from(STAGING) })
    }

    /// Creates the mount points at which sandboxes of this zygote attach their own parts.
    pub(crate) fn places(&self, plan: &JailPlan) -> io::Result<()> {
        let own = ["/dev/pts", "/proc", STAGING, WORKSPACES, WORKSPACE].map(Path::new);
        let writable = plan.scratch.directories.iter().map(|(_, inside, _)| inside.as_path());
        own.into_iter().chain(writable).try_for_each(|path| self.directories(&relative(path)?))
    }

    /// Shows a directory of the host to a zygote process, and to no sandbox (see [`Root::take_workspace`]).
    pub(crate) fn workspaces(&self, mut source: Source) -> io::Result<()> {
        source.target = PathBuf::from(WORKSPACES);
        self.workspace(source)
    }

    /// Unmounts the writable space that a zygote process had while it loaded packages. The zygote calls this
    /// before its first clone.
    pub(crate) fn leave_scratch(&self, scratch: &Scratch) -> io::Result<()> {
        let mut places = scratch.directories.iter().map(|(_, inside, _)| inside);
        places.try_for_each(|inside| Ok(rustix::mount::unmount(inside, UnmountFlags::DETACH)?))
    }

    /// Attaches the planned workspace: either the mount that was handed over, or the one among those that the
    /// zygote shows. In the second case it unmounts the others. A zygote that shows any serves only such
    /// plans.
    pub(crate) fn take_workspace(&self, plan: &JailPlan, fds: Option<OwnedFd>) -> io::Result<()> {
        let Some((path, target)) = &plan.workspace else { return Ok(()) };
        if let Some(mount) = fds {
            return self.attach_workspace(&mount, target);
        }
        let beneath = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let all = rustix::fs::open(WORKSPACES, beneath, Mode::empty())?;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        let tree = rustix::fs::openat2(&all, path, beneath, Mode::empty(), resolve)?;
        self.workspace(Source { target: target.clone(), tree, is_directory: true })?;
        Ok(rustix::mount::unmount(WORKSPACES, UnmountFlags::DETACH)?)
    }

    /// Attaches directories of the operator, outer ones first.
    pub(crate) fn folders(&self, folders: Vec<FolderMount>) -> io::Result<()> {
        for folder in &folders {
            let place = self.mount_point(&folder.path, folder.is_directory)?;
            attach(folder.mount.as_fd(), self.descriptor.as_fd(), &place)?;
        }
        Ok(())
    }

    /// Attaches the sources, read-only.
    pub(crate) fn binds(&self, sources: Vec<Source>) -> io::Result<()> {
        sources.iter().try_for_each(|source| self.bind(source))?;
        if Wall::Root.off() { self.host() } else { Ok(()) }
    }

    /// Attaches the workspace: the only part of the host that can be written, without devices and set-uid.
    pub(crate) fn workspace(&self, source: Source) -> io::Result<()> {
        let tree = copy_mount(source.tree.as_fd(), Path::new(""))?;
        self.attach_workspace(&tree, &source.target)
    }

    fn attach_workspace(&self, tree: &OwnedFd, target: &Path) -> io::Result<()> {
        sys::set_mount_attributes(tree.as_fd(), MountAttributes::default().nosuid().nodev())?;
        let place = self.mount_point(target, true)?;
        attach(tree.as_fd(), self.descriptor.as_fd(), &place)
    }

    /// Creates the plan's links, directories and small files.
    pub(crate) fn files(&self, plan: &JailPlan) -> io::Result<()> {
        for (place, target) in &plan.symlinks {
            self.symlink(place, target)?;
        }
        // One of them may show something already.
        plan.directories.iter().try_for_each(|path| self.directories(&relative(path)?))?;
        plan.files.iter().try_for_each(|file| self.write(&relative(&file.path)?, &file.content))
    }

    /// Makes this the root and detaches the old one. See pivot_root(2), `pivot_root(".", ".")`.
    pub(crate) fn enter(self) -> io::Result<()> {
        rustix::process::fchdir(&self.descriptor)?;
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")?;
        // The root itself holds only mount points and the plan's small files.
        sys::set_root_readonly(self.descriptor.as_fd())
    }

    fn bind(&self, source: &Source) -> io::Result<()> {
        let tree = copy_read_only(source.tree.as_fd())?;
        let place = self.mount_point(&source.target, source.is_directory)?;
        attach(tree.as_fd(), self.descriptor.as_fd(), &place)
    }

    /// Creates an empty directory or file to mount on. Returns its path relative to the root.
    fn mount_point(&self, path: &Path, is_directory: bool) -> io::Result<PathBuf> {
        let place = relative(path)?;
        if is_directory {
            self.directories(&place)?;
        } else {
            self.write(&place, &[])?;
        }
        Ok(place)
    }

    pub(crate) fn directories(&self, place: &Path) -> io::Result<()> {
        let mut walked = PathBuf::new();
        for part in place.components() {
            walked.push(part);
            match rustix::fs::mkdirat(&self.descriptor, &walked, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&self, place: &Path, content: &[u8]) -> io::Result<()> {
        if let Some(parent) = place.parent() {
            self.directories(parent)?;
        }
        write_file(self.descriptor.as_fd(), place, content)
    }

    fn symlink(&self, path: &Path, target: &Path) -> io::Result<()> {
        let place = relative(path)?;
        if let Some(parent) = place.parent() {
            self.directories(parent)?;
        }
        Ok(rustix::fs::symlinkat(target, &self.descriptor, &place)?)
    }

    /// The few harmless devices.
    pub(crate) fn devices(&self) -> io::Result<()> {
        self.directories(Path::new("dev/pts"))?;
        for name in DEVICES {
            let tree = copy_mount(CWD, &Path::new("/dev").join(name))?;
            // Devices can be used through a read-only mount. Their nodes, which belong to the host, cannot be
            // changed.
            sys::set_mount_attributes(tree.as_fd(), MountAttributes::default().readonly().nosuid())?;
            let place = self.mount_point(&Path::new("/dev").join(name), false)?;
            attach(tree.as_fd(), self.descriptor.as_fd(), &place)?;
        }
        for (name, target) in DEVICE_LINKS {
            self.symlink(&Path::new("/dev").join(name), Path::new(target))?;
        }
        Ok(())
    }

    /// A private devpts.
    pub(crate) fn terminals(&self) -> io::Result<()> {
        let options = [("ptmxmode", "0666"), ("mode", "0620"), ("max", TERMINALS_MAX)];
        let pts = new_filesystem("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOSUID)?;
        attach(pts.as_fd(), self.descriptor.as_fd(), Path::new("dev/pts"))
    }

    /// One size limit for everything writable. Its directories appear at their paths; the file system as a
    /// whole is not visible.
    pub(crate) fn scratch(&self, scratch: &Scratch) -> io::Result<OwnedFd> {
        let space = new_tmpfs(&scratch.bytes.to_string(), &scratch.inodes.to_string(), "0755")?;
        attach(space.as_fd(), CWD, &self.staging)?;
        rustix::process::fchdir(&self.descriptor)?;
        for (name, inside, mode) in &scratch.directories {
            rustix::fs::mkdirat(&space, name.as_str(), Mode::empty())?;
            // mkdir is subject to the umask, chmod is not.
            rustix::fs::chmodat(&space, name.as_str(), Mode::from_raw_mode(*mode), AtFlags::empty())?;
            let place = self.mount_point(inside, true)?;
            // By name, which costs the kernel less than by descriptor. It is safe because no other process
            // sees this directory.
            rustix::mount::mount_bind(self.staging.join(name), &place)?;
        }
        Ok(space)
    }

    /// Unmounts the writable space from its staging point, once its directories are bound. For a sandbox of a
    /// zygote, which has no old root to detach.
    pub(crate) fn leave_staging(&self) -> io::Result<()> {
        Ok(rustix::mount::unmount(&self.staging, UnmountFlags::DETACH)?)
    }

    /// Test builds only: the host's root, writable, as if there were no private root.
    fn host(&self) -> io::Result<()> {
        let tree = copy_mount(CWD, Path::new("/"))?;
        let place = self.mount_point(Path::new("/host"), true)?;
        attach(tree.as_fd(), self.descriptor.as_fd(), &place)
    }
}

pub(crate) fn write_file(base: BorrowedFd<'_>, place: &Path, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(base, place, flags, Mode::from_raw_mode(0o444))?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

fn relative(path: &Path) -> io::Result<PathBuf> {
    let is_plain = |part: &Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(|part| is_plain(&part)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    Ok(path.components().skip(1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_with_dots_is_refused() {
        assert_eq!(relative(Path::new("/usr/lib")).unwrap(), Path::new("usr/lib"));
        assert!(relative(Path::new("/usr/../etc")).is_err());
        assert!(relative(Path::new("usr")).is_err());
    }
}
