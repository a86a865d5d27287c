//! The names of all settings in files and as variables, and the range of each number.
//!
//! A file has `limits.max.memory_mb`. The variable is `PALISADE_` and the same name in capitals with `_` for
//! `.` (`PALISADE_LIMITS_MAX_MEMORY_MB`). The only exception is `log.level`, whose variable is
//! `PALISADE_LOG`. This file has no values.

use super::access::AccessKey;
use super::oauth::OauthKey;
use super::packages::PackagesKey;
use super::quota::QuotaKey;
use super::serve::ServeKey;
use super::wall::WallKey;

/// Whether a limit is a default or a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Applies when a caller asks for nothing.
    Default,
    /// The most that a caller can get.
    Max,
}

/// The resource of a limit; the name has the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Amount {
    TimeoutMs,
    MemoryMb,
    /// Stored in thousandths of a core.
    Cpus,
    Processes,
    DiskMb,
    OpenFiles,
    OutputKb,
}

impl Amount {
    pub(crate) const ALL: [Self; 7] = [
        Self::TimeoutMs,
        Self::MemoryMb,
        Self::Cpus,
        Self::Processes,
        Self::DiskMb,
        Self::OpenFiles,
        Self::OutputKb,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::TimeoutMs => "timeout_ms",
            Self::MemoryMb => "memory_mb",
            Self::Cpus => "cpus",
            Self::Processes => "processes",
            Self::DiskMb => "disk_mb",
            Self::OpenFiles => "open_files",
            Self::OutputKb => "output_kb",
        }
    }
}

/// A numeric setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Number {
    Limit(Scope, Amount),
    RunsMax,
    QueueMax,
    AdmissionMemoryMb,
    /// Concurrent connections of `serve`.
    ConnectionsMax,
    StoreDays,
    StoreRunsMax,
    StoreLogMb,
    AuditDays,
    AuditMb,
    /// Number of spares per kind that are kept ready.
    PoolSpares,
    /// Maximum number of spares per kind.
    PoolSparesMax,
    /// The share of the memory of all runs that all spares may use.
    PoolMemoryPercent,
    PoolAgeS,
}

const LIMITS: usize = 2 * Amount::ALL.len();
/// Numbers that are not limits of a run.
const OTHERS: [Number; 13] = [
    Number::RunsMax,
    Number::QueueMax,
    Number::AdmissionMemoryMb,
    Number::ConnectionsMax,
    Number::StoreDays,
    Number::StoreRunsMax,
    Number::StoreLogMb,
    Number::PoolSpares,
    Number::PoolSparesMax,
    Number::PoolMemoryPercent,
    Number::PoolAgeS,
    Number::AuditDays,
    Number::AuditMb,
];

/// Number of numeric settings.
pub(crate) const NUMBERS: usize = LIMITS + OTHERS.len();

impl Number {
    /// All numeric settings, each at its own [`Self::index`].
    pub(crate) const ALL: [Self; NUMBERS] = {
        let mut all = [Self::RunsMax; NUMBERS];
        let mut at = 0;
        while at < Amount::ALL.len() {
            all[at] = Self::Limit(Scope::Default, Amount::ALL[at]);
            all[at + Amount::ALL.len()] = Self::Limit(Scope::Max, Amount::ALL[at]);
            at += 1;
        }
        at = 0;
        while at < OTHERS.len() {
            all[LIMITS + at] = OTHERS[at];
            at += 1;
        }
        all
    };

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Limit(Scope::Default, amount) => amount as usize,
            Self::Limit(Scope::Max, amount) => amount as usize + Amount::ALL.len(),
            Self::RunsMax => LIMITS,
            Self::QueueMax => LIMITS + 1,
            Self::AdmissionMemoryMb => LIMITS + 2,
            Self::ConnectionsMax => LIMITS + 3,
            Self::StoreDays => LIMITS + 4,
            Self::StoreRunsMax => LIMITS + 5,
            Self::StoreLogMb => LIMITS + 6,
            Self::PoolSpares => LIMITS + 7,
            Self::PoolSparesMax => LIMITS + 8,
            Self::PoolMemoryPercent => LIMITS + 9,
            Self::PoolAgeS => LIMITS + 10,
            Self::AuditDays => LIMITS + 11,
            Self::AuditMb => LIMITS + 12,
        }
    }

    /// Whether a smaller value deletes records instead of tightening a limit.
    pub(crate) fn is_retention(self) -> bool {
        matches!(
            self,
            Self::StoreDays | Self::StoreRunsMax | Self::StoreLogMb | Self::AuditDays | Self::AuditMb
        )
    }

    /// Minimum and maximum. The minimum is what a run needs to start. The maximum only catches typing errors,
    /// such as bytes given for megabytes.
    pub(crate) fn range(self) -> (u64, u64) {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        const TERABYTE_MB: u64 = 1 << 20;
        match self {
            Self::Limit(_, Amount::TimeoutMs) => (1, DAY_MS),
            Self::Limit(_, Amount::MemoryMb) => (16, TERABYTE_MB),
            Self::Limit(_, Amount::Cpus) => (100, 1_024_000),
            Self::Limit(_, Amount::Processes) => (1, 32_768),
            Self::Limit(_, Amount::DiskMb) => (1, TERABYTE_MB),
            Self::Limit(_, Amount::OpenFiles) => (32, 1 << 20),
            Self::Limit(_, Amount::OutputKb) => (1, 1 << 20),
            Self::RunsMax => (1, 4096),
            Self::QueueMax => (0, 65_536),
            Self::AdmissionMemoryMb => (16, 16 * TERABYTE_MB),
            Self::ConnectionsMax => (1, 65_536),
            Self::StoreDays => (1, 3650),
            Self::StoreRunsMax => (1, 10_000_000),
            Self::StoreLogMb => (1, TERABYTE_MB),
            Self::AuditDays => (1, 36_500),
            Self::AuditMb => (1, TERABYTE_MB),
            Self::PoolSpares => (0, 32),
            Self::PoolSparesMax => (1, 32),
            Self::PoolMemoryPercent => (1, 50),
            Self::PoolAgeS => (10, 3600),
        }
    }

    /// Stored in thousandths, written as a fraction.
    pub(crate) fn is_fraction(self) -> bool {
        matches!(self, Self::Limit(_, Amount::Cpus))
    }

    /// A stored number in its written form.
    pub(crate) fn written(self, kept: u64) -> String {
        if self.is_fraction() { (kept as f64 / 1000.0).to_string() } else { kept.to_string() }
    }

    fn name(self) -> String {
        match self {
            Self::Limit(Scope::Default, amount) => format!("limits.default.{}", amount.name()),
            Self::Limit(Scope::Max, amount) => format!("limits.max.{}", amount.name()),
            Self::RunsMax => "admission.runs_max".to_owned(),
            Self::QueueMax => "admission.queue_max".to_owned(),
            Self::AdmissionMemoryMb => "admission.memory_mb".to_owned(),
            Self::ConnectionsMax => "serve.connections_max".to_owned(),
            Self::StoreDays => "store.days".to_owned(),
            Self::StoreRunsMax => "store.runs_max".to_owned(),
            Self::StoreLogMb => "store.log_mb".to_owned(),
            Self::AuditDays => "audit.days".to_owned(),
            Self::AuditMb => "audit.mb".to_owned(),
            Self::PoolSpares => "pool.spares".to_owned(),
            Self::PoolSparesMax => "pool.spares_max".to_owned(),
            Self::PoolMemoryPercent => "pool.memory_percent".to_owned(),
            Self::PoolAgeS => "pool.age_s".to_owned(),
        }
    }
}

/// Any setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Number(Number),
    Serve(ServeKey),
    Oauth(OauthKey),
    PoolEnabled,
    AuditEnabled,
    AllowMissing,
    StateDir,
    LogLevel,
    LogFormat,
    OtlpEndpoint,
    /// The folder of policy files.
    PolicyFolder,
    /// Which callers have which policy.
    PolicyBind,
    Quota(QuotaKey),
    Access(AccessKey),
    Packages(PackagesKey),
    /// All tables `tools.servers.NAME`.
    ToolServers,
    Wall(WallKey),
    /// The interpreter of that language.
    Interpreter(String),
}

impl Key {
    /// Every setting, in display order.
    pub(crate) fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Number::ALL.into_iter().map(Self::Number).collect();
        all.extend(ServeKey::ALL.map(Self::Serve));
        all.extend(OauthKey::ALL.map(Self::Oauth));
        all.extend([Self::PoolEnabled, Self::AuditEnabled, Self::AllowMissing, Self::StateDir]);
        all.extend([Self::LogLevel, Self::LogFormat, Self::OtlpEndpoint]);
        all.extend([Self::PolicyFolder, Self::PolicyBind]);
        all.extend(QuotaKey::all().map(Self::Quota));
        all.extend(AccessKey::ALL.map(Self::Access));
        all.extend(PackagesKey::ALL.map(Self::Packages));
        all.push(Self::ToolServers);
        all.extend(WallKey::all().map(Self::Wall));
        all.extend(engine::runtimes::languages().map(|language| Self::Interpreter(language.to_owned())));
        all
    }

    /// The name in a file.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Number(number) => number.name(),
            Self::Serve(key) => format!("serve.{}", key.name()),
            Self::Oauth(key) => format!("oauth.{}", key.name()),
            Self::PoolEnabled => "pool.enabled".to_owned(),
            Self::AuditEnabled => "audit.enabled".to_owned(),
            Self::AllowMissing => "allow_missing".to_owned(),
            Self::StateDir => "state_dir".to_owned(),
            Self::LogLevel => "log.level".to_owned(),
            Self::LogFormat => "log.format".to_owned(),
            Self::OtlpEndpoint => "otlp.endpoint".to_owned(),
            Self::PolicyFolder => "policy.folder".to_owned(),
            Self::PolicyBind => "policy.bind".to_owned(),
            Self::Quota(key) => format!("quota.{}", key.name()),
            Self::Access(key) => key.name().to_owned(),
            Self::Packages(key) => key.name().to_owned(),
            Self::ToolServers => super::tools::NAME.to_owned(),
            Self::Wall(key) => format!("wall.{}", key.name()),
            Self::Interpreter(language) => format!("interpreters.{language}"),
        }
    }

    /// The name in the environment.
    pub(crate) fn variable(&self) -> String {
        let name = match self {
            Self::LogLevel => "log".to_owned(),
            _ => self.name(),
        };
        let capitals =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        format!("{PREFIX}{}", capitals.collect::<String>())
    }
}

/// Prefix of every variable of Palisade.
pub(crate) const PREFIX: &str = "PALISADE_";

/// Whether a variable looks like a setting. Other variables with the prefix are ignored: Kubernetes sets
/// `PALISADE_SERVICE_HOST` and similar ones for a service of that name.
pub(crate) fn is_meant_as_setting(variable: &str) -> bool {
    // The underscores exclude foreign variables such as PALISADE_SERVER_URL and PALISADE_STOREFRONT_...
    const MEANT: [&str; 19] = [
        "LIMIT",
        "ADMISSION",
        "ALLOW",
        "STATE",
        "LOG",
        "INTERPRETER",
        "SERVE_",
        "STORE_",
        "POOL_",
        "AUDIT_",
        "OTLP_",
        "OAUTH_",
        "POLICY_",
        "QUOTA_",
        "ACCESS",
        "EGRESS_",
        "TOOLS_SERVERS",
        "PACKAGES_",
        "WALL_",
    ];
    variable.strip_prefix(PREFIX).is_some_and(|rest| MEANT.iter().any(|start| rest.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_at_its_index() {
        for (index, number) in Number::ALL.into_iter().enumerate() {
            assert_eq!(number.index(), index, "{number:?}");
        }
    }

    #[test]
    fn variables_follow_the_rule_and_are_told_apart() {
        let all = Key::all();
        let names: std::collections::BTreeSet<_> = all.iter().map(Key::variable).collect();
        assert_eq!(names.len(), all.len());
        for expected in [
            "PALISADE_LIMITS_MAX_MEMORY_MB",
            "PALISADE_LOG",
            "PALISADE_LOG_FORMAT",
            "PALISADE_INTERPRETERS_PYTHON",
            "PALISADE_SERVE_LISTEN",
            "PALISADE_SERVE_CONNECTIONS_MAX",
            "PALISADE_STORE_DAYS",
        ] {
            assert!(names.contains(expected), "{expected}");
        }
        assert!(names.iter().all(|name| is_meant_as_setting(name)));
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        for other in [
            "PALISADE_SERVICE_HOST",
            "PALISADE_SERVICE_PORT_HTTP",
            "PALISADE_PORT",
            "PALISADE_PORT_8808_TCP",
            "PALISADE_SERVER_URL",
            "PALISADE_BIN",
            "PATH",
        ] {
            assert!(!is_meant_as_setting(other), "{other}");
        }
    }
}
