//! Builds one sandbox with an engine: writable space, image, `create`, `start`, connection, report, examination.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::sandbox::{BackendError, Sandbox, SandboxSpec, StartPhases, WORKSPACE};
use jail::{Bind, JailPlan, Message, Wall, container_plan, container_report};
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::mount::{FsPickFlags, MountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::home::{Container, FILES, Opened, SPACE};
use super::http::CallError;
use super::request::{GUEST_AT, SOCKET_AT, Wanted};
use super::roots::RootContent;
use super::{DaemonBackend, Engine, examine};
use crate::host::{refuse_folders, workspace_of};
use crate::native::sandbox::NativeSandbox;
use crate::native::{at, micros};

/// How long the guest may take from `start` to its report.
const GUEST_PATIENCE: Duration = Duration::from_secs(15);
/// How often the engine is asked whether the container has ended, while the guest does not connect.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The terminals of a sandbox.
pub(super) const TERMINALS_MAX: &str = "16";
/// Longest line with which the guest reports.
const REPORT_BYTES_MAX: usize = 16 << 10;

/// What was made for the guest before it exists.
struct Prepared {
    plan: JailPlan,
    container: Container,
    listener: UnixListener,
    /// The writable space.
    space: OwnedFd,
}

impl DaemonBackend {
    pub(super) async fn build(&self, spec: &SandboxSpec) -> Result<NativeSandbox, BackendError> {
        let started = Instant::now();
        let mut phases = StartPhases::default();
        let opened = self.home.opened().await?;
        let mut prepared = self.prepare(spec, opened).await?;
        let base = opened.image.as_deref();
        let content = RootContent::of(&prepared.plan, base.is_none());
        let image = self.home.roots.image(&self.home.client, &self.home.server, &content, base).await;
        let image = image.map_err(|error| self.home.unreachable(error))?;
        phases.parts_us.push(("prepare", micros(started)));

        let asked = Instant::now();
        self.start(spec, &mut prepared, opened, &image).await?;
        phases.parts_us.push(("start", micros(asked)));
        let asked = Instant::now();
        let Prepared { plan, container, listener, space } = prepared;
        let stream = self.connection(&container, &listener).await?;
        // Whatever connects from now on is refused.
        drop(listener);
        let (pid, pidfd) = peer(&stream).map_err(at("peer"))?;
        let cgroups = self.local.cgroups.adopt(pid).map_err(examine::of_groups)?;
        if !Wall::Verify.off() {
            cgroups.check_asked(&spec.limits).map_err(crate::native::verify::incomplete)?;
        }
        cgroups.limit_again(&spec.limits).map_err(at("cgroup"))?;
        limit_terminals(pid).map_err(at("terminals"))?;
        // Visible inside only from now on.
        withdraw(&container, &plan).map_err(at("scratch"))?;
        let scratch = space.try_clone().map_err(at("scratch"))?;
        // From here on dropping the sandbox kills the process and removes groups and container.
        let mut sandbox = NativeSandbox::new((pid, pidfd), cgroups, spec, scratch, &self.local.deaths)?;
        sandbox.keep_container(Box::new(container));
        if let Some((path, _)) = &plan.workspace {
            sandbox.watch_workspace(path.clone());
        }
        let (stream, abi) = tell_and_hear(stream, &plan, spec).await?;
        phases.parts_us.push(("guest", micros(asked)));

        let looked = Instant::now();
        let seen = examine::Examined {
            engine: self.home.engine(),
            pid,
            plan: &plan,
            limits: &spec.limits,
            cgroups: sandbox.cgroups(),
            content: &content,
            image: base,
        };
        let enforced = seen.enforced(abi, &space)?;
        sandbox.become_ready(enforced, stream);
        if spec.workspace.is_some() {
            sandbox.measure_anew(&spec.limits, None).await;
        }
        phases.parts_us.push(("verify", micros(looked)));
        phases.parts_us.push(("total", micros(started)));
        Ok(sandbox.with_phases(phases))
    }

    /// The plan, and everything that the container will be shown.
    async fn prepare(&self, spec: &SandboxSpec, opened: &Opened) -> Result<Prepared, BackendError> {
        let local = &self.local;
        refuse_folders(spec)?;
        let number = local.made.fetch_add(1, Ordering::Relaxed);
        let workspace = workspace_of(local.workspaces.as_deref(), spec)?;
        let id_map = local.identity(spec, workspace.as_deref(), number)?;
        let container = self.home.container(number).await?;
        let mut plan = local.system.plan(spec, id_map, &local.cgroups, &Default::default());
        plan.workspace = workspace.map(|path| (path, PathBuf::from(WORKSPACE)));
        plan.files = local.system.files(spec);
        plan.linger_ms = local.deaths.linger_ms();
        if opened.image.is_some() {
            // The languages are in the image, and nothing of the host's system is shown.
            only_layers(&mut plan, spec);
        }
        let listener = listen(&container, &plan).map_err(at("socket"))?;
        name_things(&container, &mut plan).map_err(at("files"))?;
        let bind =
            |path: &Path, target: &str| Bind { path: path.into(), target: target.into(), optional: false };
        plan.binds.push(bind(&opened.guest, GUEST_AT));
        plan.binds.push(bind(&container.file("socket"), SOCKET_AT));
        if self.home.engine() == Engine::Podman {
            // Podman would mount writable memory file systems there.
            plan.binds.extend(["/run", "/var/tmp"].map(|target| bind(&opened.empty, target)));
        }
        let space = make_space(&container, &plan).map_err(at("scratch"))?;
        show_files(&container, &plan).map_err(at("workspace"))?;
        Ok(Prepared { plan, container, listener, space })
    }

    async fn start(
        &self,
        spec: &SandboxSpec,
        prepared: &mut Prepared,
        opened: &Opened,
        image: &str,
    ) -> Result<(), BackendError> {
        let (client, container) = (&self.home.client, &mut prepared.container);
        let wanted = Wanted {
            engine: self.home.engine(),
            image,
            server: &self.home.server,
            plan: &prepared.plan,
            limits: &spec.limits,
            space: &container.file(SPACE),
            files: &container.file(FILES),
            profile: &opened.profile,
            group: opened.makes_groups.then(|| self.home.groups.path()),
        };
        let request = wanted.json();
        container.is_asked_for();
        let created = client.create(&container.name, request).await;
        if !matches!(created, Err(CallError::Silent(_))) {
            container.is_answered(created.as_deref().ok());
        }
        if let Err(error) = created {
            if error.is_absent() {
                // The image was removed behind this server's back.
                self.home.roots.forget().await;
            }
            return Err(self.home.unreachable(error));
        }
        client.start(&container.name).await.map_err(|error| self.home.unreachable(error))
    }

    /// Waits until process 1 connects, or has ended.
    async fn connection(
        &self,
        container: &Container,
        listener: &UnixListener,
    ) -> Result<UnixStream, BackendError> {
        let failed = |words: String| at("guest")(io::Error::other(words));
        let deadline = Instant::now() + GUEST_PATIENCE;
        loop {
            match tokio::time::timeout(LOOK_AGAIN, listener.accept()).await {
                Ok(accepted) => return accepted.map(|(stream, _)| stream).map_err(at("socket")),
                Err(_) if Instant::now() > deadline => {
                    return Err(failed("it does not connect".to_owned()));
                }
                Err(_) => {}
            }
            let state = self.home.client.state(&container.name).await;
            let state = state.map_err(|error| self.home.unreachable(error))?;
            if !state.is_running {
                let words = format!("the container ended with {}: {}", state.exit_code, state.error);
                return Err(failed(words));
            }
        }
    }
}

/// Leaves only layers and the server's executable, for a sandbox whose system is an image.
fn only_layers(plan: &mut JailPlan, spec: &SandboxSpec) {
    let is_kept = |bind: &Bind| {
        spec.layers.iter().any(|layer| layer.target == bind.target)
            || spec.executable_at.as_ref() == Some(&bind.target)
    };
    plan.binds.retain(is_kept);
    plan.symlinks
        .retain(|(path, _)| spec.links.iter().any(|(link, _)| link == path) || path.starts_with("/mnt"));
    plan.files.retain(|file| {
        spec.files.iter().any(|placed| placed.path == file.path) || file.path == Path::new("/etc/gitconfig")
    });
}

/// Listens where only the container can reach it. The path is relative to a file descriptor, because the names of
/// sockets are short (unix(7)).
fn listen(container: &Container, plan: &JailPlan) -> io::Result<UnixListener> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&container.folder, flags, Mode::empty())?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/socket", folder.as_raw_fd()))?;
    let (uid, gid) = plan.id_map.numbers();
    chown(container.file("socket"), Some(uid), Some(gid))?;
    Ok(listener)
}

/// The files that name the user and the host. Engines would write their own; the user has the same number inside and
/// outside.
fn name_things(container: &Container, plan: &mut JailPlan) -> io::Result<()> {
    let (uid, gid) = plan.id_map.numbers();
    let host = &plan.hostname;
    let files = [
        (
            "passwd",
            format!(
                "agent:x:{uid}:{gid}:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
            ),
        ),
        ("group", format!("agent:x:{gid}:\nnogroup:x:65534:\n")),
        ("hosts", format!("127.0.0.1 localhost {host}\n::1 localhost\n")),
        ("hostname", format!("{host}\n")),
        ("resolv.conf", String::new()),
    ];
    for (name, content) in files {
        let path = container.file(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
        plan.binds.push(Bind { path, target: Path::new("/etc").join(name), optional: false });
    }
    Ok(())
}

/// One memory file system for everything writable, mounted on the host until the container has it.
fn make_space(container: &Container, plan: &JailPlan) -> io::Result<OwnedFd> {
    let place = container.file(SPACE);
    fs::create_dir(&place)?;
    let mut options = "mode=0755".to_owned();
    if !Wall::Scratch.off() {
        options.push_str(&format!(",size={},nr_inodes={}", plan.scratch.bytes, plan.scratch.inodes));
    }
    let options = std::ffi::CString::new(options)?;
    rustix::mount::mount(
        "palisade",
        &place,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )?;
    let (uid, gid) = plan.id_map.numbers();
    for (name, _, mode) in &plan.scratch.directories {
        let directory = place.join(name);
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(*mode))?;
        chown(&directory, Some(uid), Some(gid))?;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(&place, flags, Mode::empty())?)
}

/// Mounts a persistent workspace on the host until the container has it. An engine binds a directory with the flags of
/// its mount, and none of its options adds these.
fn show_files(container: &Container, plan: &JailPlan) -> io::Result<()> {
    let Some((path, _)) = &plan.workspace else { return Ok(()) };
    let place = container.file(FILES);
    fs::create_dir(&place)?;
    rustix::mount::mount_bind(path, &place)?;
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    if rustix::fs::statvfs(&place)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        flags |= MountFlags::NOEXEC;
    }
    Ok(rustix::mount::mount_remount(&place, flags, "")?)
}

/// Unmounts on the host what the container has by now.
fn withdraw(container: &Container, plan: &JailPlan) -> io::Result<()> {
    rustix::mount::unmount(container.file(SPACE), UnmountFlags::DETACH)?;
    if plan.workspace.is_some() {
        rustix::mount::unmount(container.file(FILES), UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Lets the sandbox have a few terminals. Their number is limited for the whole host, and engines mount the file system
/// of a container's terminals without a limit.
fn limit_terminals(pid: i32) -> io::Result<()> {
    let place = format!("/proc/{pid}/root/dev/pts");
    let mounted = rustix::mount::fspick(CWD, place, FsPickFlags::FSPICK_CLOEXEC)?;
    for (name, value) in [("mode", "0620"), ("ptmxmode", "0666"), ("max", TERMINALS_MAX)] {
        rustix::mount::fsconfig_set_string(mounted.as_fd(), name, value)?;
    }
    Ok(rustix::mount::fsconfig_reconfigure(mounted.as_fd())?)
}

/// The process at the other end. It is alive: it reports on this stream afterwards.
fn peer(stream: &UnixStream) -> io::Result<(i32, OwnedFd)> {
    let pid = stream.peer_cred()?.pid().ok_or(io::ErrorKind::NotFound)?;
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
    Ok((pid, rustix::process::pidfd_open(process, PidfdFlags::empty())?))
}

/// Sends the plan and the opening, and waits for the report. Returns the version of Landlock in force.
async fn tell_and_hear(
    mut stream: UnixStream,
    plan: &JailPlan,
    spec: &SandboxSpec,
) -> Result<(std::os::unix::net::UnixStream, u32), BackendError> {
    let told = container_plan(plan).map_err(at("plan"))?;
    let exchange = async {
        stream.write_all(&told).await?;
        stream.write_all(&spec.opening).await?;
        // Byte by byte: what follows the line is the guest's.
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if line.len() >= REPORT_BYTES_MAX {
                return Err(io::Error::other("its report is too long"));
            }
            line.push(stream.read_u8().await?);
        }
        Ok(line)
    };
    let late = |_| at("guest")(io::Error::from(io::ErrorKind::TimedOut));
    let line = tokio::time::timeout(GUEST_PATIENCE, exchange).await.map_err(late)?.map_err(at("guest"))?;
    match container_report(&String::from_utf8_lossy(&line)) {
        Some(Message::Built { landlock_abi, .. }) => {
            let stream = stream.into_std().map_err(at("stream"))?;
            stream.set_nonblocking(false).map_err(at("stream"))?;
            Ok((stream, landlock_abi))
        }
        Some(Message::Failed(error)) => {
            Err(BackendError::Build { step: error.step.clone(), source: error.source() })
        }
        _ => Err(at("guest")(io::Error::other("it did not report"))),
    }
}
