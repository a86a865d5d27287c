//! One native sandbox: its process, its control groups, and how it ends.
//!
//! `build` makes it after the examination from outside, and the engine uses it through the trait [`Sandbox`].
//! Dropping it kills every process in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::sandbox::{
    BackendError, BoxFuture, DiskHeld, Ending, Enforced, FailureKind, Layer, Limits, Sandbox, SandboxSpec,
    StartPhases, Usage, Warmable,
};
use jail::Spawner;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use tokio::io::unix::AsyncFd;

use super::attach::{Attaching, attach};
use super::cgroup::CgroupSet;
use super::deaths::{Deaths, Mortal};
use super::inhabitants::Inhabitants;
use super::lease::Change;
use super::nameless::Holders;
use super::network::Network;
use super::watch::Watch;
use super::zygotes::RunningZygote;
use super::{at, quiescence, watched};

/// How long to wait for killed processes after dropping; the kernel needs well under a millisecond.
const DROP_PATIENCE: Duration = Duration::from_secs(5);
const DESTROY_PATIENCE: Duration = Duration::from_secs(20);

/// A process tree isolated by the native backend.
pub(crate) struct NativeSandbox {
    process: AsyncFd<OwnedFd>,
    cgroups: CgroupSet,
    watch: Watch,
    enforced: Enforced,
    phases: StartPhases,
    stream: Option<UnixStream>,
    /// The limits that the kernel has.
    limits: Limits,
    /// The higher limits that its processes still have if it is a spare.
    headroom: Option<Limits>,
    namespaces: Option<Held>,
    /// What a container runtime keeps for it, which removes itself when it is dropped.
    container: Option<Box<dyn Send + Sync>>,
    /// The process that opens files for a kernel of its own, if one is between its programs and the host.
    gofer: Option<Gofer>,
    /// Its processes, if it is a spare.
    inhabitants: Inhabitants,
    /// The usage, once nothing runs in it any more.
    used: Option<Usage>,
    /// Whether everything in it is dead, and its remains were passed on.
    is_dead: bool,
    /// Its permit to die; returned when it is dead.
    mortal: Option<Mortal>,
    /// What attaches layers to it, if it has places for them.
    attaching: Option<Attaching>,
}

/// A process that opens files for gVisor's kernel. It is in no process namespace of the sandbox, so it does not die with
/// process 1, and a request that it has read may still change a file.
struct Gofer {
    pid: i32,
    process: AsyncFd<OwnedFd>,
}

/// What a sandbox leaves in the kernel.
struct Remains {
    cgroups: CgroupSet,
    namespaces: Option<Held>,
    /// The mount namespace, if layers could be attached.
    mounts: Option<OwnedFd>,
    /// Dropped when the processes are dead.
    _container: Option<Box<dyn Send + Sync>>,
}

impl Remains {
    /// Removes everything, whatever became of the processes.
    fn remove(mut self) {
        let mut namespaces = self.namespaces.take().map(Held::end).unwrap_or_default();
        namespaces.extend(self.mounts.take());
        self.cgroups.remove(namespaces);
    }

    /// Called when the processes are dead and their usage is known. Other sandboxes may reuse what is as good
    /// as new. This does not apply to a persistent sandbox, because only the usage of its last run is known.
    fn retire(mut self, usage: &Usage, limits: &Limits) {
        match self.namespaces.take() {
            Some(held) => {
                let namespaces = held.let_go().into_iter().chain(self.mounts.take()).collect();
                self.cgroups.retire(usage, limits, namespaces);
            }
            None => self.remove(),
        }
    }
}

/// Namespaces that are held open until the answer is sent. The kernel takes long to remove them, and would
/// otherwise do so while the server waits for the last process.
struct Held {
    mounts: OwnedFd,
    network: HeldNetwork,
}

enum HeldNetwork {
    Alone(OwnedFd),
    /// Of a clone of that zygote, whose other clones may reuse it.
    OfZygote(Box<Network>, Weak<RunningZygote>),
}

/// The zygote that a sandbox was cloned from, and the network namespace of an earlier clone, if it reuses
/// one.
pub(super) type Descent<'a> = (&'a Arc<RunningZygote>, Option<Network>);

impl Held {
    fn open(pid: i32, descent: Option<Descent<'_>>) -> io::Result<Self> {
        let open = |name: &str| std::fs::File::open(format!("/proc/{pid}/ns/{name}")).map(OwnedFd::from);
        let network = match descent {
            None => HeldNetwork::Alone(open("net")?),
            Some((zygote, used_again)) => {
                let network = used_again.map_or_else(|| Network::of(pid), Ok)?;
                zygote.networks.learn(&network)?;
                HeldNetwork::OfZygote(Box::new(network), Arc::downgrade(zygote))
            }
        };
        Ok(Self { mounts: open("mnt")?, network })
    }

    /// All processes in them are dead, and the namespaces will not be reused.
    fn end(self) -> Vec<OwnedFd> {
        let network = match self.network {
            HeldNetwork::Alone(namespace) => namespace,
            HeldNetwork::OfZygote(network, _) => network.into_namespace(),
        };
        vec![network, self.mounts]
    }

    /// All processes in them are dead; the network namespace may be reused.
    fn let_go(self) -> Vec<OwnedFd> {
        let Self { mounts, network } = self;
        let left = match network {
            HeldNetwork::OfZygote(network, zygote) => match zygote.upgrade() {
                Some(zygote) => zygote.networks.put(*network).map(Network::into_namespace),
                None => Some(network.into_namespace()),
            },
            HeldNetwork::Alone(namespace) => Some(namespace),
        };
        left.into_iter().chain([mounts]).collect()
    }
}

impl NativeSandbox {
    pub(crate) fn new(
        (pid, pidfd): (i32, OwnedFd),
        cgroups: CgroupSet,
        spec: &SandboxSpec,
        scratch: OwnedFd,
        deaths: &Arc<Deaths>,
    ) -> Result<Self, BackendError> {
        Ok(Self {
            process: watched(pidfd).map_err(at("pidfd"))?,
            cgroups,
            watch: Watch::new(pid, spec, scratch),
            enforced: Enforced::default(),
            phases: StartPhases::default(),
            stream: None,
            limits: spec.limits.clone(),
            headroom: spec.headroom.clone(),
            namespaces: None,
            container: None,
            gofer: None,
            inhabitants: Inhabitants::default(),
            used: None,
            is_dead: false,
            mortal: Some(Mortal::new(deaths)),
            attaching: None,
        })
    }

    /// Keeps what a container runtime has for the sandbox until its processes are dead.
    pub(crate) fn keep_container(&mut self, container: Box<dyn Send + Sync>) {
        self.container = Some(container);
        self.cgroups.open_files();
    }

    /// Its programs run on a kernel of their own, for which that process opens files.
    pub(crate) fn note_kernel(&mut self, (pid, pidfd): (i32, OwnedFd)) -> Result<(), BackendError> {
        self.watch.note_kernel();
        self.gofer = Some(Gofer { pid, process: watched(pidfd).map_err(at("pidfd"))? });
        Ok(())
    }

    /// Watches how much a workspace on disk holds.
    pub(crate) fn watch_workspace(&mut self, path: PathBuf) {
        let sentry = self.watch.watched().0;
        let holders = match &self.gofer {
            None => Holders::Programs { first: sentry },
            Some(gofer) => Holders::Kernel { sentry, gofer: gofer.pid },
        };
        self.watch.add_workspace(path, holders);
    }

    /// Prepares for layers that are attached later.
    pub(crate) fn allow_attaching(&mut self, spec: &SandboxSpec, spawner: &Arc<Spawner>) -> io::Result<()> {
        self.attaching = Some(Attaching::new(self.watch.watched().0, spec, spawner)?);
        Ok(())
    }

    pub(crate) fn cgroups(&self) -> &CgroupSet {
        &self.cgroups
    }

    pub(crate) fn become_ready(&mut self, enforced: Enforced, stream: UnixStream) {
        self.enforced = enforced;
        self.stream = Some(stream);
    }

    pub(crate) fn with_phases(mut self, phases: StartPhases) -> Self {
        self.phases = phases;
        self
    }

    /// Acquires what the end of the sandbox will need, for a sandbox that will end soon. A failure here only
    /// costs a little time later.
    pub(super) fn prepare_end(&mut self, descent: Option<Descent<'_>>) {
        let held = Held::open(self.watch.watched().0, descent);
        self.namespaces =
            held.inspect_err(|error| tracing::debug!(reason = %error, "namespaces_not_held")).ok();
        self.cgroups.open_files();
    }

    /// Killing process 1 of a process namespace kills all of it in one step. See pid_namespaces(7).
    fn kill(&self) -> io::Result<()> {
        self.processes().try_for_each(|process| {
            match rustix::process::pidfd_send_signal(process.get_ref(), Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Those whose death is the end of everything in it, process 1 first.
    fn processes(&self) -> impl Iterator<Item = &AsyncFd<OwnedFd>> {
        std::iter::once(&self.process).chain(self.gofer.iter().map(|gofer| &gofer.process))
    }

    fn take_remains(&mut self) -> Remains {
        let mounts = self.attaching.take().map(Attaching::into_mounts);
        let (cgroups, namespaces) = (std::mem::take(&mut self.cgroups), self.namespaces.take());
        Remains { cgroups, namespaces, mounts, _container: self.container.take() }
    }

    async fn be_leased(&mut self, limits: &Limits) -> Result<(), BackendError> {
        let (pid, scratch) = self.watch.watched();
        let change = Change {
            pid,
            process: self.process.get_ref().as_fd(),
            scratch,
            cgroups: &self.cgroups,
            known: &self.inhabitants,
            from: &self.limits,
            headroom: self.headroom.as_ref(),
            to: limits,
            has_kernel: self.gofer.is_some(),
        };
        change.make()?;
        self.limits = limits.clone();
        // Once lowered, they cannot be raised again.
        self.headroom = None;
        self.watch.begin_first(limits, &self.cgroups).await;
        Ok(())
    }

    /// Reports the failure here and not in the engine, which sends its answer whatever becomes of the
    /// sandbox.
    fn tell(&self, ended: &Result<Usage, BackendError>) {
        // A dead sandbox has returned its permit.
        let (Err(error), Some(mortal)) = (ended, &self.mortal) else { return };
        mortal.failures().report(FailureKind::Destroy, "sandbox", error);
    }

    async fn begin_end(&mut self) -> Result<(), BackendError> {
        // Usage that no control group counts can be read only while the processes exist.
        self.watch.last_look(&self.cgroups);
        // The guest kills every program when its stream ends.
        self.stream = None;
        if let Some(mortal) = &mut self.mortal {
            mortal.take_turn().await;
        }
        self.kill().map_err(at("kill"))
    }

    /// Kills, and waits until nothing runs any more; if that cannot be observed, until everything is dead.
    async fn end_programs(&mut self) -> Result<Usage, BackendError> {
        if let Some(usage) = self.used {
            return Ok(usage);
        }
        self.begin_end().await?;
        if !self.cgroups.count_everything() {
            return self.end().await;
        }
        let mut usage = self.watch.usage(&self.cgroups);
        self.limits.processes = 0;
        let process_1 = self.watch.watched().0;
        let is_quiet_now = self.cgroups.forbid_births(&self.limits).is_ok()
            && quiescence::is_quiesced(&self.cgroups, &self.inhabitants, process_1).await.unwrap_or(false);
        if !is_quiet_now {
            // Refusals since then come from the lowered limit of the server, not from the program.
            usage = Usage { process_refusals: usage.process_refusals, ..self.end().await? };
        }
        self.used = Some(usage);
        Ok(usage)
    }

    async fn end(&mut self) -> Result<Usage, BackendError> {
        if let Some(usage) = self.used.filter(|_| self.is_dead) {
            return Ok(usage);
        }
        self.begin_end().await?;
        // Process 1 is reported dead only when everything in its namespace is dead.
        for process in self.processes() {
            match tokio::time::timeout(DESTROY_PATIENCE, process.readable()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(at("wait")(error)),
                Err(_) => return Err(at("wait")(io::Error::from(io::ErrorKind::TimedOut))),
            }
        }
        let usage = self.used.unwrap_or_else(|| self.watch.usage(&self.cgroups));
        self.take_remains().retire(&usage, &self.limits);
        if let Some(mortal) = &self.mortal {
            mortal.failures().recovered(FailureKind::Destroy, "sandbox");
        }
        (self.used, self.is_dead) = (Some(usage), true);
        self.mortal = None;
        Ok(usage)
    }
}

impl Sandbox for NativeSandbox {
    fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    fn phases(&self) -> &StartPhases {
        &self.phases
    }

    fn take_stream(&mut self) -> Option<UnixStream> {
        self.stream.take()
    }

    fn usage(&mut self) -> BoxFuture<'_, Usage> {
        let usage = self.used.unwrap_or_else(|| self.watch.usage(&self.cgroups));
        Box::pin(std::future::ready(usage))
    }

    fn measure_anew<'a>(&'a mut self, limits: &'a Limits, held: Option<DiskHeld>) -> BoxFuture<'a, ()> {
        Box::pin(self.watch.begin(limits, held, &self.cgroups))
    }

    fn is_quiet(&mut self) -> bool {
        self.watch.is_quiet(&self.cgroups)
    }

    fn look(&mut self) -> BoxFuture<'_, Option<Ending>> {
        Box::pin(self.watch.look_once(&self.cgroups))
    }

    fn watch(&mut self) -> BoxFuture<'_, Ending> {
        Box::pin(async {
            tokio::select! {
                ending = self.watch.run(&self.cgroups) => ending,
                _ = self.process.readable() => Ending::Gone,
            }
        })
    }

    fn attach<'a>(&'a mut self, layer: &'a Layer) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(attach(self.attaching.as_ref(), layer))
    }

    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        Box::pin(async {
            let ended = self.end().await;
            self.tell(&ended);
            ended
        })
    }

    fn warmable(&mut self) -> Option<&mut dyn Warmable> {
        Some(self)
    }
}

impl Warmable for NativeSandbox {
    fn settle(&mut self) {
        self.inhabitants = Inhabitants::find(&self.cgroups);
    }

    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(self.be_leased(limits))
    }

    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        Box::pin(async {
            let ended = self.end_programs().await;
            self.tell(&ended);
            ended
        })
    }
}

impl Drop for NativeSandbox {
    /// Kills the sandbox, at once if it has a permit. A background task waits for the death and then removes
    /// the control groups. If the runtime ends meanwhile, they are removed at once, which is retried until
    /// the last process is gone.
    fn drop(&mut self) {
        let (false, Some(mut mortal)) = (self.is_dead, self.mortal.take()) else { return };
        let runtime = tokio::runtime::Handle::try_current();
        if (mortal.try_turn() || runtime.is_err())
            && let Err(error) = self.kill()
        {
            return mortal.failures().report(FailureKind::Destroy, "sandbox", &error);
        }
        let process = match self.process.get_ref().try_clone() {
            Ok(process) => process,
            Err(error) => return mortal.failures().report(FailureKind::Destroy, "sandbox", &error),
        };
        let remains = self.take_remains();
        match runtime {
            Ok(runtime) => drop(runtime.spawn(async move {
                if !mortal.try_turn() {
                    mortal.take_turn().await;
                    // The process may have ended by itself. If it still lives, the wait below detects it.
                    rustix::process::pidfd_send_signal(&process, Signal::KILL).ok();
                }
                let dead = match watched(process) {
                    Ok(process) => tokio::time::timeout(DROP_PATIENCE, process.readable())
                        .await
                        .map_or_else(|_| Err(io::ErrorKind::TimedOut.into()), |ready| ready.map(drop)),
                    Err(error) => Err(error),
                };
                if let Err(error) = dead {
                    mortal.failures().report(FailureKind::Destroy, "sandbox", &error);
                }
                remains.remove();
            })),
            Err(_) => {
                let mut list = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
                let patience = Timespec::try_from(DROP_PATIENCE).ok();
                // The process ends with this server, and the next server sweeps the rest.
                rustix::event::poll(&mut list, patience.as_ref()).ok();
            }
        }
    }
}
