//! The sequence that raises the walls, run by the clone itself: one step per line, in the order that works.
//!
//! Called by the spawner's clone, single-threaded. When it returns, the process holds exactly two
//! descriptors beyond the standard ones (stream and report), is behind every wall, and has seen no user code;
//! the host will look at it before it sees any.
//! A step that fails is named and the process ends: there is no wall with a hole.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};

use crate::breach::Wall;
use crate::report::{JailError, Message};
use crate::root::{self, Root};
use crate::zygote::Handover;
use crate::{IdMap, JailPlan, landlock_wall, network, privileges, report, seccomp, step, sys};

/// Where the guest's stream is; the same number in every sandbox.
pub(crate) const STREAM_FD: i32 = 3;
const REPORT_FD: i32 = 4;
const SCRATCH_FD: i32 = 5;
/// Where a failing step is reported; closed by the spawner's side before the guest starts.
pub(crate) const FAILURES_FD: i32 = 6;

/// What the spawner hands to its clone.
pub(crate) struct InheritedFds {
    pub(crate) stream: OwnedFd,
    pub(crate) report: OwnedFd,
}

/// Raises every wall and reports; gives back the guest's stream and the socket for the host's consent.
pub(crate) fn raise(
    plan: &JailPlan,
    filter: &seccomp::Filter,
    fds: InheritedFds,
) -> Result<(OwnedFd, OwnedFd), JailError> {
    let mut steps = Steps::start();
    // The spawner has written the id maps: without them the kernel lets a process do nothing useful.
    // A sub-id has no right to join: then before the change of identity.
    let joins_first = matches!(plan.id_map, IdMap::Subordinate { .. });
    steps.take("cgroups", || if joins_first { join_groups(plan, &fds.report) } else { Ok(()) })?;
    // Sources may lie in a home that only the outer identity can walk into.
    let sources = steps.take("bind sources", || root::open_sources(&plan.binds))?;
    let workspace = steps.take("workspace source", || root::open_workspace(plan.workspace.as_ref()))?;
    // From here on every file made belongs to the inner user. Capabilities stay: inner root is not mapped.
    steps.take("identity", || plan.id_map.take())?;
    steps.take("visible to the host", privileges::be_visible_to_host)?;
    // A root made from nothing; only then the old one is let go.
    let root = steps.take("root", Root::new)?;
    // Before the binds: an interpreter may lie in a place that is writable inside, such as /tmp.
    let scratch = steps.take("scratch", || root.scratch(&plan.scratch))?;
    // By value, as the sources: no descriptor may outlive this and close what takes its number.
    steps.take("workspace", || workspace.map_or(Ok(()), |workspace| root.workspace(workspace)))?;
    steps.take("binds", || root.binds(sources))?;
    steps.take("files", || root.files(plan))?;
    steps.take("devices", || root.devices().and_then(|()| root.terminals()))?;
    let settings = steps.take("procfs", || root.procfs(&scratch))?;
    // The host has made the groups meanwhile; they count from here on.
    steps.take("cgroups", || if joins_first { Ok(()) } else { join_groups(plan, &fds.report) })?;
    steps.take("pivot", || root.enter())?;
    steps.take("network", || network::enter(None, &settings))?;
    drop(settings);
    steps.take("host name", || {
        if Wall::Uts.off() { Ok(()) } else { privileges::set_hostname(&plan.hostname) }
    })?;
    close_up(plan, filter, (fds, scratch), steps)
}

/// The same for a clone of a zygote: it stands in a copy of the zygote's root already, with privilege over nothing but that, and
/// what is left is to make its own what sandboxes do not share.
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
    // By value: no descriptor may outlive this and close what takes its number.
    drop((root, settings));
    steps.take("streams", streams_of_its_own)?;
    // From here on it has privilege over nothing that was there before.
    steps.take("user namespace", || plan.id_map.leave_zygote())?;
    close_up(plan, filter, (fds, scratch), steps)
}

/// What every clone does last: keeps what it needs, gives up everything else, and says so.
fn close_up(
    plan: &JailPlan,
    filter: &seccomp::Filter,
    (fds, scratch): (InheritedFds, OwnedFd),
    mut steps: Steps,
) -> Result<(OwnedFd, OwnedFd), JailError> {
    // Nothing after this opens a file but Landlock, which closes what it opens.
    let (stream, report, scratch) = steps.take("descriptors", || keep_only(fds, scratch))?;
    // After the descriptors are in place: there may be room for few.
    steps.take("limits", || privileges::limit(&plan.rlimits))?;
    steps.take("priority", || if plan.memory_counted { Ok(()) } else { privileges::yield_to_watch() })?;
    steps.take("capabilities", privileges::drop_all)?;
    // After the last change of credentials, which would clear it; see prctl(2), PR_SET_PDEATHSIG.
    steps.take("parent death", privileges::die_with_parent)?;
    let landlock_abi = steps.take("landlock", || landlock_wall::restrict(plan))?;
    // Last: the filter forbids nearly everything above.
    let memory = if plan.memory_counted { seccomp::Memory::Counted } else { seccomp::Memory::Shown };
    let disk = if plan.workspace.is_some() { seccomp::Disk::Watched } else { seccomp::Disk::Limited };
    steps.take("seccomp", || filter.install(memory, disk))?;
    let built = Message::Built { steps_us: steps.taken, landlock_abi };
    report::send(report.as_fd(), &built, Some(scratch.as_fd()))
        .map_err(|error| JailError::new("report", &error))?;
    Ok((stream, report))
}

/// The guest's answer when the host has spoken: hides from its siblings, then closes the socket, which tells
/// the host to look once more before it sends a program. An error means the host is gone or did not agree.
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

/// Joins the groups that the host made and whose `tasks` files it opened, then hides their path. A thread that
/// writes 0 there moves itself, which is far cheaper than `cgroup.procs` on version 1.
fn join_groups(plan: &JailPlan, report: &OwnedFd) -> io::Result<()> {
    if plan.joins_groups {
        for file in report::wait_for_groups(report.as_fd())? {
            rustix::io::write(&file, b"0")?;
        }
    }
    sys::unshare_cgroup_namespace()
}

/// Those of a zygote are pipes, which two of its clones could open again and speak through.
fn streams_of_its_own() -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}

fn keep_only(fds: InheritedFds, scratch: OwnedFd) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    let InheritedFds { stream, report } = fds;
    // Away from the numbers in use, so that placing one cannot close another; the others are high already.
    let scratch = rustix::io::fcntl_dupfd_cloexec(scratch, 64)?;
    let stream = sys::place(stream, STREAM_FD)?;
    let report = sys::place(report, REPORT_FD)?;
    let scratch = sys::place(scratch, SCRATCH_FD)?;
    if !Wall::Descriptors.off() {
        sys::close_from(FAILURES_FD + 1)?;
    }
    Ok((stream, report, scratch))
}
