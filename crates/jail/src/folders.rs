//! Directories of the operator that a sandbox shows at their own paths, for a program that works with them.
//!
//! A sandbox of a root server has an id that owns nothing. The spawner therefore makes a copy of the mount in which the
//! owner of the directory appears as that id, and no other owner does (mount_setattr(2), "ID-mapped mounts"). What the
//! program creates belongs to the owner of the directory. The clone gets these copies by descriptor. In every other case
//! the sandbox has the user's own id, and the clone copies the mounts by itself.
//!
//! A directory that root owns cannot be made writable: a program could leave a set-uid file of root in it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::root::copy_mount;
use crate::spawner::exit;
use crate::sys::{self, ChildFlags, Cloned, MountAttributes};
use crate::{FOLDERS_MAX, IdMap, JailPlan, PlanFolder};

/// A copy of a mount, to be attached at a path of the new root.
pub(crate) struct FolderMount {
    pub(crate) path: PathBuf,
    pub(crate) mount: OwnedFd,
    pub(crate) is_directory: bool,
}

/// The spawner's part: the copies for a sandbox with an unused id. Empty if the clone makes them.
pub(crate) fn hand_over(plan: &JailPlan) -> io::Result<Vec<OwnedFd>> {
    if plan.folders.len() > FOLDERS_MAX {
        return Err(io::Error::other("too many folders"));
    }
    let IdMap::Unused { id } = &plan.id_map else { return Ok(Vec::new()) };
    plan.folders.iter().map(|folder| mapped(folder, *id)).collect()
}

/// The clone's part: what was handed over, or its own copies. Before the new root is attached anywhere, so that no copy
/// shows a part of it.
pub(crate) fn mounts(plan: &JailPlan, handed: Vec<OwnedFd>) -> io::Result<Vec<FolderMount>> {
    let mounts = match plan.id_map {
        IdMap::Unused { .. } => handed,
        _ => {
            plan.folders.iter().map(|folder| copy(folder, &open(&folder.path)?)).collect::<io::Result<_>>()?
        }
    };
    if mounts.len() != plan.folders.len() {
        return Err(io::Error::other("a folder was not handed over"));
    }
    let shown = plan.folders.iter().zip(mounts).map(|(folder, mount)| {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&mount)?.st_mode);
        Ok(FolderMount { path: folder.path.clone(), mount, is_directory: kind.is_dir() })
    });
    shown.collect()
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

fn copy(folder: &PlanFolder, place: &OwnedFd) -> io::Result<OwnedFd> {
    let mount = copy_mount(place.as_fd(), Path::new(""))?;
    let attributes = MountAttributes::default().nosuid().nodev();
    let attributes = if folder.is_writable { attributes } else { attributes.readonly() };
    sys::set_mount_attributes(mount.as_fd(), attributes)?;
    Ok(mount)
}

/// A copy in which the owner of the directory appears as the sandbox.
fn mapped(folder: &PlanFolder, id: u32) -> io::Result<OwnedFd> {
    let place = open(&folder.path)?;
    let owner = rustix::fs::fstat(&place)?;
    if folder.is_writable && owner.st_uid == 0 {
        let path = folder.path.display();
        return Err(io::Error::other(format!("{path} belongs to root, and a sandbox never writes as root")));
    }
    let mount = copy(folder, &place)?;
    let namespace = id_namespace((owner.st_uid, owner.st_gid), id)?;
    match sys::set_mount_id_map(mount.as_fd(), namespace.as_fd()) {
        Ok(()) => Ok(mount),
        // Not every file system can do this, and not every root may. The permissions of the files decide then.
        Err(error)
            if [Errno::INVAL, Errno::PERM]
                .iter()
                .any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) =>
        {
            Ok(mount)
        }
        Err(error) => Err(error),
    }
}

/// A user namespace that maps exactly the owner to the id. Only its map is used.
fn id_namespace((uid, gid): (u32, u32), id: u32) -> io::Result<OwnedFd> {
    let (door, inside) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    match sys::clone_into_walls(ChildFlags::new([]), None)? {
        Cloned::Parent(pid, _) => {
            drop(inside);
            let proc = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
            fs::write(proc.join("uid_map"), format!("{uid} {id} 1"))?;
            fs::write(proc.join("gid_map"), format!("{gid} {id} 1"))?;
            let namespace = fs::File::open(proc.join("ns/user"))?;
            // The child ends when the door closes. The namespace lives as long as its descriptor.
            drop(door);
            Ok(namespace.into())
        }
        Cloned::Child => {
            drop(door);
            // Nothing is ever sent; this returns when the spawner has closed its end.
            rustix::io::read(&inside, &mut [0_u8; 1]).ok();
            exit(0)
        }
    }
}
