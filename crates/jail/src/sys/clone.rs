//! clone3(2) and fork(2) of a single-threaded process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;

/// Clone into the given control group (libc's constant is too narrow). See clone(2).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which namespaces a clone gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildFlags(u64);

/// A namespace that a test build can omit; the mount namespace is always new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    Network,
    Pid,
    Ipc,
    Uts,
}

impl ChildFlags {
    /// A new mount namespace, and the given ones.
    pub(crate) fn of_zygote(namespaces: impl IntoIterator<Item = Namespace>) -> Self {
        Self(Self::new(namespaces).0 & !(libc::CLONE_NEWUSER as u64))
    }

    /// New user and mount namespaces, and the given ones.
    pub(crate) fn new(namespaces: impl IntoIterator<Item = Namespace>) -> Self {
        let flag = |namespace| match namespace {
            Namespace::Network => libc::CLONE_NEWNET,
            Namespace::Pid => libc::CLONE_NEWPID,
            Namespace::Ipc => libc::CLONE_NEWIPC,
            Namespace::Uts => libc::CLONE_NEWUTS,
        };
        let always = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
        Self(namespaces.into_iter().map(flag).fold(always, |flags, flag| flags | flag) as u64)
    }
}

/// Which side of a clone this is.
pub(crate) enum Cloned {
    /// The spawner, with the child's process number and its pidfd.
    Parent(Pid, OwnedFd),
    /// The child.
    Child,
}

/// Clones this process into new namespaces, and into `cgroup` if given.
pub(crate) fn clone_into_walls(flags: ChildFlags, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let mut arguments = libc::clone_args {
        flags: flags.0 | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd).addr() as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    if let Some(directory) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = directory.as_raw_fd() as u64;
    }
    // SAFETY: the argument block is valid for the call, asks for a copy of this address space (no CLONE_VM,
    // no stack), and the caller is single-threaded, so the child may run any code.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        number => {
            let pid =
                Pid::from_raw(number as i32).ok_or_else(|| io::Error::other("clone gave no process"))?;
            // SAFETY: the kernel stored a new descriptor there, which has no other owner.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent(pid, pidfd))
        }
    }
}

/// Plain fork, for the spawner itself and for its short-lived children. Returns `None` in the child.
pub(crate) fn fork_process() -> io::Result<Option<Pid>> {
    // SAFETY: called before any thread exists or by the spawner, which has none, so the child may run any code.
    let number = unsafe { libc::fork() };
    match number {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        number => Ok(Pid::from_raw(number)),
    }
}

/// Moves this process into a new cgroup namespace, rooted at its current group.
pub(crate) fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers; only this process's view of cgroup paths changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWCGROUP) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves this process into a new mount namespace, a copy of its current one.
pub(crate) fn unshare_mount_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers; only this process's view of mounts changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves this process into a new user namespace.
pub(crate) fn unshare_user_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers; only this process's credentials change.
    let result = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves this process into a new network namespace.
pub(crate) fn unshare_network_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers; only this process's view of the network changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The user namespace that owns a namespace. See ioctl_ns(2), NS_GET_USERNS.
pub(crate) fn owner_of(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 0x1)`
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: this request takes no argument and returns a new descriptor.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Waits until this process has no children left; the kernel reaps them (see [`super::ignore_child_signal`]).
pub(crate) fn wait_for_children() {
    loop {
        // SAFETY: no status is asked for; any child will do.
        let result = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
        if result == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}
