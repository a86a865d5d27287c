//! The settings of packages: whether they are installed, from where, and which.
//!
//! ```toml
//! [packages]
//! enabled = true
//! mirrors = { pypi = "https://mirror.example/simple", npm = "https://mirror.example/npm" }
//! file_hosts = ["files.example"]
//! min_age_days = 7
//! allow = ["numpy", "pypi:pandas", "npm:@types/*"]
//! deny = ["npm:left-*"]
//! ```
//! A file of the working directory can switch packages off, and add to `deny`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use engine::packages::Ecosystem;
use packages::{Mirror, PackagesConfig, Pattern, client_settings};
use serde_json::{Value, json};

use super::settings::{Origin, Valued};
use super::value::Raw;

/// The most rules and hosts of a list.
const LIST_MAX: usize = 1000;
const DAY_S: u64 = 24 * 60 * 60;
const MIN_AGE_DAYS: u64 = 7;
const MIN_AGE_DAYS_MAX: u64 = 3650;
const MB: u64 = 1 << 20;
const MB_MAX: u64 = 1 << 20;

/// A setting of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PackagesKey {
    Enabled,
    Mirrors,
    FileHosts,
    MinAgeDays,
    Allow,
    Deny,
    AllowUnknownAge,
    SourceBuilds,
    InstallScripts,
    LayerMb,
    StoreMb,
    FetchTimeoutS,
    InstallTimeoutS,
    GoSumdb,
}

impl PackagesKey {
    pub(crate) const ALL: [Self; 14] = [
        Self::Enabled,
        Self::Mirrors,
        Self::FileHosts,
        Self::MinAgeDays,
        Self::Allow,
        Self::Deny,
        Self::AllowUnknownAge,
        Self::SourceBuilds,
        Self::InstallScripts,
        Self::LayerMb,
        Self::StoreMb,
        Self::FetchTimeoutS,
        Self::InstallTimeoutS,
        Self::GoSumdb,
    ];

    /// The name in a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enabled => "packages.enabled",
            Self::Mirrors => "packages.mirrors",
            Self::FileHosts => "packages.file_hosts",
            Self::MinAgeDays => "packages.min_age_days",
            Self::Allow => "packages.allow",
            Self::Deny => "packages.deny",
            Self::AllowUnknownAge => "packages.allow_unknown_age",
            Self::SourceBuilds => "packages.source_builds",
            Self::InstallScripts => "packages.install_scripts",
            Self::LayerMb => "packages.layer_mb",
            Self::StoreMb => "packages.store_mb",
            Self::FetchTimeoutS => "packages.fetch_timeout_s",
            Self::InstallTimeoutS => "packages.install_timeout_s",
            Self::GoSumdb => "packages.go_sumdb",
        }
    }

    /// Interprets the text of a variable.
    pub(crate) fn raw(self, text: &str) -> Raw {
        let as_text = || Raw::Text(text.to_owned());
        match self {
            Self::Enabled | Self::AllowUnknownAge | Self::SourceBuilds | Self::InstallScripts => {
                text.parse().map_or_else(|_| as_text(), Raw::Boolean)
            }
            Self::MinAgeDays
            | Self::LayerMb
            | Self::StoreMb
            | Self::FetchTimeoutS
            | Self::InstallTimeoutS => text.parse().map_or_else(|_| as_text(), Raw::Integer),
            Self::FileHosts | Self::Allow | Self::Deny => Raw::list_from_text(text),
            Self::GoSumdb => as_text(),
            Self::Mirrors => {
                let pair = |word: &str| {
                    let (name, url) = word.trim().split_once('=').unwrap_or((word, ""));
                    (name.to_owned(), Raw::Text(url.to_owned()))
                };
                Raw::Table(text.split(',').map(pair).collect())
            }
        }
    }
}

/// A setting of packages with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PackagesSetting {
    Flag(PackagesKey, bool),
    Number(PackagesKey, u64),
    Mirrors(BTreeMap<Ecosystem, Mirror>),
    FileHosts(Vec<String>),
    Allow(Vec<Pattern>),
    Deny(Vec<Pattern>),
    GoSumdb(String),
}

impl PackagesSetting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: PackagesKey, raw: &Raw) -> Result<Self, String> {
        match key {
            PackagesKey::Enabled
            | PackagesKey::AllowUnknownAge
            | PackagesKey::SourceBuilds
            | PackagesKey::InstallScripts => match raw {
                Raw::Boolean(value) => Ok(Self::Flag(key, *value)),
                _ => Err(format!("it must be true or false, not {}", raw.shown())),
            },
            PackagesKey::MinAgeDays => {
                number(raw, 0, MIN_AGE_DAYS_MAX).map(|number| Self::Number(key, number))
            }
            PackagesKey::LayerMb | PackagesKey::StoreMb => {
                number(raw, 1, MB_MAX).map(|number| Self::Number(key, number))
            }
            PackagesKey::FetchTimeoutS | PackagesKey::InstallTimeoutS => {
                number(raw, 1, DAY_S).map(|number| Self::Number(key, number))
            }
            PackagesKey::Mirrors => mirrors(raw).map(Self::Mirrors),
            PackagesKey::FileHosts => texts(raw).map(Self::FileHosts),
            PackagesKey::Allow => patterns(raw).map(Self::Allow),
            PackagesKey::Deny => patterns(raw).map(Self::Deny),
            PackagesKey::GoSumdb => database(raw).map(Self::GoSumdb),
        }
    }

    pub(crate) fn key(&self) -> PackagesKey {
        match self {
            Self::Flag(key, _) | Self::Number(key, _) => *key,
            Self::Mirrors(_) => PackagesKey::Mirrors,
            Self::FileHosts(_) => PackagesKey::FileHosts,
            Self::Allow(_) => PackagesKey::Allow,
            Self::Deny(_) => PackagesKey::Deny,
            Self::GoSumdb(_) => PackagesKey::GoSumdb,
        }
    }
}

fn number(raw: &Raw, least: u64, most: u64) -> Result<u64, String> {
    let wrong = || format!("it must be a number from {least} to {most}, not {}", raw.shown());
    match raw {
        Raw::Integer(number) => {
            u64::try_from(*number).ok().filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn database(raw: &Raw) -> Result<String, String> {
    match raw {
        Raw::Text(text) if packages::is_database(text) => Ok(text.clone()),
        _ => Err(format!(
            "it must be `{}`, `NAME+NUMBER+KEY` of a database, or `{}`, not {}",
            packages::PUBLIC_DATABASE,
            packages::NO_DATABASE,
            raw.shown()
        )),
    }
}

fn texts(raw: &Raw) -> Result<Vec<String>, String> {
    let Raw::List(list) = raw else { return Err(format!("it must be a list, not {}", raw.shown())) };
    if list.len() > LIST_MAX {
        return Err(format!("it has more than {LIST_MAX} entries"));
    }
    let text = |one: &Raw| match one {
        Raw::Text(text) => Ok(text.clone()),
        other => Err(format!("it must be a list of texts, not of {}", other.shown())),
    };
    list.iter().map(text).collect()
}

fn patterns(raw: &Raw) -> Result<Vec<Pattern>, String> {
    let pattern = |text: String| {
        Pattern::parse(&text).map_err(|reason| format!("`{}`: {reason}", terminal::plain(&text)))
    };
    texts(raw)?.into_iter().map(pattern).collect()
}

fn mirrors(raw: &Raw) -> Result<BTreeMap<Ecosystem, Mirror>, String> {
    let Raw::Table(fields) = raw else {
        return Err("it must be a table such as { pypi = \"https://mirror.example/simple\" }".to_owned());
    };
    let mut mirrors = BTreeMap::new();
    for (name, raw) in fields {
        let ecosystem = Ecosystem::named(name)
            .ok_or_else(|| format!("`{}` is none of {}", terminal::plain(name), Ecosystem::names()))?;
        let Raw::Text(text) = raw else {
            return Err(format!("{name}: it must be text, not {}", raw.shown()));
        };
        mirrors.insert(ecosystem, Mirror::parse(text).map_err(|reason| format!("{name}: {reason}"))?);
    }
    Ok(mirrors)
}

/// The settings of packages.
#[derive(Debug, Clone)]
pub(crate) struct PackagesSettings {
    /// `None`: on for one user, off for `serve`.
    pub(crate) enabled: Valued<Option<bool>>,
    pub(crate) mirrors: Valued<BTreeMap<Ecosystem, Mirror>>,
    file_hosts: Valued<Vec<String>>,
    min_age_days: Valued<u64>,
    allow: Valued<Vec<Pattern>>,
    deny: Valued<Vec<Pattern>>,
    allow_unknown_age: Valued<bool>,
    source_builds: Valued<bool>,
    install_scripts: Valued<bool>,
    layer_mb: Valued<u64>,
    store_mb: Valued<u64>,
    fetch_timeout_s: Valued<u64>,
    install_timeout_s: Valued<u64>,
    go_sumdb: Valued<String>,
}

impl PackagesSettings {
    pub(crate) fn built_in() -> Self {
        let (bounds, patience) = (packages::Bounds::default(), packages::Patience::default());
        Self {
            enabled: Valued::default(None),
            mirrors: Valued::default(BTreeMap::new()),
            file_hosts: Valued::default(Vec::new()),
            min_age_days: Valued::default(MIN_AGE_DAYS),
            allow: Valued::default(Vec::new()),
            deny: Valued::default(Vec::new()),
            allow_unknown_age: Valued::default(false),
            source_builds: Valued::default(false),
            install_scripts: Valued::default(false),
            layer_mb: Valued::default(bounds.layer_bytes_max / MB),
            store_mb: Valued::default(bounds.kept_bytes_max / MB),
            fetch_timeout_s: Valued::default(patience.document.as_secs()),
            install_timeout_s: Valued::default(patience.install.as_secs()),
            go_sumdb: Valued::default(packages::PUBLIC_DATABASE.to_owned()),
        }
    }

    pub(crate) fn apply(&mut self, setting: PackagesSetting, origin: Origin) {
        match setting {
            PackagesSetting::Flag(PackagesKey::AllowUnknownAge, value) => {
                self.allow_unknown_age.set(value, origin);
            }
            PackagesSetting::Flag(PackagesKey::SourceBuilds, value) => self.source_builds.set(value, origin),
            PackagesSetting::Flag(PackagesKey::InstallScripts, value) => {
                self.install_scripts.set(value, origin)
            }
            PackagesSetting::Flag(_, value) => self.enabled.set(Some(value), origin),
            PackagesSetting::Number(PackagesKey::LayerMb, value) => self.layer_mb.set(value, origin),
            PackagesSetting::Number(PackagesKey::StoreMb, value) => self.store_mb.set(value, origin),
            PackagesSetting::Number(PackagesKey::FetchTimeoutS, value) => {
                self.fetch_timeout_s.set(value, origin)
            }
            PackagesSetting::Number(PackagesKey::InstallTimeoutS, value) => {
                self.install_timeout_s.set(value, origin);
            }
            PackagesSetting::Number(_, value) => self.min_age_days.set(value, origin),
            PackagesSetting::Mirrors(mirrors) => self.mirrors.set(mirrors, origin),
            PackagesSetting::FileHosts(hosts) => self.file_hosts.set(hosts, origin),
            PackagesSetting::Allow(rules) => self.allow.set(rules, origin),
            PackagesSetting::Deny(rules) => self.deny.set(rules, origin),
            PackagesSetting::GoSumdb(database) => self.go_sumdb.set(database, origin),
        }
    }

    /// Applies a setting of the working directory if it permits less. Returns whether it did.
    pub(crate) fn tighten(&mut self, setting: &PackagesSetting, origin: Origin) -> bool {
        match setting {
            PackagesSetting::Flag(_, false) => self.apply(setting.clone(), origin),
            PackagesSetting::Number(PackagesKey::MinAgeDays, days) if *days >= self.min_age_days.value => {
                self.min_age_days.set(*days, origin);
            }
            PackagesSetting::Number(PackagesKey::LayerMb, mb) if *mb <= self.layer_mb.value => {
                self.layer_mb.set(*mb, origin);
            }
            PackagesSetting::Deny(rules) => {
                let mut all = std::mem::take(&mut self.deny.value);
                all.extend(rules.iter().cloned());
                self.deny.set(all, origin);
            }
            _ => return false,
        }
        true
    }

    /// A value for `palisade config show`, and its origin.
    pub(crate) fn shown(&self, key: PackagesKey) -> (Value, &Origin) {
        fn listed(list: &Valued<Vec<impl ToString>>) -> (Value, &Origin) {
            (json!(list.value.iter().map(ToString::to_string).collect::<Vec<_>>()), &list.origin)
        }
        match key {
            PackagesKey::Enabled => (json!(self.enabled.value), &self.enabled.origin),
            PackagesKey::Mirrors => {
                let mirrors = self.mirrors.value.iter();
                let shown: Vec<String> = mirrors
                    .map(|(ecosystem, mirror)| format!("{}={}", ecosystem.name(), mirror.base))
                    .collect();
                (json!(shown), &self.mirrors.origin)
            }
            PackagesKey::FileHosts => listed(&self.file_hosts),
            PackagesKey::MinAgeDays => (json!(self.min_age_days.value), &self.min_age_days.origin),
            PackagesKey::Allow => listed(&self.allow),
            PackagesKey::Deny => listed(&self.deny),
            PackagesKey::AllowUnknownAge => {
                (json!(self.allow_unknown_age.value), &self.allow_unknown_age.origin)
            }
            PackagesKey::SourceBuilds => (json!(self.source_builds.value), &self.source_builds.origin),
            PackagesKey::InstallScripts => (json!(self.install_scripts.value), &self.install_scripts.origin),
            PackagesKey::LayerMb => (json!(self.layer_mb.value), &self.layer_mb.origin),
            PackagesKey::StoreMb => (json!(self.store_mb.value), &self.store_mb.origin),
            PackagesKey::FetchTimeoutS => (json!(self.fetch_timeout_s.value), &self.fetch_timeout_s.origin),
            PackagesKey::InstallTimeoutS => {
                (json!(self.install_timeout_s.value), &self.install_timeout_s.origin)
            }
            PackagesKey::GoSumdb => (json!(self.go_sumdb.value), &self.go_sumdb.origin),
        }
    }

    /// The configuration of packages. What is not set is taken from the settings of pip, npm and the go command.
    pub(crate) fn config(&self, state_dir: PathBuf, proxy: Option<egress::Upstream>) -> PackagesConfig {
        let clients = client_settings(crate::state::home().as_deref(), |name| std::env::var(name).ok());
        let mut config = PackagesConfig::new(state_dir);
        config.mirrors = clients.mirrors;
        config.mirrors.extend(self.mirrors.value.clone());
        for ecosystem in clients.unreadable.iter().filter(|one| !config.mirrors.contains_key(one)) {
            // Its address may hold a password.
            tracing::warn!(ecosystem = ecosystem.name(), "registry_not_readable");
        }
        if !self.mirrors.value.contains_key(&Ecosystem::Npm) {
            config.other_scopes = clients.scopes;
        }
        config.file_hosts = clients.file_hosts;
        config.file_hosts.extend(self.file_hosts.value.iter().cloned());
        config.ca_files = clients.ca_files;
        config.proxy = proxy.or(clients.proxy);
        config.no_proxy = clients.no_proxy;
        config.rules.allow.clone_from(&self.allow.value);
        config.rules.deny.clone_from(&self.deny.value);
        config.min_age = Duration::from_secs(self.min_age_days.value * DAY_S);
        config.allow_unknown_age = self.allow_unknown_age.value;
        config.source_builds = self.source_builds.value;
        config.install_scripts = self.install_scripts.value;
        config.go_sumdb.clone_from(&self.go_sumdb.value);
        config.bounds.layer_bytes_max = self.layer_mb.value * MB;
        // A packed file is smaller than what it becomes.
        config.bounds.blob_bytes_max = config.bounds.blob_bytes_max.min(self.layer_mb.value * MB);
        config.bounds.kept_bytes_max = self.store_mb.value * MB;
        config.patience.document = Duration::from_secs(self.fetch_timeout_s.value);
        config.patience.install = Duration::from_secs(self.install_timeout_s.value);
        config
    }
}
