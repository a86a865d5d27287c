//! Builds one sandbox, on the host's side: control groups, plan, spawner, report, examination from outside,
//! consent.
//!
//! [`NativeBackend`] calls it for every sandbox. The clone's side is `jail::raise`.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::sandbox::{BackendError, Sandbox, SandboxSpec, StartPhases, WORKSPACE};
use jail::{Handover, IdMap, JailPlan, Message, Spawner, Wall, ZygotePlan};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::CgroupSet;
use super::deaths::Deaths;
use super::network::Network;
use super::progress::{Progress, Stage};
use super::sandbox::NativeSandbox;
use super::zygotes::RunningZygote;
use super::{NativeBackend, at, kernel_file, micros, plan, verify, watched};
use crate::host::workspace_of;

/// Building takes milliseconds. A machine that needs longer than this is overloaded.
const BUILD_PATIENCE: Duration = Duration::from_secs(5);
/// A clone is ready in milliseconds. A zygote process that needs longer than this is given up.
const ZYGOTE_PATIENCE: Duration = Duration::from_secs(3);

impl NativeBackend {
    /// Builds one sandbox: as a clone of a zygote process if there is one, else from scratch.
    pub(super) async fn build(&self, spec: &SandboxSpec) -> Result<NativeSandbox, BackendError> {
        if let Some(zygote) = self.zygote_for(spec) {
            match self.clone_from(spec, &zygote).await {
                Ok(sandbox) => {
                    self.zygotes.praise(&zygote);
                    return Ok(sandbox);
                }
                Err(error) => self.zygotes.discard(&zygote, &error),
            }
        }
        self.raise_in_time(spec).await
    }

    /// Builds from scratch, within [`BUILD_PATIENCE`]. The error of a late build names its current step.
    async fn raise_in_time(&self, spec: &SandboxSpec) -> Result<NativeSandbox, BackendError> {
        let progress = Progress::default();
        let raised = self.raise(spec, None, &progress);
        tokio::pin!(raised);
        tokio::select! {
            biased;
            raised = &mut raised => raised,
            // Before the clone is dropped, because its state can be read only until then.
            () = tokio::time::sleep(BUILD_PATIENCE) => {
                Err(progress.late(self.spawner.pid().as_raw_nonzero().get(), BUILD_PATIENCE))
            }
        }
    }

    /// Clones a zygote process. If that fails in any way, including a missing answer, the sandbox is built
    /// without the zygote.
    async fn clone_from(
        &self,
        spec: &SandboxSpec,
        zygote: &Arc<RunningZygote>,
    ) -> Result<NativeSandbox, BackendError> {
        let used_again = zygote.networks.take();
        let is_used_again = used_again.is_some();
        let origin = Origin { zygote, network: used_again };
        // Whatever the zygote process fails to do, the sandbox is built without it, so the step does not
        // matter.
        let progress = Progress::default();
        let late = |_| at("zygote")(io::Error::from(io::ErrorKind::TimedOut));
        match tokio::time::timeout(ZYGOTE_PATIENCE, self.raise(spec, Some(origin), &progress)).await {
            Ok(Err(error)) if is_used_again => {
                tracing::debug!(reason = %error, "network_not_used_again");
                // The failure may come from the previous use of that network namespace: retry once with a new
                // one.
                zygote.networks.forget();
                let origin = Origin { zygote, network: None };
                let again = tokio::time::timeout(ZYGOTE_PATIENCE, self.raise(spec, Some(origin), &progress));
                again.await.map_err(late)?
            }
            built => built.map_err(late)?,
        }
    }

    fn zygote_for(&self, spec: &SandboxSpec) -> Option<Arc<RunningZygote>> {
        if plan::overlaps_writable(spec) || !spec.folders.is_empty() {
            return None;
        }
        self.zygotes.ready(spec, |zygote| {
            let ids = self.identities.of_zygote(spec.workspace.is_some());
            let mut wall =
                self.system.plan(spec, IdMap::Unused { id: 0 }, &self.cgroups, &CgroupSet::default());
            wall.files = self.system.files(spec);
            // Where the server can hand over a mount, the zygote process need not see any workspace.
            let workspaces = self.workspaces.as_ref();
            let workspaces = workspaces.filter(|_| spec.workspace.is_some() && !self.identities.are_unused());
            let workspaces = workspaces.map(|workspaces| workspaces.folder().to_owned());
            ZygotePlan { wall, ids, workspaces, argv: zygote.argv.clone(), env: zygote.env.clone() }
        })
    }

    async fn raise(
        &self,
        spec: &SandboxSpec,
        mut origin: Option<Origin<'_>>,
        progress: &Progress,
    ) -> Result<NativeSandbox, BackendError> {
        let started = Instant::now();
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut cgroups = self.cgroups.create(number, &spec.limits).map_err(at("cgroup"))?;
        let workspace = workspace_of(self.workspaces.as_deref(), spec)?;
        let zygote = origin.as_ref().map(|origin| &**origin.zygote);
        let plan = self.plan((spec, workspace.as_deref()), number, zygote, &cgroups)?;
        let (mut stream, theirs) = UnixStream::pair().map_err(at("stream"))?;
        stream.write_all(&spec.opening).map_err(at("opening"))?;
        let (report, report_theirs) = report_pair().map_err(at("report"))?;
        match &origin {
            None => self.spawner.spawn(&plan, OwnedFd::from(theirs), report_theirs).map_err(at("spawner"))?,
            Some(Origin { zygote, network }) => {
                let mount = self.hand_over(workspace.as_deref()).map_err(at("workspace"))?;
                let handover =
                    Handover { workspace: mount.as_ref(), network: network.as_ref().map(Network::namespace) };
                zygote
                    .handle
                    .spawn(&plan, &OwnedFd::from(theirs), &report_theirs, handover)
                    .map_err(at("zygote"))?;
                drop(report_theirs);
            }
        }
        // Cloning takes a while. Meanwhile the server creates the control groups that the clone will join.
        let asked = Instant::now();
        let mut phases = StartPhases::default();
        let deaths = Arc::clone(&self.deaths);
        let mut wait = Building {
            report,
            stream,
            cgroups: None,
            process: Unfinished(None),
            progress,
            deaths,
            workspace,
            spawner: Arc::clone(&self.spawner),
        };
        if plan.joins_groups {
            self.cgroups.complete(&mut cgroups, number, &spec.limits).map_err(at("cgroup"))?;
            if origin.is_some() && cgroups.unified_directory().is_some() {
                // A zygote process has no right to clone directly into this group.
                cgroups.move_in(wait.until_cloned(&mut phases).await?).map_err(at("cgroup"))?;
            }
            jail::send_groups(wait.report.get_ref(), &cgroups.open_tasks().map_err(at("cgroup tasks"))?)
                .map_err(at("groups"))?;
        }
        wait.cgroups = Some(cgroups);
        phases.parts_us.push(("cgroups", micros(asked)));
        let built = wait.until_built(&mut phases).await?;
        let looked = Instant::now();
        let mut sandbox = wait.finish(spec, &plan, built, origin.as_mut()).await?;
        if spec.workspace.is_none() {
            sandbox.prepare_end(origin.map(|origin| (origin.zygote, origin.network)));
        }
        phases.parts_us.push(("verify", micros(looked)));
        phases.parts_us.push(("total", micros(started)));
        Ok(sandbox.with_phases(phases))
    }

    /// The mount of a persistent workspace, for a clone of a zygote process. The server does this as root,
    /// whose directories no zygote process can traverse.
    fn hand_over(&self, workspace: Option<&Path>) -> io::Result<Option<OwnedFd>> {
        let Some(path) = workspace.filter(|_| self.identities.are_unused()) else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        let copied =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        Ok(Some(rustix::mount::open_tree(&directory, "", copied)?))
    }

    fn plan(
        &self,
        (spec, workspace): (&SandboxSpec, Option<&Path>),
        number: u64,
        zygote: Option<&RunningZygote>,
        cgroups: &CgroupSet,
    ) -> Result<JailPlan, BackendError> {
        let id_map = match spec.workspace.as_ref().zip(workspace) {
            Some((of, path)) => {
                let adopted = self.workspaces.as_ref().map_or(Ok(()), |all| all.adopt(of, path));
                adopted.map_err(at("workspace"))?;
                self.identities.lasting(of.identity)
            }
            // An ordinary user's directories are reached with that user's own id.
            None if !spec.folders.is_empty() && !self.identities.are_unused() => self.identities.lasting(0),
            None => self.identities.next(number),
        };
        let mut plan = self.system.plan(spec, id_map, &self.cgroups, cgroups);
        plan.workspace = workspace.map(|path| (path.to_owned(), PathBuf::from(WORKSPACE)));
        plan.linger_ms = self.deaths.linger_ms();
        match zygote {
            Some(zygote) => zygote.suit(&mut plan).map_err(at("zygote"))?,
            None => plan.files = self.system.files(spec),
        }
        Ok(plan)
    }
}

/// The zygote that a sandbox is cloned from, and the network namespace of an earlier clone that it reuses.
struct Origin<'a> {
    zygote: &'a Arc<RunningZygote>,
    network: Option<Network>,
}

impl Origin<'_> {
    /// A reused network namespace must look like a new one. The clone may have replaced the given namespace
    /// with a new one.
    fn verify_network(&mut self, pid: i32) -> Result<(), BackendError> {
        let unread = |error: io::Error| verify::incomplete(format!("its network cannot be read: {error}"));
        let Some(network) = &mut self.network else { return Ok(()) };
        if !network.is_of(pid).map_err(unread)? {
            *network = Network::of(pid).map_err(unread)?;
        }
        if Wall::Verify.off() || self.zygote.networks.is_as_new(network).map_err(unread)? {
            Ok(())
        } else {
            Err(verify::incomplete("something happened in its network before".to_owned()))
        }
    }
}

/// A process whose walls are being raised. Dropping it at any point leaves nothing behind.
struct Building<'a> {
    report: AsyncFd<OwnedFd>,
    /// The stream to the guest.
    stream: UnixStream,
    cgroups: Option<CgroupSet>,
    process: Unfinished,
    progress: &'a Progress,
    deaths: Arc<Deaths>,
    /// The directory of the workspace, if its files last.
    workspace: Option<PathBuf>,
    spawner: Arc<Spawner>,
}

/// A clone that is not a sandbox yet. Dropping it kills the process, because a hanging clone would not notice
/// that it is abandoned.
struct Unfinished(Option<(i32, OwnedFd)>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some((_, pidfd)) = &self.0 {
            // The process may have ended by itself.
            rustix::process::pidfd_send_signal(pidfd, Signal::KILL).ok();
        }
    }
}

/// What the jail reported when it was complete.
struct Built {
    landlock_abi: u32,
    scratch: OwnedFd,
}

impl Building<'_> {
    /// Waits for the clone; returns its process number.
    async fn until_cloned(&mut self, phases: &mut StartPhases) -> Result<i32, BackendError> {
        match self.next_message().await? {
            Some((Message::Cloned { clone_us }, Some(pidfd))) => self.is_cloned(pidfd, clone_us, phases),
            Some((Message::Failed(error), _)) => Err(plan::explain(&error)),
            _ => Err(at("report")(io::Error::from(io::ErrorKind::UnexpectedEof))),
        }
    }

    fn is_cloned(
        &mut self,
        pidfd: OwnedFd,
        clone_us: u32,
        phases: &mut StartPhases,
    ) -> Result<i32, BackendError> {
        // In the server's own process namespace, whichever namespace the cloning process is in.
        let pid = number_of(&pidfd).map_err(at("pidfd"))?;
        self.process = Unfinished(Some((pid, pidfd)));
        self.progress.is_cloned(pid);
        phases.parts_us.push(("clone", u64::from(clone_us)));
        Ok(pid)
    }

    /// A clone and the process that made it send on the same socket, in any order.
    async fn until_built(&mut self, phases: &mut StartPhases) -> Result<Built, BackendError> {
        let mut built = None;
        loop {
            if let Some(built) = built.take_if(|_| self.process.0.is_some()) {
                return Ok(built);
            }
            match self.next_message().await? {
                Some((Message::Cloned { clone_us }, Some(pidfd))) => {
                    self.is_cloned(pidfd, clone_us, phases)?;
                }
                Some((Message::Built { steps_us, landlock_abi }, Some(scratch))) => {
                    for (name, us) in steps_us {
                        add_step(phases, &name, us);
                    }
                    built = Some(Built { landlock_abi, scratch });
                }
                Some((Message::Failed(error), _)) => return Err(plan::explain(&error)),
                _ => return Err(at("report")(io::Error::from(io::ErrorKind::UnexpectedEof))),
            }
        }
    }

    async fn next_message(&self) -> Result<Option<(Message, Option<OwnedFd>)>, BackendError> {
        self.report
            .async_io(Interest::READABLE, |socket| jail::receive(socket.as_fd()))
            .await
            .map_err(at("report"))
    }

    /// Examines the process from outside, consents, and examines it once more.
    async fn finish(
        mut self,
        spec: &SandboxSpec,
        plan: &jail::JailPlan,
        built: Built,
        origin: Option<&mut Origin<'_>>,
    ) -> Result<NativeSandbox, BackendError> {
        let missing = || at("report")(io::Error::from(io::ErrorKind::UnexpectedEof));
        let (pid, pidfd) = self.process.0.take().ok_or_else(missing)?;
        let cgroups = self.cgroups.take().ok_or_else(missing)?;
        self.progress.reach(Stage::Verification);
        // From here on dropping the sandbox kills the process and removes the control groups.
        let mut sandbox = NativeSandbox::new((pid, pidfd), cgroups, spec, built.scratch, &self.deaths)?;
        if let Some(path) = self.workspace.take() {
            sandbox.watch_workspace(path);
        }
        let seen =
            verify::Seen { pid, plan, limits: &spec.limits, cgroups: sandbox.cgroups(), setup_id: None };
        let enforced = seen.enforced(built.landlock_abi)?;
        if !spec.attach_points.is_empty() {
            // Before the process hides: afterwards an ordinary user has no access to its namespaces.
            sandbox.allow_attaching(spec, &self.spawner).map_err(at("mounts"))?;
        }
        origin.map_or(Ok(()), |origin| origin.verify_network(pid))?;
        self.progress.reach(Stage::Consent);
        jail::send_go(self.report.get_ref()).map_err(at("consent"))?;
        // The jail closes its end once it is hidden from its siblings.
        match self.next_message().await? {
            None => verify::is_hidden(pid, 0)?,
            Some((Message::Failed(error), _)) => return Err(plan::explain(&error)),
            Some(_) => return Err(missing()),
        }
        sandbox.become_ready(enforced, self.stream);
        if spec.workspace.is_some() {
            // Before a program is sent, so that everything the program writes is attributed to it.
            sandbox.measure_anew(&spec.limits, None).await;
        }
        Ok(sandbox)
    }
}

fn add_step(phases: &mut StartPhases, name: &str, us: u32) {
    /// Steps that are reported individually; the remaining small ones are summed up.
    const NAMED: [&str; 9] =
        ["root", "binds", "files", "devices", "scratch", "procfs", "pivot", "landlock", "seccomp"];
    let name = NAMED.into_iter().find(|named| *named == name).unwrap_or("other steps");
    match phases.parts_us.iter_mut().find(|(known, _)| *known == name) {
        Some((_, sum)) => *sum += u64::from(us),
        None => phases.parts_us.push((name, u64::from(us))),
    }
}

/// The number of a process in the server's process namespace. See pidfd_open(2) and proc(5), fdinfo.
pub(super) fn number_of(pidfd: &OwnedFd) -> io::Result<i32> {
    let text = kernel_file::read(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
    number.filter(|number| *number > 0).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

pub(super) fn report_pair() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((watched(ours)?, theirs))
}
