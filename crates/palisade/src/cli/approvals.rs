//! `palisade approvals`: shows the calls that wait for a human, and decides about them.
//!
//! It works on the database of the state directory as its user, with or without a server, as `palisade keys` does. Every
//! server of the state directory notices a decision within a second. What it prints comes from callers, so everything
//! passes [`engine::visible`] or [`engine::shown_arguments`], which leave nothing that could mislead the reader.

use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use clap::{Args, Subcommand};
use engine::{
    Approval, ApprovalError, ApprovalId, ApprovalState, ApprovalStore, Approver, Choice, Fold, Listed,
    shown_arguments, visible,
};
use serde_json::Value;
use terminal::{BAD_USAGE, complain};

use crate::options::Options;
use crate::{config, state};

const FAILED: u8 = 1;
const EXAMPLES: &str = "\
An approval lets exactly the shown call pass, once. A denial takes back an approval that was not used yet.

Examples:
  palisade approvals list
  palisade approvals show apr_6ecf3c0f1f2e4d5aa1b2c3d4e5f60718 --full
  palisade approvals approve apr_6ecf3c0f1f2e4d5aa1b2c3d4e5f60718
  palisade approvals deny apr_6ecf3c0f1f2e4d5aa1b2c3d4e5f60718 --reason 'use the test account'";

/// Arguments of `approvals`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApprovalsArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the calls that wait for a decision, or that were approved and not made yet
    List {
        /// Those that are over too
        #[arg(long)]
        all: bool,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a call as it would be carried out
    Show {
        /// The id of the approval
        id: String,
        /// Show long texts whole
        #[arg(long)]
        full: bool,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a call pass, once
    Approve(DecideArguments),
    /// Refuse a call
    Deny(DecideArguments),
}

#[derive(Debug, Args)]
struct DecideArguments {
    /// The id of the approval
    id: String,
    /// Why; the caller is told the reason of a denial
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Print the approval as JSON
    #[arg(long)]
    json: bool,
}

/// Why a command failed, and its exit status.
struct Failure(u8, String, Option<&'static str>);

impl From<ApprovalError> for Failure {
    fn from(error: ApprovalError) -> Self {
        let is_mistake = matches!(error, ApprovalError::LongReason);
        Self(if is_mistake { BAD_USAGE } else { FAILED }, error.to_string(), Some(error.remedy()))
    }
}

pub(crate) fn main(options: &Options, arguments: ApprovalsArguments) -> ExitCode {
    // Only the owner can access files created from here on.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let done = match arguments.verb {
        Verb::List { all, json } => list(options, if all { Listed::All } else { Listed::Open }, json),
        Verb::Show { id, full, json } => {
            show(options, &id, if full { Fold::Whole } else { Fold::Folded }, json)
        }
        Verb::Approve(decide) => decided(options, Choice::Approve, &decide),
        Verb::Deny(decide) => decided(options, Choice::Deny, &decide),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(status, message, remedy)) => {
            complain(&message, remedy);
            ExitCode::from(status)
        }
    }
}

fn list(options: &Options, which: Listed, as_json: bool) -> Result<(), Failure> {
    let approvals = match store(options)? {
        Some(store) => store.list(which, unix_ms())?,
        None => Vec::new(),
    };
    if as_json {
        let all: Vec<Value> = approvals.iter().map(Approval::to_json).collect();
        print(&serde_json::to_string_pretty(&all).unwrap_or_default());
        return Ok(());
    }
    if approvals.is_empty() {
        eprintln!("{}", if which == Listed::All { "There are no approvals." } else { "No call waits." });
        return Ok(());
    }
    let now_ms = unix_ms();
    print(&approvals.iter().map(|one| in_list(one, now_ms)).collect::<Vec<_>>().join("\n"));
    Ok(())
}

fn in_list(approval: &Approval, now_ms: u64) -> String {
    let Approval { id, state, .. } = approval;
    let when = match state {
        ApprovalState::Pending | ApprovalState::Approved => {
            format!("for {} more", span(approval.expires_ms.saturating_sub(now_ms)))
        }
        _ => format!("asked {}", time(approval.created_ms)),
    };
    format!(
        "{id}  {}, {when}  {}\n  {}",
        state.name(),
        visible(&approval.label),
        // It was made so that it cannot deceive; a damaged row shall not either.
        visible(&approval.preview)
    )
}

fn show(options: &Options, id: &str, fold: Fold, as_json: bool) -> Result<(), Failure> {
    let (store, id) = existing(options, id)?;
    let (approval, arguments) = store.get(&id, unix_ms())?;
    if as_json {
        let mut whole = approval.to_json();
        whole["arguments"] = arguments;
        print(&serde_json::to_string_pretty(&whole).unwrap_or_default());
        return Ok(());
    }
    let shown = shown_arguments(&arguments, fold);
    let mut text = heading(&approval);
    text.push_str(&format!("\nThe call:\n{}", shown.text));
    if !shown.is_whole {
        text.push_str(&format!("\nNot everything is shown: `palisade approvals show {id} --full`\n"));
    }
    print(text.trim_end());
    Ok(())
}

fn heading(approval: &Approval) -> String {
    let mut lines = vec![
        ("approval", approval.id.to_string()),
        ("state", approval.state.name().to_owned()),
        ("caller", format!("{} ({})", visible(&approval.label), approval.principal)),
        ("tool", visible(&approval.tool)),
        ("policy", format!("{}, rule {}", visible(&approval.policy), visible(&approval.rule))),
    ];
    lines.extend(approval.reason.as_ref().map(|reason| ("asks because", visible(reason))));
    lines.push(("asked", time(approval.created_ms)));
    lines.push(("expires", time(approval.expires_ms)));
    if let Some(decision) = &approval.decision {
        let reason = decision.reason.as_ref().map(|reason| format!(": {}", visible(reason)));
        let by =
            format!("{} by {}{}", time(decision.at_ms), visible(&decision.by), reason.unwrap_or_default());
        lines.push(("decided", by));
    }
    lines.extend(approval.consumed_ms.map(|at| ("used", time(at))));
    lines.iter().map(|(name, value)| format!("{name:13} {value}\n")).collect()
}

/// Writes a decision to the audit. The server records the approval again with the call that it lets pass.
fn record(options: &Options, approval: &Approval) {
    let Ok(loaded) = config::load(options) else { return };
    let Some(directory) = loaded.settings.state_dir.value.clone().or_else(state::expected) else { return };
    let event = approval.decided_event();
    if let Err(error) = engine::audit::note_once(&directory, "approvals", loaded.settings.audit(), event) {
        complain(&format!("the audit cannot be written ({})", error.code), None);
    }
}

fn decided(options: &Options, choice: Choice, decide: &DecideArguments) -> Result<(), Failure> {
    let (store, id) = existing(options, &decide.id)?;
    let approval = store.decide(&id, choice, (&Approver::Local, decide.reason.as_deref()), unix_ms())?;
    record(options, &approval);
    if decide.json {
        print(&serde_json::to_string_pretty(&approval.to_json()).unwrap_or_default());
        return Ok(());
    }
    let what = match choice {
        Choice::Approve => {
            let left = span(approval.expires_ms.saturating_sub(unix_ms()));
            format!("approved: exactly this call may pass once, within {left}")
        }
        Choice::Deny => "denied".to_owned(),
    };
    eprintln!("{id} is {what}.\n  {}", visible(&approval.preview));
    Ok(())
}

fn existing(options: &Options, id: &str) -> Result<(ApprovalStore, ApprovalId), Failure> {
    let unknown = || ApprovalError::Unknown(visible(&id.chars().take(64).collect::<String>()));
    let id = ApprovalId::parse(id).ok_or_else(unknown)?;
    Ok((store(options)?.ok_or_else(unknown)?, id))
}

/// The approvals of the state directory; `None` if none was ever asked for.
fn store(options: &Options) -> Result<Option<ApprovalStore>, Failure> {
    let loaded = config::load(options).map_err(|error| Failure(FAILED, error.to_string(), None))?;
    let directory = loaded.settings.state_dir.value.clone().or_else(state::expected);
    Ok(directory.map(|directory| ApprovalStore::new(&directory)).filter(ApprovalStore::exists))
}

fn print(text: &str) {
    // The reader of standard output may be gone.
    writeln!(std::io::stdout().lock(), "{text}").ok();
}

fn span(ms: u64) -> String {
    match ms.div_ceil(1000) {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

fn time(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    time.map_or_else(|| "in the far future".to_owned(), |time| time.format("%Y-%m-%d %H:%M:%SZ").to_string())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
