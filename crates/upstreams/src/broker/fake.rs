//! A host without servers, for tests of the broker: its tools are functions in this file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::Principal;
use sandbox::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    Dialect, Effect, FindQuery, FoundTool, FoundTools, ResourceRead, ServerInfo, ServerState, ToolAccess,
    ToolAnswer, ToolCall, ToolDefinition, ToolError, ToolErrorCode, ToolHost, ToolStanding, Viewer,
};

/// The smallest PNG: one pixel, base64.
pub const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/// Tools of every server: name, effect, access.
const TOOLS: [(&str, Effect, ToolAccess); 12] = [
    ("echo", Effect::Read, ToolAccess::Allow),
    ("structured", Effect::Read, ToolAccess::Allow),
    ("shot", Effect::Read, ToolAccess::Allow),
    ("link", Effect::Read, ToolAccess::Allow),
    ("mixed", Effect::Read, ToolAccess::Allow),
    ("both", Effect::Read, ToolAccess::Allow),
    ("fail", Effect::Read, ToolAccess::Allow),
    ("slow", Effect::Read, ToolAccess::Allow),
    ("big", Effect::Read, ToolAccess::Allow),
    ("write", Effect::Write, ToolAccess::Ask),
    ("hidden", Effect::Read, ToolAccess::Deny),
    ("held", Effect::Read, ToolAccess::Held),
];
/// A tool of every server whose server fails before it can be asked.
pub const BROKEN_TOOL: &str = "broken";
/// A resource that every server refuses.
pub const REFUSED_URI: &str = "docs://refused";
const SERVERS: [&str; 5] = ["x", "y", "odd-server", "mail", "sink"];
/// The label of results of `mail`, which `sink` refuses.
pub const LABEL: &str = "private";

/// The host.
#[derive(Debug, Default)]
pub struct FakeHost {
    calls: Mutex<Vec<String>>,
    in_flight: AtomicUsize,
    peak: AtomicUsize,
    cancelled: AtomicUsize,
    learned: AtomicUsize,
}

impl FakeHost {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that arrived, as `server.tool`.
    pub fn calls(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// The most calls at once.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    /// The calls whose answers could be learned from.
    pub fn learned(&self) -> usize {
        self.learned.load(Ordering::SeqCst)
    }

    /// The calls that were cancelled.
    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    async fn answer(&self, call: ToolCall<'_>) -> Result<ToolAnswer, ToolError> {
        if let Some(message) = call.arguments.get("refuse").and_then(Value::as_str) {
            return Err(ToolError::new(ToolErrorCode::ServerError, message).after_sending());
        }
        let text = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
        let image = json!({ "type": "image", "mimeType": "image/png", "data": PIXEL });
        let link = json!({ "type": "resource_link", "uri": "docs://index", "name": "index" });
        let result = match call.tool.text() {
            "structured" => json!({ "content": [], "structuredContent": call.arguments }),
            "shot" => json!({ "content": [image] }),
            "link" => json!({ "content": [link] }),
            "both" => json!({ "content": [image], "structuredContent": call.arguments }),
            "mixed" => {
                let file = json!({ "uri": "docs://a", "mimeType": "text/csv", "text": "a,b" });
                let words = json!({ "type": "text", "text": "[1" });
                json!({ "content": [words, image, link, { "type": "resource", "resource": file }] })
            }
            "fail" => json!({ "content": [{ "type": "text", "text": "it failed" }], "isError": true }),
            "big" => {
                let bytes = call.arguments.get("bytes").and_then(Value::as_u64).unwrap_or(1);
                text("x".repeat(usize::try_from(bytes).unwrap_or(0)))
            }
            "slow" => {
                let ms = call.arguments.get("ms").and_then(Value::as_u64).unwrap_or(60_000);
                let deadline = call.deadline.saturating_duration_since(Instant::now());
                let after = Duration::from_millis(ms);
                tokio::select! {
                    () = call.cancel.cancelled() => {
                        self.cancelled.fetch_add(1, Ordering::SeqCst);
                        return Err(ToolError::new(ToolErrorCode::Cancelled, "cancelled").after_sending());
                    }
                    () = tokio::time::sleep(deadline), if deadline < after => {
                        return Err(ToolError::new(ToolErrorCode::TimedOut, "no answer in time").after_sending());
                    }
                    () = tokio::time::sleep(after) => text("late".to_owned()),
                }
            }
            _ => text(Value::Object(call.arguments).to_string()),
        };
        let bytes = result.to_string().len();
        if bytes > call.answer_bytes_max {
            return Err(
                ToolError::new(ToolErrorCode::AnswerTooLarge, "the answer is too large").after_sending()
            );
        }
        let labels = labels_of(call.server);
        Ok(ToolAnswer { result: result.as_object().cloned().unwrap_or_default(), bytes, labels })
    }
}

fn labels_of(server: &str) -> Vec<String> {
    (server == "mail").then(|| LABEL.to_owned()).into_iter().collect()
}

fn refuses_of(server: &str) -> Vec<String> {
    (server == "sink").then(|| LABEL.to_owned()).into_iter().collect()
}

impl ToolHost for FakeHost {
    fn servers(&self, _: Viewer<'_>) -> Vec<ServerInfo> {
        let info = |name: &&str| ServerInfo {
            name: (*name).to_owned(),
            about: format!("the server {name}"),
            state: ServerState::Ready,
            tools: TOOLS.len(),
            is_listed: true,
            held: 1,
            labels: labels_of(name),
            refuses: refuses_of(name),
            instructions: String::new(),
            is_walled: Some(true),
        };
        SERVERS.iter().map(info).collect()
    }

    fn find<'a>(&'a self, query: FindQuery<'a>) -> BoxFuture<'a, FoundTools> {
        let is_asked =
            |server: &&&str| query.servers.is_none_or(|asked| asked.iter().any(|one| one == **server));
        let all =
            SERVERS.iter().filter(is_asked).flat_map(|server| TOOLS.iter().map(move |tool| (server, tool)));
        let words = query.words.to_owned();
        let found =
            all.filter(|(server, tool)| words.is_empty() || format!("{server}.{}", tool.0).contains(&words));
        let found = found.filter(|(server, tool)| query.viewer.sees(server, tool.0, tool.0));
        let mut tools: Vec<FoundTool> = found
            .map(|(server, (tool, effect, access))| FoundTool {
                name: format!("{server}.{tool}"),
                own_name: format!("{server}.{tool}"),
                signature: format!("{tool}(**args) -> object"),
                about: format!("{tool} of {server}"),
                effect: *effect,
                access: *access,
            })
            .collect();
        let total = tools.len();
        tools.truncate(query.limit);
        Box::pin(std::future::ready(FoundTools {
            more: total - tools.len(),
            tools,
            total,
            failed: Vec::new(),
        }))
    }

    fn standing<'a>(
        &'a self,
        _: &'a Principal,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<ToolStanding, ToolError>> {
        let found = TOOLS.iter().find(|(name, ..)| *name == tool);
        let standing = found.map(|(_, effect, access)| ToolStanding {
            server: server.to_owned(),
            tool: tool.to_owned(),
            alias: tool.to_owned(),
            effect: *effect,
            access: *access,
            labels: labels_of(server),
            refuses: refuses_of(server),
            digest: String::new(),
        });
        let error = || match tool {
            BROKEN_TOOL => ToolError::new(ToolErrorCode::ServerUnavailable, "what the server said last"),
            _ => ToolError::new(ToolErrorCode::UnknownTool, format!("{server} has no tool {tool}")),
        };
        Box::pin(std::future::ready(standing.ok_or_else(error)))
    }

    fn describe<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<ToolDefinition, ToolError>> {
        Box::pin(async move {
            let ToolStanding { effect, access, .. } = self.standing(principal, server, tool).await?;
            Ok(ToolDefinition {
                server: server.to_owned(),
                tool: tool.to_owned(),
                alias: tool.to_owned(),
                title: String::new(),
                about: format!("{tool} of {server}"),
                python: format!("{tool}(**args) -> object"),
                typescript: format!("{tool}(args: object): Promise<unknown>"),
                input_schema: json!({ "type": "object" }),
                output_schema: None,
                learned: None,
                effect,
                access,
                reason: String::new(),
                digest: String::new(),
            })
        })
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolAnswer, ToolError>> {
        Box::pin(async move {
            self.lock().push(format!("{}.{}", call.server, call.tool.text()));
            self.learned.fetch_add(usize::from(call.is_learned_from), Ordering::SeqCst);
            let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(now, Ordering::SeqCst);
            let answer = self.answer(call).await;
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            answer
        })
    }

    fn read<'a>(&'a self, read: ResourceRead<'a>) -> BoxFuture<'a, Result<ToolAnswer, ToolError>> {
        if read.uri == REFUSED_URI {
            let error = ToolError::new(ToolErrorCode::ServerError, "the text of the server");
            return Box::pin(std::future::ready(Err(error.after_sending())));
        }
        let contents =
            json!([{ "uri": read.uri, "mimeType": "text/plain", "text": format!("read {}", read.uri) }]);
        let mut result = Map::new();
        result.insert("contents".to_owned(), contents);
        let labels = labels_of(read.server);
        Box::pin(std::future::ready(Ok(ToolAnswer { result, bytes: 64, labels })))
    }

    fn stubs<'a>(
        &'a self,
        _: &'a Principal,
        server: &'a str,
        dialect: Dialect,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        let text = match dialect {
            Dialect::Python => format!("class {server}: ..."),
            Dialect::TypeScript => format!("interface {server} {{}}"),
        };
        Box::pin(std::future::ready(Ok(text)))
    }
}
