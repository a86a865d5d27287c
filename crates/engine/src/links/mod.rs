//! Links: how a program in a sandbox reaches something outside.
//!
//! A run may be granted listeners inside its sandbox ([`Grant`]), each with a [`Broker`]. A program connects to the
//! Unix socket or the loopback port, as to any server. The guest carries the bytes of each connection over the stream
//! that the sandbox has already. The host gives them to the broker as a [`Link`], an ordinary async byte stream. The
//! broker decides what is behind it; no route, interface or credential enters the sandbox.
//!
//! ```text
//!  program -- socket --> guest == Link{data} ==> conversation -- Link (AsyncRead, AsyncWrite) --> broker, its own task
//! ```
//!
//! What must hold:
//! - Nothing is sent, allocated or polled for a run without grants.
//! - A broker never delays output, the clock or the end of a run: it has a task and bounded buffers of its own.
//! - Numbers and amounts that a guest reports are checked ([`table`]). A guest that lies ends its run.
//! - Grants belong to the run. All processes of a persistent sandbox share them while the run is open, including those
//!   that an earlier run left behind. At the end of the run the listeners and links are gone.
//! - The engine names no broker.

mod link;
mod memory;
mod pause;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;

use policy::{Caller, Terms};
use sandbox::BoxFuture;
pub use wire::ListenAt;

pub use self::link::Link;
pub use self::memory::LINK_MEMORY_BYTES_MAX;
pub(crate) use self::memory::LinkMemory;
pub use self::pause::{PAUSE_MAX, PauseHold, RunPause};
pub(crate) use self::table::LinkTable;
use crate::RunRequest;

/// The path of the socket for tools, inside every sandbox that is granted one. Its folder belongs to the guest and
/// exists only during such a run. It is in the writable space and not in the workspace.
pub const TOOLS_SOCKET: &str = "/tmp/.palisade/tools.sock";
/// The largest number of grants of one run.
pub const GRANTS_MAX: usize = wire::LISTENERS_MAX as usize;

/// Serves what programs reach through a listener. One broker serves all links of its grant.
///
/// A release build ends the server when any code panics, so a broker must not panic. A build with unwinding closes only
/// the link.
pub trait Broker: Send + Sync {
    /// Serves one link until it is over. The engine runs it in a task of its own, and drops it when the run has ended
    /// and it does not return soon.
    ///
    /// The link is closed when the broker drops it; bytes that were written before still reach the program. An error
    /// is logged by its kind, and closes the link too.
    fn serve(self: Arc<Self>, link: Link, call: LinkCall) -> BoxFuture<'static, io::Result<()>>;
}

/// The run to which a link belongs.
#[derive(Debug, Clone)]
pub struct LinkCall {
    /// Who asked for the run.
    pub caller: Caller,
    /// What the run was given.
    pub terms: Arc<Terms>,
    /// Where the program connected.
    pub at: ListenAt,
    /// The clock of the run, which stands still while a broker waits for a human.
    pub pause: Arc<RunPause>,
}

/// A listener inside the sandbox of one run, and what is behind it.
#[derive(Clone)]
pub struct Grant {
    /// Where programs connect.
    pub at: ListenAt,
    /// What they reach.
    pub broker: Arc<dyn Broker>,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("at", &self.at).finish_non_exhaustive()
    }
}

/// What one run was granted, and what its brokers are told.
pub(crate) struct Reach {
    pub(crate) grants: Vec<Grant>,
    caller: Caller,
    terms: Arc<Terms>,
    memory: Arc<LinkMemory>,
    pause: Arc<RunPause>,
}

impl Reach {
    /// The reach of a builder.
    pub(crate) fn of_builder(
        grants: Vec<Grant>,
        caller: &Caller,
        terms: Terms,
        memory: &Arc<LinkMemory>,
    ) -> Arc<Self> {
        let (caller, terms, memory) = (caller.clone(), Arc::new(terms), Arc::clone(memory));
        Arc::new(Self { grants, caller, terms, memory, pause: Arc::default() })
    }

    /// `None` for a run without grants.
    pub(crate) fn of(
        request: &RunRequest,
        caller: &Caller,
        terms: &Terms,
        memory: &Arc<LinkMemory>,
    ) -> Option<Arc<Self>> {
        if request.grants.is_empty() {
            return None;
        }
        let (caller, terms, memory) = (caller.clone(), Arc::new(terms.clone()), Arc::clone(memory));
        let pause = Arc::default();
        Some(Arc::new(Self { grants: request.grants.clone(), caller, terms, memory, pause }))
    }
}
