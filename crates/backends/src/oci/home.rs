//! The server's own directory of a wall: its bundles, the runtime's state, and the lock that shows that the server lives.
//!
//! ```text
//! state_dir/walls/runc/palisade-<number>/   locked by its server
//!     lock  guest  surroundings  state/     the runtime's own state
//!     <number>/                             one bundle: config.json, stage, pid, log
//! ```
//! Each bundle removes itself when its sandbox is dead, behind the answer. What a killed server left is removed by the
//! next one: the lock of its directory is free then, and every container in it is named by that directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ::sandbox::{BackendError, FailureKind, Failures};
use jail::Stage;
use tokio::sync::Semaphore;

use super::runtime::{OciRuntime, Runtime};
use super::{GuestProgram, OciConfig};
use crate::host::home::{
    Members, create_private, kill_calls, kill_members, name_of, remove_groups, take, take_abandoned, thaw,
};
use crate::native::cgroup::{Cgroups, Layout};

/// Containers that are removed at once. Each costs a process of the runtime, and runs should not wait for it.
const REMOVALS_AT_ONCE: usize = 2;
/// How long is waited for the members of all groups of a container together.
const MEMBERS_PATIENCE: Duration = Duration::from_secs(10);
/// Directories of the host at which a stage attaches a root, in its own mount namespace.
const PLACES: [&str; 4] = ["/mnt", "/srv", "/media", "/opt"];
const SURROUNDINGS: &str = "surroundings";

/// The directory of one server and one wall.
pub(super) struct Home {
    config: OciConfig,
    /// The directory of all servers.
    above: PathBuf,
    /// The name of this server's control groups, and of its directory.
    group: String,
    cgroups: Arc<Cgroups>,
    opened: OnceLock<Opened>,
    removals: Arc<Semaphore>,
    failures: Arc<Failures>,
}

/// A directory that exists and is locked.
struct Opened {
    runtime: Runtime,
    places: [PathBuf; 2],
    folder: PathBuf,
    _lock: File,
}

/// How this machine's control groups look to a runtime.
struct CgroupView {
    stage: Stage,
    /// The path of this server's groups for the runtime.
    above: String,
}

impl Home {
    pub(super) fn new(
        config: OciConfig,
        state_dir: &Path,
        cgroups: &Arc<Cgroups>,
        failures: &Arc<Failures>,
    ) -> Self {
        let above = state_dir.join("walls").join(config.runtime.name());
        let home = Self {
            config,
            above,
            group: cgroups.name().to_owned(),
            cgroups: Arc::clone(cgroups),
            opened: OnceLock::new(),
            removals: Arc::new(Semaphore::new(REMOVALS_AT_ONCE)),
            failures: Arc::clone(failures),
        };
        home.sweep_aside();
        home
    }

    pub(super) fn kind(&self) -> OciRuntime {
        self.config.runtime
    }

    fn opened(&self) -> Result<&Opened, BackendError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    pub(super) fn runtime(&self) -> Result<&Runtime, BackendError> {
        Ok(&self.opened()?.runtime)
    }

    /// Where the root and the writable space are staged.
    pub(super) fn places(&self) -> Result<&[PathBuf; 2], BackendError> {
        Ok(&self.opened()?.places)
    }

    fn open(&self) -> Result<Opened, BackendError> {
        let kind = self.config.runtime;
        if !rustix::process::geteuid().is_root() {
            return Err(BackendError::Unsupported {
                what: format!("the wall {} needs root", kind.name()),
                remedy: "run the server as root, or use the native wall, which needs none".to_owned(),
            });
        }
        let program = self.config.program.clone().or_else(|| kind.find()).filter(|file| file.is_file());
        let program = program.ok_or_else(|| BackendError::Unsupported {
            what: format!("{} is not installed", kind.command()),
            remedy: format!(
                "install the package `{}`, or name its executable in the configuration",
                kind.command()
            ),
        })?;
        let failed = |source: io::Error| BackendError::Build { step: "state directory".to_owned(), source };
        let folder = self.above.join(&self.group);
        let lock = take(&folder).map_err(failed)?;
        let guest = self.place_guest(&folder).map_err(failed)?;
        let places = places(&[&self.above, &program, &guest]).ok_or_else(|| BackendError::Unsupported {
            what: "there is no directory at which a root can be staged".to_owned(),
            remedy: format!("create two of {PLACES:?}; they stay empty"),
        })?;
        let state = folder.join("state");
        create_private(&state).map_err(failed)?;
        let view = CgroupView::new(kind);
        let surroundings = jail::encode_stage(&view.stage).map_err(failed)?;
        fs::write(folder.join(SURROUNDINGS), surroundings).map_err(failed)?;
        let options = kind.options(&program);
        let runtime = Runtime { kind, program, options, guest, state };
        Ok(Opened { runtime, places, folder, _lock: lock })
    }

    fn place_guest(&self, folder: &Path) -> io::Result<PathBuf> {
        let bytes = match &self.config.guest {
            GuestProgram::File(path) => return Ok(path.clone()),
            GuestProgram::Bytes(bytes) => bytes,
        };
        let path = folder.join("guest");
        let mut file = File::options().write(true).create_new(true).mode(0o555).open(&path)?;
        io::Write::write_all(&mut file, bytes)?;
        Ok(path)
    }

    /// A new bundle. Dropping it removes the container of its name and everything that belongs to it.
    pub(super) fn bundle(self: &Arc<Self>, number: u64) -> Result<Container, BackendError> {
        let folder = self.opened()?.folder.join(number.to_string());
        let container = Container { home: Arc::clone(self), id: format!("{}-{number}", self.group), folder };
        let made = create_private(&container.folder);
        made.map_err(|source| BackendError::Build { step: "bundle".to_owned(), source })?;
        Ok(container)
    }

    /// What the runtime sees besides a root, and the path of a group for it.
    pub(super) fn cgroup_view(&self, unified: Option<&Path>, number: u64) -> (Stage, String) {
        let view = CgroupView::new(self.config.runtime);
        let path = match unified.filter(|_| view.above.is_empty()) {
            // Pure version 2: the group as seen from the top of the only hierarchy.
            Some(group) => Path::new("/").join(group.strip_prefix("/sys/fs/cgroup").unwrap_or(group)),
            None => Path::new(&view.above).join(&self.group).join(format!("s{number}")),
        };
        (view.stage, path.to_string_lossy().into_owned())
    }

    /// Removes what servers left that are gone, without delaying the start.
    fn sweep_aside(&self) {
        let Ok(entries) = fs::read_dir(&self.above) else { return };
        let left: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let (kind, program) = (self.config.runtime, self.config.program.clone());
        let failures = Arc::clone(&self.failures);
        let guest = self.config.guest.clone();
        let sweep = move || {
            for folder in left {
                if let Err(error) = sweep(kind, program.as_deref(), &guest, &folder) {
                    failures.report(FailureKind::Sweep, "containers", &error);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweep) {
            self.failures.report(FailureKind::Sweep, "containers", &error);
        }
    }
}

impl Drop for Home {
    /// Removes what is left of this server. Containers whose removal did not come to an end are removed here.
    fn drop(&mut self) {
        let Some(opened) = self.opened.get() else { return };
        if let Err(error) = clear(&opened.runtime, &opened.folder) {
            self.failures.report(FailureKind::Sweep, "containers", &error);
        }
        for (_, own, _) in Layout::read(Path::new("/proc/self")).places() {
            // Hierarchies that only runtimes use. Another wall of this server may still use them.
            let directory = own.join(&self.group);
            if !self.cgroups.owns(&directory) {
                fs::remove_dir(directory).ok();
            }
        }
    }
}

/// A container and its bundle.
pub(super) struct Container {
    home: Arc<Home>,
    pub(super) id: String,
    pub(super) folder: PathBuf,
}

impl Container {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn surroundings(&self) -> PathBuf {
        self.folder.with_file_name(SURROUNDINGS)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let Ok(runtime) = self.home.runtime().cloned() else { return };
        let (folder, home) = (std::mem::take(&mut self.folder), Arc::clone(&self.home));
        let remove = move || match remove(&runtime, &folder) {
            Ok(()) => home.failures.recovered(FailureKind::Destroy, "container"),
            Err(error) => home.failures.report(FailureKind::Destroy, "container", &error),
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => {
                let turns = Arc::clone(&self.home.removals);
                drop(handle.spawn(async move {
                    // The semaphore is never closed.
                    let _turn = turns.acquire_owned().await.ok();
                    tokio::task::spawn_blocking(remove).await.ok();
                }));
            }
            Err(_) => remove(),
        }
    }
}

/// Removes one container and its bundle. A container that the runtime does not know is no error.
fn remove(runtime: &Runtime, folder: &Path) -> io::Result<()> {
    let id = format!("{}-{}", name_of(folder.parent().unwrap_or(folder)), name_of(folder));
    let group = Path::new(&name_of(folder.parent().unwrap_or(folder))).join(format!("s{}", name_of(folder)));
    let layout = Layout::read(Path::new("/proc/self"));
    let groups: Vec<PathBuf> = layout.places().map(|(_, own, _)| own.join(&group)).collect();
    // First: `delete` waits for a container that was never finished.
    let until = Instant::now() + MEMBERS_PATIENCE;
    groups.iter().for_each(|group| thaw(group));
    groups.iter().for_each(|group| kill_members(group, until));
    if runtime.state.join(&id).exists() || runtime.kind == OciRuntime::Gvisor {
        let surroundings = folder.with_file_name(SURROUNDINGS);
        let log = folder.join("delete.log");
        runtime
            .call_quietly(&surroundings, &log, &["delete", "--force", &id])
            .or_else(|error| if runtime.state.join(&id).exists() { Err(error) } else { Ok(()) })?;
    }
    // A create that failed leaves groups that no `delete` knows.
    groups.iter().for_each(|group| drop(fs::remove_dir(group)));
    fs::remove_dir_all(folder)
}

/// Removes every container of a server, and its directory.
fn clear(runtime: &Runtime, folder: &Path) -> io::Result<()> {
    let mut cleared = Ok(());
    for entry in fs::read_dir(folder)?.flatten() {
        if name_of(&entry.path()).parse::<u64>().is_ok() {
            cleared = remove(runtime, &entry.path()).and(cleared);
        }
    }
    cleared?;
    fs::remove_dir_all(folder)
}

/// Removes the directory of a server that is gone. A live server holds its lock.
fn sweep(kind: OciRuntime, program: Option<&Path>, guest: &GuestProgram, folder: &Path) -> io::Result<()> {
    let Some(_lock) = take_abandoned(folder) else { return Ok(()) };
    let program = program.map(Path::to_owned).or_else(|| kind.find());
    let program = program.ok_or_else(|| io::Error::other(format!("{} is not installed", kind.command())))?;
    let guest = match guest {
        GuestProgram::File(path) => path.clone(),
        GuestProgram::Bytes(_) => folder.join("guest"),
    };
    let options = kind.options(&program);
    let runtime = Runtime { kind, program, options, guest, state: folder.join("state") };
    kill_calls(&runtime.state, Instant::now() + MEMBERS_PATIENCE);
    clear(&runtime, folder)?;
    for (_, own, _) in Layout::read(Path::new("/proc/self")).places() {
        // One that still has processes stays for the next sweep.
        remove_groups(&own.join(name_of(folder)), Members::Spare);
    }
    Ok(())
}

/// Two directories that exist and above which nothing lies that a runtime must find.
fn places(needed: &[&Path]) -> Option<[PathBuf; 2]> {
    let is_free =
        |place: &&str| Path::new(place).is_dir() && !needed.iter().any(|path| path.starts_with(place));
    let mut free = PLACES.iter().filter(|place| is_free(place)).map(PathBuf::from);
    Some([free.next()?, free.next()?])
}

impl CgroupView {
    /// runc takes a path relative to the groups that it is in. Other runtimes begin at the top of each hierarchy, so
    /// they are shown this server's own groups there. crun 1.8 refuses a machine with both versions, so it is not shown
    /// the unified hierarchy where version 1 has the controllers.
    fn new(kind: OciRuntime) -> Self {
        let layout = Layout::read(Path::new("/proc/self"));
        let mut stage = Stage::default();
        let has_old = layout.places().any(|(.., is_unified)| !is_unified);
        if !has_old {
            return Self { stage, above: String::new() };
        }
        if kind == OciRuntime::Runc {
            return Self { stage, above: ".".to_owned() };
        }
        for (mount, own, is_unified) in layout.places() {
            if is_unified {
                stage.hide.push(mount.to_owned());
            } else if own != mount {
                stage.show.push((own.to_owned(), mount.to_owned()));
            }
        }
        Self { stage, above: "/".to_owned() }
    }
}
