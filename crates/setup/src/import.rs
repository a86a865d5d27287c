//! Reads the MCP servers that other clients are configured with, for `palisade tools import`.
//!
//! Reading is all: nothing is started and no client's file is changed. What cannot be taken over is returned with its
//! reason. Entries that are Palisade itself are left out by the caller, who knows its own executable.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

use super::file::FILE_BYTES_MAX;
use super::{UserFolders, json_edit, toml_file};

/// The most servers of one client.
const SERVERS_MAX: usize = 128;
/// The deepest nesting and the most nodes of a YAML file.
const YAML_DEPTH_MAX: usize = 32;
const YAML_NODES_MAX: usize = 100_000;

/// The notation of a client's file.
#[derive(Debug, Clone, Copy)]
enum Notation {
    Json,
    Toml,
    Yaml,
}

/// Where a client keeps its servers: a base, a file, the key of the table.
struct Source {
    client: &'static str,
    is_config: bool,
    file: &'static str,
    notation: Notation,
    container: &'static str,
}

const fn source(
    client: &'static str,
    is_config: bool,
    file: &'static str,
    notation: Notation,
    container: &'static str,
) -> Source {
    Source { client, is_config, file, notation, container }
}

/// All clients, in the order of the help. A client may have several files; the first that exists counts.
const SOURCES: [Source; 15] = [
    source("claude-code", false, ".claude.json", Notation::Json, "mcpServers"),
    source("claude-desktop", true, "Claude/claude_desktop_config.json", Notation::Json, "mcpServers"),
    source("cursor", false, ".cursor/mcp.json", Notation::Json, "mcpServers"),
    source("vscode", true, "Code/User/mcp.json", Notation::Json, "servers"),
    source("codex", false, ".codex/config.toml", Notation::Toml, "mcp_servers"),
    source("gemini", false, ".gemini/settings.json", Notation::Json, "mcpServers"),
    source("windsurf", true, "devin/mcp_config.json", Notation::Json, "mcpServers"),
    source("windsurf", false, ".codeium/windsurf/mcp_config.json", Notation::Json, "mcpServers"),
    source("windsurf", false, ".codeium/mcp_config.json", Notation::Json, "mcpServers"),
    source("devin", true, "devin/mcp_config.json", Notation::Json, "mcpServers"),
    source("zed", true, "zed/settings.json", Notation::Json, "context_servers"),
    source("opencode", true, "opencode/opencode.json", Notation::Json, "mcp"),
    source("opencode", true, "opencode/opencode.jsonc", Notation::Json, "mcp"),
    source("goose", true, "goose/config.yaml", Notation::Yaml, "extensions"),
    source("goose", false, ".config/goose/config.yaml", Notation::Yaml, "extensions"),
];

/// What a client is configured with.
#[derive(Debug)]
pub struct Imported {
    /// The file.
    pub path: PathBuf,
    /// Its servers.
    pub servers: Vec<ForeignServer>,
    /// Entries that cannot be taken over, and why.
    pub left_out: Vec<(String, String)>,
}

/// One server of another client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignServer {
    /// Its name there.
    pub name: String,
    /// How it is reached.
    pub reached: ForeignReach,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignReach {
    /// A command with its environment.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment.
        env: BTreeMap<String, String>,
        /// Its working directory.
        cwd: Option<String>,
    },
    /// An address with headers.
    Url {
        /// The address.
        url: String,
        /// The headers.
        headers: BTreeMap<String, String>,
    },
}

/// The names of the clients.
pub fn import_clients() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = SOURCES.iter().map(|source| source.client).collect();
    names.dedup();
    names
}

/// Reads a client's servers.
pub fn import(folders: &UserFolders, client: &str) -> Result<Imported, String> {
    let sources: Vec<&Source> = SOURCES.iter().filter(|source| source.client == client).collect();
    if sources.is_empty() {
        let known = import_clients().join(", ");
        return Err(format!("`{}` is no client that is known; they are {known}", terminal::plain(client)));
    }
    let mut looked = Vec::new();
    for source in sources {
        let base = if source.is_config { &folders.config } else { &folders.home };
        let Some(base) = base else { return Err("this user has no home directory".to_owned()) };
        let path = base.join(source.file);
        match read(&path) {
            Ok(Some(text)) => {
                let wrong = |reason: String| format!("{}: {reason}", path.display());
                let table = table(&text, source).map_err(wrong)?;
                return Ok(taken(path.clone(), table));
            }
            Ok(None) => looked.push(path.display().to_string()),
            Err(reason) => return Err(format!("{} cannot be read: {reason}", path.display())),
        }
    }
    Err(format!("{client} has no configuration here: there is no {}", looked.join(" and no ")))
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err("it is no plain file".to_owned());
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(Some(text))
}

/// The entries of the container, by name.
fn table(text: &str, source: &Source) -> Result<Map<String, Value>, String> {
    let whole = match source.notation {
        Notation::Json => json_edit::whole(text).map_err(|error| error.to_string())?,
        Notation::Toml => toml_file::whole(text).map_err(|error| error.to_string())?,
        Notation::Yaml => yaml(text)?,
    };
    match whole.get(source.container) {
        Some(Value::Object(entries)) => Ok(entries.clone()),
        Some(_) => Err(format!("`{}` is no table", source.container)),
        None => Ok(Map::new()),
    }
}

fn taken(path: PathBuf, entries: Map<String, Value>) -> Imported {
    let mut imported = Imported { path, servers: Vec::new(), left_out: Vec::new() };
    for (name, entry) in entries {
        if imported.servers.len() == SERVERS_MAX {
            imported.left_out.push((name, format!("only {SERVERS_MAX} servers are taken")));
            continue;
        }
        match reach(&entry) {
            Ok(reached) => imported.servers.push(ForeignServer { name, reached }),
            Err(reason) => imported.left_out.push((name, reason.to_owned())),
        }
    }
    imported
}

fn reach(entry: &Value) -> Result<ForeignReach, &'static str> {
    let is = |key: &str, value: bool| entry[key].as_bool() == Some(value);
    if is("disabled", true) || is("enabled", false) {
        return Err("it is switched off there");
    }
    // Devin Desktop, once Windsurf, calls it `transport`.
    match entry["type"].as_str().or_else(|| entry["transport"].as_str()) {
        Some("sse") => return Err("its transport (SSE) is retired; give its streamable HTTP address"),
        Some("builtin" | "platform" | "frontend" | "inline_python") => {
            return Err("it is a part of the client itself");
        }
        _ => {}
    }
    let env = texts(&[&entry["env"], &entry["environment"], &entry["envs"]])?;
    let url = ["url", "serverUrl", "httpUrl", "uri"].iter().find_map(|key| entry[*key].as_str());
    if let Some(url) = url {
        let mut headers = texts(&[&entry["headers"], &entry["http_headers"]])?;
        for (name, variable) in texts(&[&entry["env_http_headers"]])? {
            headers.insert(name, format!("${{env:{variable}}}"));
        }
        if let Some(variable) = entry["bearer_token_env_var"].as_str() {
            headers.insert("Authorization".to_owned(), format!("Bearer ${{env:{variable}}}"));
        }
        return Ok(ForeignReach::Url { url: reference(url)?, headers });
    }
    // A word, a list (opencode), or `cmd` (goose).
    let (command, mut args) = match (&entry["command"], &entry["cmd"]) {
        (Value::String(command), _) | (_, Value::String(command)) => (command.as_str(), Vec::new()),
        (Value::Array(words), _) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            match words.as_deref() {
                Some([command, args @ ..]) => {
                    (*command, args.iter().map(|word| (*word).to_owned()).collect())
                }
                _ => return Err("it has no command"),
            }
        }
        // Zed once nested it.
        (Value::Object(nested), _) => {
            let path = nested.get("path").and_then(Value::as_str).ok_or("it has no command")?;
            return command_of(path, nested.get("args").unwrap_or(&Value::Null), Vec::new(), env, entry);
        }
        _ => return Err("it has neither a command nor an address"),
    };
    args.retain(|word| !word.is_empty());
    command_of(command, &entry["args"], args, env, entry)
}

fn command_of(
    command: &str,
    given: &Value,
    mut args: Vec<String>,
    env: BTreeMap<String, String>,
    entry: &Value,
) -> Result<ForeignReach, &'static str> {
    for argument in given.as_array().into_iter().flatten() {
        args.push(reference(argument.as_str().ok_or("an argument is no text")?)?);
    }
    let cwd = entry["cwd"].as_str().filter(|path| path.starts_with('/')).map(str::to_owned);
    Ok(ForeignReach::Command { command: reference(command)?, args, env, cwd })
}

fn texts(tables: &[&Value]) -> Result<BTreeMap<String, String>, &'static str> {
    let mut all = BTreeMap::new();
    for (name, value) in tables.iter().filter_map(|table| table.as_object()).flatten() {
        let text = match value {
            Value::String(text) => reference(text)?,
            Value::Number(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            _ => return Err("a variable or a header is no text"),
        };
        all.insert(name.clone(), text);
    }
    Ok(all)
}

/// Rewrites references of clients, `${NAME}` and `${env:NAME}`, as Palisade writes them.
fn reference(text: &str) -> Result<String, &'static str> {
    let (mut written, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("${") {
        let end = rest[start..].find('}').ok_or("a reference has no end")? + start;
        let inside = rest[start + 2..end].strip_prefix("env:").unwrap_or(&rest[start + 2..end]);
        let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
        let is_name =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty();
        if !is_name {
            return Err("it asks the client for a value (such as ${input:...} or ${workspaceFolder})");
        }
        written.push_str(&rest[..start]);
        written.push_str(&format!("${{env:{name}}}"));
        rest = &rest[end + 1..];
    }
    written.push_str(rest);
    Ok(written)
}

/// A YAML file as JSON: mappings, lists and scalars; aliases are refused.
fn yaml(text: &str) -> Result<Value, String> {
    enum Open {
        Map(Map<String, Value>, Option<String>),
        List(Vec<Value>),
    }
    let mut open: Vec<Open> = Vec::new();
    let mut whole = Value::Null;
    for (count, event) in Parser::new_from_str(text).enumerate() {
        let (event, _) = event.map_err(|error| error.to_string())?;
        if count > YAML_NODES_MAX || open.len() > YAML_DEPTH_MAX {
            return Err("it is too large or nested too deeply".to_owned());
        }
        let value = match event {
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                continue;
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::Alias(_) => return Err("it has an alias".to_owned()),
            Event::Scalar(text, ..) => scalar(&text),
            Event::MappingEnd | Event::SequenceEnd => match open.pop() {
                Some(Open::Map(fields, _)) => Value::Object(fields),
                Some(Open::List(items)) => Value::Array(items),
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            None => whole = value,
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map(fields, key)) => match key.take() {
                None => *key = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
                Some(key) => drop(fields.insert(key, value)),
            },
        }
    }
    Ok(whole)
}

fn scalar(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" | "~" | "" => Value::Null,
        other => Value::from(other),
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
