//! Walls whose containers an engine makes: Docker and Podman.
//!
//! The engine is asked over its unix socket. Sandboxes show the same parts of the host, have the same limits and the same
//! guest as native ones, or show an image instead of the host's `/usr`.
//!
//! ```text
//! image (roots) -> create, start (request, api) -> the guest connects to the server's socket and reports
//!       -> groups adopted, limits written, examination from outside (examine) -> a sandbox as any other
//! death: process 1 by pidfd -> control groups -> the engine removes the container, behind the answer
//! ```
//! An engine is believed only about what cannot be seen: which image has a digest. Everything else is read from
//! `/proc/PID` of the process that connected, so the engine must be on this machine and run as root.

mod api;
mod build;
mod examine;
mod facts;
#[cfg(test)]
mod fake;
mod groups;
mod home;
mod http;
mod inside;
mod request;
mod roots;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::sandbox::workspace::WorkspaceStore;
use ::sandbox::{
    Backend, BackendError, BoxFuture, Enforced, FailureCounts, Failures, Inventory, Sandbox, SandboxSpec,
};
use tracing::Instrument;

use self::home::Home;
use self::inside::ImageInventory;
use crate::host::inventory::HostInventory;
use crate::host::{HostParts, Local};
use crate::native::NativeBackend;

pub use self::facts::ImageReport;
pub use crate::oci::GuestProgram;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Docker.
    Docker,
    /// Podman, by `podman system service`.
    Podman,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 2] = [Self::Docker, Self::Podman];

    /// The name of its wall.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// Where its socket usually is.
    pub fn usual_socket(self) -> &'static Path {
        Path::new(match self {
            Self::Docker => "/run/docker.sock",
            Self::Podman => "/run/podman/podman.sock",
        })
    }

    fn start_remedy(self) -> &'static str {
        match self {
            Self::Docker => "start Docker (package `docker.io`; `systemctl start docker`)",
            Self::Podman => {
                "start Podman's service (package `podman`; `systemctl start podman.socket`, or `podman system service \
                 --time=0`)"
            }
        }
    }
}

/// What the configuration says about such a wall.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// Which engine.
    pub engine: Engine,
    /// Its socket.
    pub socket: PathBuf,
    /// The image of sandboxes; `None`: the host's own `/usr`.
    pub image: Option<String>,
    /// Whether the image may be named without a digest.
    pub allow_tags: bool,
    /// The guest.
    pub guest: GuestProgram,
}

impl DaemonConfig {
    /// The usual socket, and the host's own `/usr`.
    pub fn usual(engine: Engine, guest: GuestProgram) -> Self {
        Self { engine, socket: engine.usual_socket().to_owned(), image: None, allow_tags: false, guest }
    }
}

/// A wall with an engine.
pub struct DaemonBackend {
    local: Local,
    home: Arc<Home>,
    inventory: Languages,
    failures: Arc<Failures>,
}

impl DaemonBackend {
    /// A wall beside the native one of the same server, with which it shares identities and the turns of deaths.
    pub fn beside(native: &NativeBackend, config: DaemonConfig, parts: &HostParts) -> Self {
        let local = native.local();
        let failures = Arc::<Failures>::default();
        let home = Home::new(config, &parts.state_dir, local.cgroups.name(), &failures);
        let home = Arc::new(home);
        let inventory = match &home.config.image {
            None => Languages::Host(HostInventory::new(parts)),
            Some(_) => Languages::Image(ImageInventory::new(&home, &parts.state_dir)),
        };
        Self { local, home, inventory, failures }
    }
}

/// Where the languages of its sandboxes are.
enum Languages {
    Host(HostInventory),
    Image(ImageInventory),
}

/// Looks at an image of an engine, and at the engine itself, for `palisade image check`.
pub async fn check_image(socket: &Path, reference: &str) -> Result<ImageReport, String> {
    let checked = facts::check(&http::Client::new(socket), reference).await;
    checked.map_err(|error| error.to_string())
}

/// What an operator should know about an engine, for `doctor`. The error says why it does not answer.
pub async fn check_engine(socket: &Path) -> Result<Vec<String>, String> {
    let found = http::Client::new(socket).facts().await;
    found.map(|engine| facts::warnings(&engine)).map_err(|error| error.to_string())
}

impl Backend for DaemonBackend {
    fn name(&self) -> &'static str {
        self.home.engine().name()
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        Box::pin(async {
            let mut sandbox = self.create(&SandboxSpec::default()).await?;
            let enforced = sandbox.enforced().clone();
            sandbox.destroy().await?;
            Ok(enforced)
        })
    }

    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        self.local.workspaces.as_deref().map(|workspaces| workspaces as &dyn WorkspaceStore)
    }

    fn inventory(&self) -> &dyn Inventory {
        match &self.inventory {
            Languages::Host(host) => host,
            Languages::Image(image) => image,
        }
    }

    fn is_warmable(&self) -> bool {
        true
    }

    fn failures(&self) -> FailureCounts {
        self.failures.counts()
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async move {
            let built = self.build(spec).instrument(tracing::debug_span!("wall")).await;
            built.map(|sandbox| Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}
