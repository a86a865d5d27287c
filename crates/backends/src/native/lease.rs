//! Gives a spare the limits of the run that takes it.
//!
//! ```text
//! alive? -> disk (may be refused: nothing was changed) -> cgroups -> rlimits of every process -> look again -> count anew
//! ```
//! Only the guest and an idle interpreter have run inside, so the examination at build time still holds. Only
//! what changes here is examined again, from outside. A change that fails or cannot be verified is an error,
//! and the sandbox is destroyed. Limits of a process can only be lowered: they begin at the spec's headroom.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ::sandbox::{BackendError, Limits};
use jail::{Rlimits, Wall};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::FsPickFlags;
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::{Gid, Uid};

use super::cgroup::CgroupSet;
use super::inhabitants::Inhabitants;
use super::status::Status;
use super::{at, plan, tree};

/// How many times the processes are listed until no new one appears. An idle interpreter starts none.
const ROUNDS_MAX: usize = 4;

/// A sandbox whose limits are changed.
pub(super) struct Change<'a> {
    pub(super) pid: i32,
    pub(super) process: BorrowedFd<'a>,
    pub(super) scratch: BorrowedFd<'a>,
    pub(super) cgroups: &'a CgroupSet,
    /// The processes in it, if they are known.
    pub(super) known: &'a Inhabitants,
    /// The current limits.
    pub(super) from: &'a Limits,
    /// The limits that its processes got when it was built, if higher.
    pub(super) headroom: Option<&'a Limits>,
    pub(super) to: &'a Limits,
    /// Whether its processes are those of a kernel of its own, which keeps the limits of each process itself.
    pub(super) has_kernel: bool,
}

impl Change<'_> {
    pub(super) fn make(&self) -> Result<(), BackendError> {
        self.expect_alive()?;
        self.disk()?;
        self.cgroups.change(self.from, self.to)?;
        self.rlimits()
    }

    /// The guest may have died since the sandbox was built.
    fn expect_alive(&self) -> Result<(), BackendError> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut list = [PollFd::from_borrowed_fd(self.process, PollFlags::IN)];
        match rustix::event::poll(&mut list, Some(&at_once)) {
            Ok(0) => Ok(()),
            Ok(_) => Err(unverified("its first process is dead")),
            Err(error) => Err(at("alive")(error.into())),
        }
    }

    /// Changes the size of the writable space. That requires the right to mount on the host, which only root
    /// has (`may_mount` in the kernel's namespace.c).
    fn disk(&self) -> Result<(), BackendError> {
        let same = (self.from.disk_bytes, self.from.disk_inodes) == (self.to.disk_bytes, self.to.disk_inodes);
        if same || Wall::Scratch.off() {
            return Ok(());
        }
        let resized = resize(self.scratch, self.to);
        match resized {
            Ok(()) => self.look_at_disk(self.to),
            // The server also checks that the failed call changed nothing.
            Err(error) => self.look_at_disk(self.from).and(Err(BackendError::Unfit {
                what: format!("the size of its disk cannot be changed ({error}); only root can"),
            })),
        }
    }

    fn look_at_disk(&self, limits: &Limits) -> Result<(), BackendError> {
        if Wall::Verify.off() {
            return Ok(());
        }
        let found = rustix::fs::fstatvfs(self.scratch).map_err(|error| at("scratch")(error.into()))?;
        let bytes = found.f_blocks.saturating_mul(found.f_frsize);
        // The kernel rounds up to whole pages.
        let is_right = bytes == limits.disk_bytes.next_multiple_of(found.f_frsize.max(1))
            && found.f_files == limits.disk_inodes;
        if is_right { Ok(()) } else { Err(unverified("its disk has another size")) }
    }

    /// Sets the limits of every process inside, until no process without them is left.
    fn rlimits(&self) -> Result<(), BackendError> {
        let counted = self.cgroups.limits_processes();
        let given = plan::rlimits(self.headroom.unwrap_or(self.from), counted);
        let wanted = plan::rlimits(self.to, counted);
        if wanted == given || self.has_kernel || Wall::Rlimits.off() {
            return Ok(());
        }
        let values = values(&wanted);
        let mut done: Vec<i32> = Vec::new();
        for round in 0..ROUNDS_MAX {
            let is_known = round == 0 && self.known.are_all(self.cgroups);
            let everyone = if is_known { self.known.pids() } else { self.everyone()? };
            let new: Vec<i32> = everyone.into_iter().filter(|pid| !done.contains(pid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                // One that is gone may have left a child without these limits, so it does not count.
                if self.limit_process(pid, &values)? {
                    done.push(pid);
                }
            }
            // The group holds no other thread, so no process can have been created meanwhile.
            if self.cgroups.threads_count().is_some_and(|count| count == done.len() as u64) {
                return Ok(());
            }
        }
        Err(unverified("its processes do not stand still"))
    }

    fn everyone(&self) -> Result<Vec<i32>, BackendError> {
        let everyone = match self.cgroups.processes() {
            Some(listed) => listed.map_err(at("processes"))?,
            None if !fs::exists(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap_or(false) => {
                return Err(unverified("its processes cannot be listed"));
            }
            None => tree::members(self.pid),
        };
        if everyone.contains(&self.pid) { Ok(everyone) } else { Err(unverified("it has no first process")) }
    }

    /// Whether the process is there and has these limits now.
    fn limit_process(&self, pid: i32, values: &[(Resource, u64)]) -> Result<bool, BackendError> {
        let is_gone = || pid != self.pid && !fs::exists(format!("/proc/{pid}")).unwrap_or(true);
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let lowered = match lower(pid, values) {
            Err(error) if refused(&error) => lower_as_owner(pid, values),
            lowered => lowered,
        };
        match lowered {
            Err(_) if is_gone() => Ok(false),
            Ok(true) => Ok(true),
            Ok(false) => Err(unverified("a process has other limits")),
            Err(error) => Err(at("process limits")(error)),
        }
    }
}

/// Changes the size of a memory file system, completely or not at all.
fn resize(scratch: BorrowedFd<'_>, limits: &Limits) -> rustix::io::Result<()> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = rustix::mount::fspick(scratch, "", flags)?;
    let sizes = [("size", limits.disk_bytes), ("nr_inodes", limits.disk_inodes)];
    for (key, value) in sizes {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value.to_string().as_str())?;
    }
    rustix::mount::fsconfig_reconfigure(context.as_fd())
}

/// The values to set, never above this server's own limits, as in the jail.
fn values(wanted: &Rlimits) -> [(Resource, u64); 4] {
    let values = [
        (Resource::Cpu, wanted.cpu_s),
        (Resource::Fsize, wanted.file_bytes),
        (Resource::Nofile, wanted.open_files),
        (Resource::Nproc, wanted.processes),
    ];
    values.map(|(resource, value)| {
        let own = rustix::process::getrlimit(resource).maximum;
        (resource, own.map_or(value, |own| own.min(value)))
    })
}

/// Sets the limits of another process, and returns whether the kernel then has them: setting them a second
/// time returns the previous values. The kernel allows this to the owner of a process's user namespace, root
/// or not (`check_prlimit_permission`).
fn lower(pid: i32, values: &[(Resource, u64)]) -> io::Result<bool> {
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let mut is_set = true;
    for (resource, value) in values {
        let limit = || Rlimit { current: Some(*value), maximum: Some(*value) };
        rustix::process::prlimit(Some(process), *resource, limit())?;
        let found = rustix::process::prlimit(Some(process), *resource, limit())?;
        is_set &= Wall::Verify.off() || found == limit();
    }
    Ok(is_set)
}

/// The same by a thread with the identity of that process, which may lower its limits. Needed where the process is in
/// the server's own user namespace and the server, though root, lacks CAP_SYS_RESOURCE.
fn lower_as_owner(pid: i32, values: &[(Resource, u64)]) -> io::Result<bool> {
    let status = Status::read(pid)?;
    let first = |name: &str| status.get(name).split_whitespace().next().and_then(|id| id.parse::<u32>().ok());
    let (Some(uid), Some(gid)) = (first("Uid"), first("Gid")) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    if uid == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let become_owner = || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        // Only of this thread, which ends with the call.
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        lower(pid, values)
    };
    let ended = std::thread::scope(|scope| {
        let started = std::thread::Builder::new().name("limits".to_owned()).spawn_scoped(scope, become_owner);
        started.map(std::thread::ScopedJoinHandle::join)
    })?;
    ended.unwrap_or_else(|_| Err(io::Error::other("its thread failed")))
}

fn unverified(what: &str) -> BackendError {
    BackendError::Unverified { what: what.to_owned() }
}
