//! The stems of this server: which there are, when they are renewed, when they are let go.
//!
//! A stem is asked for by being used: the first sandbox that could be cloned from one is built without, and the stem is
//! planted meanwhile. Hash seed and address layout are a stem's and those of all its clones, so each gives only so many
//! and lives only so long; its successor is planted while it still serves.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::sandbox::{PlacedFile, ReadOnlyBind, SandboxSpec, StemSpec};
use jail::{JailPlan, Message, Spawner, Stem, StemFds, StemIds, StemPlan, Wall};
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::build::report_pair;
use super::identity;
use super::network::Networks;

/// Sandboxes that one stem gives.
const CLONES_MAX: u32 = 1000;
/// How long it lives.
const AGE_MAX: Duration = Duration::from_secs(10 * 60);
/// How long an unused one is kept.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// How often that is looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The most stems at once; a server has few languages and fewer kinds of sandboxes.
const STEMS_MAX: usize = 8;
/// Loading large packages takes a while.
const PLANT_PATIENCE: Duration = Duration::from_secs(60);
/// After a failure none is planted for so long.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);

/// A stem that serves.
pub(super) struct Planted {
    pub(super) stem: Stem,
    ids: StemIds,
    workspaces: Option<PathBuf>,
    /// Of its sandboxes that ended.
    pub(super) networks: Networks,
    born: Instant,
    clones: AtomicU32,
}

impl Planted {
    /// Makes a plan one for a clone of this stem.
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

/// What sandboxes of one stem have in common.
#[derive(PartialEq)]
struct Kind {
    stem: StemSpec,
    binds: Vec<ReadOnlyBind>,
    files: Vec<PlacedFile>,
    workspaces: Option<PathBuf>,
}

impl Kind {
    fn is_of(&self, spec: &SandboxSpec, stem: &StemSpec) -> bool {
        let workspaces = spec.workspace.as_ref().map(|lasting| &lasting.among);
        self.stem == *stem
            && self.workspaces.as_ref() == workspaces
            && self.binds == spec.binds
            && self.files == spec.files
    }
}

struct Bed {
    kind: Kind,
    planted: Option<Arc<Planted>>,
    is_planting: bool,
    used: Instant,
    /// None is planted before.
    not_before: Instant,
}

/// All stems of a server.
#[derive(Default)]
pub(super) struct Stems {
    /// Absent where none are wanted.
    nursery: Option<Nursery>,
    beds: Arc<Mutex<Vec<Bed>>>,
}

struct Nursery {
    spawner: Arc<Spawner>,
    library: &'static [u8],
    /// The library as a descriptor, made at its first use.
    file: Mutex<Option<Arc<OwnedFd>>>,
}

impl Stems {
    pub(super) fn new(spawner: Arc<Spawner>, library: &'static [u8]) -> Self {
        // A test build shows the host where its root is off, which a stem cannot.
        let nursery = Nursery { spawner, library, file: Mutex::default() };
        Self { nursery: (!Wall::Root.off()).then_some(nursery), beds: Arc::default() }
    }

    /// A stem for sandboxes of that spec, if one is ready; sees to it that one will be.
    pub(super) fn ready(
        &self,
        spec: &SandboxSpec,
        plan: impl FnOnce(&StemSpec) -> StemPlan,
    ) -> Option<Arc<Planted>> {
        let (nursery, wanted) = (self.nursery.as_ref()?, spec.stem.as_ref()?);
        let now = Instant::now();
        let mut beds = self.beds.lock().unwrap_or_else(PoisonError::into_inner);
        let bed = match beds.iter().position(|bed| bed.kind.is_of(spec, wanted)) {
            Some(place) => &mut beds[place],
            None if beds.len() >= STEMS_MAX => return None,
            None => {
                let kind = Kind {
                    stem: wanted.clone(),
                    binds: spec.binds.clone(),
                    files: spec.files.clone(),
                    workspaces: spec.workspace.as_ref().map(|lasting| lasting.among.clone()),
                };
                beds.push(Bed { kind, planted: None, is_planting: false, used: now, not_before: now });
                tokio::spawn(sweep(Arc::downgrade(&self.beds), without_opening(spec)));
                beds.last_mut()?
            }
        };
        bed.used = now;
        let is_wanted = bed.planted.as_ref().is_none_or(|planted| planted.is_old());
        if is_wanted && !bed.is_planting && now >= bed.not_before {
            bed.is_planting = nursery.plant(plan(wanted), spec, Arc::downgrade(&self.beds)).is_ok();
        }
        let planted = bed.planted.clone()?;
        planted.clones.fetch_add(1, Ordering::Relaxed);
        Some(planted)
    }

    /// Lets go of a stem that did not do its work.
    pub(super) fn discard(&self, planted: &Arc<Planted>) {
        let mut beds = self.beds.lock().unwrap_or_else(PoisonError::into_inner);
        for bed in
            beds.iter_mut().filter(|bed| bed.planted.as_ref().is_some_and(|it| Arc::ptr_eq(it, planted)))
        {
            bed.planted = None;
            bed.not_before = Instant::now() + FAILURE_PAUSE;
        }
    }
}

impl Nursery {
    /// Plants a stem in the background.
    fn plant(&self, plan: StemPlan, spec: &SandboxSpec, beds: Weak<Mutex<Vec<Bed>>>) -> io::Result<()> {
        let library = self.library()?;
        let spawner = Arc::clone(&self.spawner);
        let spec = without_opening(spec);
        tokio::spawn(async move {
            let planted = tokio::time::timeout(PLANT_PATIENCE, until_ready(&spawner, plan, &library)).await;
            let planted = planted.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
            settle(&beds, &spec, planted.ok().map(Arc::new));
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

async fn until_ready(spawner: &Spawner, plan: StemPlan, library: &OwnedFd) -> io::Result<Planted> {
    let (requests, requests_theirs) = report_pair()?;
    let (report, report_theirs) = report_pair()?;
    let fds = StemFds { requests: requests_theirs, library: library.try_clone()?, report: report_theirs };
    spawner.plant(&plan, &fds)?;
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
    // Written without waiting: a stem that does not take requests is of no use.
    let stem = Stem::new(requests.into_inner());
    let StemPlan { ids, workspaces, .. } = plan;
    let networks = Networks::default();
    Ok(Planted { stem, ids, workspaces, networks, born: Instant::now(), clones: AtomicU32::new(0) })
}

async fn next(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, |socket| jail::receive(socket.as_fd())).await
}

/// Puts a stem, or the knowledge that there is none, into its bed. What it replaces ends with its last sandbox.
fn settle(beds: &Weak<Mutex<Vec<Bed>>>, spec: &SandboxSpec, planted: Option<Arc<Planted>>) {
    with_bed(beds, spec, |bed| {
        bed.is_planting = false;
        match planted {
            Some(planted) => bed.planted = Some(planted),
            None => bed.not_before = Instant::now() + FAILURE_PAUSE,
        }
    });
}

/// Lets go of a bed that nobody uses, whether a stem is in it or not.
async fn sweep(beds: Weak<Mutex<Vec<Bed>>>, spec: SandboxSpec) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let is_idle = with_bed(&beds, &spec, |bed| bed.used.elapsed() >= IDLE_MAX && !bed.is_planting);
        match (is_idle, beds.upgrade()) {
            (Some(false), _) => {}
            (Some(true), Some(beds)) => {
                let mut beds = beds.lock().unwrap_or_else(PoisonError::into_inner);
                beds.retain(|bed| !spec.stem.as_ref().is_some_and(|stem| bed.kind.is_of(&spec, stem)));
                return;
            }
            _ => return,
        }
    }
}

/// What of a spec says which stem suits it.
fn without_opening(spec: &SandboxSpec) -> SandboxSpec {
    SandboxSpec { opening: Vec::new(), ..spec.clone() }
}

fn with_bed<T>(
    beds: &Weak<Mutex<Vec<Bed>>>,
    spec: &SandboxSpec,
    work: impl FnOnce(&mut Bed) -> T,
) -> Option<T> {
    let (beds, stem) = (beds.upgrade()?, spec.stem.as_ref()?);
    let mut beds = beds.lock().unwrap_or_else(PoisonError::into_inner);
    beds.iter_mut().find(|bed| bed.kind.is_of(spec, stem)).map(work)
}
