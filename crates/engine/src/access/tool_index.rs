//! What a caller may learn about tools of other servers before a run calls them. The book of access has it; front ends ask.

use policy::Caller;
use sandbox::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use crate::result::RunError;

/// Knows the tools of other servers.
pub trait ToolIndex: Send + Sync {
    /// The tools that match, best first.
    fn find<'a>(&'a self, query: ToolQuery<'a>) -> BoxFuture<'a, FoundTools>;

    /// Typed declarations of a server's tools; an error for a server that does not exist, or of which a policy hides a
    /// tool from the caller.
    fn declarations<'a>(
        &'a self,
        caller: &'a Caller,
        server: &'a str,
        notation: Notation,
    ) -> BoxFuture<'a, Result<String, RunError>>;
}

/// How signatures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Notation {
    /// As in `.pyi`.
    #[default]
    Python,
    /// As in `.d.ts`.
    TypeScript,
}

/// What to find.
#[derive(Debug, Clone, Copy)]
pub struct ToolQuery<'a> {
    /// Who asks: a server with a login shows each principal the tools of its own, and policies hide tools.
    pub caller: &'a Caller,
    /// Words, or one exact name `server.tool`.
    pub words: &'a str,
    /// The servers to look in; all if there are none.
    pub servers: &'a [String],
    /// How signatures are written.
    pub notation: Notation,
    /// The most tools.
    pub limit: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FoundTools {
    /// The tools, best first.
    pub tools: Vec<ListedTool>,
    /// How many match.
    pub total: usize,
    /// How many of them are not shown.
    pub more: usize,
    /// All servers, if the question has no words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ListedServer>,
    /// Servers whose tools could not be listed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<(String, String)>,
}

/// A tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ListedTool {
    /// `server.tool`, as programs write it.
    pub name: String,
    /// The same as the server spells it. Rules that name either of the two hold.
    #[serde(skip)]
    pub own_name: String,
    /// The arguments and the result.
    pub signature: String,
    /// What it is for.
    pub about: String,
    /// `read`, `write`, `destructive` or `unknown`.
    pub effect: &'static str,
    /// `allow`, `ask`, `deny` or `held`.
    pub access: &'static str,
    /// The schema of the arguments, of a tool that was asked for by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The schema of the result, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedServer {
    /// Its name, which `access` takes, unless a bundle names it.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// How many tools are known.
    pub tools: usize,
}
