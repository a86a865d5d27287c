//! The sending side of the byte stream between the two halves, and a record of what passed over it.
//!
//! Both halves have one [`Link`]. Its queue is bounded: a half that does not read makes the other one wait.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::frame::{BODY_BYTES_MAX, Frame, Id, malformed, parts};

/// How many frames wait to be written.
const QUEUE_FRAMES: usize = 64;

/// Queues frames for the other half.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    queue: mpsc::Sender<Frame>,
}

/// The other half is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

impl Link {
    /// A link, and what it queues.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Frame>) {
        let (queue, queued) = mpsc::channel(QUEUE_FRAMES);
        (Self { queue }, queued)
    }

    pub(crate) async fn send(&self, frame: Frame) -> Result<(), Lost> {
        self.queue.send(frame).await.map_err(|_| Lost)
    }

    /// Sends a call or answer. Frames of others pass between its parts.
    pub(crate) async fn send_body(&self, id: Id, body: &[u8]) -> Result<(), Lost> {
        for frame in parts(id, body) {
            self.send(frame).await?;
        }
        Ok(())
    }
}

/// The bytes of a call or an answer.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if body.len() > BODY_BYTES_MAX { Err(malformed("a body that is too long")) } else { Ok(body) }
}

/// Writes queued frames until the queue or the stream ends.
pub(crate) async fn write_all(
    mut queued: mpsc::Receiver<Frame>,
    mut stream: impl AsyncWrite + Unpin,
    tap: Option<&Tap>,
) -> io::Result<()> {
    while let Some(frame) = queued.recv().await {
        if let Some(tap) = tap {
            tap.see(&frame.payload);
        }
        stream.write_all(&frame.encode()?).await?;
    }
    Ok(())
}

/// Looks for one text in everything that passes, so that a test can show that it never does.
#[derive(Debug)]
pub struct Tap {
    needle: Vec<u8>,
    was_seen: AtomicBool,
    bytes: AtomicU64,
}

impl Tap {
    /// Looks for this text. A text that two frames share is not found.
    pub fn new(needle: &str) -> Self {
        Self {
            needle: needle.as_bytes().to_vec(),
            was_seen: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn see(&self, payload: &[u8]) {
        self.bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
        let is_here = payload.windows(self.needle.len().max(1)).any(|window| window == self.needle);
        self.was_seen.fetch_or(is_here, Ordering::Relaxed);
    }

    /// Whether the text passed.
    pub fn was_seen(&self) -> bool {
        self.was_seen.load(Ordering::Relaxed)
    }

    /// How many bytes passed, in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
