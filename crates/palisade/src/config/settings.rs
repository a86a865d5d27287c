//! The effective settings, each with its origin, and the rules for changing them.
//!
//! Sources are applied from the lowest to the highest precedence. [`Settings::tighten`] applies the file of a
//! working directory and never loosens a setting, because the directory may be an untrusted repository.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use engine::audit::{AuditConfig, AuditRetention};
use engine::{AdmissionLimits, PoolConfig};
use policy::{Binding, Policy};
use sandbox::{Guarantee, Limits};

use super::access::AccessSettings;
use super::key::{Amount, Key, NUMBERS, Number, Scope};
use super::oauth::OauthSettings;
use super::packages::PackagesSettings;
use super::quota::QuotaSettings;
use super::serve::ServeSettings;
use super::tools::ToolSettings;
use super::value::{LogFormat, LogLevel, Setting};
use super::wall::WallSettings;
use service::SLOTS_MAX;

const MB: u64 = 1 << 20;
const KB: u64 = 1 << 10;
/// The policy gives a sandbox one inode per this many bytes of disk, and at least the minimum.
const BYTES_PER_INODE: u64 = 8192;
const INODES_LEAST: u64 = 1024;
/// Retention of the store by default.
const STORE_DAYS: u64 = 7;
const STORE_RUNS_MAX: u64 = 10_000;
const STORE_LOG_MB: u64 = 1024;
/// Retention of the audit by default.
const AUDIT_DAYS: u64 = 365;
const AUDIT_MB: u64 = 1024;
/// Spares by default.
const POOL_SPARES: u64 = 2;
const POOL_SPARES_MAX: u64 = 16;
const POOL_MEMORY_PERCENT: u64 = 10;
const POOL_AGE_S: u64 = 300;

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => write!(f, "{name}"),
        }
    }
}

/// A setting and its origin, as a source gives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) setting: Setting,
    pub(crate) origin: Origin,
}

/// A value in force and its origin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Valued<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Valued<T> {
    pub(super) fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    pub(super) fn set(&mut self, value: T, origin: Origin) {
        *self = Self { value, origin };
    }
}

/// A setting that a source asked for and did not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) key: Key,
    pub(crate) origin: Origin,
    pub(crate) reason: String,
}

/// The store's retention of finished runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreLimits {
    pub(crate) age_max: Duration,
    pub(crate) runs_max: u64,
    pub(crate) log_bytes_max: u64,
}

/// All settings.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    numbers: [Valued<u64>; NUMBERS],
    pub(crate) serve: ServeSettings,
    pub(crate) oauth: OauthSettings,
    pub(crate) pool_enabled: Valued<bool>,
    pub(crate) audit_enabled: Valued<bool>,
    pub(crate) allow_missing: Valued<Vec<Guarantee>>,
    /// `None` selects the default directory.
    pub(crate) state_dir: Valued<Option<PathBuf>>,
    pub(crate) log_level: Valued<LogLevel>,
    pub(crate) log_format: Valued<LogFormat>,
    /// The collector that spans are sent to.
    pub(crate) otlp_endpoint: Valued<Option<String>>,
    /// `None` selects the folders beside the configuration.
    pub(crate) policy_folder: Valued<Option<PathBuf>>,
    pub(crate) policy_bind: Valued<Vec<Binding>>,
    pub(crate) quota: QuotaSettings,
    pub(crate) access: AccessSettings,
    pub(crate) packages: PackagesSettings,
    pub(crate) tools: ToolSettings,
    pub(crate) wall: WallSettings,
    pub(crate) interpreters: BTreeMap<String, Valued<PathBuf>>,
}

impl Settings {
    /// The built-in settings.
    pub(crate) fn built_in(policy: &Policy, admission: AdmissionLimits) -> Self {
        let number = |number| match number {
            Number::Limit(Scope::Default, amount) => amount_of(&policy.defaults, amount),
            Number::Limit(Scope::Max, amount) => amount_of(&policy.maxima, amount),
            Number::RunsMax => admission.runs_max as u64,
            Number::QueueMax => admission.queue_max as u64,
            Number::AdmissionMemoryMb => admission.memory_bytes / MB,
            Number::ConnectionsMax => SLOTS_MAX as u64,
            Number::StoreDays => STORE_DAYS,
            Number::StoreRunsMax => STORE_RUNS_MAX,
            Number::StoreLogMb => STORE_LOG_MB,
            Number::AuditDays => AUDIT_DAYS,
            Number::AuditMb => AUDIT_MB,
            Number::PoolSpares => POOL_SPARES,
            Number::PoolSparesMax => POOL_SPARES_MAX,
            Number::PoolMemoryPercent => POOL_MEMORY_PERCENT,
            Number::PoolAgeS => POOL_AGE_S,
        };
        Self {
            numbers: Number::ALL.map(|key| Valued::default(number(key))),
            serve: ServeSettings::built_in(),
            oauth: OauthSettings::built_in(),
            pool_enabled: Valued::default(true),
            audit_enabled: Valued::default(true),
            allow_missing: Valued::default(policy.absence_allowed.clone()),
            state_dir: Valued::default(None),
            log_level: Valued::default(LogLevel::Info),
            log_format: Valued::default(LogFormat::Auto),
            otlp_endpoint: Valued::default(None),
            policy_folder: Valued::default(None),
            policy_bind: Valued::default(Vec::new()),
            quota: QuotaSettings::built_in(),
            access: AccessSettings::built_in(),
            packages: PackagesSettings::built_in(),
            tools: ToolSettings::built_in(),
            wall: WallSettings::built_in(),
            interpreters: BTreeMap::new(),
        }
    }

    /// A number in force. A default above its maximum is replaced by the maximum.
    pub(crate) fn number(&self, number: Number) -> &Valued<u64> {
        let own = &self.numbers[number.index()];
        match number {
            Number::Limit(Scope::Default, amount) => {
                let most = &self.numbers[Number::Limit(Scope::Max, amount).index()];
                if most.value < own.value { most } else { own }
            }
            _ => own,
        }
    }

    /// Applies a setting of a trusted source.
    pub(crate) fn apply(&mut self, assignment: Assignment) {
        let Assignment { setting, origin } = assignment;
        match setting {
            Setting::Number(number, value) => self.numbers[number.index()].set(value, origin),
            Setting::Serve(setting) => self.serve.apply(setting, origin),
            Setting::Oauth(setting) => self.oauth.apply(setting, origin),
            Setting::PoolEnabled(value) => self.pool_enabled.set(value, origin),
            Setting::AuditEnabled(value) => self.audit_enabled.set(value, origin),
            Setting::AllowMissing(guarantees) => self.allow_missing.set(guarantees, origin),
            Setting::StateDir(path) => self.state_dir.set(Some(path), origin),
            Setting::LogLevel(level) => self.log_level.set(level, origin),
            Setting::LogFormat(format) => self.log_format.set(format, origin),
            Setting::OtlpEndpoint(endpoint) => self.otlp_endpoint.set(endpoint, origin),
            Setting::PolicyFolder(path) => self.policy_folder.set(Some(path), origin),
            Setting::PolicyBind(bindings) => self.policy_bind.set(bindings, origin),
            Setting::Quota(setting) => self.quota.apply(setting, origin),
            Setting::Access(setting) => self.access.apply(setting, origin),
            Setting::Packages(setting) => self.packages.apply(setting, origin),
            Setting::ToolServers(servers) => self.tools.apply(servers, origin),
            Setting::Wall(setting) => self.wall.apply(setting, origin),
            Setting::Interpreter(language, path) => {
                self.interpreters.insert(language, Valued { value: path, origin });
            }
        }
    }

    /// Applies a setting of an untrusted source if it makes the wall tighter. Otherwise returns why it is
    /// ignored.
    pub(crate) fn tighten(&mut self, assignment: Assignment) -> Option<Ignored> {
        let reason = match &assignment.setting {
            Setting::Number(number, _) if number.is_retention() => {
                "a working directory cannot have records thrown away".to_owned()
            }
            Setting::Serve(_) | Setting::Oauth(_) => {
                "a working directory cannot choose who reaches the server, or how".to_owned()
            }
            Setting::Number(number, value) => {
                let current = self.number(*number);
                if *value < current.value {
                    self.apply(assignment);
                    return None;
                }
                if *value == current.value {
                    return None;
                }
                let (asked, current) = (number.written(*value), number.written(current.value));
                format!("it asks for {asked}, but a file in the working directory cannot go above {current}")
            }
            Setting::AuditEnabled(_) => "a working directory cannot choose what is recorded".to_owned(),
            Setting::PoolEnabled(_) => "a working directory cannot choose what is built ahead".to_owned(),
            Setting::AllowMissing(_) => {
                "a working directory cannot accept that a guarantee is missing".to_owned()
            }
            Setting::StateDir(_) => "a working directory cannot choose where state is kept".to_owned(),
            Setting::LogLevel(_) | Setting::LogFormat(_) => {
                "a working directory cannot change what is logged".to_owned()
            }
            Setting::OtlpEndpoint(_) => "a working directory cannot choose who hears of the runs".to_owned(),
            Setting::PolicyFolder(_) | Setting::PolicyBind(_) | Setting::Quota(_) => {
                "a working directory cannot choose who may do what".to_owned()
            }
            Setting::Access(_) => "a working directory cannot choose what programs reach".to_owned(),
            Setting::Packages(setting) => {
                if self.packages.tighten(setting, assignment.origin.clone()) {
                    return None;
                }
                "a working directory cannot choose where packages come from, or allow more of them".to_owned()
            }
            Setting::ToolServers(_) => "a working directory cannot define tool servers".to_owned(),
            Setting::Wall(setting) => match self.wall.loosened_by(setting) {
                Some(reason) => reason,
                None => {
                    self.apply(assignment);
                    return None;
                }
            },
            Setting::Interpreter(..) => {
                "a working directory cannot choose a program that is started outside the sandbox".to_owned()
            }
        };
        Some(Ignored { key: assignment.setting.key(), origin: assignment.origin, reason })
    }

    /// Writes the settings into a policy.
    pub(crate) fn fill_policy(&self, policy: &mut Policy) {
        self.fill_limits(Scope::Default, &mut policy.defaults);
        self.fill_limits(Scope::Max, &mut policy.maxima);
        policy.absence_allowed.clone_from(&self.allow_missing.value);
        policy.least_kernel = self.wall.least.value;
    }

    fn fill_limits(&self, scope: Scope, limits: &mut Limits) {
        let get = |amount| self.number(Number::Limit(scope, amount)).value;
        // Every range ends far below 2^32 where the field has 32 bits.
        let narrow = |amount| u32::try_from(get(amount)).unwrap_or(u32::MAX);
        limits.wall_ms = get(Amount::TimeoutMs);
        limits.memory_bytes = get(Amount::MemoryMb) * MB;
        limits.cpus_milli = narrow(Amount::Cpus);
        limits.processes = narrow(Amount::Processes);
        limits.disk_bytes = get(Amount::DiskMb) * MB;
        limits.disk_inodes = (limits.disk_bytes / BYTES_PER_INODE).max(INODES_LEAST);
        limits.open_files = narrow(Amount::OpenFiles);
        limits.output_bytes = get(Amount::OutputKb) * KB;
    }

    /// Limits of concurrent runs.
    pub(crate) fn admission(&self) -> AdmissionLimits {
        let count = |number| usize::try_from(self.number(number).value).unwrap_or(usize::MAX);
        AdmissionLimits {
            runs_max: count(Number::RunsMax),
            queue_max: count(Number::QueueMax),
            memory_bytes: self.number(Number::AdmissionMemoryMb).value * MB,
        }
    }

    /// Configuration of the spares.
    pub(crate) fn pool(&self) -> PoolConfig {
        let count = |number| usize::try_from(self.number(number).value).unwrap_or(usize::MAX);
        let ceiling = count(Number::PoolSparesMax);
        let share = self.number(Number::PoolMemoryPercent).value;
        PoolConfig {
            is_on: self.pool_enabled.value,
            floor: count(Number::PoolSpares).min(ceiling),
            ceiling,
            memory_bytes_max: self.number(Number::AdmissionMemoryMb).value * MB / 100 * share,
            age_max: Duration::from_secs(self.number(Number::PoolAgeS).value),
        }
    }

    /// Maximum number of concurrent connections of `serve`.
    pub(crate) fn connections_max(&self) -> usize {
        usize::try_from(self.number(Number::ConnectionsMax).value).unwrap_or(usize::MAX)
    }

    /// How the audit is kept, if it is on.
    pub(crate) fn audit(&self) -> Option<AuditConfig> {
        const DAY_S: u64 = 24 * 60 * 60;
        let retention = AuditRetention {
            age_max: Duration::from_secs(self.number(Number::AuditDays).value * DAY_S),
            bytes_max: self.number(Number::AuditMb).value * MB,
        };
        self.audit_enabled.value.then(|| AuditConfig { retention, ..AuditConfig::default() })
    }

    /// Limits of the store.
    pub(crate) fn store_limits(&self) -> StoreLimits {
        const DAY_S: u64 = 24 * 60 * 60;
        StoreLimits {
            age_max: Duration::from_secs(self.number(Number::StoreDays).value * DAY_S),
            runs_max: self.number(Number::StoreRunsMax).value,
            log_bytes_max: self.number(Number::StoreLogMb).value * MB,
        }
    }
}

fn amount_of(limits: &Limits, amount: Amount) -> u64 {
    match amount {
        Amount::TimeoutMs => limits.wall_ms,
        Amount::MemoryMb => limits.memory_bytes / MB,
        Amount::Cpus => u64::from(limits.cpus_milli),
        Amount::Processes => u64::from(limits.processes),
        Amount::DiskMb => limits.disk_bytes / MB,
        Amount::OpenFiles => u64::from(limits.open_files),
        Amount::OutputKb => limits.output_bytes / KB,
    }
}

/// Defaults above the maximum of the same source. They are reported as errors, never resolved silently.
pub(crate) fn contradictions(assignments: &[Assignment]) -> Vec<(Origin, String)> {
    let given = |wanted: Number| {
        assignments.iter().rev().find_map(|assignment| match assignment.setting {
            Setting::Number(number, value) if number == wanted => Some((value, &assignment.origin)),
            _ => None,
        })
    };
    let mut found = Vec::new();
    for amount in Amount::ALL {
        let (default, max) = (Number::Limit(Scope::Default, amount), Number::Limit(Scope::Max, amount));
        if let (Some((value, origin)), Some((most, _))) = (given(default), given(max))
            && value > most
        {
            let (key, max_key) = (Key::Number(default).name(), Key::Number(max).name());
            let (value, most) = (default.written(value), max.written(most));
            found.push((origin.clone(), format!("{key} is {value}, above {max_key}, which is {most}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_MEMORY: Number = Number::Limit(Scope::Max, Amount::MemoryMb);
    const DEFAULT_MEMORY: Number = Number::Limit(Scope::Default, Amount::MemoryMb);

    fn settings() -> Settings {
        let admission = AdmissionLimits { runs_max: 8, queue_max: 256, memory_bytes: 4096 * MB };
        Settings::built_in(&Policy::built_in(2), admission)
    }

    fn here(setting: Setting) -> Assignment {
        Assignment { setting, origin: Origin::File { path: PathBuf::from("palisade.toml"), line: 3 } }
    }

    #[test]
    fn without_any_source_the_policy_is_the_built_in_one() {
        let mut policy = Policy::built_in(2);
        policy.defaults.memory_bytes = 1;
        policy.maxima.disk_inodes = 1;
        settings().fill_policy(&mut policy);
        assert_eq!(policy, Policy::built_in(2));
        let admission = AdmissionLimits { runs_max: 8, queue_max: 256, memory_bytes: 4096 * MB };
        assert_eq!(settings().admission(), admission);
    }

    #[test]
    fn a_working_directory_can_lower_every_number_and_raise_none() {
        for number in Number::ALL.into_iter().filter(|number| !number.is_retention()) {
            let mut settings = settings();
            let before = settings.number(number).value;
            let ignored = settings.tighten(here(Setting::Number(number, before + 1)));
            assert!(ignored.is_some_and(|ignored| ignored.reason.contains("cannot go above")), "{number:?}");
            assert_eq!(settings.number(number).value, before);
            assert_eq!(settings.tighten(here(Setting::Number(number, before))), None);
            assert_eq!(
                settings.number(number).origin,
                Origin::Default,
                "{number:?}: the same value changes nothing"
            );
            assert_eq!(settings.tighten(here(Setting::Number(number, before - 1))), None);
            assert_eq!(settings.number(number).value, before - 1);
        }
    }

    #[test]
    fn a_working_directory_cannot_set_anything_else() {
        let mut settings = settings();
        let hostile = [
            Setting::AllowMissing(vec![Guarantee::NetworkNone]),
            Setting::AllowMissing(Vec::new()),
            Setting::StateDir(PathBuf::from("/tmp/x")),
            Setting::AuditEnabled(false),
            Setting::LogLevel(LogLevel::Error),
            Setting::LogFormat(LogFormat::Pretty),
            Setting::OtlpEndpoint(Some("http://collector".to_owned())),
            Setting::Interpreter("python".to_owned(), PathBuf::from("/tmp/evil")),
        ];
        for setting in hostile {
            assert!(settings.tighten(here(setting.clone())).is_some(), "{setting:?}");
        }
        assert!(settings.allow_missing.value.is_empty() && settings.interpreters.is_empty());
        assert_eq!(settings.state_dir.value, None);
        assert_eq!(settings.log_level.origin, Origin::Default);
    }

    #[test]
    fn a_working_directory_cannot_shorten_what_is_kept() {
        let mut settings = settings();
        for number in Number::ALL.into_iter().filter(|number| number.is_retention()) {
            assert!(settings.tighten(here(Setting::Number(number, 1))).is_some(), "{number:?}");
        }
        let kept = StoreLimits {
            age_max: Duration::from_secs(7 * 24 * 60 * 60),
            runs_max: 10_000,
            log_bytes_max: 1 << 30,
        };
        assert_eq!(settings.store_limits(), kept);
    }

    #[test]
    fn a_lower_maximum_holds_the_default_down() {
        let mut settings = settings();
        settings.tighten(here(Setting::Number(MAX_MEMORY, 128)));
        assert_eq!(settings.number(DEFAULT_MEMORY).value, 128);
        assert_eq!(settings.number(DEFAULT_MEMORY).origin, settings.number(MAX_MEMORY).origin);
        let raised = settings.tighten(here(Setting::Number(DEFAULT_MEMORY, 256)));
        assert!(raised.is_some(), "a default between the maximum and the built-in default is no tightening");
        let mut policy = Policy::built_in(2);
        settings.fill_policy(&mut policy);
        assert_eq!((policy.defaults.memory_bytes, policy.maxima.memory_bytes), (128 * MB, 128 * MB));
    }

    #[test]
    fn the_smallest_disk_still_has_inodes() {
        let mut settings = settings();
        settings.tighten(here(Setting::Number(Number::Limit(Scope::Max, Amount::DiskMb), 1)));
        let mut policy = Policy::built_in(2);
        settings.fill_policy(&mut policy);
        assert_eq!(policy.maxima.disk_inodes, INODES_LEAST);
    }

    #[test]
    fn a_default_above_the_maximum_of_the_same_source_is_a_mistake() {
        let both = [here(Setting::Number(DEFAULT_MEMORY, 600)), here(Setting::Number(MAX_MEMORY, 500))];
        assert_eq!(contradictions(&both).len(), 1);
        assert!(contradictions(&both[..1]).is_empty());
    }
}
