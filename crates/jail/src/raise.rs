//! The sequence that raises the walls, executed by the clone itself: one step per line, in the required
//! order.
//!
//! The spawner's clone calls it, single-threaded. When it returns, the process
//!
//! - holds exactly two file descriptors beyond the standard ones (stream and report),
//! - is behind every wall,
//! - has not seen any user code; the host examines it before it sends any.
//!
//! A step that fails is reported by name and the process ends. A jail with a missing wall never runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};

use crate::breach::Wall;
use crate::report::{JailError, Message};
use crate::root::{self, Root};
use crate::zygote::Handover;
use crate::{IdMap, JailPlan, folders, landlock_wall, network, privileges, report, seccomp, step, sys};

/// The number of the guest's stream, the same in every sandbox.
pub(crate) const STREAM_FD: i32 = 3;
const REPORT_FD: i32 = 4;
const SCRATCH_FD: i32 = 5;
/// The number of the socket on which a failing step is reported. The spawner's side closes it before the
/// guest starts.
pub(crate) const FAILURES_FD: i32 = 6;

/// What the spawner hands to its clone.
pub(crate) struct InheritedFds {
    pub(crate) stream: OwnedFd,
    pub(crate) report: OwnedFd,
    /// Copies of mounts of the operator's directories, in the order of the plan.
    pub(crate) folders: Vec<OwnedFd>,
}

/// Raises every wall and reports. Returns the guest's stream and the socket for the host's consent.
pub(crate) fn raise(
    plan: &JailPlan,
    filter: &seccomp::Filter,
    mut fds: InheritedFds,
) -> Result<(OwnedFd, OwnedFd), JailError> {
    let mut steps = Steps::start();
    // The spawner has written the id maps already; without them the kernel allows almost nothing to this
    // process. A subordinate id has no right to join a control group, so it joins before the change of
    // identity.
    let joins_first = matches!(plan.id_map, IdMap::Subordinate { .. });
    steps.take("cgroups", || if joins_first { join_groups(plan, &fds.report) } else { Ok(()) })?;
    // Sources may lie in a home directory that only the outer identity can traverse.
    let sources = steps.take("bind sources", || root::open_sources(&plan.binds))?;
    let workspace = steps.take("workspace source", || root::open_workspace(plan.workspace.as_ref()))?;
    let handed = std::mem::take(&mut fds.folders);
    let folders = steps.take("folders", || folders::mounts(plan, handed))?;
    // From here on every created file belongs to the inner user. The capabilities stay, because inner root is
    // not mapped.
    steps.take("identity", || plan.id_map.take())?;
    steps.take("visible to the host", privileges::be_visible_to_host)?;
    // The new root starts empty. The old one is detached only when the new one is complete.
    let root = steps.take("root", Root::new)?;
    // Before the binds: an interpreter may lie in a directory that is writable inside, such as /tmp.
    let scratch = steps.take("scratch", || root.scratch(&plan.scratch))?;
    // Passed by value, like the sources: an owner that lives longer could close a file descriptor that reuses
    // its number.
    steps.take("workspace", || workspace.map_or(Ok(()), |workspace| root.workspace(workspace)))?;
    steps.take("folders", || root.folders(folders))?;
    steps.take("binds", || root.binds(sources))?;
    steps.take("files", || root.files(plan))?;
    steps.take("devices", || root.devices().and_then(|()| root.terminals()))?;
    let settings = steps.take("procfs", || root.procfs(&scratch))?;
    // The host has created the control groups meanwhile. They count from here on.
    steps.take("cgroups", || if joins_first { Ok(()) } else { join_groups(plan, &fds.report) })?;
    steps.take("pivot", || root.enter())?;
    steps.take("network", || network::enter(None, &settings))?;
    drop(settings);
    steps.take("host name", || {
        if Wall::Uts.off() { Ok(()) } else { privileges::set_hostname(&plan.hostname) }
    })?;
    close_up(plan, filter, (fds, scratch), steps)
}

/// The same for a clone of a zygote process. It is already in a copy of the zygote's root and has privilege
/// over nothing else. It only replaces the parts that sandboxes do not share with its own.
pub(crate) fn raise_in_zygote(
    plan: &JailPlan,
    filter: &seccomp::Filter,
    fds: InheritedFds,
    handover: Handover<OwnedFd>,
) -> Result<(OwnedFd, OwnedFd), JailError> {
    let mut steps = Steps::start();
    steps.take("cgroups", || join_groups(plan, &fds.report))?;
    steps.take("identity", || plan.id_map.take_of_zygote())?;
    steps.take("visible to the host", privileges::be_visible_to_host)?;
    let root = steps.take("root", Root::of_zygote)?;
    let scratch = steps.take("scratch", || root.scratch(&plan.scratch))?;
    steps.take("workspace", || root.take_workspace(plan, handover.workspace))?;
    steps.take("devices", || root.terminals())?;
    let settings = steps.take("procfs", || root.procfs_for_zygotes(&scratch))?;
    steps.take("scratch", || root.leave_staging())?;
    steps.take("network", || network::enter(handover.network, &settings))?;
    // By value: an owner that lives longer could close a file descriptor that reuses its number.
    drop((root, settings));
    steps.take("streams", streams_of_its_own)?;
    // From here on the process has no privilege over anything that existed before.
    steps.take("user namespace", || plan.id_map.leave_zygote())?;
    close_up(plan, filter, (fds, scratch), steps)
}

/// The last steps of every clone: it keeps what it needs, gives up everything else, and reports.
fn close_up(
    plan: &JailPlan,
    filter: &seccomp::Filter,
    (fds, scratch): (InheritedFds, OwnedFd),
    mut steps: Steps,
) -> Result<(OwnedFd, OwnedFd), JailError> {
    // After this step only Landlock opens files, and it closes them again.
    let (stream, report, scratch) = steps.take("descriptors", || keep_only(fds, scratch))?;
    // After the file descriptors are in place, because the new limit may allow only a few.
    steps.take("limits", || privileges::limit(&plan.rlimits))?;
    steps.take("priority", || if plan.memory_counted { Ok(()) } else { privileges::yield_to_watch() })?;
    steps.take("capabilities", privileges::drop_all)?;
    // After the last change of credentials, which would clear this setting; see prctl(2), PR_SET_PDEATHSIG.
    steps.take("parent death", privileges::die_with_parent)?;
    let landlock_abi = steps.take("landlock", || landlock_wall::restrict(plan))?;
    // Last, because the filter forbids nearly every call above.
    let memory = if plan.memory_counted { seccomp::Memory::Counted } else { seccomp::Memory::Shown };
    let disk = if plan.writes_to_disk() { seccomp::Disk::Watched } else { seccomp::Disk::Limited };
    steps.take("seccomp", || filter.install(memory, disk))?;
    let built = Message::Built { steps_us: steps.taken, landlock_abi };
    report::send(report.as_fd(), &built, Some(scratch.as_fd()))
        .map_err(|error| JailError::new("report", &error))?;
    Ok((stream, report))
}

/// Called by the guest when the host has answered. It hides from its siblings, then closes the socket, which
/// tells the host to look once more before it sends a program. An error means that the host is gone or
/// refused.
pub fn accept_consent(report: OwnedFd) -> io::Result<()> {
    report::wait_for_go(report.as_fd())?;
    privileges::be_hidden_from_siblings()
}

/// Steps with their names and times.
pub(crate) struct Steps {
    last: Instant,
    taken: Vec<(String, u32)>,
}

impl Steps {
    pub(crate) fn start() -> Self {
        Self { last: Instant::now(), taken: Vec::with_capacity(16) }
    }

    pub(crate) fn taken(self) -> Vec<(String, u32)> {
        self.taken
    }

    pub(crate) fn take<T>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, JailError> {
        step::enter(name);
        let result = work().map_err(|error| JailError::new(name, &error));
        let now = Instant::now();
        let elapsed_us = now.duration_since(self.last).as_micros();
        self.taken.push((name.to_owned(), u32::try_from(elapsed_us).unwrap_or(u32::MAX)));
        self.last = now;
        result
    }
}

/// Joins the control groups that the host created and whose `tasks` files it opened, then hides their path. A
/// thread that writes 0 there moves itself, which is far cheaper than `cgroup.procs` on version 1.
fn join_groups(plan: &JailPlan, report: &OwnedFd) -> io::Result<()> {
    if plan.joins_groups {
        for file in report::wait_for_groups(report.as_fd())? {
            rustix::io::write(&file, b"0")?;
        }
    }
    sys::unshare_cgroup_namespace()
}

/// Replaces the standard streams. Those of a zygote process are pipes, which two of its clones could reopen
/// to communicate.
pub(crate) fn streams_of_its_own() -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}

fn keep_only(fds: InheritedFds, scratch: OwnedFd) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    let InheritedFds { stream, report, folders: _ } = fds;
    // Above the numbers in use, so that placing one descriptor cannot close another. The others have high
    // numbers already.
    let scratch = rustix::io::fcntl_dupfd_cloexec(scratch, 64)?;
    let stream = sys::place(stream, STREAM_FD)?;
    let report = sys::place(report, REPORT_FD)?;
    let scratch = sys::place(scratch, SCRATCH_FD)?;
    if !Wall::Descriptors.off() {
        sys::close_from(FAILURES_FD + 1)?;
    }
    Ok((stream, report, scratch))
}
