//! A link as its broker has it: an async byte stream. The table of the conversation holds the other end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use wire::LINK_TAKEN_BYTES;

use super::memory::{OUTGOING_BYTES_MAX, Reservation};

/// A program's connection, for a broker.
///
/// Reading gives what the program sends, and the end of file when the program has ended its direction or has closed
/// the connection. Writing waits while the program does not read. `shutdown` ends the direction to the program, and the
/// other direction stays open. Dropping the link closes it. At the end of the run reading and writing fail with
/// `ConnectionAborted`.
pub struct Link {
    shared: Arc<Shared>,
}

/// Tells a conversation which links need it.
#[derive(Default)]
pub(super) struct Bell {
    rung: AtomicU64,
    notify: Notify,
}

/// A link, shared by its broker and the conversation.
pub(super) struct Shared {
    number: u32,
    bell: Arc<Bell>,
    state: Mutex<State>,
    _memory: Reservation,
}

/// What is in flight.
#[derive(Default)]
pub(super) struct State {
    /// Bytes of the program that the broker has not read; at most one window.
    pub(super) incoming: VecDeque<u8>,
    /// Whether no more come.
    pub(super) incoming_over: bool,
    /// How many bytes the broker has read since the guest was told last.
    pub(super) taken: usize,
    /// Bytes for the program; at most [`OUTGOING_BYTES_MAX`].
    pub(super) outgoing: Vec<u8>,
    /// Whether the broker has ended this direction.
    pub(super) outgoing_over: bool,
    /// Whether the guest has closed its end: no program reads any more.
    pub(super) is_closed: bool,
    /// Whether the run has ended.
    pub(super) is_cut: bool,
    /// Whether the broker has dropped the link.
    pub(super) is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Bell {
    fn ring(&self, number: u32) {
        self.rung.fetch_or(1 << number, Ordering::AcqRel);
        self.notify.notify_one();
    }

    /// The links that need the conversation, one bit each.
    pub(super) fn take(&self) -> u64 {
        if self.rung.load(Ordering::Acquire) == 0 { 0 } else { self.rung.swap(0, Ordering::AcqRel) }
    }

    /// Completes when a link needs the conversation. Cancel safe.
    pub(super) async fn rung(&self) {
        self.notify.notified().await;
    }
}

impl Shared {
    pub(super) fn new(number: u32, bell: Arc<Bell>, memory: Reservation) -> Arc<Self> {
        Arc::new(Self { number, bell, state: Mutex::default(), _memory: memory })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the broker if it can continue.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let can_read = !state.incoming.is_empty() || state.incoming_over || state.is_cut;
        let can_write = state.outgoing.is_empty() || state.is_cut;
        let wakers = [
            can_read.then(|| state.reader.take()).flatten(),
            can_write.then(|| state.writer.take()).flatten(),
        ];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        result
    }
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

fn aborted() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the run has ended")
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        if state.is_cut {
            return Poll::Ready(Err(aborted()));
        }
        if state.incoming.is_empty() {
            if state.incoming_over || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut read = 0;
        while buffer.remaining() > 0 && !state.incoming.is_empty() {
            let front = state.incoming.as_slices().0;
            let count = front.len().min(buffer.remaining());
            buffer.put_slice(&front[..count]);
            state.incoming.drain(..count);
            read += count;
        }
        state.taken += read;
        let is_due = state.taken >= LINK_TAKEN_BYTES;
        drop(state);
        if is_due {
            self.shared.bell.ring(self.shared.number);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        if state.is_cut {
            return Poll::Ready(Err(aborted()));
        }
        if state.is_closed || state.outgoing_over {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = OUTGOING_BYTES_MAX - state.outgoing.len();
        if room == 0 {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = data.len().min(room);
        state.outgoing.reserve_exact(count);
        state.outgoing.extend_from_slice(&data[..count]);
        drop(state);
        self.shared.bell.ring(self.shared.number);
        Poll::Ready(Ok(count))
    }

    /// Bytes leave by themselves, so this waits only until the conversation has taken them.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        if state.is_cut {
            return Poll::Ready(Err(aborted()));
        }
        if state.outgoing.is_empty() || state.is_closed {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().outgoing_over = true;
        self.shared.bell.ring(self.shared.number);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_dropped = true;
        state.incoming = VecDeque::new();
        drop(state);
        self.shared.bell.ring(self.shared.number);
    }
}
