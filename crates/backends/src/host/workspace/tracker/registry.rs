//! Which workspaces are tracked, and which sandboxes work in them.
//!
//! A workspace is identified by the inode of its directory. `changes` asks for a tracker by the open directory,
//! `native::disk` by the path. Both numbers of trackers and of their retries are bounded.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Stat;

use super::super::Root;
use super::Tracked;

/// The most workspaces tracked at once. Each has one inotify instance, and a user has 128 by default.
const TRACKED_MAX: usize = 16;
/// How long a workspace is not tracked after the tracking ended with a doubt.
const PAUSE: Duration = Duration::from_secs(10);
/// The most workspaces for which this time is remembered.
const PAUSES_MAX: usize = 1024;
/// The file systems whose events and sizes are known to be complete: ext2 to ext4, XFS, tmpfs. Their stat(2)
/// counts blocks that are not yet written out. On overlays and network file systems, others may change files.
const FILE_SYSTEMS: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// The identity of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    device: u64,
    inode: u64,
}

/// Files on the device of a workspace that the processes of a sandbox can change without an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenFiles {
    /// Files that are open for writing. Only the workspace has any.
    pub(crate) writable: BTreeSet<u64>,
    /// Files that are mapped and shared. Libraries of the host are among them.
    pub(crate) mapped: BTreeSet<u64>,
    /// Whether every process could be inspected.
    pub(crate) is_certain: bool,
}

type Inspect = Arc<dyn Fn() -> OpenFiles + Send + Sync>;

/// A sandbox that works in a workspace. Dropping it says that the sandbox has ended.
pub(crate) struct Tenancy {
    place: Place,
    number: u64,
}

#[derive(Default)]
struct Registry {
    /// The least recently used first.
    tracked: Vec<Arc<Tracked>>,
    tenants: HashMap<Place, Vec<(u64, Inspect)>>,
    not_before: HashMap<Place, Instant>,
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place {
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl fmt::Debug for Tenancy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tenancy({})", self.number)
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let mut registry = registry();
        if let Some(tenants) = registry.tenants.get_mut(&self.place) {
            tenants.retain(|(number, _)| *number != self.number);
            if tenants.is_empty() {
                registry.tenants.remove(&self.place);
            }
        }
    }
}

/// Registers a sandbox that works in the workspace with that path. `inspect` tells what its processes have open.
pub(crate) fn move_in(
    path: &Path,
    inspect: impl Fn() -> OpenFiles + Send + Sync + 'static,
) -> rustix::io::Result<Tenancy> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let place = Place::of(&rustix::fs::stat(path)?);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    registry().tenants.entry(place).or_default().push((number, Arc::new(inspect)));
    Ok(Tenancy { place, number })
}

/// What the processes of all sandboxes in that workspace have open.
pub(super) fn open_files(place: &Place, known: Option<(&Tenancy, &OpenFiles)>) -> Vec<OpenFiles> {
    let tenants = registry().tenants.get(place).cloned().unwrap_or_default();
    let is_known = |number: u64| known.is_some_and(|(tenancy, _)| tenancy.number == number);
    let others = tenants.into_iter().filter(|(number, _)| !is_known(*number));
    let mut all: Vec<OpenFiles> = others.map(|(_, inspect)| inspect()).collect();
    all.extend(known.map(|(_, files)| files.clone()));
    all
}

/// The tracker of a workspace, if it is tracked.
pub(in super::super) fn find(root: &Root) -> Option<Arc<Tracked>> {
    find_place(Place::of(&rustix::fs::fstat(&root.directory).ok()?))
}

/// The tracker of the workspace with that path, if it is tracked.
pub(crate) fn find_at(path: &Path) -> Option<Arc<Tracked>> {
    find_place(Place::of(&rustix::fs::stat(path).ok()?))
}

fn find_place(place: Place) -> Option<Arc<Tracked>> {
    let mut registry = registry();
    let at = registry.tracked.iter().position(|tracked| tracked.place == place)?;
    let found = registry.tracked.remove(at);
    registry.tracked.push(Arc::clone(&found));
    Some(found)
}

/// Begins to track a workspace, unless that failed a moment ago. Blocks for as long as a walk.
pub(in super::super) fn track(root: &Arc<Root>) -> Option<Arc<Tracked>> {
    let place = Place::of(&rustix::fs::fstat(&root.directory).ok()?);
    let file_system = rustix::fs::fstatfs(&root.directory).ok()?.f_type;
    if !FILE_SYSTEMS.contains(&u64::try_from(file_system).ok()?) {
        return None;
    }
    if let Some(found) = find_place(place) {
        return Some(found);
    }
    if registry().not_before.get(&place).is_some_and(|time| Instant::now() < *time) {
        return None;
    }
    match Tracked::begin(root, place) {
        Ok(tracked) => {
            let tracked = Arc::new(tracked);
            let mut registry = registry();
            registry.tracked.retain(|other| other.place != place);
            if registry.tracked.len() >= TRACKED_MAX {
                registry.tracked.remove(0);
            }
            registry.tracked.push(Arc::clone(&tracked));
            Some(tracked)
        }
        Err(doubt) => {
            tracing::debug!(reason = ?doubt, "workspace_not_tracked");
            withdraw(&place);
            None
        }
    }
}

/// Tracks the workspace with that path.
#[cfg(test)]
pub(crate) fn track_at(path: &Path) {
    use sandbox::workspace::Quota;
    let workspace = super::super::HostWorkspace::open(path, Quota { bytes: 1 << 30, inodes: 1 << 20 }, None);
    track(&workspace.unwrap().root).unwrap();
}

/// Takes a tracker out that has a doubt. Another one may begin later.
pub(super) fn withdraw(place: &Place) {
    let mut registry = registry();
    let now = Instant::now();
    registry.tracked.retain(|tracked| tracked.place != *place);
    registry.not_before.retain(|_, time| *time > now);
    if registry.not_before.len() < PAUSES_MAX {
        registry.not_before.insert(*place, now + PAUSE);
    }
}

/// Takes the tracker of a workspace out that is removed.
pub(in super::super) fn forget(path: &Path) {
    let Ok(stat) = rustix::fs::lstat(path) else { return };
    let place = Place::of(&stat);
    registry().tracked.retain(|tracked| tracked.place != place);
}
