//! One spare: a sandbox whose guest has said hello and whose interpreter says that it is ready.

use std::time::{Duration, Instant};

use sandbox::{Backend, BackendError, Limits, Sandbox, SandboxSpec};
use tokio::sync::OwnedSemaphorePermit;

use crate::conversation::MAIN;
use crate::driver;
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};

/// How long an interpreter may take to be ready.
const READY_PATIENCE: Duration = Duration::from_secs(20);
/// The least that one costs: its process 1, its groups, our end of its stream.
const COST_BYTES_MIN: u64 = 1 << 20;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpareError {
    #[error("the wall was not built")]
    Wall(#[from] BackendError),
    #[error("the wall is not complete")]
    Incomplete,
    #[error("the interpreter is not ready")]
    Guest(#[from] GuestError),
}

/// A sandbox that waits for its run.
pub(super) struct Spare {
    sandbox: Box<dyn Sandbox>,
    reader: GuestReader,
    writer: GuestWriter,
    pub(super) born: Instant,
    /// Whether its interpreter can walk through a run before there is one, and was not told to yet.
    can_rehearse: bool,
    /// What it uses of the machine's memory.
    pub(super) cost_bytes: u64,
    /// That much of what the server may promise.
    pub(super) hold: Option<OwnedSemaphorePermit>,
}

impl Spare {
    /// Builds one and waits until its interpreter is ready.
    pub(super) async fn build(backend: &dyn Backend, spec: &SandboxSpec) -> Result<Self, SpareError> {
        let mut sandbox = backend.create(spec).await?;
        if !sandbox.enforced().missing(&spec.absence_allowed).is_empty() {
            return Err(SpareError::Incomplete);
        }
        let stream = sandbox.take_stream().ok_or(GuestError::Gone)?;
        let (mut reader, writer) = guest_client::connect(stream).await?;
        if !spec.opening.is_empty() {
            let ready = tokio::time::timeout(READY_PATIENCE, reader.until_ready(MAIN));
            ready.await.unwrap_or(Err(GuestError::Silent))?;
        }
        sandbox.settle();
        let cost_bytes = sandbox.usage().memory_peak_bytes.max(COST_BYTES_MIN);
        // Which interpreters have zygotes, and which can rehearse, is the same.
        let can_rehearse = spec.zygote.is_some();
        Ok(Self { sandbox, reader, writer, born: Instant::now(), can_rehearse, cost_bytes, hold: None })
    }

    /// Tells its interpreter to rehearse, unless it was told already. One that does not hear that is found out as dead.
    pub(super) fn rehearse(&mut self) -> bool {
        let is_due = std::mem::take(&mut self.can_rehearse);
        if is_due {
            let told = self.writer.control(MAIN, 0, &driver::rehearsal());
            if let Err(error) = told.and_then(|()| self.writer.flush_now()) {
                tracing::debug!(reason = %error, "rehearsal_not_told");
            }
        }
        is_due
    }

    /// Whether guest and interpreter are still there, as far as they have told.
    pub(super) fn is_well(&mut self) -> bool {
        self.reader.is_well()
    }

    pub(super) async fn take_limits(&mut self, limits: &Limits) -> Result<(), BackendError> {
        self.sandbox.take_limits(limits).await
    }

    pub(super) fn into_parts(self) -> (Box<dyn Sandbox>, (GuestReader, GuestWriter)) {
        (self.sandbox, (self.reader, self.writer))
    }

    /// Its end.
    pub(super) async fn destroy(mut self) {
        // A backend tells what it cannot destroy.
        self.sandbox.destroy().await.ok();
    }
}
