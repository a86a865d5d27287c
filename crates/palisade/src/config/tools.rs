//! The settings of tool servers: other MCP servers whose tools programs may call.
//!
//! ```toml
//! [tools.servers.github]
//! url     = "https://mcp.example/mcp"
//! headers = { Authorization = "Bearer ${env:GITHUB_TOKEN}" }
//! deny    = ["delete_*"]
//!
//! [tools.servers.files]
//! command = "mcp-server-filesystem"
//! args    = ["/srv/data"]
//! read    = ["/srv/data"]
//! ```
//! Only a trusted file can have them. A later file replaces single names of an earlier one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use engine::access::is_access_name;
use serde_json::{Value, json};
use upstreams::{
    Glob, HttpSpec, IDLE_DEFAULT, SERVERS_MAX, ServerSpec, ServerWall, StdioSpec, TIMEOUT_DEFAULT, Template,
    ToolRules, Transport, is_variable,
};

use super::settings::{Origin, Valued};
use super::value::Raw;

const ITEMS_MAX: usize = 128;
const ABOUT_CHARACTERS_MAX: usize = 200;
const IDLE_S_MAX: u64 = 7 * 24 * 3600;
const TIMEOUT_S_MAX: u64 = 600;
const COMMON: [&str; 8] = ["about", "allow", "ask", "deny", "labels", "refuses", "idle_s", "timeout_s"];
const STDIO: [&str; 8] = ["command", "args", "env", "cwd", "wall", "read", "write", "access"];
const HTTP: [&str; 2] = ["url", "headers"];

/// The name of the setting in a file.
pub(crate) const NAME: &str = "tools.servers";

/// Servers, by name.
pub(crate) type Servers = BTreeMap<String, ServerSpec>;

/// Reads all tables `tools.servers.NAME`.
pub(crate) fn parse(raw: &Raw) -> Result<Servers, String> {
    let Raw::Table(fields) = raw else {
        return Err("it must be tables [tools.servers.NAME] of a file".to_owned());
    };
    if fields.len() > SERVERS_MAX {
        return Err(format!("there are more than {SERVERS_MAX} servers"));
    }
    let mut servers = BTreeMap::new();
    for (name, raw) in fields {
        if !is_access_name(name) {
            let name = terminal::plain(name);
            return Err(format!("`{name}` is no name: use at most 64 of a-z, 0-9, - and _"));
        }
        let server = server(name, raw).map_err(|reason| format!("{name}: {reason}"))?;
        servers.insert(name.clone(), server);
    }
    Ok(servers)
}

/// Checks the text of a configuration file before it is written.
pub(crate) fn check_text(path: &std::path::Path, text: &str) -> Result<(), super::ConfigError> {
    super::file::parse(path, text).map(drop)
}

/// The fields of one table, by name.
struct Fields<'a>(&'a [(String, Raw)]);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Raw> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, raw)| raw)
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Raw::Text(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{name}: it must be text, not {}", other.shown())),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<&'a str>, String> {
        let wrong = || format!("{name}: it must be a list of at most {ITEMS_MAX} texts");
        let list = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(Raw::List(list)) if list.len() <= ITEMS_MAX => list,
            Some(_) => return Err(wrong()),
        };
        let text = |raw: &'a Raw| match raw {
            Raw::Text(text) => Ok(text.as_str()),
            _ => Err(wrong()),
        };
        list.iter().map(text).collect()
    }

    fn table(&self, name: &str) -> Result<&'a [(String, Raw)], String> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Raw::Table(fields)) if fields.len() <= ITEMS_MAX => Ok(fields),
            Some(_) => Err(format!("{name}: it must be a table of at most {ITEMS_MAX} texts")),
        }
    }

    fn globs(&self, name: &str) -> Result<Vec<Glob>, String> {
        let told = |reason| format!("{name}: {reason}");
        self.texts(name)?.into_iter().map(|text| Glob::new(text).map_err(told)).collect()
    }

    fn names(&self, name: &str) -> Result<Vec<String>, String> {
        let texts = self.texts(name)?;
        match texts.iter().find(|text| !is_access_name(text)) {
            Some(bad) => Err(format!("{name}: `{}` is no name", terminal::plain(bad))),
            None => Ok(texts.into_iter().map(str::to_owned).collect()),
        }
    }

    fn paths(&self, name: &str) -> Result<Vec<PathBuf>, String> {
        let path = |text: &str| match text.starts_with('/') && !text.contains('\0') {
            true => Ok(PathBuf::from(text)),
            false => Err(format!("{name}: `{}` must be an absolute path", terminal::plain(text))),
        };
        self.texts(name)?.into_iter().map(path).collect()
    }

    fn seconds(&self, name: &str, most: u64, default: Duration) -> Result<Duration, String> {
        let wrong = || format!("{name}: it must be a whole number from 1 to {most}");
        match self.get(name) {
            None => Ok(default),
            Some(Raw::Integer(seconds)) => {
                let seconds = u64::try_from(*seconds).ok().filter(|seconds| (1..=most).contains(seconds));
                seconds.map(Duration::from_secs).ok_or_else(wrong)
            }
            Some(_) => Err(wrong()),
        }
    }

    fn templates(&self, name: &str) -> Result<Vec<(&'a str, Template)>, String> {
        let template = |(key, raw): &'a (String, Raw)| match raw {
            Raw::Text(text) => {
                let parsed = Template::parse(text).map_err(|reason| format!("{name}.{key}: {reason}"))?;
                Ok((key.as_str(), parsed))
            }
            other => Err(format!("{name}.{key}: it must be text, not {}", other.shown())),
        };
        self.table(name)?.iter().map(template).collect()
    }
}

fn server(name: &str, raw: &Raw) -> Result<ServerSpec, String> {
    let Raw::Table(fields) = raw else { return Err("it must be a table".to_owned()) };
    let known = |field: &str| [&COMMON[..], &STDIO, &HTTP].iter().any(|names| names.contains(&field));
    if let Some((unknown, _)) = fields.iter().find(|(field, _)| !known(field)) {
        let allowed = [&COMMON[..], &STDIO, &HTTP].concat().join(", ");
        return Err(format!("unknown key `{}`; allowed here: {allowed}", terminal::plain(unknown)));
    }
    let fields = Fields(fields);
    let about = fields.text("about")?.unwrap_or_default();
    if about.chars().count() > ABOUT_CHARACTERS_MAX || about.contains(char::is_control) {
        return Err(format!("about: it must be at most {ABOUT_CHARACTERS_MAX} visible characters"));
    }
    Ok(ServerSpec {
        name: name.to_owned(),
        about: about.to_owned(),
        transport: transport(&fields)?,
        rules: ToolRules {
            allow: fields.globs("allow")?,
            ask: fields.globs("ask")?,
            deny: fields.globs("deny")?,
        },
        labels: fields.names("labels")?,
        refuses: fields.names("refuses")?,
        idle: fields.seconds("idle_s", IDLE_S_MAX, IDLE_DEFAULT)?,
        timeout: fields.seconds("timeout_s", TIMEOUT_S_MAX, TIMEOUT_DEFAULT)?,
    })
}

fn transport(fields: &Fields<'_>) -> Result<Transport, String> {
    let misplaced =
        |names: &'static [&'static str]| names.iter().copied().find(|name| fields.get(name).is_some());
    match (fields.text("command")?, fields.text("url")?) {
        (Some(command), None) => match misplaced(&HTTP) {
            Some(field) => Err(format!("{field}: only a server with `url` has it")),
            None => stdio(command, fields).map(Transport::Stdio),
        },
        (None, Some(url)) => match misplaced(&STDIO) {
            Some(field) => Err(format!("{field}: only a server with `command` has it")),
            None => http(url, fields).map(Transport::Http),
        },
        _ => Err("it needs either `command` or `url`".to_owned()),
    }
}

fn stdio(command: &str, fields: &Fields<'_>) -> Result<StdioSpec, String> {
    if command.is_empty() || command.contains(char::is_control) {
        return Err("command: it must be the name or the path of a program".to_owned());
    }
    let args = fields.texts("args")?.into_iter().map(Template::parse).collect::<Result<Vec<_>, _>>();
    let mut env = BTreeMap::new();
    for (name, template) in fields.templates("env")? {
        if !is_variable(name) || name.starts_with("PALISADE_") {
            return Err(format!("env: `{}` is no name of a variable", terminal::plain(name)));
        }
        env.insert(name.to_owned(), template);
    }
    let (read, write) = (fields.paths("read")?, fields.paths("write")?);
    let access = fields.names("access")?;
    let wall = match fields.text("wall")? {
        None => ServerWall::Own { read, write, access },
        Some("none") if read.is_empty() && write.is_empty() && access.is_empty() => ServerWall::None,
        Some("none") => {
            return Err("wall: without a wall, `read`, `write` and `access` mean nothing".to_owned());
        }
        Some(_) => return Err("wall: it can only be \"none\"; leave it out for the wall".to_owned()),
    };
    let cwd = match fields.text("cwd")? {
        Some(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        Some(_) => return Err("cwd: it must be an absolute path".to_owned()),
        None => None,
    };
    let args = args.map_err(|reason| format!("args: {reason}"))?;
    Ok(StdioSpec { command: command.to_owned(), args, env, cwd, wall })
}

fn http(url: &str, fields: &Fields<'_>) -> Result<HttpSpec, String> {
    let url = HttpSpec::parse_url(url).map_err(|reason| format!("url: {reason}"))?;
    let mut headers = Vec::new();
    for (name, template) in fields.templates("headers")? {
        let lower = name.to_ascii_lowercase();
        let is_ours = ["host", "content-type", "content-length", "accept", "connection", "transfer-encoding"]
            .contains(&lower.as_str())
            || lower.starts_with("mcp-");
        let header = http::HeaderName::try_from(lower).ok().filter(|_| !is_ours);
        let wrong = || format!("headers: `{}` cannot be set", terminal::plain(name));
        headers.push((header.ok_or_else(wrong)?, template));
    }
    Ok(HttpSpec { url, headers })
}

/// The servers in force.
#[derive(Debug, Clone)]
pub(crate) struct ToolSettings {
    pub(crate) servers: Valued<Servers>,
}

impl ToolSettings {
    /// No server.
    pub(crate) fn built_in() -> Self {
        Self { servers: Valued::default(BTreeMap::new()) }
    }

    pub(crate) fn apply(&mut self, servers: Servers, origin: Origin) {
        let mut all = std::mem::take(&mut self.servers.value);
        all.extend(servers);
        self.servers.set(all, origin);
    }

    /// The value for `palisade config show`, and its origin.
    pub(crate) fn shown(&self) -> (Value, &Origin) {
        (json!(self.servers.value.keys().collect::<Vec<_>>()), &self.servers.origin)
    }

    /// Why the servers and the names of access do not fit together, if they do not.
    pub(crate) fn conflict(&self, access: &BTreeMap<String, egress::Bundle>) -> Option<String> {
        let servers = &self.servers.value;
        for (name, bundle) in access {
            if let Some(unknown) = bundle.tools.iter().find(|server| !servers.contains_key(*server)) {
                return Some(format!(
                    "access.{name}: tools: there is no server `{unknown}` in [tools.servers]"
                ));
            }
            if servers.contains_key(name) && !bundle.tools.contains(name) {
                return Some(format!(
                    "`{name}` is a name of access and a tool server: rename one, or add `tools = [\"{name}\"]` to [access.{name}]"
                ));
            }
        }
        let spelled = |name: &str| name.replace('-', "_");
        let twins = servers
            .keys()
            .find(|one| servers.keys().any(|other| *one < other && spelled(one) == spelled(other)));
        if let Some(one) = twins {
            return Some(format!("two tool servers are spelled `{}` in programs: rename one", spelled(one)));
        }
        let needed = servers.values().filter_map(|spec| match &spec.transport {
            Transport::Stdio(StdioSpec { wall: ServerWall::Own { access, .. }, .. }) => {
                Some((&spec.name, access))
            }
            _ => None,
        });
        for (server, names) in needed {
            if let Some(unknown) = names.iter().find(|name| !access.contains_key(*name)) {
                return Some(format!("tools.servers.{server}: access: there is no `{unknown}` in [access]"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::parse as parse_file;
    use super::super::value::Setting;
    use super::*;

    fn read(text: &str) -> Result<Servers, String> {
        let given = parse_file(Path::new("palisade.toml"), text).map_err(|error| error.to_string())?;
        match given.into_iter().next().map(|one| one.setting) {
            Some(Setting::ToolServers(servers)) => Ok(servers),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_is_a_command_or_a_url() {
        let servers = read(
            "[tools.servers.files]\ncommand = \"mcp-files\"\nargs = [\"/srv\"]\nread = [\"/srv\"]\nlabels = [\"private\"]\nidle_s = 5\n\
             [tools.servers.hub]\nurl = \"https://hub.example/mcp\"\nheaders = { Authorization = \"Bearer ${env:T}\" }\ndeny = [\"delete_*\"]\n\
             [tools.servers.raw]\ncommand = \"x\"\nwall = \"none\"\n",
        )
        .unwrap();
        let Transport::Stdio(files) = &servers["files"].transport else { panic!() };
        assert!(matches!(&files.wall, ServerWall::Own { read, .. } if read.len() == 1));
        assert_eq!(servers["files"].idle, Duration::from_secs(5));
        let Transport::Http(hub) = &servers["hub"].transport else { panic!() };
        assert_eq!(hub.headers[0].1.source(), "Bearer ${env:T}");
        let Transport::Stdio(raw) = &servers["raw"].transport else { panic!() };
        assert_eq!(raw.wall, ServerWall::None);
    }

    #[test]
    fn mistakes_name_the_server_and_the_key() {
        for (text, part) in [
            ("[tools.servers.a]\n", "a: it needs either"),
            ("[tools.servers.a]\ncommand = \"x\"\nurl = \"https://a.example/\"", "either"),
            ("[tools.servers.a]\ncommand = \"x\"\nheaders = {}", "headers: only a server with `url`"),
            ("[tools.servers.a]\nurl = \"https://a.example/\"\nread = []", "read: only"),
            ("[tools.servers.a]\nurl = \"http://a.example/\"", "loopback only"),
            ("[tools.servers.a]\ncommand = \"x\"\nwall = \"thin\"", "wall: "),
            ("[tools.servers.a]\ncommand = \"x\"\nwall = \"none\"\nread = [\"/\"]", "wall: without"),
            ("[tools.servers.a]\ncommand = \"x\"\nread = [\"rel\"]", "absolute"),
            ("[tools.servers.a]\ncommand = \"x\"\nenv = { PALISADE_X = \"1\" }", "env: "),
            ("[tools.servers.a]\nurl = \"https://a.example/\"\nheaders = { Host = \"b\" }", "cannot be set"),
            ("[tools.servers.a]\ncommand = \"x\"\ntimeout_s = 0", "timeout_s: "),
            ("[tools.servers.a]\ncommand = \"x\"\nargs = [\"${x}\"]", "args: "),
            ("[tools.servers.a]\ncommand = \"x\"\nallow = [\"\"]", "allow: "),
            ("[tools.servers.A]\ncommand = \"x\"", "no name"),
            ("[tools.servers.a]\ncomand = \"x\"", "unknown key `comand`"),
            ("[tools]\nservers = 3", "tables [tools.servers.NAME]"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
