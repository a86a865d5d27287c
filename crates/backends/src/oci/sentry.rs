//! gVisor: the examination of its processes from outside, and the limits of a sandbox with a kernel of its own.
//!
//! Two kinds of processes are in the groups of such a sandbox. The *sentry* is the kernel that programs run on; it and
//! its helpers see nothing of the host's files. The *gofer* opens files for it, in a root that shows what the plan
//! shows. What a program is inside the sentry cannot be seen from outside: there the guest's own report counts, and the
//! result says so.

use std::fs;
use std::io;

use ::sandbox::{
    BackendError, BoxFuture, DiskHeld, Ending, Enforced, Guarantee, Limits, Mechanism, Sandbox, StartPhases,
    Usage, Warmable,
};

use jail::Wall;

use crate::native::kernel_file;
use crate::native::sandbox::NativeSandbox;
use crate::native::status::{self, Status};
use crate::native::verify::{Mount, NAMESPACES, Seen, WATCHED_WORKSPACE, incomplete, own_namespaces};

/// The sentry and the gofer have threads of their own, and a helper process for each address space.
const OWN_PROCESSES: u32 = 96;
/// Host threads for one thread of a program.
const PROCESSES_EACH: u32 = 2;
/// The memory of the sentry and the gofer themselves.
const OWN_MEMORY_BYTES: u64 = 96 << 20;
/// What the sentry shares with the host by its nature.
const SHARED: [&str; 2] = ["pid", "cgroup"];
/// CAP_SYS_CHROOT, CAP_SYS_PTRACE and CAP_SYS_ADMIN, in the sentry's own user namespace, which maps no user of the host.
const SENTRY_CAPABILITIES: u64 = 1 << 18 | 1 << 19 | 1 << 21;
/// Those and the capabilities to read and change files whose owners its user namespace maps: the sandbox's own.
const GOFER_CAPABILITIES: u64 = SENTRY_CAPABILITIES | 0x1f;

/// The limits that the host's groups get for a sandbox with these limits.
pub(super) fn widened(limits: &Limits) -> Limits {
    Limits {
        processes: limits.processes.saturating_mul(PROCESSES_EACH).saturating_add(OWN_PROCESSES),
        memory_bytes: limits.memory_bytes.saturating_add(OWN_MEMORY_BYTES),
        ..limits.clone()
    }
}

/// The gofer: the process of the groups whose root has the writable directories.
pub(super) fn gofer(pids: &[i32], sentry: i32) -> io::Result<i32> {
    let is_gofer =
        |pid: &&i32| **pid != sentry && fs::exists(format!("/proc/{pid}/root/workspace")).unwrap_or(false);
    pids.iter().find(is_gofer).copied().ok_or_else(|| io::Error::other("there is no gofer in its groups"))
}

/// Examines every process in the groups.
pub(super) fn enforced(seen: &Seen<'_>, gofer: i32) -> Result<Enforced, BackendError> {
    if Wall::Verify.off() {
        return Ok(report(seen));
    }
    let listed = seen.cgroups.processes().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
    let pids = listed.map_err(|error| incomplete(format!("its processes cannot be listed: {error}")))?;
    for pid in pids {
        let may_have = if pid == gofer { GOFER_CAPABILITIES } else { SENTRY_CAPABILITIES };
        let examined = privileges(pid, may_have).and_then(|()| namespaces(pid));
        // The sentry ends the helper of an address space when a program ends or executes another one.
        let may_end = pid != seen.pid && pid != gofer;
        if examined.is_err() && !(may_end && status::has_ended(pid)) {
            return examined.map(|()| report(seen));
        }
    }
    mounts(seen, gofer)?;
    seen.network()?;
    seen.cgroups.check(seen.pid, seen.limits).map_err(incomplete)?;
    Ok(report(seen))
}

fn privileges(pid: i32, may_have: u64) -> Result<(), BackendError> {
    let status = Status::read(pid).map_err(|error| incomplete(error.to_string()))?;
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        let found = status.get(name);
        if found != wanted {
            return Err(incomplete(format!("{name} of its process is {found}")));
        }
    }
    let effective = u64::from_str_radix(status.get("CapEff"), 16).unwrap_or(u64::MAX);
    if effective & !may_have != 0 {
        return Err(incomplete(format!("its process has the capabilities {effective:x}")));
    }
    if status.get("Uid").split_whitespace().any(|uid| uid == "0") {
        return Err(incomplete("its process is root outside".to_owned()));
    }
    Ok(())
}

fn namespaces(pid: i32) -> Result<(), BackendError> {
    for (name, ours) in NAMESPACES.into_iter().zip(own_namespaces()) {
        let theirs = fs::read_link(format!("/proc/{pid}/ns/{name}"))
            .map_err(|error| incomplete(format!("its {name} namespace cannot be read: {error}")))?;
        if !SHARED.contains(&name) && ours.as_ref().is_some_and(|ours| *ours == theirs) {
            return Err(incomplete(format!("its process shares our {name} namespace")));
        }
    }
    Ok(())
}

/// The gofer can write only the writable space; the sentry has an empty root.
fn mounts(seen: &Seen<'_>, gofer: i32) -> Result<(), BackendError> {
    let read = |pid: i32| {
        kernel_file::read(format!("/proc/{pid}/mountinfo"))
            .map_err(|error| incomplete(format!("its mounts cannot be read: {error}")))
    };
    for mount in read(gofer)?.lines().filter_map(Mount::parse) {
        if !mount.is("ro") && !seen.may_write(mount.point) {
            return Err(incomplete(format!("{} can be written", mount.point)));
        }
        if !seen.is_planned(mount.point) {
            return Err(incomplete(format!("{} is not in the plan", mount.point)));
        }
    }
    for mount in read(seen.pid)?.lines().filter_map(Mount::parse) {
        if !mount.is("ro") && mount.point != "/proc" {
            return Err(incomplete(format!("its kernel can write {}", mount.point)));
        }
    }
    Ok(())
}

fn report(seen: &Seen<'_>) -> Enforced {
    use Guarantee as G;
    use Mechanism as M;
    let mut enforced = Enforced::default();
    enforced.keep(G::FilesHidden, &[M::Kernel, M::Root, M::Namespace]);
    enforced.keep(G::FilesReadonly, &[M::Kernel, M::Root]);
    match seen.plan.workspace {
        None => enforced.keep(G::DiskLimited, &[M::Tmpfs]),
        Some(_) => enforced.keep_with_note(G::DiskLimited, &[M::Tmpfs, M::Watchdog], WATCHED_WORKSPACE),
    }
    enforced.keep(G::NetworkNone, &[M::Kernel, M::Namespace]);
    let note = "gVisor's own processes share the host's process namespace; programs inside see none of it";
    enforced.keep_with_note(G::ProcessesHidden, &[M::Kernel], note);
    enforced.keep(G::TimeLimited, &[M::Watchdog]);
    enforced.keep(G::OutputLimited, &[M::Watchdog]);
    let word = "inside gVisor by the guest's own report, which the host cannot observe";
    enforced.keep_with_note(G::PrivilegesNone, &[M::Kernel, M::Namespace, M::Capabilities], word);
    enforced.keep_with_note(G::SyscallsFiltered, &[M::Kernel, M::Seccomp], word);
    enforced.keep(G::TreeKilled, &[M::Kernel, M::Cgroup]);
    enforced.keep(G::IdentityHidden, &[M::Kernel, M::Namespace, M::Root]);
    let own = "includes an allowance for gVisor itself";
    enforced.keep_with_note(G::MemoryLimited, &[M::Cgroup], own);
    let ends = "counts gVisor's own threads; passing it may end the whole sandbox";
    enforced.keep_with_note(G::ProcessesLimited, &[M::Cgroup], ends);
    enforced.keep(G::CpuLimited, &[M::Cgroup, M::Watchdog]);
    enforced
}

/// A sandbox whose groups have room for gVisor itself.
pub(super) struct SentrySandbox(pub(super) NativeSandbox);

impl Sandbox for SentrySandbox {
    fn enforced(&self) -> &Enforced {
        self.0.enforced()
    }

    fn phases(&self) -> &StartPhases {
        self.0.phases()
    }

    fn take_stream(&mut self) -> Option<std::os::unix::net::UnixStream> {
        self.0.take_stream()
    }

    fn usage(&mut self) -> BoxFuture<'_, Usage> {
        self.0.usage()
    }

    fn measure_anew<'a>(&'a mut self, limits: &'a Limits, held: Option<DiskHeld>) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.measure_anew(&widened(limits), held).await })
    }

    fn is_quiet(&mut self) -> bool {
        self.0.is_quiet()
    }

    fn look(&mut self) -> BoxFuture<'_, Option<Ending>> {
        self.0.look()
    }

    fn watch(&mut self) -> BoxFuture<'_, Ending> {
        self.0.watch()
    }

    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        self.0.destroy()
    }

    fn warmable(&mut self) -> Option<&mut dyn Warmable> {
        Some(self)
    }
}

impl Warmable for SentrySandbox {
    fn settle(&mut self) {
        self.0.settle();
    }

    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move { self.0.take_limits(&widened(limits)).await })
    }

    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        self.0.quiesce()
    }
}
