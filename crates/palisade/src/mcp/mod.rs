//! The MCP surface: what an agent sees, in both eras of the protocol.
//!
//! [`stdio::main`] serves a [`Server`] over standard input and output. The library settles the era per
//! connection (`initialize`) or per request (`_meta`); nothing here depends on which one it is, but for hints
//! that only the newer one knows. A tool answers with a result whatever the arguments were; protocol errors
//! are for requests that reach no tool.

mod arguments;
mod checks;
pub(crate) mod manifest;
mod progress;
mod salvage;
mod schema;
pub(crate) mod stdio;
mod text;
mod tools;
pub(crate) mod transport;

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Engine, Stop};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, DiscoverResult, ErrorData, Implementation,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};

use self::checks::Checks;
use self::tools::{capabilities, run, validate};

/// Name of this server in the protocol.
pub(crate) const NAME: &str = "palisade";
const TITLE: &str = "Palisade";

/// Revisions that are spoken: all that the library knows. The oldest ones cost nothing and scanners use them.
pub(crate) const VERSIONS: &[ProtocolVersion] = ProtocolVersion::KNOWN_VERSIONS;

const INSTRUCTIONS: &str = "Palisade runs programs in isolated sandboxes without network. Use `run` with a whole \
program; pass data by `variables` or `inputs` rather than pasting it into code. Print what you need, or end with an \
expression to get its value. Runs share nothing. When a run is cut short, the error says which limit to raise.";

/// Tools and languages do not change while a server lives.
const LIST_FRESH_MS: u64 = 300_000;
/// The content of the one resource settles within seconds of the start.
const RESOURCE_FRESH_MS: u64 = 5_000;
/// Requests that wait or run may hold this much of code, inputs and standard input together.
const HELD_BYTES_MAX: usize = 128 << 20;
const HELD_PIECE_BYTES: usize = 1 << 10;
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// One server, over one engine.
pub(crate) struct Server {
    engine: Arc<Engine>,
    checks: Arc<Checks>,
    ended: watch::Receiver<Option<Stop>>,
    held: Arc<Semaphore>,
    running: std::sync::atomic::AtomicUsize,
    /// The list does not change while the server lives.
    tools: OnceCell<Vec<Tool>>,
}

impl Server {
    /// A server whose runs all end when `ended` says so.
    pub(crate) fn new(engine: Arc<Engine>, ended: watch::Receiver<Option<Stop>>) -> Self {
        let checks = Checks::start(Arc::clone(&engine));
        let held = Arc::new(Semaphore::new(HELD_BYTES_MAX / HELD_PIECE_BYTES));
        Self { engine, checks, ended, held, running: Default::default(), tools: OnceCell::new() }
    }

    /// Whether every run has to end.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// How many runs there are.
    pub(crate) fn running(&self) -> usize {
        self.running.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Completes when every run has to end, with the reason.
    async fn ended(&self) -> Stop {
        let mut ended = self.ended.clone();
        let stop = ended.wait_for(Option::is_some).await.ok().and_then(|stop| *stop);
        stop.unwrap_or(Stop::Killed)
    }

    /// Room for a request of that size, if there is any.
    fn hold(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes / HELD_PIECE_BYTES + 1).ok()?;
        Arc::clone(&self.held).try_acquire_many_owned(pieces).ok()
    }

    async fn tools(&self) -> Vec<Tool> {
        let publish = async || {
            let languages: Vec<String> = self.checks.languages().await.languages.into_keys().collect();
            tools::published(&languages, self.engine.policy())
        };
        self.tools.get_or_init(publish).await.clone()
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let mut config = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        config.server_info = implementation();
        config
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(VERSIONS)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let found = DiscoverResult::from_server_info(VERSIONS.to_vec(), self.get_info());
        Ok(found.with_ttl_ms(LIST_FRESH_MS).with_cache_scope(CacheScope::Public))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = ListToolsResult::with_all_items(self.tools().await);
        if is_modern(&context) {
            list = list.with_ttl_ms(LIST_FRESH_MS).with_cache_scope(CacheScope::Public);
            list.meta = Some(own_meta());
        }
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = request.arguments.unwrap_or_default();
        let is_modern = is_modern(&context);
        let mut result = match request.name.as_ref() {
            run::NAME => run::call(self, given, context).await,
            capabilities::NAME => capabilities::call(self, given).await,
            validate::NAME => validate::call(&self.engine, given).await,
            other => {
                let other: String = other.chars().take(128).collect();
                return Err(ErrorData::invalid_params(
                    format!("there is no tool `{}`", other.escape_debug()),
                    None,
                ));
            }
        };
        if is_modern {
            result.meta = Some(own_meta());
        }
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = Resource::new(capabilities::URI, "capabilities")
            .with_title("What this sandbox can do")
            .with_description(
                "Languages, packages, limits, isolation and policy, as get_capabilities gives them",
            )
            .with_mime_type("application/json");
        let mut list = ListResourcesResult::with_all_items(vec![resource]);
        if is_modern(&context) {
            list = list.with_ttl_ms(LIST_FRESH_MS).with_cache_scope(CacheScope::Public);
            list.meta = Some(own_meta());
        }
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != capabilities::URI {
            let uri: String = request.uri.chars().take(1024).collect();
            return Err(ErrorData::resource_not_found(
                "there is no such resource",
                Some(json!({ "uri": uri })),
            ));
        }
        let content = ResourceContents::text(capabilities::read(self).await, capabilities::URI);
        let mut result = ReadResourceResult::new(vec![content.with_mime_type("application/json")]);
        if is_modern(&context) {
            result = result.with_ttl_ms(RESOURCE_FRESH_MS).with_cache_scope(CacheScope::Private);
            result.meta = Some(own_meta());
        }
        Ok(result.into())
    }
}

fn implementation() -> Implementation {
    Implementation::new(NAME, env!("CARGO_PKG_VERSION"))
        .with_title(TITLE)
        .with_description("Runs code written by AI agents in isolated sandboxes")
}

/// Whether this request belongs to the era without a handshake.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

/// Results of the newer era say who made them.
fn own_meta() -> MetaObject {
    let mut meta = MetaObject::default();
    meta.insert(SERVER_INFO_KEY.to_owned(), json!(implementation()));
    meta
}
