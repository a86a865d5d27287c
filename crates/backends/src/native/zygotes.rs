//! The zygotes of this server: which there are, when they are renewed, when they are let go.
//!
//! A zygote is asked for by being used: the first sandbox that could be cloned from one is built without, and the zygote is
//! started meanwhile. Hash seed and address layout are a zygote's and those of all its clones, so each gives only so many
//! and lives only so long; its successor is started while it still serves.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::sandbox::{BackendError, FailureKind, Failures, PlacedFile, ReadOnlyBind, SandboxSpec, ZygoteSpec};
use jail::{JailPlan, Message, Spawner, Wall, Zygote, ZygoteFds, ZygoteIds, ZygotePlan};
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::build::report_pair;
use super::identity;
use super::network::Networks;

/// Sandboxes that one zygote gives.
const CLONES_MAX: u32 = 1000;
/// How long it lives.
const AGE_MAX: Duration = Duration::from_secs(10 * 60);
/// How long an unused one is kept.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// How often that is looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The most zygotes at once; a server has few languages and fewer kinds of sandboxes.
const ZYGOTES_MAX: usize = 8;
/// Loading large packages takes a while.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// After a failure none is started for so long.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);

/// A zygote that serves.
pub(super) struct RunningZygote {
    /// The program, without its folder.
    program: String,
    pub(super) handle: Zygote,
    ids: ZygoteIds,
    workspaces: Option<PathBuf>,
    /// Of its sandboxes that ended.
    pub(super) networks: Networks,
    born: Instant,
    clones: AtomicU32,
}

impl RunningZygote {
    /// Makes a plan one for a clone of this zygote.
    pub(super) fn suit(&self, plan: &mut JailPlan) -> io::Result<()> {
        let unsuited = || io::Error::from(io::ErrorKind::InvalidInput);
        plan.id_map = identity::among(&self.ids, plan.id_map.clone()).ok_or_else(unsuited)?;
        plan.unified_cgroup = None;
        // It always waits for us before it goes on.
        plan.joins_groups = true;
        if let (Some((path, _)), Some(all)) = (&mut plan.workspace, &self.workspaces) {
            *path = path.strip_prefix(all).map_err(|_| unsuited())?.to_owned();
        }
        Ok(())
    }

    fn is_old(&self) -> bool {
        self.clones.load(Ordering::Relaxed) >= CLONES_MAX || self.born.elapsed() >= AGE_MAX
    }
}

/// What sandboxes of one zygote have in common.
#[derive(PartialEq)]
struct Kind {
    zygote: ZygoteSpec,
    binds: Vec<ReadOnlyBind>,
    files: Vec<PlacedFile>,
    workspaces: Option<PathBuf>,
}

impl Kind {
    fn is_of(&self, spec: &SandboxSpec, zygote: &ZygoteSpec) -> bool {
        let workspaces = spec.workspace.as_ref().map(|lasting| &lasting.among);
        self.zygote == *zygote
            && self.workspaces.as_ref() == workspaces
            && self.binds == spec.binds
            && self.files == spec.files
    }
}

struct ZygoteSlot {
    kind: Kind,
    zygote: Option<Arc<RunningZygote>>,
    is_starting: bool,
    used: Instant,
    /// None is started before.
    not_before: Instant,
}

/// All zygotes of a server.
#[derive(Default)]
pub(super) struct Zygotes {
    /// Absent where none are wanted.
    factory: Option<ZygoteFactory>,
    slots: Arc<Mutex<Vec<ZygoteSlot>>>,
}

struct ZygoteFactory {
    failures: Arc<Failures>,
    spawner: Arc<Spawner>,
    library: &'static [u8],
    /// The library as a descriptor, made at its first use.
    file: Mutex<Option<Arc<OwnedFd>>>,
}

impl Zygotes {
    pub(super) fn new(spawner: Arc<Spawner>, library: &'static [u8], failures: Arc<Failures>) -> Self {
        // A test build shows the host where its root is off, which a zygote cannot.
        let factory = ZygoteFactory { failures, spawner, library, file: Mutex::default() };
        Self { factory: (!Wall::Root.off()).then_some(factory), slots: Arc::default() }
    }

    /// A zygote for sandboxes of that spec, if one is ready; sees to it that one will be.
    pub(super) fn ready(
        &self,
        spec: &SandboxSpec,
        plan: impl FnOnce(&ZygoteSpec) -> ZygotePlan,
    ) -> Option<Arc<RunningZygote>> {
        let (factory, wanted) = (self.factory.as_ref()?, spec.zygote.as_ref()?);
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.iter().position(|slot| slot.kind.is_of(spec, wanted)) {
            Some(place) => &mut slots[place],
            None if slots.len() >= ZYGOTES_MAX => return None,
            None => {
                let kind = Kind {
                    zygote: wanted.clone(),
                    binds: spec.binds.clone(),
                    files: spec.files.clone(),
                    workspaces: spec.workspace.as_ref().map(|lasting| lasting.among.clone()),
                };
                slots.push(ZygoteSlot { kind, zygote: None, is_starting: false, used: now, not_before: now });
                tokio::spawn(sweep(Arc::downgrade(&self.slots), without_opening(spec)));
                slots.last_mut()?
            }
        };
        slot.used = now;
        let is_wanted = slot.zygote.as_ref().is_none_or(|zygote| zygote.is_old());
        if is_wanted && !slot.is_starting && now >= slot.not_before {
            match factory.start(plan(wanted), spec, Arc::downgrade(&self.slots)) {
                Ok(()) => slot.is_starting = true,
                Err(error) => factory.failures.report(FailureKind::Zygote, &program_of(wanted), &error),
            }
        }
        let zygote = slot.zygote.clone()?;
        zygote.clones.fetch_add(1, Ordering::Relaxed);
        Some(zygote)
    }

    /// Takes note that a zygote did its work.
    pub(super) fn praise(&self, zygote: &RunningZygote) {
        if let Some(factory) = &self.factory {
            factory.failures.recovered(FailureKind::Zygote, &zygote.program);
        }
    }

    /// Lets go of a zygote that did not do its work, for the reason given.
    pub(super) fn discard(&self, zygote: &Arc<RunningZygote>, error: &BackendError) {
        if let Some(factory) = &self.factory {
            factory.failures.report(FailureKind::Zygote, &zygote.program, error);
        }
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in
            slots.iter_mut().filter(|slot| slot.zygote.as_ref().is_some_and(|it| Arc::ptr_eq(it, zygote)))
        {
            slot.zygote = None;
            slot.not_before = Instant::now() + FAILURE_PAUSE;
        }
    }
}

impl ZygoteFactory {
    /// Plants a zygote in the background.
    fn start(
        &self,
        plan: ZygotePlan,
        spec: &SandboxSpec,
        slots: Weak<Mutex<Vec<ZygoteSlot>>>,
    ) -> io::Result<()> {
        let library = self.library()?;
        let spawner = Arc::clone(&self.spawner);
        let (spec, failures) = (without_opening(spec), Arc::clone(&self.failures));
        tokio::spawn(async move {
            let program = plan.argv.first().map(|path| name_of(path)).unwrap_or_default();
            let zygote = tokio::time::timeout(START_PATIENCE, until_ready(&spawner, plan, &library)).await;
            let zygote = zygote.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
            match &zygote {
                Ok(zygote) => failures.recovered(FailureKind::Zygote, &zygote.program),
                Err(error) => failures.report(FailureKind::Zygote, &program, error),
            }
            settle(&slots, &spec, zygote.ok().map(Arc::new));
        });
        Ok(())
    }

    fn library(&self) -> io::Result<Arc<OwnedFd>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = file.as_ref() {
            return Ok(Arc::clone(made));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut made = std::fs::File::from(rustix::fs::memfd_create("palisade", flags)?);
        made.write_all(self.library)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&made, seals)?;
        let made = Arc::new(OwnedFd::from(made));
        *file = Some(Arc::clone(&made));
        Ok(made)
    }
}

async fn until_ready(spawner: &Spawner, plan: ZygotePlan, library: &OwnedFd) -> io::Result<RunningZygote> {
    let (requests, requests_theirs) = report_pair()?;
    let (report, report_theirs) = report_pair()?;
    let fds = ZygoteFds { requests: requests_theirs, library: library.try_clone()?, report: report_theirs };
    spawner.start_zygote(&plan, &fds)?;
    drop(fds);
    // Its own wall: the socket closes when it becomes the interpreter.
    while let Some((message, _)) = next(&report).await? {
        if let Message::Failed(error) = message {
            return Err(error.source());
        }
    }
    match next(&requests).await? {
        Some((Message::Ready, _)) => {}
        _ => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
    // Written without waiting: a zygote that does not take requests is of no use.
    let handle = Zygote::new(requests.into_inner());
    let ZygotePlan { ids, workspaces, argv, .. } = plan;
    let program = argv.first().map(|path| name_of(path)).unwrap_or_default();
    let networks = Networks::default();
    Ok(RunningZygote {
        program,
        handle,
        ids,
        workspaces,
        networks,
        born: Instant::now(),
        clones: AtomicU32::new(0),
    })
}

fn program_of(zygote: &ZygoteSpec) -> String {
    zygote.argv.first().map(|path| name_of(path)).unwrap_or_default()
}

/// The last part of a path: where an interpreter is kept may be a user's own folder.
fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

async fn next(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, |socket| jail::receive(socket.as_fd())).await
}

/// Puts a zygote, or the knowledge that there is none, into its bed. What it replaces ends with its last sandbox.
fn settle(slots: &Weak<Mutex<Vec<ZygoteSlot>>>, spec: &SandboxSpec, zygote: Option<Arc<RunningZygote>>) {
    with_bed(slots, spec, |slot| {
        slot.is_starting = false;
        match zygote {
            Some(zygote) => slot.zygote = Some(zygote),
            None => slot.not_before = Instant::now() + FAILURE_PAUSE,
        }
    });
}

/// Lets go of a bed that nobody uses, whether a zygote is in it or not.
async fn sweep(slots: Weak<Mutex<Vec<ZygoteSlot>>>, spec: SandboxSpec) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let is_idle = with_bed(&slots, &spec, |slot| slot.used.elapsed() >= IDLE_MAX && !slot.is_starting);
        match (is_idle, slots.upgrade()) {
            (Some(false), _) => {}
            (Some(true), Some(slots)) => {
                let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
                slots.retain(|slot| {
                    !spec.zygote.as_ref().is_some_and(|zygote| slot.kind.is_of(&spec, zygote))
                });
                return;
            }
            _ => return,
        }
    }
}

/// What of a spec says which zygote suits it.
fn without_opening(spec: &SandboxSpec) -> SandboxSpec {
    SandboxSpec { opening: Vec::new(), ..spec.clone() }
}

fn with_bed<T>(
    slots: &Weak<Mutex<Vec<ZygoteSlot>>>,
    spec: &SandboxSpec,
    work: impl FnOnce(&mut ZygoteSlot) -> T,
) -> Option<T> {
    let (slots, zygote) = (slots.upgrade()?, spec.zygote.as_ref()?);
    let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
    slots.iter_mut().find(|slot| slot.kind.is_of(spec, zygote)).map(work)
}
