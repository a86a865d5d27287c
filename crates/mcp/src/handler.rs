//! The protocol's methods.
//!
//! The library calls [`ServerHandler`] for every request. Each method determines the caller, delegates to the
//! module that answers, and adds the cache hints of the newer era.

use std::borrow::Cow;

use engine::{Caller, JudgedCall};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, ContentBlock, DiscoverResult, ErrorData, GetPromptRequestParams, GetPromptResponse,
    GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, JsonObject,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};

use super::approvals::GivenInput;
use super::approvals::nested::NestedAnswer;
use super::resources::Freshness;
use super::tools::{self, ToolCall, ToolEntry};
use super::{
    NAME, Server, VERSIONS, caller, completions, doors, file_urls, gate, icon, idempotency,
    ill_typed_arguments, is_modern, prompts, resources, subscriptions, tasks,
};

const TITLE: &str = "Palisade";
/// What a model is told about the server, each part with the tools that it is about.
const INSTRUCTIONS: [(&str, &[&str]); 7] = [
    ("Palisade runs programs in isolated sandboxes without network.", &[]),
    (
        "Use `run` with a whole program; pass data by `variables` or `inputs` rather than pasting it into code. Print \
what you need, or end with an expression to get its value.",
        &["run"],
    ),
    (
        "Runs without a sandbox_id share nothing; to keep files, variables and imports between runs, open a sandbox with \
`sandbox_open` and pass its sandbox_id (or name) to `run`.",
        &["run", "sandbox_open"],
    ),
    (
        "Packages that a program imports are named in `packages` of `run`, or installed in a sandbox with \
`install_packages`.",
        &["run", "install_packages"],
    ),
    ("When a run is cut short, the error says which limit to raise.", &["run"]),
    (
        "A run that takes long answers `outcome: running` with a run_id: follow it with `wait`.",
        &["run", "wait"],
    ),
    ("Long output is cut in the answer; read the rest at its palisade:// address.", &["run", "wait"]),
];

/// The instructions without the parts about tools that are hidden.
pub(super) fn instructions(hidden: &[&str]) -> String {
    let parts = INSTRUCTIONS.iter().filter(|(_, about)| !about.iter().any(|tool| hidden.contains(tool)));
    parts.map(|(text, _)| *text).collect::<Vec<_>>().join(" ")
}

/// Cache lifetime of lists. They change rarely, and subscribers are notified.
const LIST_FRESH_MS: u64 = 300_000;
/// Cache lifetime of check results that can still change. They settle within seconds of the start.
const SETTLING_FRESH_MS: u64 = 5_000;
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Adds the hints of the newer era to a list: its lifetime, its cache scope, and the server that made it.
macro_rules! with_hints {
    ($list:expr, $context:expr) => {
        with_hints!($list, $context, CacheScope::Public)
    };
    ($list:expr, $context:expr, $scope:expr) => {{
        let mut list = $list;
        if is_modern($context) {
            list = list.with_ttl_ms(LIST_FRESH_MS).with_cache_scope($scope);
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
        let mut config =
            ServerConfig::new(capabilities).with_instructions(instructions(&[tools::install::NAME]));
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
        result.instructions = Some(instructions(&self.hidden(&caller(&context)?)));
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

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let caller = caller(&context)?;
        let mut info = self.get_info();
        info.instructions = Some(instructions(&self.hidden(&caller)));
        let found = DiscoverResult::from_server_info(VERSIONS.to_vec(), info);
        Ok(found.with_ttl_ms(LIST_FRESH_MS).with_cache_scope(self.cache_scope(&caller)))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = caller(&context)?;
        let tools = self.tools_for(&caller).await;
        with_hints!(ListToolsResult::with_all_items(tools), &context, self.cache_scope(&caller))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = caller(&context)?;
        // Before anything else about the tool, so that no answer differs from that for an unknown one.
        let Some(entry) = self.visible_tool(&caller, &request).await else {
            let is_shown = |name: &str| !self.engine.gatekeeper().hides(&caller, &[name]);
            return Err(ErrorData::invalid_params(tools::unknown(&request.name, is_shown), None));
        };
        if let Some(complaint) = ill_typed_arguments(&context) {
            let response = tools::refuse_arguments(entry, complaint).into();
            return Ok(if is_modern(&context) { signed(response) } else { response });
        }
        let file_urls = file_urls(&context);
        let input = GivenInput { responses: request.input_responses, state: request.request_state };
        let (entry, given) =
            self.resumed(&caller, (entry, request.arguments.unwrap_or_default()), &input).await;
        let key = if entry.has_effects() { idempotency::key(&context) } else { Ok(None) };
        let call = ToolCall {
            server: self,
            caller: &caller,
            given,
            context: &context,
            file_urls: file_urls.as_ref(),
            input: &input,
            run_id: None,
            decision: None,
            wall_lists: Vec::new(),
        };
        let response = match key {
            Ok(Some(key)) => idempotency::call(entry, call, &key).await,
            Ok(None) => gate::call(entry, call).await,
            Err(error) => tools::refused(&error).into(),
        };
        let response = self.concealed(&caller, response);
        Ok(if is_modern(&context) { signed(response) } else { response })
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = caller(&context)?;
        let list = resources::list(|door| door.is_seen(self.engine.gatekeeper(), &caller));
        with_hints!(ListResourcesResult::with_all_items(list), &context, self.cache_scope(&caller))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let caller = caller(&context)?;
        let has_tools = self.engine.tool_index().is_some();
        let list = resources::templates(|door| {
            (door != doors::Door::Tools || has_tools) && door.is_seen(self.engine.gatekeeper(), &caller)
        });
        with_hints!(ListResourceTemplatesResult::with_all_items(list), &context, self.cache_scope(&caller))
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
        let caller = caller(&context)?;
        let list = prompts::list(|tool| !self.engine.gatekeeper().hides(&caller, &[tool]));
        with_hints!(ListPromptsResult::with_all_items(list), &context, self.cache_scope(&caller))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let caller = caller(&context)?;
        let is_shown = |tool: &str| !self.engine.gatekeeper().hides(&caller, &[tool]);
        let mut result = prompts::get(&request.name, request.arguments, is_shown)?;
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

impl Server {
    /// Whether answers to this caller may be given to another one.
    fn cache_scope(&self, caller: &Caller) -> CacheScope {
        if self.engine.gatekeeper().binds(caller) { CacheScope::Private } else { CacheScope::Public }
    }

    /// Names of the tools that this caller does not see, or that do not work here.
    fn hidden(&self, caller: &Caller) -> Vec<&'static str> {
        let mut hidden = doors::hidden(self.engine.gatekeeper(), caller);
        if self.engine.offered_packages().is_empty() {
            hidden.push(tools::install::NAME);
        }
        hidden
    }

    /// A call of `run` that answers a question of the run that it began waits for that run; nothing is run again.
    async fn resumed(
        &self,
        caller: &Caller,
        (entry, given): (&'static ToolEntry, JsonObject),
        input: &GivenInput,
    ) -> (&'static ToolEntry, JsonObject) {
        if entry.name == tools::run::NAME
            && let Some(answer) = NestedAnswer::of(self, caller, input).await
            && let Some(wait) = tools::find(tools::wait::NAME)
        {
            let mut resumed = JsonObject::new();
            resumed.insert("run_id".to_owned(), json!(answer.run.as_str()));
            if let Some(patience) = given.get("limits").and_then(|limits| limits.get("wait_ms")) {
                resumed.insert("timeout_ms".to_owned(), patience.clone());
            }
            return (wait, resumed);
        }
        (entry, given)
    }

    /// The tools that this caller sees.
    pub(super) async fn tools_for(&self, caller: &Caller) -> Vec<Tool> {
        let mut tools = self.tools().await;
        let hidden = self.hidden(caller);
        tools.retain(|tool| !hidden.contains(&&*tool.name));
        tools.iter_mut().for_each(|tool| doors::conceal(tool, &hidden));
        tools
    }

    /// The tool of a call. The call of a hidden one is recorded and goes no further.
    async fn visible_tool(
        &self,
        caller: &Caller,
        request: &CallToolRequestParams,
    ) -> Option<&'static ToolEntry> {
        let entry = tools::find(&request.name)?;
        let gatekeeper = self.engine.gatekeeper();
        if !gatekeeper.conceals(caller, &[entry.name]) {
            return Some(entry);
        }
        let arguments = json!({});
        let call = JudgedCall { caller, names: &[entry.name], arguments: &arguments };
        // Reloaded policies may allow it by now. The next call sees that.
        drop(gatekeeper.admit(call).await);
        None
    }

    /// Leaves out of the remedy of an error what it says about hidden tools.
    fn concealed(&self, caller: &Caller, mut response: CallToolResponse) -> CallToolResponse {
        let CallToolResponse::Complete(result) = &mut response else { return response };
        let remedy =
            result.structured_content.as_mut().and_then(|content| content.pointer_mut("/error/remedy"));
        let Some(Value::String(remedy)) = remedy else { return response };
        let plain = doors::without_mentions(remedy, &self.hidden(caller));
        if plain != *remedy {
            let said = std::mem::replace(remedy, plain.clone());
            for block in &mut result.content {
                if let Some(text) = block.as_text() {
                    *block = ContentBlock::text(text.text.replace(&said, &plain));
                }
            }
        }
        response
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
            result.meta.get_or_insert_default().extend(own_meta());
            result.into()
        }
        CallToolResponse::Task(task) => task.with_meta(own_meta()).into(),
        CallToolResponse::InputRequired(input) => input.with_meta(own_meta()).into(),
        other => other,
    }
}
