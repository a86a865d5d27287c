//! One spare: a sandbox whose guest has said hello and whose interpreter has reported that it is ready.

use std::time::{Duration, Instant};

use sandbox::{Backend, BackendError, Limits, Sandbox, SandboxSpec};
use tokio::sync::OwnedSemaphorePermit;

use crate::conversation::MAIN;
use crate::driver;
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};

/// How long an interpreter may take to become ready.
const READY_PATIENCE: Duration = Duration::from_secs(20);
/// The least cost of a spare: its process 1, its control groups, the host's end of its stream.
const COST_BYTES_MIN: u64 = 1 << 20;

/// Why a spare could not be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpareError {
    #[error("the wall was not built")]
    Wall(#[from] BackendError),
    #[error("the wall is not complete")]
    Incomplete,
    #[error("the wall cannot build sandboxes ahead of demand")]
    NotWarmable,
    #[error("the interpreter is not ready")]
    Guest(#[from] GuestError),
}

/// A sandbox that waits for its run.
pub(super) struct Spare {
    sandbox: Box<dyn Sandbox>,
    reader: GuestReader,
    writer: GuestWriter,
    pub(super) born: Instant,
    /// Whether its interpreter supports a warm-up run and has not had one yet.
    can_rehearse: bool,
    /// How much of the machine's memory it uses.
    pub(super) cost_bytes: u64,
    /// The same amount, reserved from the memory that the server may promise.
    pub(super) hold: Option<OwnedSemaphorePermit>,
}

impl Spare {
    /// Builds a spare and waits until its interpreter is ready.
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
        sandbox.warmable().ok_or(SpareError::NotWarmable)?.settle();
        let cost_bytes = sandbox.usage().await.memory_peak_bytes.max(COST_BYTES_MIN);
        // The interpreters that have zygote processes are the same that support a warm-up run.
        let can_rehearse = spec.zygote.is_some();
        Ok(Self { sandbox, reader, writer, born: Instant::now(), can_rehearse, cost_bytes, hold: None })
    }

    /// Starts the warm-up run of its interpreter, unless it already had one. If the message cannot be sent, a
    /// later health check finds the spare dead.
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

    /// Whether guest and interpreter are still alive, according to their messages.
    pub(super) fn is_well(&mut self) -> bool {
        self.reader.is_well()
    }

    pub(super) async fn take_limits(&mut self, limits: &Limits) -> Result<(), BackendError> {
        match self.sandbox.warmable() {
            Some(warmable) => warmable.take_limits(limits).await,
            // `build` accepts only warmable sandboxes.
            None => Err(BackendError::Unfit { what: "it is not warmable".to_owned() }),
        }
    }

    pub(super) fn into_parts(self) -> (Box<dyn Sandbox>, (GuestReader, GuestWriter)) {
        (self.sandbox, (self.reader, self.writer))
    }

    /// Destroys the spare.
    pub(super) async fn destroy(mut self) {
        // The backend reports a sandbox that it cannot destroy.
        self.sandbox.destroy().await.ok();
    }
}
