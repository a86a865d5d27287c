//! The supported clients: the path and the format of each client's list of servers. This file has only data.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::http::{LOCAL_URL, Shape, TokenFrom};

/// The format of a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Strict JSON: a comment makes the file unreadable for the client.
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    Toml,
}

/// The base directory of a client's own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Home,
    /// `$XDG_CONFIG_HOME`, or `.config` in the home.
    Config,
    /// `$CLAUDE_CONFIG_DIR`, or the home.
    Claude,
    /// `$CODEX_HOME`, or `.codex` in the home.
    Codex,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The name in messages.
    pub(crate) title: &'static str,
    base: Base,
    file: &'static str,
    /// Path relative to the project, if the client has such a file.
    project: Option<&'static str>,
    pub(crate) format: Format,
    /// The key whose members are the servers.
    pub(crate) container: &'static str,
    /// Fields that this client expects besides `command` and `args`.
    extras: &'static [Extra],
    /// The format of a server with an address, if the client supports one.
    pub(crate) http: Option<Shape>,
    /// The next step for the user.
    pub(crate) after: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extra {
    /// `"type": "stdio"`, first.
    Type,
    /// `"env": {}`, last.
    Env,
}

const ENV_HEADER: TokenFrom = TokenFrom::Header("${env:", "}");
const TYPED: Shape = Shape { has_type: true, url: "url", token: TokenFrom::Header("${", "}") };

/// Whether Palisade wrote such an entry: it starts this program, or has the address of a local server.
pub(crate) fn is_own_entry(entry: &Value) -> bool {
    let command = entry["command"].as_str().map(Path::new).and_then(Path::file_name);
    let starts_palisade = command.is_some_and(|name| name == "palisade") && entry["args"] == json!(["mcp"]);
    let has_env = entry["env"].as_object().is_some_and(|env| !env.is_empty());
    let has_address = ["url", "serverUrl"].iter().any(|key| entry[*key] == LOCAL_URL);
    (starts_palisade && !has_env) || has_address
}

/// All supported clients.
pub(crate) const CLIENTS: [Client; 8] = [
    Client {
        name: "claude-code",
        title: "Claude Code",
        base: Base::Claude,
        file: ".claude.json",
        project: Some(".mcp.json"),
        format: Format::Json,
        container: "mcpServers",
        extras: &[Extra::Type, Extra::Env],
        http: Some(TYPED),
        after: "start a new session; /mcp lists the server",
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        base: Base::Config,
        file: "Claude/claude_desktop_config.json",
        project: None,
        format: Format::Json,
        container: "mcpServers",
        extras: &[],
        http: None,
        after: "quit Claude Desktop and start it again",
    },
    Client {
        name: "cursor",
        title: "Cursor",
        base: Base::Home,
        file: ".cursor/mcp.json",
        project: Some(".cursor/mcp.json"),
        format: Format::Jsonc,
        container: "mcpServers",
        extras: &[],
        http: Some(Shape { has_type: false, url: "url", token: ENV_HEADER }),
        after: "switch the server on in Cursor's settings, under MCP",
    },
    Client {
        name: "vscode",
        title: "VS Code",
        base: Base::Config,
        file: "Code/User/mcp.json",
        project: Some(".vscode/mcp.json"),
        format: Format::Jsonc,
        container: "servers",
        extras: &[Extra::Type],
        http: Some(Shape { has_type: true, url: "url", token: ENV_HEADER }),
        after: "run \"MCP: List Servers\" from the command palette and start it",
    },
    Client {
        name: "codex",
        title: "Codex",
        base: Base::Codex,
        file: "config.toml",
        project: None,
        format: Format::Toml,
        container: "mcp_servers",
        extras: &[],
        http: Some(Shape { has_type: false, url: "url", token: TokenFrom::Field("bearer_token_env_var") }),
        after: "start a new session; /mcp lists the server",
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        base: Base::Home,
        file: ".gemini/settings.json",
        project: Some(".gemini/settings.json"),
        format: Format::Jsonc,
        container: "mcpServers",
        extras: &[],
        http: Some(TYPED),
        after: "start a new session in a trusted folder; /mcp lists the server",
    },
    Client {
        name: "zed",
        title: "Zed",
        base: Base::Config,
        file: "zed/settings.json",
        project: None,
        format: Format::Jsonc,
        container: "context_servers",
        extras: &[Extra::Env],
        http: Some(Shape { has_type: false, url: "url", token: TokenFrom::Nowhere }),
        after: "open the agent panel's settings; the server starts by itself",
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        base: Base::Home,
        file: ".codeium/windsurf/mcp_config.json",
        project: None,
        format: Format::Json,
        container: "mcpServers",
        extras: &[],
        http: Some(Shape { has_type: false, url: "serverUrl", token: ENV_HEADER }),
        after: "refresh the list of MCP servers in Cascade",
    },
];

/// The base directories, of this user or of a test.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) home: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) claude: Option<PathBuf>,
    pub(crate) codex: Option<PathBuf>,
    pub(crate) project: PathBuf,
}

/// Whether the file belongs to the user or to the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    User,
    Project,
}

impl Client {
    pub(crate) fn by_name(name: &str) -> Option<&'static Self> {
        CLIENTS.iter().find(|client| client.name == name)
    }

    /// Names of all clients, or only of those with a project file.
    pub(crate) fn names(reach: Reach) -> String {
        let fitting = CLIENTS.iter().filter(|client| reach == Reach::User || client.project.is_some());
        fitting.map(|client| client.name).collect::<Vec<_>>().join(", ")
    }

    /// Names of the clients that support an address.
    pub(crate) fn names_with_http() -> String {
        let fitting = CLIENTS.iter().filter(|client| client.http.is_some());
        fitting.map(|client| client.name).collect::<Vec<_>>().join(", ")
    }

    /// The client's file of that reach, if it has one.
    pub(crate) fn path(&self, reach: Reach, places: &Places) -> Option<PathBuf> {
        if reach == Reach::Project {
            return self.project.map(|file| places.project.join(file));
        }
        let base = match self.base {
            Base::Home => places.home.clone(),
            Base::Config => places.config.clone(),
            Base::Claude => places.claude.clone().unwrap_or_else(|| places.home.clone()),
            Base::Codex => places.codex.clone().unwrap_or_else(|| places.home.join(".codex")),
        };
        Some(base.join(self.file))
    }

    /// Whether the client seems to be used here: its own folder or file exists.
    pub(crate) fn is_found(&self, places: &Places) -> bool {
        let Some(path) = self.path(Reach::User, places) else { return false };
        let folder = path.parent().filter(|folder| **folder != *places.home && **folder != *places.config);
        let of_claude = self.base == Base::Claude && places.home.join(".claude").exists();
        path.exists() || folder.is_some_and(|folder| folder.exists()) || of_claude
    }

    /// The entry for a server that is started as `command mcp`.
    pub(crate) fn entry(&self, command: &str) -> Value {
        let mut entry = Map::new();
        if self.extras.contains(&Extra::Type) {
            entry.insert("type".to_owned(), json!("stdio"));
        }
        entry.insert("command".to_owned(), json!(command));
        entry.insert("args".to_owned(), json!(["mcp"]));
        if self.extras.contains(&Extra::Env) {
            entry.insert("env".to_owned(), json!({}));
        }
        Value::Object(entry)
    }
}
