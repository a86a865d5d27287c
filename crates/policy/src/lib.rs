//! Judges calls: who asks for what, and on which terms it may proceed. Pure: no clock and no I/O, so the same
//! rules and the same call give the same verdict.
//!
//! The engine asks [`judge`] about each action (`engine/gatekeeper`). The verdict is either terms, which are the
//! limits and a list of changed values, or a refusal that names the remedy. The rules today are the scopes of the
//! caller and the operator's limits ([`Policy`]), which clamp what a caller asks for.

mod book;
mod call;
mod caller;
mod decimal;
mod document;
mod principal;
mod quota;
mod rules;
mod scope;
mod secrets_before;
mod wall;
mod window;

use sandbox::{Guarantee, Kernel, Limits};
use serde::{Deserialize, Serialize};

pub use self::book::{Binding, Book, BookError, Bound, NamedRules, matches_label, shipped};
pub use self::call::{Action, Call, Terms, Verdict, judge};
pub use self::caller::{CLAIMS_MAX, Caller, Claims};
pub use self::decimal::Decimal;
pub use self::document::{FILE_BYTES_MAX, Flaw, Position, Syntax};
pub use self::principal::{PRINCIPAL_BYTES_MAX, Principal};
pub use self::quota::{Amount, Quota, QuotaRule, Quotas};
pub use self::rules::{
    Approval, ApproveBy, Case, Declared, Denied, Effect, Expectation, Judgement, Limit, RULE_ACCESS,
    RULE_DEFAULT, RULE_HIDE, Reservation, Rules, Step, Subject, read_cases, read_rules,
};
pub use self::scope::{Scope, Scopes, UnknownScope};
pub use self::secrets_before::SecretsBefore;
pub use self::wall::{WallDemand, choose_wall};
pub use self::window::Window;

const MB: u64 = 1 << 20;
const KB: u64 = 1 << 10;

/// What a caller asked for; `None` means the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ask {
    /// Wall-clock time.
    pub timeout_ms: Option<u64>,
    /// Memory of all processes.
    pub memory_mb: Option<u64>,
    /// Processor cores, fractions allowed.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Files written.
    pub disk_mb: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Output kept.
    pub output_kb: Option<u64>,
}

/// What the operator allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Used when the caller asks for nothing.
    pub defaults: Limits,
    /// The highest limits that a caller can get.
    pub maxima: Limits,
    /// Guarantees whose absence is accepted.
    pub absence_allowed: Vec<Guarantee>,
    /// The weakest kernel that programs may reach.
    pub least_kernel: Kernel,
}

impl Policy {
    /// The built-in policy for a machine with this many processor cores.
    pub fn built_in(cores: u32) -> Self {
        let maxima = Limits {
            wall_ms: 600_000,
            memory_bytes: 4096 * MB,
            cpus_milli: cores.max(1).saturating_mul(1000),
            processes: 512,
            disk_bytes: 4096 * MB,
            disk_inodes: 524_288,
            open_files: 4096,
            output_bytes: 16 * MB,
        };
        Self {
            defaults: Limits::default(),
            maxima,
            absence_allowed: Vec::new(),
            least_kernel: Kernel::Shared,
        }
    }

    /// The limits of a run that asks for nothing.
    pub fn usual(&self, floor: Floor) -> Limits {
        limits(self, floor, &Ask::default(), &mut Vec::new()).unwrap_or_else(|_| self.defaults.clone())
    }
}

/// The minimum that a runtime needs, regardless of the defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Floor {
    /// Memory.
    pub memory_mb: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Open files.
    pub open_files: u64,
}

/// One requested value that was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clamp {
    /// The limit, as the caller names it.
    pub limit: String,
    /// What was asked for.
    pub asked: f64,
    /// What the run gets.
    pub given: f64,
}

/// A refusal, worded so that a model can act on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// A stable code.
    pub code: &'static str,
    /// What is wrong.
    pub reason: String,
    /// What to do instead.
    pub remedy: String,
}

/// One limit in the caller's unit.
struct Range {
    name: &'static str,
    least: f64,
    default: f64,
    most: f64,
}

impl Range {
    fn give(&self, asked: Option<f64>, clamped: &mut Vec<Clamp>) -> Result<f64, Denial> {
        let Some(asked) = asked else { return Ok(self.default.max(self.least).min(self.most)) };
        if !asked.is_finite() || asked <= 0.0 {
            return Err(Denial {
                code: "bad_limit",
                reason: format!("{} must be a number above zero, not {asked}", self.name),
                remedy: format!(
                    "leave {} out for the default of {}, or give at most {}",
                    self.name, self.default, self.most
                ),
            });
        }
        let given = asked.max(self.least).min(self.most);
        if (given - asked).abs() > f64::EPSILON {
            clamped.push(Clamp { limit: self.name.to_owned(), asked, given });
        }
        Ok(given)
    }
}

fn limits(policy: &Policy, floor: Floor, ask: &Ask, clamped: &mut Vec<Clamp>) -> Result<Limits, Denial> {
    let (defaults, maxima) = (&policy.defaults, &policy.maxima);
    let mut give = |name, asked: Option<f64>, least: u64, default: u64, most: u64, unit: u64| {
        let scale = |value: u64| value as f64 / unit as f64;
        Range { name, least: least as f64, default: scale(default), most: scale(most) }.give(asked, clamped)
    };
    let whole = |value: Option<u64>| value.map(|number| number as f64);
    let wall_ms = give("timeout_ms", whole(ask.timeout_ms), 1, defaults.wall_ms, maxima.wall_ms, 1)?;
    let memory_mb = give(
        "memory_mb",
        whole(ask.memory_mb),
        floor.memory_mb.max(16),
        defaults.memory_bytes,
        maxima.memory_bytes,
        MB,
    )?;
    let processes = give(
        "processes",
        whole(ask.processes),
        floor.processes.max(1),
        u64::from(defaults.processes),
        u64::from(maxima.processes),
        1,
    )?;
    let disk_mb = give("disk_mb", whole(ask.disk_mb), 1, defaults.disk_bytes, maxima.disk_bytes, MB)?;
    let open_files = give(
        "open_files",
        whole(ask.open_files),
        floor.open_files.max(32),
        u64::from(defaults.open_files),
        u64::from(maxima.open_files),
        1,
    )?;
    let output_kb =
        give("output_kb", whole(ask.output_kb), 1, defaults.output_bytes, maxima.output_bytes, KB)?;
    let cpus = Range {
        name: "cpus",
        least: 0.1,
        default: f64::from(defaults.cpus_milli) / 1000.0,
        most: f64::from(maxima.cpus_milli) / 1000.0,
    }
    .give(ask.cpus, clamped)?;
    let disk_bytes = disk_mb as u64 * MB;
    Ok(Limits {
        wall_ms: wall_ms as u64,
        memory_bytes: memory_mb as u64 * MB,
        cpus_milli: (cpus * 1000.0) as u32,
        processes: processes as u32,
        disk_bytes,
        // One file per 8 kB, the same ratio as in the default.
        disk_inodes: (disk_bytes / 8192).clamp(1024, maxima.disk_inodes),
        open_files: open_files as u32,
        output_bytes: output_kb as u64 * KB,
    })
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(floor: Floor, ask: &Ask) -> Verdict {
        let action = Action::Run { language: "python", floor, ask };
        judge(&Policy::built_in(2), &Call { caller: &Caller::local(), action })
    }

    fn allowed(ask: &Ask) -> Terms {
        match judged(Floor::default(), ask) {
            Verdict::Proceed(terms) => terms,
            Verdict::Deny(denial) => panic!("{denial:?}"),
        }
    }

    #[test]
    fn nothing_asked_gives_the_defaults() {
        let answer = allowed(&Ask::default());
        assert_eq!(answer.limits, Limits::default());
        assert!(answer.clamped.is_empty());
    }

    #[test]
    fn more_than_the_maximum_is_clamped_and_told() {
        let ask = Ask {
            timeout_ms: Some(10_000_000),
            memory_mb: Some(1 << 40),
            cpus: Some(64.0),
            ..Ask::default()
        };
        let answer = allowed(&ask);
        assert_eq!(answer.limits.wall_ms, 600_000);
        assert_eq!(answer.limits.memory_bytes, 4096 * MB);
        assert_eq!(answer.limits.cpus_milli, 2000);
        let names: Vec<_> = answer.clamped.iter().map(|clamp| clamp.limit.as_str()).collect();
        assert_eq!(names, ["timeout_ms", "memory_mb", "cpus"]);
    }

    #[test]
    fn a_runtime_gets_what_it_needs() {
        let floor = Floor { processes: 100, ..Floor::default() };
        let Verdict::Proceed(answer) = judged(floor, &Ask::default()) else { panic!() };
        assert_eq!(Policy::built_in(2).usual(floor), answer.limits);
        assert_eq!(answer.limits.processes, 100);
        assert!(answer.clamped.is_empty());
    }

    #[test]
    fn zero_and_nonsense_are_refused() {
        for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let ask = Ask { cpus: Some(cpus), ..Ask::default() };
            assert!(matches!(judged(Floor::default(), &ask), Verdict::Deny(_)), "{cpus}");
        }
        let ask = Ask { memory_mb: Some(0), ..Ask::default() };
        let Verdict::Deny(denial) = judged(Floor::default(), &ask) else { panic!() };
        assert_eq!(denial.code, "bad_limit");
    }
}
