//! Moves the bytes of one connection in both directions, counted and bounded.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::budget::{Budget, Way};
use crate::record::Connection;
use crate::refusal::Refusal;

const PIECE_BYTES: usize = 64 << 10;
/// A connection on which nothing moves for this long is closed.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(120);
/// The longest connection. The run's own time usually ends it before.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// What the directions of one connection share.
pub(crate) struct Meter<'a> {
    budget: &'a Budget,
    connection: &'a Connection,
    has_moved: AtomicBool,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(budget: &'a Budget, connection: &'a Connection) -> Self {
        Self { budget, connection, has_moved: AtomicBool::new(false) }
    }

    /// Takes bytes from the budget and counts them.
    pub(crate) fn pass(&self, way: Way, bytes: usize) -> io::Result<()> {
        self.has_moved.store(true, Ordering::Relaxed);
        if let Err(refusal) = self.budget.take(way, bytes) {
            self.connection.refuse(refusal);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.connection.count(way, bytes);
        Ok(())
    }

    /// Completes when the connection is idle for too long, or too old.
    pub(crate) async fn expired(&self) {
        let oldest = tokio::time::Instant::now() + AGE_MAX;
        loop {
            self.has_moved.store(false, Ordering::Relaxed);
            tokio::time::sleep(IDLE_MAX).await;
            let is_idle = !self.has_moved.load(Ordering::Relaxed);
            if is_idle || tokio::time::Instant::now() >= oldest {
                return;
            }
        }
    }

    /// Copies one direction until its end, and ends it on the other side.
    pub(crate) async fn copy(
        &self,
        way: Way,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return to.shutdown().await;
            }
            self.pass(way, count)?;
            to.write_all(&buffer[..count]).await?;
        }
    }
}

/// Runs both directions until both have ended, one has failed, or the connection expires.
pub(crate) async fn both(
    meter: &Meter<'_>,
    out: impl Future<Output = io::Result<()>>,
    into: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    tokio::select! {
        ended = async { tokio::try_join!(out, into) } => ended.map(drop),
        () = meter.expired() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The refusal of a connection whose budget is used up before it began.
pub(crate) fn is_used_up(error: &io::Error) -> Option<Refusal> {
    (error.kind() == io::ErrorKind::QuotaExceeded).then_some(Refusal::TooManyBytes)
}
