//! What the operator says about one server: how it is reached, which of its tools may be called, how long it may take.
//!
//! The configuration makes these values; a file in a working directory cannot.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::{Effect, ToolAccess};

/// The most servers.
pub const SERVERS_MAX: usize = 128;
/// How long a server that nobody uses keeps running.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(300);
/// How long a call may take.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The largest file that `${file:PATH}` names.
const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;
/// Shorter values are not taken out of results: they occur by chance.
pub(crate) const SECRET_BYTES_LEAST: usize = 8;

/// One upstream server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// The operator's name for it.
    pub name: String,
    /// What it is for. May be empty.
    pub about: String,
    /// How it is reached.
    pub transport: Transport,
    /// Which tools may be called.
    pub rules: ToolRules,
    /// What its results are marked with.
    pub labels: Vec<String>,
    /// Which labels of a run bar calls of it.
    pub refuses: Vec<String>,
    /// How long it keeps running without calls.
    pub idle: Duration,
    /// How long a call may take.
    pub timeout: Duration,
}

impl ServerSpec {
    /// Whether it may show each principal other tools: its requests carry the tokens of logins.
    pub(crate) fn has_logins(&self) -> bool {
        match &self.transport {
            Transport::Http(http) => {
                http.headers.iter().all(|(name, _)| *name != http::header::AUTHORIZATION)
            }
            Transport::Stdio(_) => false,
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A process that talks on its standard streams.
    Stdio(StdioSpec),
    /// A URL, by streamable HTTP.
    Http(HttpSpec),
}

/// A server that Palisade starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioSpec {
    /// The program: a name for PATH, or a path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<Template>,
    /// Its environment, besides the few variables that every server gets.
    pub env: BTreeMap<String, Template>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
    /// What separates it from the machine.
    pub wall: ServerWall,
}

/// What separates a server that Palisade starts from the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerWall {
    /// Palisade's own wall: offline, with these directories.
    Own {
        /// Directories that the server may read.
        read: Vec<PathBuf>,
        /// Directories that it may also write.
        write: Vec<PathBuf>,
        /// Names of access for its own traffic.
        access: Vec<String>,
    },
    /// Nothing: the server runs as the user.
    None,
}

/// A server that is reached by URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSpec {
    /// The endpoint.
    pub url: http::Uri,
    /// Headers of every request.
    pub headers: Vec<(http::HeaderName, Template)>,
}

impl HttpSpec {
    /// Checks a URL: https, or http on loopback, without user information.
    pub fn parse_url(text: &str) -> Result<http::Uri, String> {
        let url: http::Uri = text.parse().map_err(|_| "it is no URL".to_owned())?;
        let authority = url.authority().ok_or("the URL has no host")?.as_str();
        if authority.contains('@') {
            return Err("user and password belong into `headers`, not into the URL".to_owned());
        }
        match url.scheme_str() {
            Some("https") => Ok(url),
            Some("http") if is_loopback(&url) => Ok(url),
            Some("http") => Err("plain http works on loopback only: use https".to_owned()),
            _ => Err("the URL must begin with https://".to_owned()),
        }
    }
}

/// Whether the host of a URL is this machine by its spelling.
pub(crate) fn is_loopback(url: &http::Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Which tools of a server may be called. The first of deny, ask, allow that matches decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Called without a question.
    pub allow: Vec<Glob>,
    /// Called after a human has allowed it.
    pub ask: Vec<Glob>,
    /// Never called.
    pub deny: Vec<Glob>,
}

impl ToolRules {
    /// What the rules say about a tool with these names: one that matches is enough. Without a rule, a tool that only reads is allowed and any other is asked for.
    pub(crate) fn judge(&self, names: [&str; 2], effect: Effect) -> ToolAccess {
        let any = |globs: &[Glob]| globs.iter().any(|glob| names.iter().any(|name| glob.matches(name)));
        match effect {
            _ if any(&self.deny) => ToolAccess::Deny,
            _ if any(&self.ask) => ToolAccess::Ask,
            _ if any(&self.allow) => ToolAccess::Allow,
            Effect::Read => ToolAccess::Allow,
            Effect::Write | Effect::Destructive | Effect::Unknown => ToolAccess::Ask,
        }
    }
}

/// A pattern for names: `*` is any text, `?` one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// The most characters of a pattern.
    const CHARACTERS_MAX: usize = 128;

    /// Checks a pattern.
    pub fn new(text: &str) -> Result<Self, String> {
        match text.chars().count() {
            0 => Err("a pattern is empty".to_owned()),
            n if n > Self::CHARACTERS_MAX => Err("a pattern is too long".to_owned()),
            _ if text.contains(char::is_control) => Err("a pattern has control characters".to_owned()),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// Whether a name matches. Takes linear space and at most the product of both lengths in time.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (self.0.chars().collect(), name.chars().collect());
        let (mut at, mut star) = ((0, 0), None);
        while at.1 < name.len() {
            match pattern.get(at.0) {
                Some('*') => {
                    star = Some((at.0 + 1, at.1));
                    at.0 += 1;
                }
                Some(one) if *one == '?' || *one == name[at.1] => at = (at.0 + 1, at.1 + 1),
                _ => match star {
                    Some((after, taken)) => {
                        star = Some((after, taken + 1));
                        at = (after, taken + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[at.0..].iter().all(|rest| *rest == '*')
    }
}

/// Text with `${env:NAME}` and `${file:PATH}` in it. The values are read when the server is started, never shown, and
/// taken out of what the server answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Env(String),
    File(PathBuf),
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A header that was written out may be a credential as well.
        f.write_str("Template(..)")
    }
}

impl Template {
    /// Reads a template. `${` is always the beginning of a reference.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("it contains a NUL character".to_owned());
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(start) = rest.find("${") {
            let end = rest[start..].find('}').ok_or("`${` has no end")? + start;
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            parts.push(match rest[start + 2..end].split_once(':') {
                Some(("env", name)) if is_variable(name) => Part::Env(name.to_owned()),
                Some(("file", path)) if path.starts_with('/') => Part::File(PathBuf::from(path)),
                _ => return Err("a reference is ${env:NAME} or ${file:/PATH}".to_owned()),
            });
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The text, with the values that were read added to `secrets`.
    pub(crate) fn fill(&self, secrets: &mut Vec<String>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.0 {
            let value = match part {
                Part::Text(part) => {
                    text.push_str(part);
                    continue;
                }
                Part::Env(name) => {
                    std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?
                }
                Part::File(path) => read_secret(path)?,
            };
            text.push_str(&value);
            if value.len() >= SECRET_BYTES_LEAST {
                secrets.push(value);
            }
        }
        Ok(text)
    }

    /// The template as it is written in a file, with literal text as it is.
    pub fn source(&self) -> String {
        let shown = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Env(name) => format!("${{env:{name}}}"),
            Part::File(path) => format!("${{file:{}}}", path.display()),
        };
        self.0.iter().map(shown).collect()
    }
}

/// Whether a text is the name of an environment variable.
pub fn is_variable(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let first = name.bytes().next().unwrap_or(b'0');
    is_plain && !first.is_ascii_digit() && name.len() <= 128
}

fn read_secret(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let unreadable = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(SECRET_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > SECRET_FILE_BYTES_MAX {
        return Err(format!("{} is too large for a credential", path.display()));
    }
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let matches = |pattern: &str, name: &str| Glob::new(pattern).unwrap().matches(name);
        assert!(matches("get_*", "get_issue") && matches("*", "") && matches("a?c", "abc"));
        assert!(matches("*_file*", "read_file_now") && matches("a**b", "ab"));
        assert!(!matches("get_*", "forget_x") && !matches("a?c", "ac") && !matches("a", "ab"));
        assert!(!matches(&"*a".repeat(60), &"b".repeat(2000)));
        assert!(Glob::new("").is_err() && Glob::new("a\n").is_err());
    }

    #[test]
    fn deny_comes_before_ask_and_ask_before_allow() {
        let globs = |text: &str| vec![Glob::new(text).unwrap()];
        let rules = ToolRules { allow: globs("*"), ask: globs("w*"), deny: globs("wipe") };
        assert_eq!(rules.judge(["wipe"; 2], Effect::Read), ToolAccess::Deny);
        assert_eq!(rules.judge(["write"; 2], Effect::Read), ToolAccess::Ask);
        assert_eq!(rules.judge(["x"; 2], Effect::Unknown), ToolAccess::Allow);
        let none = ToolRules::default();
        assert_eq!(none.judge(["x"; 2], Effect::Read), ToolAccess::Allow);
        assert_eq!(none.judge(["x"; 2], Effect::Unknown), ToolAccess::Ask);
    }

    #[test]
    fn rules_hold_for_the_own_name_and_for_the_alias_of_a_tool() {
        let globs = |text: &str| vec![Glob::new(text).unwrap()];
        for named in ["get-issue", "get_issue"] {
            let judge = |rules: ToolRules| rules.judge(["get-issue", "get_issue"], Effect::Unknown);
            assert_eq!(judge(ToolRules { deny: globs(named), ..ToolRules::default() }), ToolAccess::Deny);
            let ask = ToolRules { allow: globs("*"), ask: globs(named), ..ToolRules::default() };
            assert_eq!(judge(ask), ToolAccess::Ask);
            assert_eq!(judge(ToolRules { allow: globs(named), ..ToolRules::default() }), ToolAccess::Allow);
        }
    }

    #[test]
    fn templates_read_variables_and_files_and_name_what_is_missing() {
        let mut secrets = Vec::new();
        let folder = std::env::temp_dir().join(format!("palisade-spec-{}", std::process::id()));
        std::fs::write(&folder, "s3cret-value\n").unwrap();
        let text = format!("Bearer ${{file:{}}}!", folder.display());
        let template = Template::parse(&text).unwrap();
        assert_eq!(template.fill(&mut secrets).unwrap(), "Bearer s3cret-value!");
        assert_eq!((secrets, template.source()), (vec!["s3cret-value".to_owned()], text));
        std::fs::remove_file(&folder).unwrap();
        let missing = Template::parse("${env:PALISADE_NO_SUCH_VARIABLE}").unwrap();
        assert!(missing.fill(&mut Vec::new()).unwrap_err().contains("PALISADE_NO_SUCH_VARIABLE"));
        for bad in ["${env:A B}", "${x}", "${file:relative}", "${env:A", "a\0"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_url_is_https_or_loopback() {
        for good in
            ["https://mcp.example/mcp", "http://127.0.0.1:9/x", "http://localhost/", "http://[::1]:1/"]
        {
            HttpSpec::parse_url(good).unwrap();
        }
        for bad in ["http://mcp.example/", "ftp://a/", "/mcp", "https://u:p@a.example/", "https://"] {
            assert!(HttpSpec::parse_url(bad).is_err(), "{bad}");
        }
    }
}
