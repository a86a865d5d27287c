//! Both ends of a sandbox whose namespaces an OCI runtime makes.
//!
//! ```text
//! server -> stage (own mount namespace: the root, the writable space) -> becomes the runtime's `create`
//!                                       runtime: namespaces, identity -> guest: the last walls -> report
//! ```
//! [`stage`] runs outside, as root, in a process of its own. It builds the same root as a native sandbox has, in a
//! mount namespace that ends with the runtime's command, so that no mount of the host is left behind in any case.
//! [`enter_container`] runs inside, as process 1. It raises the walls that no runtime raises as strictly: limits of
//! each process, Landlock, the system-call list. The server examines the process afterwards and believes no report
//! about anything that it can observe.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, Uid};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use crate::breach::Wall;
use crate::raise::{STREAM_FD, Steps, streams_of_its_own};
use crate::report::{JailError, Message};
use crate::root::{self, Root};
use crate::{JailPlan, landlock_wall, privileges, seccomp, sys};

/// The first argument of the process that stages, followed by the path of a [`Stage`] and the command to become.
pub const STAGE_ROLE: &str = "palisade-stage";
/// The first argument of process 1.
pub const GUEST_ROLE: &str = "palisade-guest";
/// Longest plan that process 1 reads from its stream.
pub const CONTAINER_PLAN_BYTES_MAX: usize = 1 << 20;
/// Begins the line with which process 1 reports. Other lines come from the runtime.
pub const REPORT_MARK: &str = "palisade-report ";
/// Permission bits that no file loses when it is created.
const UMASK: u32 = 0o022;

/// The kernel that process 1 runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// The host's.
    Host,
    /// One between the sandbox and the host's: gVisor.
    Own,
}

impl Kernel {
    /// The second argument of process 1.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host-kernel",
            Self::Own => "own-kernel",
        }
    }

    /// The kernel with that name; the host's, on which everything is required, if it is unknown.
    pub fn from_name(name: &str) -> Self {
        if name == Self::Own.name() { Self::Own } else { Self::Host }
    }
}

/// What a process prepares in a mount namespace of its own before it becomes the runtime.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stage {
    /// The root of the container, for the command that creates one.
    pub root: Option<StagedRoot>,
    /// Mount points that the runtime must not see.
    pub hide: Vec<PathBuf>,
    /// Directories to show in place of others: source and place.
    pub show: Vec<(PathBuf, PathBuf)>,
}

/// A root to build.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StagedRoot {
    /// What it shows.
    pub plan: JailPlan,
    /// An existing directory at which it is attached.
    pub at: PathBuf,
    /// Another one, for the writable space.
    pub scratch_at: PathBuf,
}

/// Prepares the mounts, in a new mount namespace. The caller then executes the runtime.
pub fn stage(stage: &Stage) -> Result<(), JailError> {
    let mut steps = Steps::start();
    // Kept over execve(2): a runtime that outlives its server would finish a container that the next server has swept.
    steps.take("parent death", privileges::die_with_parent)?;
    // Inherited by gVisor's processes, which outlive the runtime's command: a crash starts no handler of the host.
    steps.take("limits", privileges::leave_no_core)?;
    steps.take("mount namespace", sys::unshare_mount_namespace)?;
    steps.take("mount namespace", || {
        Ok(rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
    })?;
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    if let Some(staged) = &stage.root {
        build(staged, &mut steps)?;
    }
    steps.take("cgroup mounts", || {
        stage.hide.iter().try_for_each(|place| Ok(rustix::mount::unmount(place, UnmountFlags::DETACH)?))
    })?;
    steps.take("cgroup mounts", || {
        let mut pairs = stage.show.iter();
        pairs.try_for_each(|(source, place)| Ok(rustix::mount::mount_bind(source, place)?))
    })
}

fn build(staged: &StagedRoot, steps: &mut Steps) -> Result<(), JailError> {
    let plan = &staged.plan;
    // By file descriptor, before anything is attached: a source may lie beneath one of these directories.
    let sources = steps.take("bind sources", || root::open_sources(&plan.binds))?;
    let workspace = steps.take("workspace source", || root::open_workspace(plan.workspace.as_ref()))?;
    let root = steps.take("root", || Root::attached_at(&staged.at, &staged.scratch_at))?;
    let scratch = steps.take("scratch", || root.scratch(&plan.scratch))?;
    steps.take("scratch", || give_away(plan, &scratch))?;
    steps.take("workspace", || workspace.map_or(Ok(()), |workspace| root.workspace(workspace)))?;
    steps.take("binds", || root.binds(sources))?;
    steps.take("files", || root.files(plan))?;
    // The runtime mounts procfs and terminals itself: they belong to namespaces that do not exist yet.
    steps.take("devices", || root.devices().and_then(|()| root.directories(Path::new("proc"))))?;
    steps.take("root", || sys::set_root_readonly(root.descriptor.as_fd()))
}

/// The directories of the writable space belong to the user of the sandbox.
fn give_away(plan: &JailPlan, scratch: &OwnedFd) -> io::Result<()> {
    let (uid, gid) = plan.id_map.numbers();
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    for (name, ..) in &plan.scratch.directories {
        rustix::fs::chownat(scratch, name.as_str(), owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// The plan as bytes that begin the stream to process 1.
pub fn container_plan(plan: &JailPlan) -> io::Result<Vec<u8>> {
    // Process 1 needs no path of the host.
    let workspace = plan.workspace.as_ref().map(|(_, inside)| (PathBuf::new(), inside.clone()));
    let told =
        JailPlan { binds: Vec::new(), symlinks: Vec::new(), files: Vec::new(), workspace, ..plan.clone() };
    let bytes = postcard::to_stdvec(&told).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    Ok([&length.to_le_bytes()[..], &bytes].concat())
}

/// Connects to a listening socket of the server and uses the connection as standard input and standard error, for
/// containers whose standard streams lead to a daemon.
pub fn meet_host(socket: &Path) -> io::Result<()> {
    let stream = std::os::unix::net::UnixStream::connect(socket)?;
    rustix::stdio::dup2_stdin(&stream)?;
    Ok(rustix::stdio::dup2_stderr(&stream)?)
}

/// Called by process 1 of a container before anything else. Its standard input is the stream to the host, its standard
/// error takes the report. Raises the last walls, and returns the stream and the plan.
pub fn enter_container(kernel: Kernel) -> Option<(OwnedFd, JailPlan)> {
    sys::reset_signals();
    sys::scrub_start();
    let entered = enter(kernel);
    let message = match &entered {
        Ok((_, _, built)) => built.clone(),
        Err(error) => Message::Failed(error.clone()),
    };
    let told = tell(&message).and_then(|()| streams_of_its_own());
    told.ok().and(entered.ok()).map(|(stream, plan, _)| (stream, plan))
}

fn enter(kernel: Kernel) -> Result<(OwnedFd, JailPlan, Message), JailError> {
    let mut steps = Steps::start();
    let plan = steps.take("plan", read_plan)?;
    let stream = steps.take("descriptors", || {
        let stream = sys::place(rustix::io::fcntl_dupfd_cloexec(io::stdin(), 64)?, STREAM_FD)?;
        // A runtime may leave file descriptors of the host open (CVE-2024-21626).
        if !Wall::Descriptors.off() {
            sys::close_from(STREAM_FD + 1)?;
        }
        Ok(stream)
    })?;
    steps.take("limits", || privileges::limit_on(kernel, &plan.rlimits))?;
    steps.take("priority", || if plan.memory_counted { Ok(()) } else { privileges::yield_to_watch() })?;
    steps.take("capabilities", privileges::have_none)?;
    let landlock_abi = steps.take("landlock", || landlock_wall::restrict(&plan))?;
    steps.take("hidden", privileges::be_hidden_from_siblings)?;
    let memory = if plan.memory_counted { seccomp::Memory::Counted } else { seccomp::Memory::Shown };
    let disk = if plan.workspace.is_some() { seccomp::Disk::Watched } else { seccomp::Disk::Limited };
    // Last, because the filter forbids nearly every call above.
    steps.take("seccomp", || seccomp::Filter::compile().install(memory, disk))?;
    let built = Message::Built { steps_us: steps.taken(), landlock_abi };
    Ok((stream, plan, built))
}

fn read_plan() -> io::Result<JailPlan> {
    // Not buffered: what follows on the stream is for the guest.
    let mut stream = std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(io::stdin(), 64)?);
    let mut length = [0_u8; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > CONTAINER_PLAN_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// Sends a report as one line.
fn tell(message: &Message) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut line = String::from(REPORT_MARK);
    for byte in bytes {
        line.push_str(&format!("{byte:02x}"));
    }
    line.push('\n');
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(io::stderr(), rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// The report in a line of process 1's standard error; `None` for other lines.
pub fn container_report(line: &str) -> Option<Message> {
    let hex = line.strip_prefix(REPORT_MARK)?.trim_end();
    let pair = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(pair).collect();
    postcard::from_bytes(&bytes?).ok()
}

/// The end of process 1: it stays for the time of its plan, as a native guest does.
pub fn leave_container(plan: &JailPlan, status: i32) -> ! {
    crate::spawner::leave(plan, status)
}

/// A stage as bytes for the process that stages.
pub fn encode_stage(stage: &Stage) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(stage).map_err(io::Error::other)
}

/// Reads such bytes and prepares what they describe.
pub fn stage_from(bytes: &[u8]) -> Result<(), JailError> {
    let read = postcard::from_bytes(bytes).map_err(io::Error::other);
    stage(&read.map_err(|error| JailError::new("plan", &error))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_found_among_the_words_of_a_runtime() {
        let message = Message::Built { steps_us: vec![("landlock".to_owned(), 7)], landlock_abi: 6 };
        let bytes = postcard::to_stdvec(&message).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(container_report(&format!("{REPORT_MARK}{hex}\n")), Some(message));
        for other in
            ["runc create failed", "palisade-report", "palisade-report zz", "palisade-report \u{1f980}"]
        {
            assert_eq!(container_report(other), None, "{other}");
        }
    }
}
