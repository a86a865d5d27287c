//! Attaches layers to a native sandbox, through a child of the spawner (`jail::AttachPlan`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::sandbox::{BackendError, Layer, SandboxSpec};
use jail::{AttachPlan, Message, Spawner, Wall};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use tokio::io::Interest;

use super::build::report_pair;
use super::{at, verify};

/// Attaching takes a millisecond. A machine that needs longer than this is overloaded.
const PATIENCE: Duration = Duration::from_secs(5);

/// What attaches layers to one sandbox.
pub(super) struct Attaching {
    pid: i32,
    /// Its mount namespace.
    mounts: OwnedFd,
    points: Vec<PathBuf>,
    spawner: Arc<Spawner>,
}

impl Attaching {
    pub(super) fn new(pid: i32, spec: &SandboxSpec, spawner: &Arc<Spawner>) -> io::Result<Self> {
        let mounts = OwnedFd::from(std::fs::File::open(format!("/proc/{pid}/ns/mnt"))?);
        Ok(Self { pid, mounts, points: spec.attach_points.clone(), spawner: Arc::clone(spawner) })
    }

    pub(super) fn into_mounts(self) -> OwnedFd {
        self.mounts
    }

    async fn attach(&self, layer: &Layer) -> Result<(), BackendError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let directory = rustix::fs::openat2(CWD, &layer.path, flags, Mode::empty(), resolve);
        let directory = directory.map_err(|error| at("layer")(error.into()))?;
        let (report, theirs) = report_pair().map_err(at("report"))?;
        let plan = AttachPlan { path: layer.path.clone(), target: layer.target.clone() };
        let asked = self.spawner.attach(&plan, self.mounts.as_fd(), directory.as_fd(), theirs);
        asked.map_err(at("spawner"))?;
        let answer = report.async_io(Interest::READABLE, |socket| jail::receive(socket.as_fd()));
        let late = |_| at("attach")(io::Error::from(io::ErrorKind::TimedOut));
        match tokio::time::timeout(PATIENCE, answer).await.map_err(late)?.map_err(at("report"))? {
            Some((Message::Attached, _)) if Wall::Verify.off() => Ok(()),
            Some((Message::Attached, _)) => verify::is_attached(self.pid, &layer.target),
            Some((Message::Failed(error), _)) => {
                Err(BackendError::Build { step: format!("attach: {}", error.step), source: error.source() })
            }
            _ => Err(at("attach")(io::Error::from(io::ErrorKind::UnexpectedEof))),
        }
    }
}

/// Attaches a layer at one of the places that the sandbox was built with.
pub(super) async fn attach(attaching: Option<&Attaching>, layer: &Layer) -> Result<(), BackendError> {
    match attaching.filter(|attaching| attaching.points.contains(&layer.target)) {
        Some(attaching) => attaching.attach(layer).await,
        None => Err(BackendError::Unsupported {
            what: format!("the sandbox was built without the attach point {}", layer.target.display()),
            remedy: "open a sandbox that shows the layer from the start".to_owned(),
        }),
    }
}
