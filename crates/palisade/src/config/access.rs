//! The settings of access: what runs may reach outside, by name, and how the gateway gets there.
//!
//! ```toml
//! [access.github]
//! about   = "read GitHub"
//! egress  = ["api.github.com:443"]
//! secrets = { GITHUB_TOKEN = "github" }
//! max     = { connections = 32, mb_out = 10, mb_in = 200 }
//!
//! [egress]
//! resolver = "192.0.2.53:53"
//! upstream_proxy = "http://proxy.example:3128"
//! ```
//! Only a trusted file can have `access`. A later file replaces single names of an earlier one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use egress::{Bundle, Maxima, Resolver, Rule, SecretGrant, Upstream};
use engine::access::{SecretRef, is_access_name};
use serde_json::{Value, json};

use super::settings::{Origin, Valued};
use super::value::Raw;

/// The most names of access, and the most rules and secrets of one.
const NAMES_MAX: usize = 64;
const RULES_MAX: usize = 256;
const SECRETS_MAX: usize = 32;
const ABOUT_CHARACTERS_MAX: usize = 200;

/// A setting of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessKey {
    /// All tables `access.NAME`.
    Names,
    Resolver,
    UpstreamProxy,
}

impl AccessKey {
    pub(crate) const ALL: [Self; 3] = [Self::Names, Self::Resolver, Self::UpstreamProxy];

    /// The name in a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Names => "access",
            Self::Resolver => "egress.resolver",
            Self::UpstreamProxy => "egress.upstream_proxy",
        }
    }
}

/// A setting of access with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AccessSetting {
    Names(BTreeMap<String, Bundle>),
    Resolver(Resolver),
    UpstreamProxy(Option<Upstream>),
}

impl AccessSetting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: AccessKey, raw: &Raw) -> Result<Self, String> {
        match (key, raw) {
            (AccessKey::Names, Raw::Table(fields)) => names(fields).map(Self::Names),
            (AccessKey::Names, _) => Err("it must be tables [access.NAME] of a file".to_owned()),
            (AccessKey::Resolver, Raw::Text(text)) if text == "system" => {
                Ok(Self::Resolver(Resolver::System))
            }
            (AccessKey::Resolver, Raw::Text(text)) => {
                let address = text.parse::<SocketAddr>();
                let address = address.or_else(|_| text.parse().map(|host| SocketAddr::new(host, 53)));
                let wrong = |_| {
                    format!("it must be an address such as 192.0.2.53:53, or system, not {}", raw.shown())
                };
                address.map(|address| Self::Resolver(Resolver::Dns(address))).map_err(wrong)
            }
            (AccessKey::UpstreamProxy, Raw::Text(text)) if text == "none" => Ok(Self::UpstreamProxy(None)),
            (AccessKey::UpstreamProxy, Raw::Text(text)) => {
                text.parse().map(|proxy| Self::UpstreamProxy(Some(proxy)))
            }
            (AccessKey::Resolver | AccessKey::UpstreamProxy, _) => {
                Err(format!("it must be text, not {}", raw.shown()))
            }
        }
    }

    pub(crate) fn key(&self) -> AccessKey {
        match self {
            Self::Names(_) => AccessKey::Names,
            Self::Resolver(_) => AccessKey::Resolver,
            Self::UpstreamProxy(_) => AccessKey::UpstreamProxy,
        }
    }
}

fn names(fields: &[(String, Raw)]) -> Result<BTreeMap<String, Bundle>, String> {
    if fields.len() > NAMES_MAX {
        return Err(format!("there are more than {NAMES_MAX} names"));
    }
    let mut bundles = BTreeMap::new();
    for (name, raw) in fields {
        if !is_access_name(name) {
            let name = terminal::plain(name);
            return Err(format!("`{name}` is no name: use at most 64 of a-z, 0-9, - and _"));
        }
        let bundle = bundle(raw).map_err(|reason| format!("{name}: {reason}"))?;
        bundles.insert(name.clone(), bundle);
    }
    Ok(bundles)
}

fn bundle(raw: &Raw) -> Result<Bundle, String> {
    let Raw::Table(fields) = raw else { return Err("it must be a table".to_owned()) };
    let mut bundle = Bundle::default();
    for (field, raw) in fields {
        let told = |reason: String| format!("{field}: {reason}");
        match field.as_str() {
            "about" => bundle.about = about(raw).map_err(told)?,
            "egress" => bundle.rules = rules(raw).map_err(told)?,
            "secrets" => bundle.secrets = secrets(raw).map_err(told)?,
            "max" => bundle.maxima = maxima(raw).map_err(told)?,
            "tools" => bundle.tools = tools(raw).map_err(told)?,
            other => {
                let other = terminal::plain(other);
                return Err(format!(
                    "unknown key `{other}`; allowed here: about, egress, secrets, max, tools"
                ));
            }
        }
    }
    if bundle.rules.is_empty() && bundle.secrets.is_empty() && bundle.tools.is_empty() {
        return Err("it gives nothing: add `egress`, `secrets` or `tools`".to_owned());
    }
    check_bound_secrets(&bundle)?;
    Ok(bundle)
}

/// A secret with hosts is refused to every run that reaches more. In such a bundle no run would ever get it.
fn check_bound_secrets(bundle: &Bundle) -> Result<(), String> {
    for grant in bundle.secrets.iter().filter(|grant| !grant.hosts.is_empty()) {
        let beyond = bundle.rules.iter().find(|rule| !rule.is_within(&grant.hosts));
        let beyond = beyond.map(|rule| format!("`egress` has {rule}"));
        let more = beyond.or_else(|| (!bundle.tools.is_empty()).then(|| "there are `tools`".to_owned()));
        if let Some(more) = more {
            return Err(format!(
                "secrets: {}: its `hosts` bar a run that reaches anything else, and {more}: use two names of access, \
                 or leave `hosts` out",
                grant.variable
            ));
        }
    }
    Ok(())
}

fn about(raw: &Raw) -> Result<String, String> {
    match raw {
        Raw::Text(text)
            if text.chars().count() <= ABOUT_CHARACTERS_MAX && !text.contains(char::is_control) =>
        {
            Ok(text.clone())
        }
        _ => Err(format!("it must be a text of at most {ABOUT_CHARACTERS_MAX} visible characters")),
    }
}

fn rules(raw: &Raw) -> Result<Vec<Rule>, String> {
    let Raw::List(list) = raw else { return Err(format!("it must be a list of rules, not {}", raw.shown())) };
    if list.len() > RULES_MAX {
        return Err(format!("there are more than {RULES_MAX} rules"));
    }
    let rule = |raw: &Raw| match raw {
        Raw::Text(text) => text.parse::<Rule>(),
        _ => Err(format!("{} is no rule", raw.shown())),
    };
    list.iter().map(rule).collect()
}

/// Names of tool servers. Whether they exist is checked when all files are read.
fn tools(raw: &Raw) -> Result<Vec<String>, String> {
    let wrong = || format!("it must be a list of at most {RULES_MAX} names of servers");
    let Raw::List(list) = raw else { return Err(wrong()) };
    let name = |raw: &Raw| match raw {
        Raw::Text(text) if is_access_name(text) => Some(text.clone()),
        _ => None,
    };
    let names: Option<Vec<String>> = list.iter().map(name).collect();
    names.filter(|names| names.len() <= RULES_MAX).ok_or_else(wrong)
}

fn secrets(raw: &Raw) -> Result<Vec<SecretGrant>, String> {
    let Raw::Table(fields) = raw else {
        return Err(format!("it must be a table such as {{ TOKEN = \"github\" }}, not {}", raw.shown()));
    };
    if fields.len() > SECRETS_MAX {
        return Err(format!("there are more than {SECRETS_MAX} secrets"));
    }
    fields
        .iter()
        .map(|(variable, raw)| secret(variable, raw).map_err(|reason| format!("{variable}: {reason}")))
        .collect()
}

fn secret(variable: &str, raw: &Raw) -> Result<SecretGrant, String> {
    let is_plain = variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let starts_well = variable.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !is_plain || !starts_well || variable.len() > 128 || variable.starts_with("PALISADE_") {
        return Err("it is no name of an environment variable".to_owned());
    }
    let (mut from, mut hosts) = (None, Vec::new());
    let reference = |raw: &Raw| match raw {
        Raw::Text(text) => text.parse::<SecretRef>(),
        _ => Err(format!("it must be the name of a secret, not {}", raw.shown())),
    };
    match raw {
        Raw::Table(fields) => {
            for (field, raw) in fields {
                match field.as_str() {
                    "secret" => from = Some(reference(raw)?),
                    "hosts" => hosts = rules(raw)?,
                    _ => return Err("it has the keys secret and hosts".to_owned()),
                }
            }
        }
        other => from = Some(reference(other)?),
    }
    let secret = from.ok_or("the key `secret` is missing")?;
    Ok(SecretGrant { variable: variable.to_owned(), secret, hosts })
}

fn maxima(raw: &Raw) -> Result<Maxima, String> {
    let Raw::Table(fields) = raw else { return Err(format!("it must be a table, not {}", raw.shown())) };
    let mut maxima = Maxima::default();
    for (field, raw) in fields {
        let number = |most: u64| match raw {
            Raw::Integer(value) => u64::try_from(*value).ok().filter(|value| (1..=most).contains(value)),
            _ => None,
        };
        let wrong =
            |most: u64| format!("{field} must be a whole number from 1 to {most}, not {}", raw.shown());
        const CONNECTIONS: u64 = 64;
        const MEGABYTES: u64 = 1 << 20;
        match field.as_str() {
            "connections" => {
                let count = number(CONNECTIONS).and_then(|count| u32::try_from(count).ok());
                maxima.connections = count.ok_or_else(|| wrong(CONNECTIONS))?;
            }
            "mb_out" => maxima.mb_out = number(MEGABYTES).ok_or_else(|| wrong(MEGABYTES))?,
            "mb_in" => maxima.mb_in = number(MEGABYTES).ok_or_else(|| wrong(MEGABYTES))?,
            _ => return Err("it has the keys connections, mb_out and mb_in".to_owned()),
        }
    }
    Ok(maxima)
}

/// All settings of access in force.
#[derive(Debug, Clone)]
pub(crate) struct AccessSettings {
    pub(crate) names: Valued<BTreeMap<String, Bundle>>,
    pub(crate) resolver: Valued<Resolver>,
    pub(crate) upstream: Valued<Option<Upstream>>,
}

impl AccessSettings {
    /// Nothing is reached.
    pub(crate) fn built_in() -> Self {
        Self {
            names: Valued::default(BTreeMap::new()),
            resolver: Valued::default(Resolver::System),
            upstream: Valued::default(None),
        }
    }

    pub(crate) fn apply(&mut self, setting: AccessSetting, origin: Origin) {
        match setting {
            AccessSetting::Names(bundles) => {
                let mut all = std::mem::take(&mut self.names.value);
                all.extend(bundles);
                self.names.set(all, origin);
            }
            AccessSetting::Resolver(resolver) => self.resolver.set(resolver, origin),
            AccessSetting::UpstreamProxy(proxy) => self.upstream.set(proxy, origin),
        }
    }

    /// A value for `palisade config show`, and its origin.
    pub(crate) fn shown(&self, key: AccessKey) -> (Value, &Origin) {
        match key {
            AccessKey::Names => (json!(self.names.value.keys().collect::<Vec<_>>()), &self.names.origin),
            AccessKey::Resolver => {
                let text = match self.resolver.value {
                    Resolver::System => "system".to_owned(),
                    Resolver::Dns(address) => address.to_string(),
                };
                (json!(text), &self.resolver.origin)
            }
            AccessKey::UpstreamProxy => {
                let text = self.upstream.value.as_ref().map_or("none".to_owned(), ToString::to_string);
                (json!(text), &self.upstream.origin)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::parse;
    use super::super::value::Setting;
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<String, Bundle>, String> {
        let given = parse(Path::new("palisade.toml"), text).map_err(|error| error.to_string())?;
        match given.into_iter().next().map(|one| one.setting) {
            Some(Setting::Access(AccessSetting::Names(names))) => Ok(names),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_access_is_a_bundle_of_hosts_and_secrets() {
        let text = "[access.github]\nabout = \"read GitHub\"\negress = [\"api.github.com\", \"*.github.com:443 raw\"]\n\
                    secrets = { GITHUB_TOKEN = \"github\", OTHER = { secret = \"file:/x\", hosts = [\"api.github.com\", \"*.github.com:443 raw\"] } }\n\
                    max = { connections = 4 }\n[access.token]\nsecrets.T = \"credential:t\"\n";
        let names = read(text).unwrap();
        let github = &names["github"];
        assert_eq!((github.rules.len(), github.secrets.len()), (2, 2));
        assert_eq!(github.maxima, Maxima { connections: 4, ..Maxima::default() });
        assert_eq!(github.secrets[1].hosts.len(), 2);
        assert_eq!(names["token"].secrets[0].secret, SecretRef::Credential("t".to_owned()));
    }

    #[test]
    fn mistakes_name_the_access_and_the_key() {
        for (text, part) in [
            ("[access.a]\negress = [\"*.com\"]", "a: egress: "),
            ("[access.a]\negress = [\"127.0.0.1:80\"]", "a: egress: "),
            ("[access.a]\n", "it gives nothing"),
            ("[access.A]\negress = []", "no name"),
            ("[access.a]\nhosts = []", "unknown key `hosts`"),
            ("[access.a]\nsecrets = { \"A B\" = \"x\" }", "no name of an environment variable"),
            ("[access.a]\nsecrets = { A = \"../x\" }", "secrets: A: "),
            ("[access.a]\negress = [\"a.example\"]\nmax = { mb = 1 }", "max: "),
            ("access = 3", "[access.NAME]"),
            (
                "[access.a]\negress = [\"a.example\", \"b.example\"]\nsecrets = { T = { secret = \"t\", hosts = [\"a.example\"] } }",
                "a: secrets: T: its `hosts` bar a run that reaches anything else, and `egress` has b.example",
            ),
            (
                "[access.a]\ntools = [\"git\"]\nsecrets = { T = { secret = \"t\", hosts = [\"a.example\"] } }",
                "there are `tools`: use two names",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
