//! The standard input of a run, in pieces that the guest has room for. A `Conversation` sends the pieces.

use std::sync::Arc;

use tokio::sync::mpsc;
use wire::CHUNK_BYTES_MAX;

use crate::request::Stdin;

/// Standard input in pieces.
pub(crate) enum Feed {
    Bytes(Arc<Vec<u8>>, usize),
    /// The pieces that come, and the rest of the last one.
    Stream {
        pieces: mpsc::Receiver<Vec<u8>>,
        held: Vec<u8>,
        is_prompted: bool,
    },
    Over,
}

impl Feed {
    pub(crate) fn new(stdin: Stdin) -> Self {
        match stdin {
            // The order already announced the end of input.
            Stdin::Empty => Self::Over,
            Stdin::Bytes(bytes) => Self::Bytes(Arc::new(bytes), 0),
            Stdin::Stream(pieces) => Self::Stream { pieces, held: Vec::new(), is_prompted: false },
            Stdin::Prompted(pieces) => Self::Stream { pieces, held: Vec::new(), is_prompted: true },
        }
    }

    /// A copy from the beginning, for a second attempt. `None` for a stream, which can be read only once.
    pub(crate) fn copy(&self) -> Option<Self> {
        match self {
            Self::Bytes(bytes, _) => Some(Self::Bytes(Arc::clone(bytes), 0)),
            Self::Stream { .. } => None,
            Self::Over => Some(Self::Over),
        }
    }

    /// Whether the caller is told when the program waits for input.
    pub(crate) fn is_prompted(&self) -> bool {
        matches!(self, Self::Stream { is_prompted: true, .. })
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
            Self::Stream { pieces, held, .. } => {
                while held.is_empty() {
                    match pieces.recv().await {
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
