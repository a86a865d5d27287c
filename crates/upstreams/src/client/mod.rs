//! The MCP client: one connection to a server, over lines or HTTP, in either era of the protocol.
//!
//! ```text
//! connect -> negotiate (era) -> request* -> close
//!   Lines: one JSON message a line to a process       lines, process
//!   Http:  one POST a message, JSON or event stream    http, events
//! ```
//! What must hold: everything that a server sends is hostile; every line, answer and wait is bounded; a request is sent
//! at most once, and an error says whether it may have arrived. Its message may hold the words of a server as they are:
//! [`crate::redact`] takes credentials out and cuts it. Servers ask nothing of this client: it declares no
//! capability, and refuses sampling, elicitation and roots.

pub(crate) mod change;
pub(crate) mod era;
pub(crate) mod events;
pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod listing;
pub(crate) mod message;
pub(crate) mod process;

use std::time::Instant;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::host::{ToolError, ToolErrorCode};

/// A result and its size on the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Map<String, Value>,
    pub(crate) bytes: usize,
}

/// What bounds a request.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    pub(crate) bytes_max: usize,
}

impl Bounds {
    /// Bounds without a way to cancel.
    pub(crate) fn until(deadline: Instant, bytes_max: usize) -> Self {
        Self { deadline, cancel: CancellationToken::new(), bytes_max }
    }

    /// Waits until the time is over or the request is cancelled.
    pub(crate) async fn passed(&self) -> ToolError {
        tokio::select! {
            () = tokio::time::sleep_until(self.deadline.into()) => {
                ToolError::new(ToolErrorCode::TimedOut, "the server did not answer in time")
            }
            () = self.cancel.cancelled() => ToolError::new(ToolErrorCode::Cancelled, "the call was cancelled"),
        }
    }
}

/// A connection to a server.
pub(crate) enum Connection {
    /// To a process, by lines.
    Lines(lines::LinePeer),
    /// To a URL.
    Http(Box<http::HttpPeer>),
}

impl Connection {
    /// Sends a request once and awaits its answer.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        bounds: &Bounds,
    ) -> Result<Answer, ToolError> {
        match self {
            Self::Lines(peer) => peer.request(method, params, bounds).await,
            Self::Http(peer) => peer.request(method, params, bounds).await,
        }
    }

    /// Sends a notification; whether it arrives is not known.
    pub(crate) async fn notify(&self, method: &str, params: Map<String, Value>) {
        match self {
            Self::Lines(peer) => peer.notify(method, params),
            Self::Http(peer) => peer.notify(method, params).await,
        }
    }

    /// Why the connection cannot be used any more.
    pub(crate) fn ended(&self) -> Option<ToolError> {
        match self {
            Self::Lines(peer) => peer.ended(),
            Self::Http(_) => None,
        }
    }

    /// Whether the server said that its tools changed, since the last question.
    pub(crate) fn take_changed(&self) -> bool {
        match self {
            Self::Lines(peer) => peer.take_changed(),
            Self::Http(peer) => peer.take_changed(),
        }
    }

    /// Whether the server said that its tools changed, and nobody has asked.
    pub(crate) fn is_changed(&self) -> bool {
        match self {
            Self::Lines(peer) => peer.is_changed(),
            Self::Http(peer) => peer.is_changed(),
        }
    }

    /// Notes that the tools changed and were not listed since.
    pub(crate) fn set_changed(&self) {
        match self {
            Self::Lines(peer) => peer.set_changed(),
            Self::Http(peer) => peer.set_changed(),
        }
    }

    /// Credentials of this moment that results must not show, besides those of the start.
    pub(crate) fn secrets(&self) -> Vec<String> {
        match self {
            Self::Lines(_) => Vec::new(),
            Self::Http(peer) => peer.secrets(),
        }
    }

    /// Tells the connection which era was agreed.
    pub(crate) fn agree(&self, era: era::Era) {
        match self {
            Self::Lines(peer) => peer.agree(era),
            Self::Http(peer) => peer.agree(era),
        }
    }

    /// Ends the connection, and the process behind it.
    pub(crate) async fn close(&self) {
        match self {
            Self::Lines(peer) => peer.close().await,
            Self::Http(peer) => peer.close().await,
        }
    }
}
