//! The zygote processes of this server: which exist, when they are replaced, when they are dropped.
//!
//! Use creates them: the first sandbox that could be cloned from a zygote is built without one, and the
//! zygote is started meanwhile. All clones of a zygote share its hash seed and address layout. Each zygote
//! therefore serves a limited number of clones and lives for a limited time. Its successor is started while
//! it still serves.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::sandbox::{
    BackendError, FailureKind, Failures, InUse, Layer, PlacedFile, ReadOnlyBind, SandboxSpec, ZygoteSpec,
};
use jail::{JailPlan, Message, Spawner, Wall, Zygote, ZygoteFds, ZygoteIds, ZygotePlan};
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::build::{number_of, report_pair};
use super::identity;
use super::network::Networks;
use super::status::Status;

/// Maximum number of sandboxes cloned from one zygote.
const CLONES_MAX: u32 = 1000;
/// Maximum age of a zygote.
const AGE_MAX: Duration = Duration::from_secs(10 * 60);
/// How long an unused zygote is kept.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// How often unused zygotes are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of zygotes at once. The one that was asked for the longest time ago makes room.
const ZYGOTES_MAX: usize = 8;
/// Maximum memory of all zygotes together, as measured when each was ready. The same one makes room.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of kinds of sandboxes that are remembered, with or without a zygote.
const KINDS_MAX: usize = 64;
/// A kind of sandbox with layers gets a zygote when it is asked for this often: many layers are used once.
const ASKED_WITH_LAYERS_MIN: u32 = 2;
/// Loading large packages takes a while.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long no zygote is started after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);

/// A zygote that accepts requests.
pub(super) struct RunningZygote {
    /// The program's file name, without its directory.
    program: String,
    pub(super) handle: Zygote,
    ids: ZygoteIds,
    workspaces: Option<PathBuf>,
    /// Network namespaces of its ended sandboxes.
    pub(super) networks: Networks,
    born: Instant,
    clones: AtomicU32,
    /// Its memory when it was ready.
    memory_bytes: u64,
}

impl RunningZygote {
    /// Adapts a plan for a clone of this zygote.
    pub(super) fn suit(&self, plan: &mut JailPlan) -> io::Result<()> {
        let unsuited = || io::Error::from(io::ErrorKind::InvalidInput);
        plan.id_map = identity::within_zygote(&self.ids, plan.id_map.clone()).ok_or_else(unsuited)?;
        plan.unified_cgroup = None;
        // The clone always waits for the server before it continues.
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
    layers: Vec<Layer>,
    /// Keeps the layers, which are mounted for as long as the zygote exists.
    in_use: InUse,
    attach_points: Vec<PathBuf>,
    executable_at: Option<PathBuf>,
    files: Vec<PlacedFile>,
    /// Whether their workspaces last.
    lasts: bool,
}

impl Kind {
    fn is_of(&self, spec: &SandboxSpec, zygote: &ZygoteSpec) -> bool {
        self.zygote == *zygote
            && self.lasts == spec.workspace.is_some()
            && self.binds == spec.binds
            && self.layers == spec.layers
            && self.attach_points == spec.attach_points
            && self.executable_at == spec.executable_at
            && self.files == spec.files
    }
}

struct ZygoteSlot {
    kind: Kind,
    zygote: Option<Arc<RunningZygote>>,
    is_starting: bool,
    used: Instant,
    /// How often it was asked for.
    asked: u32,
    /// No zygote is started before this time.
    not_before: Instant,
}

impl ZygoteSlot {
    fn is_worth_starting(&self, now: Instant) -> bool {
        let asked_min = if self.kind.layers.is_empty() { 1 } else { ASKED_WITH_LAYERS_MIN };
        let is_wanted = self.zygote.as_ref().is_none_or(|zygote| zygote.is_old());
        is_wanted && !self.is_starting && self.asked >= asked_min && now >= self.not_before
    }

    fn occupies(&self) -> bool {
        self.zygote.is_some() || self.is_starting
    }
}

/// Ends zygotes until `is_fine`, the one that was asked for the longest time ago first, but not that at `kept`. Their
/// sandboxes live on.
fn make_room(slots: &mut [ZygoteSlot], kept: usize, is_fine: impl Fn(&[ZygoteSlot]) -> bool) {
    while !is_fine(slots) {
        let others =
            slots.iter_mut().enumerate().filter(|(place, slot)| *place != kept && slot.zygote.is_some());
        let Some((_, oldest)) = others.min_by_key(|(_, slot)| slot.used) else { return };
        oldest.zygote = None;
        // Until it is asked for again as often as a new one.
        oldest.asked = 0;
    }
}

/// All zygotes of a server.
#[derive(Default)]
pub(super) struct Zygotes {
    /// Absent if zygotes are disabled.
    factory: Option<ZygoteFactory>,
    slots: Arc<Mutex<Vec<ZygoteSlot>>>,
}

struct ZygoteFactory {
    failures: Arc<Failures>,
    spawner: Arc<Spawner>,
    library: &'static [u8],
    /// The library as a file descriptor, created at its first use.
    file: Mutex<Option<Arc<OwnedFd>>>,
}

impl Zygotes {
    pub(super) fn new(spawner: Arc<Spawner>, library: &'static [u8], failures: Arc<Failures>) -> Self {
        // A test build with the root wall off shows the host's root, which a zygote cannot do.
        let factory = ZygoteFactory { failures, spawner, library, file: Mutex::default() };
        Self { factory: (!Wall::Root.off()).then_some(factory), slots: Arc::default() }
    }

    /// A zygote for sandboxes of that spec, if one is ready. Starts one in the background if there is none or
    /// it is old.
    pub(super) fn ready(
        &self,
        spec: &SandboxSpec,
        plan: impl FnOnce(&ZygoteSpec) -> ZygotePlan,
    ) -> Option<Arc<RunningZygote>> {
        let (factory, wanted) = (self.factory.as_ref()?, spec.zygote.as_ref()?);
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match slots.iter().position(|slot| slot.kind.is_of(spec, wanted)) {
            Some(place) => place,
            None => {
                if slots.len() >= KINDS_MAX {
                    forget_one(&mut slots)?;
                }
                let kind = Kind {
                    zygote: wanted.clone(),
                    binds: spec.binds.clone(),
                    layers: spec.layers.clone(),
                    in_use: spec.in_use.clone(),
                    attach_points: spec.attach_points.clone(),
                    executable_at: spec.executable_at.clone(),
                    files: spec.files.clone(),
                    lasts: spec.workspace.is_some(),
                };
                let (zygote, is_starting) = (None, false);
                slots.push(ZygoteSlot { kind, zygote, is_starting, used: now, asked: 0, not_before: now });
                tokio::spawn(sweep(Arc::downgrade(&self.slots), without_opening(spec)));
                slots.len() - 1
            }
        };
        let slot = &mut slots[place];
        slot.used = now;
        slot.asked = slot.asked.saturating_add(1);
        if slot.is_worth_starting(now) {
            make_room(&mut slots, place, |slots| {
                let others =
                    slots.iter().enumerate().filter(|(other, slot)| *other != place && slot.occupies());
                others.count() < ZYGOTES_MAX
            });
            let slot = &mut slots[place];
            match factory.start(plan(wanted), spec, Arc::downgrade(&self.slots)) {
                Ok(()) => slot.is_starting = true,
                Err(error) => factory.failures.report(FailureKind::Zygote, &program_of(wanted), &error),
            }
        }
        let zygote = slots[place].zygote.clone()?;
        zygote.clones.fetch_add(1, Ordering::Relaxed);
        Some(zygote)
    }

    /// Records that a zygote worked.
    pub(super) fn praise(&self, zygote: &RunningZygote) {
        if let Some(factory) = &self.factory {
            factory.failures.recovered(FailureKind::Zygote, &zygote.program);
        }
    }

    /// Drops a zygote that failed, for the given reason.
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
    /// Starts a zygote in the background.
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
    jail::take_plans(requests.get_ref().as_fd())?;
    let (report, report_theirs) = report_pair()?;
    let fds = ZygoteFds { requests: requests_theirs, library: library.try_clone()?, report: report_theirs };
    spawner.start_zygote(&plan, &fds)?;
    drop(fds);
    // Reports of its own build: the socket closes when it becomes the interpreter.
    let mut process = None;
    while let Some((message, descriptor)) = next(&report).await? {
        match message {
            Message::Failed(error) => return Err(error.source()),
            Message::Cloned { .. } => process = descriptor,
            _ => {}
        }
    }
    match next(&requests).await? {
        Some((Message::Ready, _)) => {}
        _ => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
    // Requests are written without blocking: a zygote that does not read them is useless.
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
        memory_bytes: process.and_then(|process| memory_of(&process).ok()).unwrap_or_default(),
    })
}

/// The resident memory of a process.
fn memory_of(process: &OwnedFd) -> io::Result<u64> {
    Ok(Status::read(number_of(process)?)?.bytes("VmRSS"))
}

/// Forgets the kind of sandbox that was asked for the longest time ago. `None` if all of them are starting.
fn forget_one(slots: &mut Vec<ZygoteSlot>) -> Option<()> {
    let settled = slots.iter().enumerate().filter(|(_, slot)| !slot.is_starting);
    let (place, _) = settled.min_by_key(|(_, slot)| slot.used)?;
    slots.swap_remove(place);
    Some(())
}

fn program_of(zygote: &ZygoteSpec) -> String {
    zygote.argv.first().map(|path| name_of(path)).unwrap_or_default()
}

/// The last component of a path: the directory of an interpreter may be a user's private one.
fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

async fn next(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, |socket| jail::receive(socket.as_fd())).await
}

/// Stores a zygote, or the fact that there is none, in its slot. The zygote it replaces ends with its last
/// sandbox.
fn settle(slots: &Weak<Mutex<Vec<ZygoteSlot>>>, spec: &SandboxSpec, zygote: Option<Arc<RunningZygote>>) {
    let is_ready = zygote.is_some();
    with_bed(slots, spec, |slot| {
        slot.is_starting = false;
        match zygote {
            Some(zygote) => slot.zygote = Some(zygote),
            None => slot.not_before = Instant::now() + FAILURE_PAUSE,
        }
    });
    if let (true, Some(slots), Some(wanted)) = (is_ready, slots.upgrade(), &spec.zygote) {
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = slots.iter().position(|slot| slot.kind.is_of(spec, wanted)) {
            make_room(&mut slots, place, |slots| {
                let all = slots.iter().filter_map(|slot| slot.zygote.as_ref());
                all.map(|zygote| zygote.memory_bytes).sum::<u64>() <= MEMORY_BYTES_MAX
            });
        }
    }
}

/// Removes a slot that is not used, with or without a zygote in it.
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

/// The part of a spec that determines which zygote is suitable.
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
