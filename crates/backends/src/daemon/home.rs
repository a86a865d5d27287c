//! The server's own directory of a wall, its connection to the engine, and what it leaves there.
//!
//! ```text
//! state_dir/walls/docker/palisade-<number>/   locked by its server
//!     lock  guest  seccomp.json  empty/
//!     <number>/                               one container: socket, passwd, group, hosts, hostname, space/, files/
//! ```
//! Containers and images carry the name of that directory as a label. What a killed server left is removed by the next
//! one: the lock of its directory is free then, and the engine lists everything with its label.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::sandbox::{BackendError, FailureKind, Failures};
use rustix::mount::UnmountFlags;
use tokio::sync::{OnceCell, Semaphore};

use super::groups::Groups;
use super::http::{CallError, Client};
use super::roots::Roots;
use super::{DaemonConfig, Engine, GuestProgram, facts, request};
use crate::host::home::{create_private, name_of, take, take_abandoned};

/// Containers that are removed at once. Runs should not wait for the engine's work.
const REMOVALS_AT_ONCE: usize = 2;
/// When an engine that does not answer may be back.
const RETRY_AFTER_MS: u64 = 5_000;
/// A container or an image that an engine was asked for may appear after its server has gone. So long, and so often, the
/// engine is asked again for what is left.
const LATECOMER_PAUSE: Duration = Duration::from_secs(1);
const LATECOMER_ROUNDS: u32 = 3;
/// How long an engine may take to remove everything of a server.
const CLEAR_PATIENCE: Duration = Duration::from_secs(50);
/// The first pause before an engine is asked again for what it has not removed yet.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);
/// Pauses before a container is tried to be removed again whose engine did not answer. Afterwards it stays until the end
/// of the server.
const REMOVAL_PAUSES_S: [u64; 4] = [1, 3, 10, 30];
/// The mount point of a container's writable space while it is built.
pub(super) const SPACE: &str = "space";
/// The mount point of a persistent workspace while its container is built.
pub(super) const FILES: &str = "files";

/// The directory of one server and one wall.
pub(super) struct Home {
    pub(super) config: DaemonConfig,
    pub(super) client: Client,
    pub(super) roots: Roots,
    /// The name of this server: of its directory, and in labels.
    pub(super) server: String,
    pub(super) groups: Groups,
    above: PathBuf,
    opened: OnceCell<Opened>,
    removals: Arc<Semaphore>,
    failures: Arc<Failures>,
}

/// A directory that exists and is locked, and an engine that answers.
pub(super) struct Opened {
    pub(super) folder: PathBuf,
    pub(super) guest: PathBuf,
    pub(super) profile: PathBuf,
    /// An empty directory, for places that an engine would fill.
    pub(super) empty: PathBuf,
    /// The id of the configured image.
    pub(super) image: Option<String>,
    /// Whether the engine makes control groups itself.
    pub(super) makes_groups: bool,
    _lock: File,
}

impl Home {
    pub(super) fn new(
        config: DaemonConfig,
        state_dir: &Path,
        server: &str,
        failures: &Arc<Failures>,
    ) -> Self {
        let home = Self {
            client: Client::new(&config.socket),
            roots: Roots::default(),
            server: server.to_owned(),
            groups: Groups::of(config.engine, server),
            above: state_dir.join("walls").join(config.engine.name()),
            opened: OnceCell::new(),
            removals: Arc::new(Semaphore::new(REMOVALS_AT_ONCE)),
            failures: Arc::clone(failures),
            config,
        };
        home.sweep_aside();
        home
    }

    pub(super) fn engine(&self) -> Engine {
        self.config.engine
    }

    pub(super) async fn opened(&self) -> Result<&Opened, BackendError> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Opened, BackendError> {
        let name = self.engine().name();
        if !rustix::process::geteuid().is_root() {
            return Err(BackendError::Unsupported {
                what: format!("the wall {name} needs root"),
                remedy: "run the server as root, or use the native wall, which needs none".to_owned(),
            });
        }
        let engine = self.client.facts().await.map_err(|error| self.unreachable(error))?;
        facts::is_usable(self.engine(), &engine)?;
        let image = match &self.config.image {
            None => None,
            Some(image) => Some(self.find_image(image).await?),
        };
        let failed = |source: io::Error| BackendError::Build { step: "state directory".to_owned(), source };
        let folder = self.above.join(&self.server);
        let lock = take(&folder).map_err(failed)?;
        let guest = self.place_guest(&folder).map_err(failed)?;
        let profile = folder.join("seccomp.json");
        fs::write(&profile, request::seccomp_profile().to_string()).map_err(failed)?;
        let empty = folder.join("empty");
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&empty).map_err(failed)?;
        let makes_groups = engine.makes_groups;
        Ok(Opened { folder, guest, profile, empty, image, makes_groups, _lock: lock })
    }

    /// The id of the configured image. Podman removes an image without a name together with the images above it, so it
    /// gets one.
    async fn find_image(&self, image: &str) -> Result<String, BackendError> {
        let found = facts::find_image(&self.client, image, self.config.allow_tags).await?;
        if self.engine() == Engine::Podman && found.tags.is_empty() {
            let mark = found.id.trim_start_matches("sha256:").chars().take(12).collect::<String>();
            let named = self.client.tag(&found.id, "localhost/palisade-base", &mark).await;
            named.map_err(|error| self.unreachable(error))?;
        }
        Ok(found.id)
    }

    /// The error of a call, for a caller that wants a sandbox.
    pub(super) fn unreachable(&self, error: CallError) -> BackendError {
        let (name, socket) = (self.engine().name(), self.client.socket().display().to_string());
        match error {
            CallError::NoSocket(_) if !self.opened.initialized() => BackendError::Unsupported {
                what: format!("{name} has no socket at {socket}"),
                remedy: format!(
                    "{}, or set `socket` in [wall.{name}] of the configuration",
                    self.engine().start_remedy()
                ),
            },
            CallError::NoSocket(_) | CallError::NoListener(_) | CallError::Silent(_) => {
                BackendError::Unavailable {
                    what: format!("{name} at {socket}: {error}"),
                    retry_after_ms: RETRY_AFTER_MS,
                }
            }
            error => BackendError::Build { step: name.to_owned(), source: error.into() },
        }
    }

    fn place_guest(&self, folder: &Path) -> io::Result<PathBuf> {
        let bytes = match &self.config.guest {
            GuestProgram::File(path) => return Ok(path.clone()),
            GuestProgram::Bytes(bytes) => bytes,
        };
        let path = folder.join("guest");
        // Another wall of this process may have had the directory before.
        fs::remove_file(&path).ok();
        let mut file = File::options().write(true).create_new(true).mode(0o555).open(&path)?;
        io::Write::write_all(&mut file, bytes)?;
        Ok(path)
    }

    /// A new container's directory. Dropping it removes the container and everything that belongs to it.
    pub(super) async fn container(self: &Arc<Self>, number: u64) -> Result<Container, BackendError> {
        let folder = self.opened().await?.folder.join(number.to_string());
        let name = format!("{}-{number}", self.server);
        let container =
            Container { home: Arc::clone(self), name, folder, creation: Creation::NotRequested, id: None };
        let made = create_private(&container.folder);
        made.map_err(|source| BackendError::Build { step: "state directory".to_owned(), source })?;
        Ok(container)
    }

    /// Removes what servers left that are gone, without delaying the start.
    fn sweep_aside(&self) {
        let Ok(entries) = fs::read_dir(&self.above) else { return };
        let others = entries.flatten().filter(|entry| entry.file_name().to_string_lossy() != self.server);
        let left: Vec<PathBuf> = others.map(|entry| entry.path()).collect();
        let (client, engine, failures) = (self.client.clone(), self.engine(), Arc::clone(&self.failures));
        aside(&self.failures, "sweep", async move {
            for folder in left {
                if let Err(error) = sweep(&client, engine, &folder).await {
                    failures.report(FailureKind::Sweep, "containers", &error);
                }
            }
        });
    }
}

impl Drop for Home {
    /// Removes what is left of this server.
    fn drop(&mut self) {
        let Some(opened) = self.opened.get() else { return };
        let (client, engine, folder) = (self.client.clone(), self.engine(), opened.folder.clone());
        let failures = Arc::clone(&self.failures);
        let rounds = if self.client.has_latecomers() { LATECOMER_ROUNDS } else { 1 };
        let done = aside(&self.failures, "clear", async move {
            if let Err(error) = clear(&client, engine, &folder, rounds).await {
                failures.report(FailureKind::Sweep, "containers", &error);
            }
        });
        // The lock is held until everything is gone.
        done.map(std::thread::JoinHandle::join);
    }
}

/// Runs a future on a thread of its own, which may outlive the caller's runtime.
fn aside(
    failures: &Failures,
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> Option<std::thread::JoinHandle<()>> {
    let run = move || {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        built.map(|runtime| runtime.block_on(work)).ok();
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(handle) => Some(handle),
        Err(error) => {
            failures.report(FailureKind::Sweep, "containers", &error);
            None
        }
    }
}

/// A container and its directory.
pub(super) struct Container {
    home: Arc<Home>,
    pub(super) name: String,
    pub(super) folder: PathBuf,
    creation: Creation,
    /// Its id, once the engine has told it.
    id: Option<String>,
}

/// Whether the engine has a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    NotRequested,
    /// It was asked for one and has not answered.
    Unanswered,
    Made,
}

impl Container {
    /// Called before the engine is asked for the container.
    pub(super) fn is_asked_for(&mut self) {
        self.creation = Creation::Unanswered;
    }

    /// Called when the engine has answered, with the id of the container that it made.
    pub(super) fn is_answered(&mut self, id: Option<&str>) {
        self.creation = Creation::Made;
        self.id = id.map(str::to_owned);
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let Ok(handle) = tokio::runtime::Handle::try_current() else {
            // The end of the home removes it.
            return;
        };
        let removal = Removal {
            home: Arc::clone(&self.home),
            name: std::mem::take(&mut self.name),
            folder: std::mem::take(&mut self.folder),
            creation: self.creation,
            id: self.id.take(),
        };
        drop(handle.spawn(async move {
            let removed = removal.carry_out().await;
            let failures = &removal.home.failures;
            match removed {
                Ok(()) => failures.recovered(FailureKind::Destroy, "container"),
                Err(error) => failures.report(FailureKind::Destroy, "container", &error),
            }
        }));
    }
}

/// The end of a container.
struct Removal {
    home: Arc<Home>,
    name: String,
    folder: PathBuf,
    creation: Creation,
    id: Option<String>,
}

impl Removal {
    async fn carry_out(&self) -> io::Result<()> {
        // Without its directory a container that is still to be made cannot be made any more.
        let discarded = discard(&self.folder);
        let removed = match self.creation {
            Creation::NotRequested => Ok(()),
            Creation::Made => self.remove(1).await,
            Creation::Unanswered => {
                let removed = self.remove(LATECOMER_ROUNDS).await;
                self.home.client.settle();
                removed
            }
        };
        removed.and(discarded)
    }

    /// Removes the container, again if the engine does not answer, and then what the engine left of it.
    async fn remove(&self, rounds: u32) -> io::Result<()> {
        let mut pauses = REMOVAL_PAUSES_S.into_iter();
        let removed = loop {
            let removed = {
                // The semaphore is never closed.
                let _turn = self.home.removals.acquire().await.ok();
                remove(&self.home.client, &self.name, rounds).await
            };
            match (removed, pauses.next()) {
                (Err(error), Some(pause)) if error.is_unanswered() => {
                    tokio::time::sleep(Duration::from_secs(pause)).await;
                }
                (removed, _) => break removed,
            }
        };
        if let Some(id) = self.id.clone() {
            let groups = self.home.groups.clone();
            tokio::task::spawn_blocking(move || groups.remove_container(&id)).await.ok();
        }
        Ok(removed?)
    }
}

/// Removes a container, which may appear late.
async fn remove(client: &Client, name: &str, rounds: u32) -> Result<(), CallError> {
    for round in 0..rounds {
        if round > 0 {
            tokio::time::sleep(LATECOMER_PAUSE).await;
        }
        if client.remove(name).await? {
            break;
        }
    }
    Ok(())
}

/// Unmounts and removes the directory of one container.
fn discard(folder: &Path) -> io::Result<()> {
    for place in [SPACE, FILES] {
        // Usually unmounted when the container started.
        rustix::mount::unmount(folder.join(place), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).ok();
    }
    // Fails while a workspace is mounted there, whose files must not be removed with the directory.
    unless_absent(fs::remove_dir(folder.join(FILES)))?;
    unless_absent(fs::remove_dir_all(folder))
}

fn unless_absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes every container, image and control group of a server, and its directory. An engine that hangs is not waited
/// for any longer than [`CLEAR_PATIENCE`]; the next server goes on then.
async fn clear(client: &Client, engine: Engine, folder: &Path, rounds: u32) -> io::Result<()> {
    let server = name_of(folder);
    let groups = Groups::of(engine, &server);
    // A directory that cannot be removed keeps neither containers nor groups. Its error is returned at the end, and the
    // directory of the server stays for the next one.
    let mut discarded = Ok(());
    for entry in fs::read_dir(folder)?.flatten() {
        if name_of(&entry.path()).parse::<u64>().is_ok() {
            discarded = discard(&entry.path()).and(discarded);
        }
    }
    match tokio::time::timeout(CLEAR_PATIENCE, clear_engine(client, &server, &groups, rounds)).await {
        Ok(cleared) => cleared?,
        Err(_) => {
            groups.remove_all().await;
            return Err(io::Error::other("the engine's containers do not go away"));
        }
    }
    discarded?;
    fs::remove_dir_all(folder)
}

/// Returns once nothing of a server was found `rounds` times in a row. A busy engine refuses what it does later, so it
/// is asked again.
async fn clear_engine(client: &Client, server: &str, groups: &Groups, rounds: u32) -> Result<(), CallError> {
    let mut clean = 0;
    let mut pause = if rounds > 1 { LATECOMER_PAUSE } else { AGAIN_PAUSE };
    loop {
        let removed = remove_labelled(client, server).await;
        // After the engine, which would wait for processes of its own that are in these groups.
        let is_gone = groups.remove_all().await;
        match removed {
            Ok(was_nothing) => clean = if was_nothing && is_gone { clean + 1 } else { 0 },
            Err(error) if error.is_without_engine() => return Err(error),
            Err(error) => {
                clean = 0;
                tracing::debug!(reason = %error, "containers_not_removed");
            }
        }
        if clean >= rounds {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LATECOMER_PAUSE);
    }
}

/// Removes what the engine lists. Returns whether that was nothing.
async fn remove_labelled(client: &Client, server: &str) -> Result<bool, CallError> {
    let containers = client.containers_of(server).await?;
    let mut removed = Ok(());
    for id in &containers {
        removed = client.remove(id).await.map(drop).and(removed);
    }
    let images = client.images_of(server).await?;
    for id in &images {
        // An image may be in use until the next round.
        if let Err(error) = client.remove_image(id).await {
            tracing::debug!(reason = %error, "image_not_removed");
        }
    }
    removed.map(|()| containers.is_empty() && images.is_empty())
}

/// Removes what a server left that is gone. A live server holds its lock.
async fn sweep(client: &Client, engine: Engine, folder: &Path) -> io::Result<()> {
    let Some(_lock) = take_abandoned(folder) else { return Ok(()) };
    clear(client, engine, folder, LATECOMER_ROUNDS).await
}

#[cfg(test)]
mod tests;
