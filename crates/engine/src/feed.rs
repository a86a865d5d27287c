//! The standard input of a run, in pieces that the guest has room for. A `Conversation` sends the pieces.

use std::sync::Arc;

use tokio::sync::mpsc;
use wire::CHUNK_BYTES_MAX;

use crate::request::Stdin;

/// Standard input in pieces.
pub(crate) enum Feed {
    Bytes(Arc<Vec<u8>>, usize),
    Stream(mpsc::Receiver<Vec<u8>>, Vec<u8>),
    Over,
}

impl Feed {
    pub(crate) fn new(stdin: Stdin) -> Self {
        match stdin {
            // The order already announced the end of input.
            Stdin::Empty => Self::Over,
            Stdin::Bytes(bytes) => Self::Bytes(Arc::new(bytes), 0),
            Stdin::Stream(receiver) => Self::Stream(receiver, Vec::new()),
        }
    }

    /// A copy from the beginning, for a second attempt. `None` for a stream, which can be read only once.
    pub(crate) fn copy(&self) -> Option<Self> {
        match self {
            Self::Bytes(bytes, _) => Some(Self::Bytes(Arc::clone(bytes), 0)),
            Self::Stream(..) => None,
            Self::Over => Some(Self::Over),
        }
    }

    /// Whether the input has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    pub(crate) fn wants(&self, window: usize) -> bool {
        window > 0 && !matches!(self, Self::Over)
    }

    /// The next piece, or `None` at the end, which is returned once. Cancel safe.
    pub(crate) async fn next(&mut self, window: usize) -> Option<Vec<u8>> {
        let most = window.min(CHUNK_BYTES_MAX);
        let piece = match self {
            Self::Bytes(bytes, sent) => {
                let piece = bytes[*sent..].chunks(most).next().map(<[u8]>::to_vec);
                *sent += piece.as_ref().map_or(0, Vec::len);
                piece
            }
            Self::Stream(receiver, held) => {
                while held.is_empty() {
                    match receiver.recv().await {
                        Some(bytes) => *held = bytes,
                        None => break,
                    }
                }
                let rest = held.split_off(held.len().min(most));
                let piece = std::mem::replace(held, rest);
                (!piece.is_empty()).then_some(piece)
            }
            Self::Over => None,
        };
        if piece.is_none() {
            *self = Self::Over;
        }
        piece
    }
}
