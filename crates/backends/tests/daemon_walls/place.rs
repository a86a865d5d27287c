//! A state directory, running engines, walls, and commands in their sandboxes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use backends::daemon::{DaemonBackend, DaemonConfig, Engine, GuestProgram};
use backends::host::HostParts;
use backends::native::NativeBackend;
use harness::engines::Running;
use libtest_mimic::Failed;
use relay::WireGuest;
use sandbox::conformance::{Guest, Shell};
use sandbox::{Backend, BackendError, Sandbox, SandboxSpec};
use tokio::runtime::Runtime;

/// Where the tests put their files; removed at the end, after the engines have ended.
pub(crate) struct Place {
    pub(crate) native: Arc<NativeBackend>,
    engines: Mutex<Vec<Running>>,
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn make(native: NativeBackend) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-test-{}-daemons", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let parts = HostParts { state_dir: folder.clone(), ..HostParts::default() };
        Self { native: Arc::new(native.with_host(parts)), engines: Mutex::default(), folder }
    }

    /// The socket of an engine, which is started the first time; `None` if it is not installed.
    pub(crate) fn socket(&self, engine: Engine) -> Option<PathBuf> {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        if !engines.iter().any(|running| running.name() == engine.name()) {
            engines.push(Running::start(engine.name(), &engines_folder())?);
        }
        engines.iter().find(|running| running.name() == engine.name()).map(Running::socket)
    }

    pub(crate) fn restart(&self, engine: Engine) {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines
            .iter_mut()
            .filter(|running| running.name() == engine.name())
            .for_each(Running::restart_by_force);
    }

    pub(crate) fn backend(&self, engine: Engine) -> DaemonBackend {
        backend(&self.native, &self.folder, engine, &self.socket(engine).unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).clear();
        std::fs::remove_dir_all(engines_folder()).ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Podman takes no long paths.
pub(crate) fn engines_folder() -> PathBuf {
    std::env::temp_dir().join(format!("palisade-{}", std::process::id()))
}

/// The configuration of a wall whose guest is this executable.
pub(crate) fn config(engine: Engine, socket: &Path) -> DaemonConfig {
    let guest = GuestProgram::File(std::env::current_exe().unwrap());
    DaemonConfig { socket: socket.to_owned(), ..DaemonConfig::usual(engine, guest) }
}

pub(crate) fn backend(native: &NativeBackend, folder: &Path, engine: Engine, socket: &Path) -> DaemonBackend {
    let parts = HostParts { state_dir: folder.to_owned(), ..HostParts::default() };
    DaemonBackend::beside(native, config(engine, socket), &parts)
}

pub(crate) fn executor() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A sandbox with a shell in it.
pub(crate) async fn inhabited(
    backend: &DaemonBackend,
    spec: &SandboxSpec,
) -> Result<(Box<dyn Sandbox>, Box<dyn Shell>), Failed> {
    let mut sandbox = backend.create(spec).await.map_err(told)?;
    let stream = sandbox.take_stream().ok_or("no stream")?;
    let shell = WireGuest.connect(stream).await?;
    Ok((sandbox, shell))
}

/// An error with its cause.
pub(crate) fn told(error: BackendError) -> String {
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
