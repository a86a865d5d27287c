//! A state directory, backends in it, and commands in their sandboxes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backends::host::HostParts;
use backends::native::NativeBackend;
use backends::oci::{GuestProgram, OciBackend, OciConfig, OciRuntime};
use libtest_mimic::Failed;
use relay::WireGuest;
use sandbox::conformance::{Guest, Shell};
use sandbox::{Backend, BackendError, Sandbox, SandboxSpec};
use tokio::runtime::Runtime;

/// Where the tests put their files; removed at the end.
pub(crate) struct Place {
    native: Arc<NativeBackend>,
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn make(native: NativeBackend) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-test-{}-oci-walls", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let parts = HostParts { state_dir: folder.clone(), ..HostParts::default() };
        Self { native: Arc::new(native.with_host(parts)), folder }
    }

    pub(crate) fn backend(&self, runtime: OciRuntime, program: Option<PathBuf>) -> OciBackend {
        backend(&self.native, &self.folder, runtime, program)
    }

    /// A wall with another state directory.
    pub(crate) fn beside(&self, runtime: OciRuntime, parts: &HostParts) -> OciBackend {
        backend(&self.native, &parts.state_dir, runtime, None)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A wall whose guest is this executable.
pub(crate) fn backend(
    native: &NativeBackend,
    folder: &Path,
    runtime: OciRuntime,
    program: Option<PathBuf>,
) -> OciBackend {
    let guest = GuestProgram::File(std::env::current_exe().unwrap());
    let parts = HostParts { state_dir: folder.to_owned(), ..HostParts::default() };
    OciBackend::beside(native, OciConfig { runtime, program, guest }, &parts)
}

pub(crate) fn executor() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A sandbox with a shell in it.
pub(crate) async fn inhabited(
    backend: &OciBackend,
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
