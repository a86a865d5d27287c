//! Carries the byte stream of one sandbox over the link, in both halves alike.
//!
//! Each direction has a window: so many bytes may be on their way until the other half has passed them on. A
//! half that receives more than the window ends the connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, Semaphore};

use crate::frame::{Frame, Id, Kind, malformed};
use crate::link::Link;

/// How many bytes of one direction may be on their way.
const WINDOW_BYTES: usize = 256 * 1024;
/// The longest piece.
const PIECE_BYTES: usize = 32 * 1024;

/// Which end of the stream a pump serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// The engine's. It may end one direction and go on reading.
    Client,
    /// The guest's. A guest that ends its stream is gone, in both directions.
    Relay,
}

/// The state of one stream, which the reader of the connection fills.
#[derive(Debug)]
pub(crate) struct Flow {
    come: Mutex<Come>,
    arrived: Notify,
    /// How much this half may still send.
    credit: Semaphore,
}

#[derive(Debug, Default)]
struct Come {
    bytes: Vec<u8>,
    is_ended: bool,
    is_reset: bool,
}

impl Flow {
    pub(crate) fn new() -> Arc<Self> {
        let credit = Semaphore::new(WINDOW_BYTES);
        Arc::new(Self { come: Mutex::default(), arrived: Notify::new(), credit })
    }

    /// Takes a frame of this stream from the connection. Never waits.
    pub(crate) fn take(&self, frame: Frame) -> io::Result<()> {
        let mut come = self.come.lock().unwrap_or_else(PoisonError::into_inner);
        match frame.kind {
            Kind::Data => {
                if come.bytes.len() + frame.payload.len() > WINDOW_BYTES {
                    return Err(malformed("more than the window of a stream"));
                }
                come.bytes.extend_from_slice(&frame.payload);
            }
            Kind::Taken => {
                let count = frame.count()?;
                if self.credit.available_permits() + count > WINDOW_BYTES {
                    return Err(malformed("a count of bytes that were not sent"));
                }
                self.credit.add_permits(count);
            }
            Kind::End => come.is_ended = true,
            _ => come.is_reset = true,
        }
        drop(come);
        self.arrived.notify_one();
        Ok(())
    }

    /// The connection is lost: nothing comes any more.
    pub(crate) fn reset(&self) {
        self.come.lock().unwrap_or_else(PoisonError::into_inner).is_reset = true;
        self.arrived.notify_one();
    }

    /// The next bytes, or how the stream ended.
    async fn next(&self) -> Next {
        loop {
            {
                let mut come = self.come.lock().unwrap_or_else(PoisonError::into_inner);
                if !come.bytes.is_empty() {
                    return Next::Bytes(std::mem::take(&mut come.bytes));
                }
                if come.is_reset {
                    return Next::Reset;
                }
                if come.is_ended {
                    come.is_ended = false;
                    return Next::End;
                }
            }
            self.arrived.notified().await;
        }
    }
}

enum Next {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// Carries bytes between `socket` and the link until the stream is closed.
pub(crate) async fn pump(half: Half, id: Id, socket: UnixStream, flow: Arc<Flow>, link: Link) {
    let (reading, writing) = socket.into_split();
    // The stream is closed when what comes has ended for good, or when the guest's end is closed.
    tokio::select! {
        () = incoming(id, writing, &flow, &link) => {}
        () = outgoing(half, id, reading, &flow, &link) => {}
    }
    // If the other half is gone, so is its stream.
    link.send(Frame::bare(Kind::Reset, id)).await.ok();
}

async fn outgoing(half: Half, id: Id, mut socket: OwnedReadHalf, flow: &Flow, link: &Link) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = match socket.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        match flow.credit.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await {
            Ok(permits) => permits.forget(),
            Err(_) => return,
        }
        let frame = Frame::new(Kind::Data, id, piece.get(..count).unwrap_or_default().to_vec());
        if link.send(frame).await.is_err() {
            return;
        }
    }
    if half == Half::Client && link.send(Frame::bare(Kind::End, id)).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

async fn incoming(id: Id, mut socket: OwnedWriteHalf, flow: &Flow, link: &Link) {
    loop {
        match flow.next().await {
            Next::Bytes(bytes) => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    let is_taken = socket.write_all(piece).await.is_ok();
                    if !is_taken || link.send(Frame::counting(Kind::Taken, id, piece.len())).await.is_err() {
                        return;
                    }
                }
            }
            // The peer may have closed the socket already.
            Next::End => drop(socket.shutdown().await),
            Next::Reset => return,
        }
    }
}
