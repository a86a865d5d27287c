//! The protocol's methods.
//!
//! The library calls [`ServerHandler`] for every request. Each method determines the caller, delegates to the
//! module that answers, and adds the cache hints of the newer era.

use std::borrow::Cow;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, DiscoverResult, ErrorData, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
    GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, SubscriptionFilter, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;

use super::resources::Freshness;
use super::tools::{self, ToolCall};
use super::{
    NAME, Server, VERSIONS, caller, completions, file_urls, icon, ill_typed_arguments, is_modern, prompts,
    resources, subscriptions, tasks,
};

const TITLE: &str = "Palisade";
pub(super) const INSTRUCTIONS: &str = "Palisade runs programs in isolated sandboxes without network. Use `run` with a whole \
program; pass data by `variables` or `inputs` rather than pasting it into code. Print what you need, or end with an \
expression to get its value. Runs without a sandbox_id share nothing; to keep files, variables and imports between \
runs, open a sandbox with `sandbox_open` and pass its sandbox_id (or name) to `run`. When a run is cut short, the error says which limit to raise. A run \
that takes long answers `outcome: running` with a run_id: follow it with `wait`. Long output is cut in the answer; \
read the rest at its palisade:// address.";

/// Cache lifetime of lists. They change rarely, and subscribers are notified.
const LIST_FRESH_MS: u64 = 300_000;
/// Cache lifetime of check results that can still change. They settle within seconds of the start.
const SETTLING_FRESH_MS: u64 = 5_000;
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Adds the hints of the newer era to a list: its lifetime, its cache scope, and the server that made it.
macro_rules! with_hints {
    ($list:expr, $context:expr) => {{
        let mut list = $list;
        if is_modern($context) {
            list = list.with_ttl_ms(LIST_FRESH_MS).with_cache_scope(CacheScope::Public);
            list.meta = Some(own_meta());
        }
        Ok(list)
    }};
}

impl ServerHandler for Server {
    /// The configuration for the newer era. [`Self::initialize`] omits the parts that the older era does not
    /// define.
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_completions()
            .enable_tasks()
            .build();
        let mut config = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        config.server_info = implementation();
        config
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(VERSIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        let capabilities = &mut result.capabilities;
        capabilities.extensions = None;
        if let Some(tools) = &mut capabilities.tools {
            tools.list_changed = None;
        }
        if let Some(resources) = &mut capabilities.resources {
            resources.subscribe = None;
        }
        Ok(result)
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
        with_hints!(ListToolsResult::with_all_items(self.tools().await), &context)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = tools::find(&request.name) else {
            return Err(ErrorData::invalid_params(tools::unknown(&request.name), None));
        };
        if let Some(complaint) = ill_typed_arguments(&context) {
            let response = tools::refuse_arguments(entry, complaint).into();
            return Ok(if is_modern(&context) { signed(response) } else { response });
        }
        let (caller, file_urls) = (caller(&context)?, file_urls(&context));
        let mut given = request.arguments.unwrap_or_default();
        let response = match tools::resolve_sandbox(self, &caller, entry, &mut given).await {
            Err(error) => tools::refused(&error).into(),
            Ok(()) => {
                let (context, file_urls) = (&context, file_urls.as_ref());
                (entry.call)(ToolCall { server: self, caller: &caller, given, context, file_urls }).await
            }
        };
        Ok(if is_modern(&context) { signed(response) } else { response })
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        with_hints!(ListResourcesResult::with_all_items(resources::list()), &context)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        with_hints!(ListResourceTemplatesResult::with_all_items(resources::templates()), &context)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (content, freshness) = resources::read(self, &caller(&context)?, &request.uri).await?;
        let mut result = ReadResourceResult::new(vec![content]);
        if is_modern(&context) {
            let fresh_ms = match freshness {
                Freshness::Changing => 0,
                Freshness::Settling => SETTLING_FRESH_MS,
                Freshness::Settled => LIST_FRESH_MS,
            };
            result = result.with_ttl_ms(fresh_ms).with_cache_scope(CacheScope::Private);
            result.meta = Some(own_meta());
        }
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        with_hints!(ListPromptsResult::with_all_items(prompts::list()), &context)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut result = prompts::get(&request.name, request.arguments)?;
        result.meta = is_modern(&context).then(own_meta);
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::new(completions::complete(self, &caller(&context)?, &request).await))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(subscriptions::accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        subscriptions::listen(self, context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let mut result =
            tasks::get(self, &caller(&context)?, &request.task_id, file_urls(&context).as_ref()).await?;
        result.meta = Some(own_meta());
        Ok(result)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::update(self, &caller(&context)?, &request.task_id).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel(self, &caller(&context)?, &request.task_id).await
    }
}

pub(super) fn implementation() -> Implementation {
    Implementation::new(NAME, env!("CARGO_PKG_VERSION"))
        .with_title(TITLE)
        .with_description("Runs code written by AI agents in isolated sandboxes")
        .with_icons(icon::icons())
}

/// Metadata of results in the newer era: the server's name and version, without the icon.
fn own_meta() -> MetaObject {
    let mut meta = MetaObject::default();
    let own = Implementation::new(NAME, env!("CARGO_PKG_VERSION")).with_title(TITLE);
    meta.insert(SERVER_INFO_KEY.to_owned(), json!(own));
    meta
}

fn signed(response: CallToolResponse) -> CallToolResponse {
    match response {
        CallToolResponse::Complete(mut result) => {
            result.meta = Some(own_meta());
            result.into()
        }
        CallToolResponse::Task(task) => task.with_meta(own_meta()).into(),
        other => other,
    }
}
