//! The MCP surface: the tools, resources, prompts and tasks that a client sees, in both eras of the protocol.
//!
//! [`serve_stdio`] serves a [`Server`] over standard input and output. The crate `service` serves it over
//! HTTP. The library settles the era per connection (`initialize`) or per request (`_meta`). Nothing here
//! depends on the era, except hints and extensions that only the newer era defines.
//!
//! A tool always answers with a result, whatever its arguments were. Protocol errors are only for requests
//! that reach no tool. [`handler`] lists the methods.

mod approvals;
mod arguments;
mod checks;
mod code_packages;
mod completions;
mod declarations;
mod displays;
mod doors;
pub mod file_urls;
#[cfg(feature = "conformance")]
pub mod fixtures;
mod gate;
mod handler;
#[cfg(any(test, fuzzing))]
pub mod hostile;
mod icon;
pub mod idempotency;
pub mod languages;
pub mod manifest;
pub mod message;
pub mod percent;
mod program;
mod progress;
mod prompts;
mod recover_request_id;
pub mod render;
mod resources;
mod schema;
mod scopes;
mod signals;
mod stdio;
mod subscriptions;
mod suggest;
mod tasks;
#[cfg(test)]
#[allow(dead_code, reason = "tests of `service` use the rest")]
mod test_workspaces;
mod text;
mod tools;
pub mod transport;
pub mod view;

use std::sync::{Arc, Mutex, PoisonError};

use engine::workspace::Workspaces;
use engine::{Caller, Engine, Runs, Stop};
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ProtocolVersion, Tool};
use rmcp::service::RequestContext;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::checks::Checks;
pub use self::doors::{judged_arguments, may_use_url};
pub use self::progress::RUN_ID_KEY;
pub use self::scopes::scopes_of_message;
pub use self::signals::{OnHangup, ServerSignal, Signals};
pub use self::stdio::serve_stdio;
pub use self::tools::attached::{AttachedRun, AttachedStreams};
pub use self::tools::{arguments_of, doubt_argument, doubt_tool, scope_needed, scopes_needed, vocabulary};
use crate::file_urls::FileUrls;

/// Name of this server in the protocol.
pub(crate) const NAME: &str = "palisade";

/// Supported protocol revisions: every revision that the library knows. The oldest ones cost nothing, and
/// scanners use them.
pub(crate) const VERSIONS: &[ProtocolVersion] = ProtocolVersion::KNOWN_VERSIONS;

/// Upper bound on the code, inputs and standard input that queued and running requests hold together.
const HELD_BYTES_MAX: usize = 128 << 20;
const HELD_PIECE_BYTES: usize = 1 << 10;

/// An MCP server over one engine.
pub struct Server {
    engine: Arc<Engine>,
    runs: Arc<Runs>,
    checks: Arc<Checks>,
    ended: watch::Receiver<Option<Stop>>,
    held: Arc<Semaphore>,
    /// Held while a call that waited for an approval looks whether it may pass.
    approval_turn: tokio::sync::Mutex<()>,
    /// The tool list published last, and the languages it was made for.
    tools: Mutex<(Vec<String>, Vec<Tool>)>,
}

impl Server {
    /// Creates a server. All of its runs end when `ended` holds a reason.
    pub fn new(runs: Arc<Runs>, ended: watch::Receiver<Option<Stop>>) -> Self {
        let engine = Arc::clone(runs.engine());
        let checks = Checks::start(Arc::clone(&engine));
        let held = Arc::new(Semaphore::new(HELD_BYTES_MAX / HELD_PIECE_BYTES));
        let approval_turn = tokio::sync::Mutex::new(());
        Self { engine, runs, checks, ended, held, approval_turn, tools: Mutex::default() }
    }

    /// The files of sandboxes.
    pub(crate) fn workspaces(&self) -> &dyn Workspaces {
        self.runs.sandboxes().as_ref()
    }

    /// The runs of this server.
    pub fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }

    /// Checks again that the wall can be built and that every offered language still runs.
    pub async fn canaries(&self) -> Vec<(String, Result<(), String>)> {
        self.checks.again(&self.engine).await
    }

    /// Completes when every run has to end, with the reason.
    async fn ended(&self) -> Stop {
        let mut ended = self.ended.clone();
        let stop = ended.wait_for(Option::is_some).await.ok().and_then(|stop| *stop);
        stop.unwrap_or(Stop::Killed)
    }

    /// Reserves memory for a request of that size. Returns `None` when the budget is exhausted.
    fn hold(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes / HELD_PIECE_BYTES + 1).ok()?;
        Arc::clone(&self.held).try_acquire_many_owned(pieces).ok()
    }

    /// The languages that this server offers.
    async fn languages(&self) -> Vec<String> {
        self.checks.languages().await.offered()
    }

    /// The tool list, built once per set of languages, so that answers waiting to be read share it.
    async fn tools(&self) -> Vec<Tool> {
        let languages = self.languages().await;
        let walls: Vec<&str> = self.engine.walls().map(engine::Wall::name).collect();
        let mut made = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 != languages || made.1.is_empty() {
            *made = (
                languages.clone(),
                tools::published(&tools::Offer {
                    languages: &languages,
                    policy: self.engine.policy(),
                    access: self.engine.offered_access(),
                    packages: &self.engine.offered_packages(),
                    walls: &walls,
                }),
            );
        }
        made.1.clone()
    }
}

/// Signals the end of a session whose requests may outlive their connections.
#[derive(Debug, Clone, Default)]
pub struct SessionEnd(CancellationToken);

impl SessionEnd {
    /// Ends the session.
    pub fn say(&self) {
        self.0.cancel();
    }
}

/// A session that ends when the token is cancelled.
impl From<CancellationToken> for SessionEnd {
    fn from(ended: CancellationToken) -> Self {
        Self(ended)
    }
}

/// Completes when the caller no longer wants the answer.
async fn given_up(context: &RequestContext<RoleServer>) {
    let parts = context.extensions.get::<http::request::Parts>();
    match parts.and_then(|parts| parts.extensions.get::<SessionEnd>()) {
        Some(session_end) => {
            tokio::select! {
                () = context.ct.cancelled() => {}
                () = session_end.0.cancelled() => {}
            }
        }
        None => context.ct.cancelled().await,
    }
}

/// The caller of a request. The transport provides it, because only the transport knows it.
fn caller(context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
    let found = extension::<Caller>(context).cloned();
    found.ok_or_else(|| ErrorData::internal_error("the transport did not say who is asking", None))
}

/// URLs for transferring files by HTTP, if the transport provides them.
fn file_urls(context: &RequestContext<RoleServer>) -> Option<FileUrls> {
    extension::<FileUrls>(context).cloned()
}

/// What the transport found wrong with the arguments of a call.
fn ill_typed_arguments(context: &RequestContext<RoleServer>) -> Option<message::IllTypedArguments> {
    extension::<message::IllTypedArguments>(context).copied()
}

/// An extension of the message, or of the HTTP request that carried it.
fn extension<T: Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Option<&T> {
    let by_request =
        || context.extensions.get::<http::request::Parts>().and_then(|parts| parts.extensions.get::<T>());
    context.extensions.get::<T>().or_else(by_request)
}

/// Whether this request belongs to the era without a handshake.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}
