//! What the tools broker and `find_tools` need of upstream servers: the seam between them and this crate.
//!
//! [`Upstreams`](crate::Upstreams) implements it over real servers. The users of the trait judge every call first (who
//! may call, what a human must allow); this side knows the operator's rules for a tool and states them as
//! [`ToolAccess`], and refuses by itself what is denied or held.

use std::fmt;
use std::time::Instant;

use policy::Principal;
use sandbox::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Upstream servers and their tools.
///
/// What a server that is reached by URL shows may depend on who is logged in: whatever may send it a request names the
/// principal, and the request carries the tokens of that principal only.
pub trait ToolHost: Send + Sync {
    /// Every configured server, by name, as the viewer sees it. Starts none.
    fn servers(&self, viewer: Viewer<'_>) -> Vec<ServerInfo>;

    /// The tools that match, best first. Asks servers whose tools were never listed.
    fn find<'a>(&'a self, query: FindQuery<'a>) -> BoxFuture<'a, FoundTools>;

    /// What the operator and the pins say about one tool: all that judging a call needs. Cheap when the server's tools
    /// are known.
    fn standing<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<ToolStanding, ToolError>>;

    /// Everything about one tool.
    fn describe<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<ToolDefinition, ToolError>>;

    /// Calls a tool. The request is sent at most once: when it may have arrived and no answer came, the error says
    /// so ([`ToolError::may_have_run`]) and the call is not repeated. Answers that carry `isError` are answers.
    ///
    /// Refuses tools that are denied or held. A tool whose access is [`ToolAccess::Ask`] is called: the caller of this
    /// function has asked.
    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolAnswer, ToolError>>;

    /// Reads a resource of a server.
    fn read<'a>(&'a self, read: ResourceRead<'a>) -> BoxFuture<'a, Result<ToolAnswer, ToolError>>;

    /// Typed declarations of a server's tools: a `.pyi` or a `.d.ts`.
    fn stubs<'a>(
        &'a self,
        principal: &'a Principal,
        server: &'a str,
        dialect: Dialect,
    ) -> BoxFuture<'a, Result<String, ToolError>>;
}

/// Who looks at servers and tools.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    /// Servers are asked and shown with the tokens of this principal and of no other.
    pub principal: &'a Principal,
    /// Tools that do not exist for the viewer. `None` hides none.
    pub is_hidden: Option<&'a IsHidden<'a>>,
}

/// Whether a tool is hidden, by the name of its server, its own name and its alias.
pub type IsHidden<'a> = dyn Fn(&str, &str, &str) -> bool + Send + Sync + 'a;

impl<'a> Viewer<'a> {
    /// A principal from whom nothing is hidden.
    pub fn of(principal: &'a Principal) -> Self {
        Self { principal, is_hidden: None }
    }

    /// Whether a tool exists for the viewer.
    pub(crate) fn sees(&self, server: &str, own: &str, alias: &str) -> bool {
        self.is_hidden.is_none_or(|is_hidden| !is_hidden(server, own, alias))
    }
}

/// The notation of signatures and declarations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// Python: keyword arguments, `.pyi`.
    #[default]
    Python,
    /// TypeScript: one object, `.d.ts`. JavaScript too.
    TypeScript,
}

/// A configured server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerInfo {
    /// The operator's name for it.
    pub name: String,
    /// What the operator says it is for, else what the server says, cleaned. Empty if unknown.
    pub about: String,
    /// Whether it runs.
    pub state: ServerState,
    /// How many tools are known, without those that are denied.
    pub tools: usize,
    /// Whether its tools were ever listed. Otherwise none are known.
    pub is_listed: bool,
    /// How many of them are held.
    pub held: usize,
    /// What its results are marked with.
    pub labels: Vec<String>,
    /// Which labels of a run bar calls of it.
    pub refuses: Vec<String>,
    /// The server's own instructions, cleaned and cut. Empty if it has none, or its tools were never listed.
    pub instructions: String,
    /// Whether it runs behind Palisade's wall; `None` for a server that is reached by URL.
    pub is_walled: Option<bool>,
}

/// Whether a server runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ServerState {
    /// Not running; the first use starts it.
    Idle,
    /// Being started.
    Starting,
    /// Running, or reachable at the last use.
    Ready,
    /// The last start or use failed; it is tried again after a while.
    Failed {
        /// Why, in one line.
        reason: String,
    },
}

/// What to find.
#[derive(Clone, Copy)]
pub struct FindQuery<'a> {
    /// Who asks.
    pub viewer: Viewer<'a>,
    /// Words, or the exact name `server.tool`. Empty lists tools by name.
    pub words: &'a str,
    /// The servers to look in. `None` means all of them.
    pub servers: Option<&'a [String]>,
    /// The notation of the signatures.
    pub dialect: Dialect,
    /// The most tools to return.
    pub limit: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FoundTools {
    /// The tools, best first.
    pub tools: Vec<FoundTool>,
    /// How many tools match.
    pub total: usize,
    /// How many of them are not shown.
    pub more: usize,
    /// Servers whose tools could not be listed, and why.
    pub failed: Vec<(String, String)>,
}

/// A tool as a search shows it.
#[derive(Debug, Clone, Serialize)]
pub struct FoundTool {
    /// `server.tool`, spelled as programs write it (the alias, where the name is no identifier).
    pub name: String,
    /// The same as the server spells it, for rules.
    #[serde(skip)]
    pub own_name: String,
    /// The signature in the dialect of the query.
    pub signature: String,
    /// The cleaned beginning of the description.
    pub about: String,
    /// What calling it does, according to its pinned annotations.
    pub effect: Effect,
    /// Whether it may be called.
    pub access: ToolAccess,
}

/// What calling a tool does, according to its annotations as they were pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It adds.
    Write,
    /// It may change or remove.
    Destructive,
    /// The server does not say.
    Unknown,
}

impl Effect {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
            Self::Unknown => "unknown",
        }
    }
}

/// What the operator's rules and the pins say about calls of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolAccess {
    /// It may be called.
    Allow,
    /// A human must allow each call.
    Ask,
    /// It must not be called.
    Deny,
    /// Its definition is new, changed or suspicious and waits for `palisade tools accept`.
    Held,
}

impl ToolAccess {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Held => "held",
        }
    }
}

/// What judging a call needs to know about a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStanding {
    /// The server.
    pub server: String,
    /// The tool's own name, as the server spells it.
    pub tool: String,
    /// The name for programs. Rules that name either of the two hold.
    pub alias: String,
    /// What calling it does.
    pub effect: Effect,
    /// Whether it may be called.
    pub access: ToolAccess,
    /// What its results are marked with.
    pub labels: Vec<String>,
    /// Which labels of a run bar calls of it.
    pub refuses: Vec<String>,
    /// The digest of the definition, hexadecimal. A call with it ([`ToolName::Judged`]) is of this definition.
    pub digest: String,
}

/// Everything about a tool.
#[derive(Debug, Clone, Serialize)]
pub struct ToolDefinition {
    /// The server.
    pub server: String,
    /// The tool's own name, as the server spells it.
    pub tool: String,
    /// The name for programs. Equal to `tool` if that is an identifier. It never changes later.
    pub alias: String,
    /// The title, cleaned. May be empty.
    pub title: String,
    /// The description, cleaned and cut to 300 characters.
    pub about: String,
    /// The signature for Python.
    pub python: String,
    /// The signature for TypeScript.
    pub typescript: String,
    /// The schema of the arguments.
    pub input_schema: Value,
    /// The schema of `structuredContent`, if the server gives one.
    pub output_schema: Option<Value>,
    /// The learned shape of results, where the server gives no schema: a type in the notation of the dialects, and how
    /// often it was seen.
    pub learned: Option<LearnedShape>,
    /// What calling it does.
    pub effect: Effect,
    /// Whether it may be called.
    pub access: ToolAccess,
    /// Why it is held or denied. Empty otherwise.
    pub reason: String,
    /// The digest of the definition, hexadecimal.
    pub digest: String,
}

/// What results of a tool looked like. No value of a result is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LearnedShape {
    /// For Python.
    pub python: String,
    /// For TypeScript.
    pub typescript: String,
    /// From how many results.
    pub seen: u64,
}

/// Which tool a call means. The own name of one tool may be the alias of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolName<'a> {
    /// As a program spells it: an alias, else an own name.
    Spelled(&'a str),
    /// The tool of a [`ToolStanding`]. Another tool, or another definition of it, is not called.
    Judged {
        /// The own name.
        own: &'a str,
        /// The digest of the definition that was judged.
        digest: &'a str,
    },
}

impl<'a> ToolName<'a> {
    /// The name alone.
    pub fn text(self) -> &'a str {
        match self {
            Self::Spelled(name) | Self::Judged { own: name, .. } => name,
        }
    }
}

/// A call of a tool.
#[derive(Clone)]
pub struct ToolCall<'a> {
    /// On whose behalf. Credentials of OAuth belong to principals.
    pub principal: &'a Principal,
    /// The server.
    pub server: &'a str,
    /// The tool.
    pub tool: ToolName<'a>,
    /// The arguments. Numbers keep their digits.
    pub arguments: Map<String, Value>,
    /// When the answer must be there. The server's own `timeout_s` may be earlier.
    pub deadline: Instant,
    /// Cancels the call: the server is told, and the answer is not awaited.
    pub cancel: CancellationToken,
    /// The most bytes of the answer.
    pub answer_bytes_max: usize,
    /// Whether the shape of the answer may be told to others: not if the call or the answer may hold what is marked.
    pub is_learned_from: bool,
}

/// A read of a resource.
#[derive(Clone)]
pub struct ResourceRead<'a> {
    /// On whose behalf.
    pub principal: &'a Principal,
    /// The server.
    pub server: &'a str,
    /// The resource.
    pub uri: &'a str,
    /// When the answer must be there.
    pub deadline: Instant,
    /// Cancels the read.
    pub cancel: CancellationToken,
    /// The most bytes of the answer.
    pub answer_bytes_max: usize,
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct ToolAnswer {
    /// The result as the server gave it, without what only the protocol needs, and with credentials redacted: for
    /// a call `content`, `structuredContent`, `isError`; for a read `contents`.
    pub result: Map<String, Value>,
    /// Its size on the wire.
    pub bytes: usize,
    /// What results of this server are marked with.
    pub labels: Vec<String>,
}

impl ToolAnswer {
    /// Whether the tool itself reports a failure.
    pub fn is_error(&self) -> bool {
        self.result.get("isError").and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// What kind of failure it is.
    pub code: ToolErrorCode,
    /// What failed and why, for the program and the model. Contains cleaned text of the server at most.
    pub message: String,
    /// What to do next. May be empty.
    pub remedy: String,
    /// Whether the request may have reached the server and had its effect.
    pub may_have_run: bool,
}

impl ToolError {
    /// An error of a request that did not reach the server.
    pub fn new(code: ToolErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: String::new(), may_have_run: false }
    }

    /// Adds what to do next.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Says that the request may have had its effect.
    pub fn after_sending(mut self) -> Self {
        self.may_have_run = true;
        self
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for ToolError {}

/// The kinds of [`ToolError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolErrorCode {
    /// No server of that name is configured.
    UnknownServer,
    /// The server has no such tool or resource.
    UnknownTool,
    /// The operator denies the tool.
    ToolDenied,
    /// The tool's definition waits for the operator.
    ToolHeld,
    /// The server does not accept the arguments.
    BadArguments,
    /// The server cannot be started or reached.
    ServerUnavailable,
    /// The server ended, or closed the connection, while the call was open.
    ServerEnded,
    /// The server broke the protocol, or answered with an error of it.
    ServerError,
    /// The answer is larger than allowed.
    AnswerTooLarge,
    /// No answer came in time.
    TimedOut,
    /// The caller cancelled it.
    Cancelled,
    /// The server wants the principal to log in.
    LoginRequired,
    /// The server asks something of its user (elicitation, sampling), which programs cannot answer.
    InputRequired,
    /// Too many calls are open.
    Busy,
}

impl ToolErrorCode {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownServer => "unknown_server",
            Self::UnknownTool => "unknown_tool",
            Self::ToolDenied => "tool_denied",
            Self::ToolHeld => "tool_held",
            Self::BadArguments => "bad_arguments",
            Self::ServerUnavailable => "server_unavailable",
            Self::ServerEnded => "server_ended",
            Self::ServerError => "server_error",
            Self::AnswerTooLarge => "answer_too_large",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::LoginRequired => "login_required",
            Self::InputRequired => "input_required",
            Self::Busy => "busy",
        }
    }
}
