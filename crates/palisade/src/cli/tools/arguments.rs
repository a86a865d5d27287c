//! The arguments of `palisade tools`.

use clap::{Args, Subcommand};

/// Arguments of `tools`.
#[derive(Debug, Args)]
pub(crate) struct ToolsArguments {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the servers, how many tools they have and what is held
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Find tools by words
    Find {
        /// What the tool should do
        #[arg(required = true)]
        words: Vec<String>,
        /// Only tools of this server (can be given more than once)
        #[arg(long, value_name = "NAME")]
        server: Vec<String>,
        /// The most tools
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show everything about a tool, or the declarations of a server's tools
    Show {
        /// SERVER.TOOL or SERVER
        name: String,
        /// The language of the declarations: python or typescript
        #[arg(long, value_name = "LANGUAGE")]
        stubs: Option<String>,
    },
    /// Call a tool, as the operator: without a question, but not one that is denied or held
    Call {
        /// SERVER.TOOL
        name: String,
        /// Arguments, NAME=VALUE
        arguments: Vec<String>,
        /// All arguments as a JSON object
        #[arg(long, value_name = "OBJECT")]
        json: Option<String>,
    },
    /// Add a server to the user's configuration, and list its tools
    Add(AddArguments),
    /// Remove a server from the user's configuration
    Remove {
        /// The server
        name: String,
    },
    /// Take over the servers of an MCP client; starts none
    Import {
        /// claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf (or devin), zed, opencode or goose
        client: String,
        /// Show what would be written; write nothing
        #[arg(long)]
        print: bool,
    },
    /// Show definitions that are held because they are new, changed or suspicious
    Diff {
        /// Only of this server
        server: Option<String>,
    },
    /// Accept definitions that are held
    Accept {
        /// The server
        server: String,
        /// Only these tools
        tools: Vec<String>,
    },
    /// Log in to a server that is reached by HTTP and asks for it (OAuth)
    Login {
        /// The server
        server: String,
        /// The scopes to ask for, separated by blanks
        #[arg(long, value_name = "SCOPES")]
        scope: Option<String>,
        /// A client that is registered there, or the https address of its metadata
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// For this principal of a server for several, such as key:ID
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,
    },
    /// Forget what is known about a server: accepted definitions, aliases, learned shapes, logins
    Forget {
        /// The server
        server: String,
    },
}

/// Arguments of `tools add`.
#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// The name for it: a-z, 0-9, - and _
    pub(super) name: String,
    /// Its address, for a server that is reached by HTTP
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env", "read", "write", "access", "no_wall"])]
    pub(super) url: Option<String>,
    /// A header of every request, NAME=VALUE; the value may have ${env:X} and ${file:/PATH}
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    pub(super) header: Vec<String>,
    /// A variable of its environment, NAME=VALUE; the same references
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// A directory that it may read
    #[arg(long, value_name = "PATH")]
    pub(super) read: Vec<String>,
    /// A directory that it may also write
    #[arg(long, value_name = "PATH")]
    pub(super) write: Vec<String>,
    /// A name of access for its own traffic
    #[arg(long, value_name = "NAME")]
    pub(super) access: Vec<String>,
    /// Run it as this user, without a wall
    #[arg(long, conflicts_with_all = ["read", "write", "access"])]
    pub(super) no_wall: bool,
    /// Replace a server of that name
    #[arg(long)]
    pub(super) force: bool,
    /// The command that starts it
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}
