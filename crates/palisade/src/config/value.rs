//! Values from a file or a variable, checked once and typed from then on.

use std::path::PathBuf;

use policy::Binding;
use sandbox::Guarantee;

use super::access::AccessSetting;
use super::key::{Key, Number};
use super::oauth::OauthSetting;
use super::packages::PackagesSetting;
use super::quota::QuotaSetting;
use super::serve::ServeSetting;
use super::tools::Servers;
use super::wall::WallSetting;

/// Fields of a binding.
const MATCH: &str = "match";
const POLICY: &str = "policy";

/// The level of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people on a terminal, otherwise JSON.
    Auto,
    Json,
    Pretty,
}

impl LogFormat {
    const ALL: [Self; 3] = [Self::Auto, Self::Json, Self::Pretty];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Json => "json",
            Self::Pretty => "pretty",
        }
    }
}

/// An unchecked value.
#[derive(Debug, Clone)]
pub(crate) enum Raw {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Raw>),
    Table(Vec<(String, Raw)>),
    /// A type that no setting accepts; its name.
    Other(&'static str),
}

impl Raw {
    /// Interprets the text of a variable or flag for this setting.
    pub(crate) fn from_text(key: &Key, text: &str) -> Self {
        let text = text.trim();
        let as_text = || Self::Text(text.to_owned());
        match key {
            Key::Number(_) => {
                let whole = text.parse().map(Self::Integer).ok();
                whole.or_else(|| text.parse().map(Self::Float).ok()).unwrap_or_else(as_text)
            }
            Key::Serve(key) => key.raw(text),
            Key::Oauth(key) => key.raw(text),
            Key::AllowMissing => Self::list_from_text(text),
            Key::PolicyBind => Self::bindings_from_text(text),
            Key::Quota(key) => key.raw(text),
            Key::Packages(key) => key.raw(text),
            Key::Wall(key) => key.raw(text),
            Key::PoolEnabled | Key::AuditEnabled => {
                text.parse().map(Self::Boolean).unwrap_or_else(|_| as_text())
            }
            Key::Access(_)
            | Key::ToolServers
            | Key::StateDir
            | Key::LogLevel
            | Key::LogFormat
            | Key::OtlpEndpoint
            | Key::PolicyFolder
            | Key::Interpreter(_) => as_text(),
        }
    }

    /// Words separated by commas, or `none`.
    pub(crate) fn list_from_text(text: &str) -> Self {
        let words = text.split(',').filter(|_| text != "none");
        Self::List(words.map(|word| Self::Text(word.trim().to_owned())).collect())
    }

    /// Bindings separated by commas, each `CALLERS=POLICY`; or `none`.
    fn bindings_from_text(text: &str) -> Self {
        let binding = |word: &str| match word.trim().split_once('=') {
            Some((callers, policy)) => Self::Table(vec![
                (MATCH.to_owned(), Self::Text(callers.to_owned())),
                (POLICY.to_owned(), Self::Text(policy.to_owned())),
            ]),
            None => Self::Text(word.trim().to_owned()),
        };
        Self::List(text.split(',').filter(|_| text != "none").map(binding).collect())
    }

    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => format!("\"{}\"", terminal::plain(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Other(word) => (*word).to_owned(),
        }
    }
}

/// A setting with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setting {
    /// In the unit of the name; in thousandths if it is a fraction.
    Number(Number, u64),
    Serve(ServeSetting),
    Oauth(OauthSetting),
    PoolEnabled(bool),
    AuditEnabled(bool),
    AllowMissing(Vec<Guarantee>),
    StateDir(PathBuf),
    LogLevel(LogLevel),
    LogFormat(LogFormat),
    /// `None`: spans are not exported.
    OtlpEndpoint(Option<String>),
    PolicyFolder(PathBuf),
    PolicyBind(Vec<Binding>),
    Quota(QuotaSetting),
    Access(AccessSetting),
    Packages(PackagesSetting),
    ToolServers(Servers),
    Wall(WallSetting),
    Interpreter(String, PathBuf),
}

impl Setting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: &Key, raw: &Raw) -> Result<Self, String> {
        match key {
            Key::Number(number) => parse_number(*number, raw).map(|value| Self::Number(*number, value)),
            Key::Serve(key) => ServeSetting::parse(*key, raw).map(Self::Serve),
            Key::Oauth(key) => OauthSetting::parse(*key, raw).map(Self::Oauth),
            Key::PoolEnabled => parse_boolean(raw).map(Self::PoolEnabled),
            Key::AuditEnabled => parse_boolean(raw).map(Self::AuditEnabled),
            Key::AllowMissing => parse_guarantees(raw).map(Self::AllowMissing),
            Key::StateDir => parse_path(raw).map(Self::StateDir),
            Key::Interpreter(language) => {
                parse_path(raw).map(|path| Self::Interpreter(language.clone(), path))
            }
            Key::LogLevel => parse_word(raw, LogLevel::ALL, LogLevel::name).map(Self::LogLevel),
            Key::OtlpEndpoint => parse_endpoint(raw).map(Self::OtlpEndpoint),
            Key::PolicyFolder => parse_path(raw).map(Self::PolicyFolder),
            Key::PolicyBind => parse_bindings(raw).map(Self::PolicyBind),
            Key::Quota(key) => QuotaSetting::parse(*key, raw).map(Self::Quota),
            Key::Access(key) => AccessSetting::parse(*key, raw).map(Self::Access),
            Key::Packages(key) => PackagesSetting::parse(*key, raw).map(Self::Packages),
            Key::ToolServers => super::tools::parse(raw).map(Self::ToolServers),
            Key::Wall(key) => WallSetting::parse(*key, raw).map(Self::Wall),
            Key::LogFormat => parse_word(raw, LogFormat::ALL, LogFormat::name).map(Self::LogFormat),
        }
    }

    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Number(number, _) => Key::Number(*number),
            Self::Serve(setting) => Key::Serve(setting.key()),
            Self::Oauth(setting) => Key::Oauth(setting.key()),
            Self::PoolEnabled(_) => Key::PoolEnabled,
            Self::AuditEnabled(_) => Key::AuditEnabled,
            Self::AllowMissing(_) => Key::AllowMissing,
            Self::StateDir(_) => Key::StateDir,
            Self::LogLevel(_) => Key::LogLevel,
            Self::LogFormat(_) => Key::LogFormat,
            Self::OtlpEndpoint(_) => Key::OtlpEndpoint,
            Self::PolicyFolder(_) => Key::PolicyFolder,
            Self::PolicyBind(_) => Key::PolicyBind,
            Self::Quota(setting) => Key::Quota(setting.key()),
            Self::Access(setting) => Key::Access(setting.key()),
            Self::Packages(setting) => Key::Packages(setting.key()),
            Self::ToolServers(_) => Key::ToolServers,
            Self::Wall(setting) => Key::Wall(setting.key()),
            Self::Interpreter(language, _) => Key::Interpreter(language.clone()),
        }
    }
}

fn parse_number(number: Number, raw: &Raw) -> Result<u64, String> {
    let (least, most) = number.range();
    let kept = match raw {
        Raw::Integer(value) if number.is_fraction() => {
            u64::try_from(*value).ok().and_then(|v| v.checked_mul(1000))
        }
        Raw::Integer(value) => u64::try_from(*value).ok(),
        // A value beyond the range saturates and is refused below.
        Raw::Float(value) if number.is_fraction() && *value >= 0.0 => Some((value * 1000.0).round() as u64),
        _ => None,
    };
    kept.filter(|value| (least..=most).contains(value)).ok_or_else(|| {
        let kind = if number.is_fraction() { "a number" } else { "a whole number" };
        let (least, most) = (number.written(least), number.written(most));
        format!("it must be {kind} from {least} to {most}, not {}", raw.shown())
    })
}

fn parse_boolean(raw: &Raw) -> Result<bool, String> {
    match raw {
        Raw::Boolean(value) => Ok(*value),
        _ => Err(format!("it must be true or false, not {}", raw.shown())),
    }
}

fn parse_guarantees(raw: &Raw) -> Result<Vec<Guarantee>, String> {
    let known = || Guarantee::ALL.map(Guarantee::name).join(", ");
    let Raw::List(list) = raw else {
        return Err(format!("it must be a list of guarantees, not {}; there are {}", raw.shown(), known()));
    };
    let mut guarantees = list
        .iter()
        .map(|raw| {
            let found = if let Raw::Text(name) = raw { Guarantee::from_name(name) } else { None };
            found.ok_or_else(|| format!("{} is not a guarantee; there are {}", raw.shown(), known()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    guarantees.sort_unstable();
    guarantees.dedup();
    Ok(guarantees)
}

/// Which callers have which policy: tables with `match` and `policy`, in their order.
fn parse_bindings(raw: &Raw) -> Result<Vec<Binding>, String> {
    let wrong = |found: &Raw| {
        let found = found.shown();
        format!(
            "it must be tables with match and policy, such as match = \"key:ci-*\", policy = \"ci\", not {found}"
        )
    };
    let Raw::List(list) = raw else { return Err(wrong(raw)) };
    let binding = |raw: &Raw| {
        let Raw::Table(fields) = raw else { return Err(wrong(raw)) };
        if let Some((name, _)) = fields.iter().find(|(name, _)| name != MATCH && name != POLICY) {
            return Err(format!("unknown key `{}`; allowed here: {MATCH}, {POLICY}", terminal::plain(name)));
        }
        let text = |wanted: &str| match fields.iter().find(|(name, _)| name == wanted) {
            Some((_, Raw::Text(text))) if !text.is_empty() => Ok(text.clone()),
            Some((_, other)) => Err(format!("{wanted} must be a text, not {}", other.shown())),
            None => Err(format!("{wanted} is missing")),
        };
        Ok(Binding { callers: text(MATCH)?, policy: text(POLICY)? })
    };
    list.iter().map(binding).collect()
}

pub(crate) fn parse_path(raw: &Raw) -> Result<PathBuf, String> {
    match raw {
        Raw::Text(text) if text.starts_with('/') && !text.contains('\0') => Ok(PathBuf::from(text)),
        _ => Err(format!("it must be an absolute path such as \"/usr/bin/name\", not {}", raw.shown())),
    }
}

/// The address of a collector. TLS is not supported, because the collector should be on this machine or its
/// network. Credentials are not supported, because the settings would show them.
fn parse_endpoint(raw: &Raw) -> Result<Option<String>, String> {
    let wrong = || {
        let shown = raw.shown();
        format!(
            "it must be an address such as \"http://127.0.0.1:4318\", without credentials, or none, not {shown}"
        )
    };
    let Raw::Text(text) = raw else { return Err(wrong()) };
    if text == "none" {
        return Ok(None);
    }
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let is_fit = uri.scheme_str() == Some("http")
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.query().is_none()
        && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if is_fit { Ok(Some(text.trim_end_matches('/').to_owned())) } else { Err(wrong()) }
}

fn parse_word<T: Copy, const N: usize>(
    raw: &Raw,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = match raw {
        Raw::Text(text) => all.into_iter().find(|one| name(*one) == text),
        _ => None,
    };
    found.ok_or_else(|| format!("it must be one of {}, not {}", all.map(&name).join(", "), raw.shown()))
}

#[cfg(test)]
mod tests {
    use super::super::key::{Amount, Scope};
    use super::*;

    const MEMORY: Key = Key::Number(Number::Limit(Scope::Max, Amount::MemoryMb));
    const CPUS: Key = Key::Number(Number::Limit(Scope::Max, Amount::Cpus));

    fn from_text(key: &Key, text: &str) -> Result<Setting, String> {
        Setting::parse(key, &Raw::from_text(key, text))
    }

    #[test]
    fn numbers_have_ranges_that_the_message_names() {
        assert_eq!(
            from_text(&MEMORY, " 1024 "),
            Ok(Setting::Number(Number::Limit(Scope::Max, Amount::MemoryMb), 1024))
        );
        for bad in ["0", "-1", "1.5", "many", "99999999999999999999", "nan", "inf", "15", ""] {
            let message = from_text(&MEMORY, bad).unwrap_err();
            assert!(message.contains("from 16 to 1048576"), "{bad}: {message}");
        }
    }

    #[test]
    fn cores_may_be_fractions() {
        assert_eq!(
            from_text(&CPUS, "1.5"),
            Ok(Setting::Number(Number::Limit(Scope::Max, Amount::Cpus), 1500))
        );
        assert_eq!(from_text(&CPUS, "2"), Ok(Setting::Number(Number::Limit(Scope::Max, Amount::Cpus), 2000)));
        for bad in ["0", "0.05", "-1", "nan", "inf", "1e300"] {
            assert!(from_text(&CPUS, bad).unwrap_err().contains("from 0.1 to 1024"), "{bad}");
        }
    }

    #[test]
    fn guarantees_are_known_names() {
        let two = vec![Guarantee::MemoryLimited, Guarantee::CpuLimited];
        assert_eq!(
            from_text(&Key::AllowMissing, "cpu_limited, memory_limited,cpu_limited"),
            Ok(Setting::AllowMissing(two))
        );
        assert_eq!(from_text(&Key::AllowMissing, "none"), Ok(Setting::AllowMissing(Vec::new())));
        assert!(from_text(&Key::AllowMissing, "all").unwrap_err().contains("files_hidden"));
    }

    #[test]
    fn a_collector_has_a_plain_address() {
        let endpoint = |text: &str| from_text(&Key::OtlpEndpoint, text);
        let wanted = Ok(Setting::OtlpEndpoint(Some("http://127.0.0.1:4318".to_owned())));
        assert_eq!(endpoint("http://127.0.0.1:4318/"), wanted);
        assert_eq!(endpoint("none"), Ok(Setting::OtlpEndpoint(None)));
        for bad in
            ["https://collector", "127.0.0.1:4318", "http://", "http://me:secret@host", "http://h/?key=1", ""]
        {
            assert!(endpoint(bad).unwrap_err().contains("http://127.0.0.1:4318"), "{bad}");
        }
    }

    #[test]
    fn paths_are_absolute_and_levels_are_words() {
        assert!(from_text(&Key::StateDir, "state").is_err());
        assert!(from_text(&Key::Interpreter("python".to_owned()), "~/python").is_err());
        assert_eq!(from_text(&Key::LogLevel, "debug"), Ok(Setting::LogLevel(LogLevel::Debug)));
        assert!(from_text(&Key::LogLevel, "loud").unwrap_err().contains("error, warn, info, debug, trace"));
        assert_eq!(from_text(&Key::LogFormat, "pretty"), Ok(Setting::LogFormat(LogFormat::Pretty)));
        assert!(from_text(&Key::LogFormat, "xml").unwrap_err().contains("auto, json, pretty"));
    }
}
