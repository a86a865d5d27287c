//! Counts the bytes of incomplete WebSocket messages.
//!
//! A library assembles the messages. It bounds a single message but not all connections together. Many
//! connections that each stop just before the end of a message could hold any amount of memory. The bytes are
//! therefore taken from the same budget as the bodies of requests, as they are read from the peer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::{BodyBudget, Share};

/// The bytes that one connection holds. Counting begins when it is switched on.
pub(crate) struct Meter {
    room: BodyBudget,
    held: Mutex<Option<Share>>,
}

impl Meter {
    pub(crate) fn new(room: &BodyBudget) -> Arc<Self> {
        Arc::new(Self { room: room.clone(), held: Mutex::default() })
    }

    /// Starts a new message and releases the bytes of the previous one.
    pub(crate) fn begin(&self) {
        *self.lock() = Some(Share::default());
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let fits = self.lock().as_mut().is_none_or(|share| share.grow(&self.room, bytes).is_ok());
        if fits { Ok(()) } else { Err(io::Error::from(io::ErrorKind::OutOfMemory)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Share>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream whose received bytes are counted.
pub(crate) struct Metered<S> {
    pub(crate) stream: S,
    pub(crate) meter: Arc<Meter>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.meter.take(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::body::BODY_BYTES_MAX;

    /// Sends bytes through a metered stream. Returns whether all of them arrived.
    async fn pass(meter: &Arc<Meter>, bytes: usize) -> bool {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let sending = tokio::spawn(async move { near.write_all(&vec![b'x'; bytes]).await });
        let mut stream = Metered { stream: far, meter: Arc::clone(meter) };
        let mut seen = vec![0; bytes];
        let passed = stream.read_exact(&mut seen).await.is_ok();
        sending.abort();
        passed
    }

    #[tokio::test]
    async fn unfinished_messages_of_all_connections_are_bounded() {
        let room = BodyBudget::default();
        let meters: Vec<_> = (0..9).map(|_| Meter::new(&room)).collect();
        assert!(pass(&meters[0], BODY_BYTES_MAX).await, "nothing is counted before a message begins");
        meters.iter().for_each(|meter| meter.begin());
        for meter in &meters[..8] {
            assert!(pass(meter, BODY_BYTES_MAX).await);
        }
        assert!(!pass(&meters[8], BODY_BYTES_MAX).await, "the others hold all the room");
        meters[0].begin();
        assert!(pass(&meters[8], BODY_BYTES_MAX / 2).await, "one of them is done");
    }
}
