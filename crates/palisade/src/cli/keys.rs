//! `palisade keys`: makes, lists, revokes and rotates the keys of a state directory.
//!
//! It works on the files of the state directory as their user, with or without a server. Every server of the state
//! directory notices a change within a second. A key is printed once, alone, on standard output; words for people go
//! to standard error.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::policy::{Scope, Scopes};
use chrono::{DateTime, NaiveDate};
use clap::{Args, Subcommand};
use engine::admin::{self, KeyView, NotCreated, may_do_nothing};
use engine::{ApprovalStore, Key, KeyError, KeyState, KeyText, Keys, NewKey};
use terminal::{BAD_USAGE, complain, plain};

use super::time::parse_time_ms;
use crate::config::Settings;
use crate::options::Options;
use crate::{config, state};

const FAILED: u8 = 1;
const DAY_MS: u64 = 86_400_000;
const CREATE_EXAMPLES: &str = "\
The key is printed once, on standard output; only its digest is kept.

Examples:
  palisade keys create ci --scope run --policy ci --expires 90d
  KEY=$(palisade keys create build --scope run,sandbox --policy team)";

/// Arguments of `keys`.
#[derive(Debug, Args)]
pub(crate) struct KeysArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a key and print it
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArguments),
    /// List the keys in force
    List {
        /// Expired and revoked ones too
        #[arg(long)]
        all: bool,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a key for good: its streams close and its runs are cancelled within a second
    Revoke {
        /// The name or id of the key
        #[arg(value_name = "NAME|ID")]
        key: String,
    },
    /// Give a key another secret and print it; id, principal, scopes and policy stay
    Rotate {
        /// The name or id of the key
        #[arg(value_name = "NAME|ID")]
        key: String,
        /// How long the old secret counts beside the new one (10m, 1h) [default: not at all]
        #[arg(long, value_name = "TIME", value_parser = parse_span_ms)]
        overlap: Option<u64>,
    },
}

#[derive(Debug, Args)]
struct CreateArguments {
    /// A name for people and for policies: 1 to 64 of A-Z a-z 0-9 . _ -
    name: String,
    /// What its holder may do: run, sandbox, access, packages, approve, audit, admin (repeatable)
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// The policy that binds its holder; without one, a binding of the configuration must match key:NAME
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// When it ends: a time from now (90d, 12h) or a date (2027-01-31, UTC) [default: never]
    #[arg(long, value_name = "TIME", value_parser = Expiry::parse)]
    expires: Option<Expiry>,
}

/// When a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    In(u64),
    At(i64),
}

impl Expiry {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ms) = parse_span_ms(text) {
            return Ok(Self::In(ms));
        }
        let date = text.parse::<NaiveDate>().ok().and_then(|date| date.and_hms_opt(0, 0, 0));
        let at = date.map(|date| date.and_utc().timestamp_millis());
        let at = at.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_millis()));
        at.map(Self::At).ok_or_else(|| {
            "give a time from now such as 90d, 2w or 12h, or a date such as 2027-01-31".to_owned()
        })
    }

    fn unix_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::In(ms) => now_ms.saturating_add(ms),
            Self::At(at) => u64::try_from(at).unwrap_or_default(),
        }
    }
}

/// A time span in milliseconds; beside the usual units, `d` for days and `w` for weeks.
pub(super) fn parse_span_ms(text: &str) -> Result<u64, String> {
    let whole = |unit: char| text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    let days = whole('d').or_else(|| whole('w').and_then(|weeks| weeks.checked_mul(7)));
    match days.and_then(|days| days.checked_mul(DAY_MS)) {
        Some(ms) if ms > 0 => Ok(ms),
        _ => parse_time_ms(text).map_err(|_| "give a time such as 10m, 12h, 90d or 2w".to_owned()),
    }
}

/// Why a command failed, and its exit status.
struct Failure(u8, String);

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let is_mistake = matches!(error, KeyError::BadName(_) | KeyError::PastExpiry);
        Self(if is_mistake { BAD_USAGE } else { FAILED }, error.to_string())
    }
}

impl From<NotCreated> for Failure {
    fn from(error: NotCreated) -> Self {
        match error {
            NotCreated::Key(error) => error.into(),
            NotCreated::UnknownPolicy { .. } => Self(BAD_USAGE, plain(&error.to_string())),
        }
    }
}

pub(crate) fn main(options: &Options, arguments: KeysArguments) -> ExitCode {
    // Only the owner can access files created from here on.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let done = match arguments.verb {
        Verb::Create(create) => create_key(options, create),
        Verb::List { all, json } => list(options, all, json),
        Verb::Revoke { key } => revoke(options, &key),
        Verb::Rotate { key, overlap } => rotate(options, &key, overlap.unwrap_or_default()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(status, message)) => {
            complain(&message, None);
            ExitCode::from(status)
        }
    }
}

fn create_key(options: &Options, create: CreateArguments) -> Result<(), Failure> {
    let loaded = config::load(options).map_err(|error| Failure(FAILED, error.to_string()))?;
    let book =
        config::policies::load(&loaded.settings).map_err(|error| Failure(FAILED, error.to_string()))?;
    let now_ms = unix_ms();
    let new = NewKey {
        name: create.name,
        scopes: create.scopes.into_iter().collect::<Scopes>(),
        policy: create.policy,
        expires_ms: create.expires.map(|expires| expires.unix_ms(now_ms)),
    };
    let directory = made_directory(loaded.settings.state_dir.value.as_deref())?;
    let keys = Keys::new(&directory);
    let (key, text) = admin::create_key(&keys, &book, &new, now_ms)?;
    // A key that is not in the audit is not handed out.
    if let Err(Failure(status, message)) = record(&directory, &loaded.settings, "key_created", &key) {
        keys.revoke(key.id.as_str(), now_ms)?;
        return Err(Failure(status, format!("{message}, so `{}` was revoked", key.name)));
    }
    hand_over(&keys, &key, &text)?;
    eprintln!("{}", created(&key));
    if may_do_nothing(&book, &key) {
        eprintln!(
            "No policy binds key:{}, so it may call no tool: make it with --policy, or bind it ([[policy.bind]]).",
            key.name
        );
    }
    Ok(())
}

fn created(key: &Key) -> String {
    let Key { name, id, scopes, .. } = key;
    let expires = key.expires_ms.map_or("does not expire".to_owned(), |at| format!("expires {}", time(at)));
    let policy = key.policy.as_deref().map_or(String::new(), |policy| format!(", policy {policy}"));
    format!(
        "Key `{name}` (id {id}): scopes {scopes}{policy}; it {expires}.\n\
         It is shown only now. Clients send it as `Authorization: Bearer KEY`."
    )
}

/// Prints a new key. One that could not be printed is nobody's, so it does not stay in force.
fn hand_over(keys: &Keys, key: &Key, text: &KeyText) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{}", text.reveal()).and_then(|()| stdout.flush());
    written.or_else(|error| {
        keys.revoke(key.id.as_str(), unix_ms())?;
        let name = &key.name;
        Err(Failure(FAILED, format!("the key could not be printed ({error}), so `{name}` was revoked")))
    })
}

fn list(options: &Options, all: bool, as_json: bool) -> Result<(), Failure> {
    let now_ms = unix_ms();
    let mut keys = match expected_directory(options)? {
        Some(directory) => Keys::new(&directory).list()?,
        None => Vec::new(),
    };
    keys.retain(|key| all || key.state(now_ms) == KeyState::InForce);
    let text = match as_json {
        true => {
            let keys: Vec<KeyView> = keys.iter().map(|key| KeyView::new(key, now_ms)).collect();
            serde_json::to_string_pretty(&keys).unwrap_or_default()
        }
        false => table(&keys, now_ms),
    };
    if keys.is_empty() && !as_json {
        eprintln!("There are no keys{}.", if all { "" } else { " in force" });
        return Ok(());
    }
    // The reader of standard output may be gone.
    writeln!(std::io::stdout().lock(), "{}", text.trim_end()).ok();
    Ok(())
}

fn table(keys: &[Key], now_ms: u64) -> String {
    let head =
        ["NAME", "ID", "STATE", "SCOPES", "POLICY", "CREATED", "EXPIRES", "LAST USED"].map(str::to_owned);
    let row = |key: &Key| {
        [
            key.name.clone(),
            key.id.to_string(),
            key.state(now_ms).name().to_owned(),
            key.scopes.iter().map(Scope::name).collect::<Vec<_>>().join(","),
            key.policy.as_deref().map_or("-".to_owned(), plain),
            time(key.created_ms),
            key.expires_ms.map_or("never".to_owned(), time),
            key.used_ms.map_or("never".to_owned(), time),
        ]
    };
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(keys.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let line = |row: &[String; 8]| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn revoke(options: &Options, key: &str) -> Result<(), Failure> {
    let key = existing(options, key)?.revoke(key, unix_ms())?;
    // A running server does the same; without one, nobody else would.
    let approvals = expected_directory(options)?.map(|directory| ApprovalStore::new(&directory));
    if let Some(Err(error)) = approvals.map(|store| store.void_of(&key.id.principal(), unix_ms())) {
        complain(&format!("the approvals of the key were not voided: {error}"), Some(error.remedy()));
    }
    tell(options, "key_revoked", &key);
    eprintln!("Key `{}` (id {}) is revoked.", key.name, key.id);
    Ok(())
}

fn rotate(options: &Options, key: &str, overlap_ms: u64) -> Result<(), Failure> {
    let keys = existing(options, key)?;
    let (key, text) = keys.rotate(key, Duration::from_millis(overlap_ms), unix_ms())?;
    tell(options, "key_rotated", &key);
    hand_over(&keys, &key, &text)?;
    let old = key.previous.map_or("The old secret does not count any more.".to_owned(), |(_, until)| {
        format!("The old secret counts until {}.", time(until))
    });
    eprintln!("Key `{}` (id {}) has a new secret, shown only now. {old}", key.name, key.id);
    Ok(())
}

/// Records what was done with a key.
fn record(directory: &Path, settings: &Settings, kind: &'static str, key: &Key) -> Result<(), Failure> {
    let noted = engine::audit::note_once(directory, "keys", settings.audit(), admin::key_event(kind, key));
    noted.map_err(|error| Failure(FAILED, format!("the audit cannot be written ({})", error.code)))
}

/// The same for what has taken effect already.
fn tell(options: &Options, kind: &'static str, key: &Key) {
    let told = config::load(options).map_err(|error| Failure(FAILED, error.to_string())).and_then(|loaded| {
        let directory = loaded.settings.state_dir.value.clone().or_else(state::expected);
        directory.map_or(Ok(()), |directory| record(&directory, &loaded.settings, kind, key))
    });
    if let Err(Failure(_, message)) = told {
        complain(&message, None);
    }
}

/// The keys of a state directory that exists.
fn existing(options: &Options, key: &str) -> Result<Keys, Failure> {
    let directory = expected_directory(options)?;
    directory.map(|directory| Keys::new(&directory)).ok_or_else(|| KeyError::Unknown(plain(key)).into())
}

fn expected_directory(options: &Options) -> Result<Option<PathBuf>, Failure> {
    let loaded = config::load(options).map_err(|error| Failure(FAILED, error.to_string()))?;
    Ok(loaded.settings.state_dir.value.clone().or_else(state::expected))
}

fn made_directory(asked: Option<&std::path::Path>) -> Result<PathBuf, Failure> {
    state::directory(asked).map_err(|error| Failure(FAILED, error.to_string()))
}

fn time(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    time.map_or_else(|| "in the far future".to_owned(), |time| time.format("%Y-%m-%d %H:%MZ").to_string())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_spans_or_dates() {
        assert_eq!(Expiry::parse("90d"), Ok(Expiry::In(90 * DAY_MS)));
        assert_eq!(Expiry::parse("2w"), Ok(Expiry::In(14 * DAY_MS)));
        assert_eq!(Expiry::parse("12h"), Ok(Expiry::In(DAY_MS / 2)));
        assert_eq!(Expiry::parse("1970-01-02"), Ok(Expiry::At(DAY_MS as i64)));
        assert_eq!(Expiry::parse("1970-01-01T01:00:00+01:00"), Ok(Expiry::At(0)));
        for bad in ["", "d", "-1d", "0d", "soon", "2027-13-01", "1.5d", "99999999999999999999d"] {
            assert!(Expiry::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(time(1_794_873_600_000), "2026-11-17 00:00Z");
    }
}
