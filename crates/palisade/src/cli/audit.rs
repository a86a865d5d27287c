//! `palisade audit`: reads, verifies and exports the audit of a state directory.
//!
//! It works on files as their user, with or without a server. `verify` needs a copy of the folder and a public key only.
//! The work is done by `engine::audit`; this file reads arguments and prints.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use clap::{Args, Subcommand, ValueEnum};
use engine::RunId;
use engine::audit::{
    AuditReport, ChainReport, ChainState, Event, ExportFormat, Follower, KeyRing, ReadEntry, ReceiptReport,
    Verdict, VerifyRequest,
};
use serde_json::Value;
use terminal::{BAD_USAGE, complain, plain};

use super::keys::parse_span_ms;
use crate::options::Options;
use crate::{config, state};

const BROKEN: u8 = 1;
const INCOMPLETE: u8 = 3;
const FAILED: u8 = terminal::OWN_FAILURE;
/// How often `tail --follow` looks for new entries.
const FOLLOW_PAUSE: Duration = Duration::from_millis(250);
const VERIFY_HELP: &str = "\
Exit status: 0 when nothing was changed and nothing is missing, 1 when something was changed (integrity), 3 when nothing
was changed but something is missing or cannot be proved to be all (completeness), 2 when the command is wrong.

Examples:
  palisade audit key > audit.pub                       keep it on another machine
  palisade audit verify /backup/audit --key audit.pub
  palisade audit verify /backup/audit --key audit.pub --receipt run.receipt";

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the newest entries
    Tail {
        /// How many
        #[arg(short = 'n', long = "lines", value_name = "COUNT", default_value_t = 20)]
        lines: usize,
        /// Go on with entries as they are written
        #[arg(short, long)]
        follow: bool,
        /// Print the lines of the chain
        #[arg(long)]
        json: bool,
    },
    /// Verify a copy of the audit with a public key alone
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyArguments),
    /// Write all entries to standard output
    Export {
        /// The form of the entries
        #[arg(long, value_enum, default_value_t = Form::Jsonl)]
        format: Form,
        /// How far back: 30m, 24h, 7d [default: everything]
        #[arg(long, value_name = "TIME", value_parser = parse_span_ms)]
        since: Option<u64>,
    },
    /// Print the public key, for `verify` on another machine
    Key {
        /// Earlier keys too, the newest last
        #[arg(long)]
        all: bool,
    },
    /// Replace the audit key; the old one signs the name of the new one
    RotateKey,
    /// Print the newest checkpoint, to keep it where the server's user cannot change it
    Checkpoint,
    /// Print the signed receipt of a run, or of any entry
    Receipt {
        /// The id of a run, or INSTANCE:NUMBER of an entry
        #[arg(value_name = "RUN_ID|ENTRY")]
        what: String,
    },
}

#[derive(Debug, Args)]
struct VerifyArguments {
    /// The folder `audit` of a state directory, or a copy of it
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// A public key that you trust: a file, or the key itself (repeatable)
    #[arg(long = "key", value_name = "PUB", required = true)]
    keys: Vec<String>,
    /// A receipt whose place in the chain is looked up (repeatable)
    #[arg(long = "receipt", value_name = "FILE")]
    receipts: Vec<PathBuf>,
    /// A checkpoint that was kept elsewhere (repeatable)
    #[arg(long = "checkpoint", value_name = "FILE")]
    checkpoints: Vec<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// The lines of the chain
    Jsonl,
    /// Events of OCSF 1.3.0, class API Activity
    Ocsf,
}

/// Why a command failed, and its exit status.
struct Failure(u8, String);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(FAILED, error.to_string())
    }
}

impl From<engine::RunError> for Failure {
    fn from(error: engine::RunError) -> Self {
        Self(FAILED, error.message)
    }
}

pub(crate) fn main(options: &Options, arguments: &AuditArguments) -> ExitCode {
    // Only the owner can access files created from here on.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let done = match &arguments.verb {
        Verb::Tail { lines, follow, json } => tail(options, (*lines, *follow), *json),
        Verb::Verify(asked) => verify(asked),
        Verb::Export { format, since } => export(options, *format, *since),
        Verb::Key { all } => key(options, *all),
        Verb::RotateKey => rotate(options),
        Verb::Checkpoint => checkpoint(options),
        Verb::Receipt { what } => receipt(options, what),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        // The reader of standard output is gone.
        Err(Failure(_, message)) if message.contains("Broken pipe") => ExitCode::SUCCESS,
        Err(Failure(status, message)) => {
            complain(&message, None);
            ExitCode::from(status)
        }
    }
}

/// The state directory, which must exist.
fn state_dir(options: &Options) -> Result<PathBuf, Failure> {
    let loaded = config::load(options).map_err(|error| Failure(FAILED, error.to_string()))?;
    let directory = loaded.settings.state_dir.value.clone().or_else(state::expected);
    directory
        .ok_or_else(|| Failure(FAILED, "there is no state directory; give one with --state-dir".to_owned()))
}

fn tail(options: &Options, (lines, follow): (usize, bool), as_json: bool) -> Result<u8, Failure> {
    let audit = engine::audit::folder(&state_dir(options)?);
    let print = |entries: &[ReadEntry]| -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        for entry in entries {
            let line = if as_json { entry.line.clone() } else { shown(entry) };
            writeln!(stdout, "{line}")?;
        }
        stdout.flush()
    };
    // Placed first, so that no entry falls between; one that is in both is left out below.
    let mut follower = Follower::new(&audit)?;
    let newest = engine::audit::tail(&audit, lines)?;
    print(&newest)?;
    if !follow {
        return Ok(0);
    }
    loop {
        let mut new = follower.take_new()?;
        new.retain(|entry| !newest.contains(entry));
        print(&new)?;
        std::thread::sleep(FOLLOW_PAUSE);
    }
}

/// An entry in one line: time, number, kind, and what it says.
fn shown(entry: &ReadEntry) -> String {
    let data = entry.data();
    let said = data.as_object().into_iter().flatten().filter(|(name, value)| {
        !["note", "rotations", "digest", "commitment"].contains(&name.as_str()) && !value.is_null()
    });
    let said: Vec<String> = said
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={}", plain(text)),
            other => format!("{name}={}", plain(&other.to_string())),
        })
        .collect();
    let short = entry.instance.rsplit('-').next().unwrap_or_default();
    format!("{}  {short}:{:<5} {:<11} {}", time(entry.ms), entry.seq, entry.kind, said.join(" "))
        .trim_end()
        .to_owned()
}

fn time(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    time.map_or_else(|| "-".to_owned(), |time| time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

fn verify(asked: &VerifyArguments) -> Result<u8, Failure> {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|error| Failure(BAD_USAGE, format!("{}: {error}", path.display())))
    };
    let mut keys = KeyRing::default();
    for key in &asked.keys {
        let text = if Path::new(key).is_file() { read(Path::new(key))? } else { key.clone() };
        keys.extend(KeyRing::parse(&text).map_err(|error| Failure(BAD_USAGE, error.to_string()))?);
    }
    let receipts = asked.receipts.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let checkpoints = asked.checkpoints.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let request = VerifyRequest { folder: &asked.folder, keys, receipts, checkpoints };
    let report = engine::audit::verify(request)
        .map_err(|error| Failure(BAD_USAGE, format!("{}: {error}", asked.folder.display())))?;
    let text = if asked.json { report.to_json().to_string() } else { told(&report) };
    writeln!(io::stdout().lock(), "{}", text.trim_end())?;
    Ok(match report.verdict {
        Verdict::Whole => 0,
        Verdict::Broken => BROKEN,
        Verdict::Incomplete => INCOMPLETE,
    })
}

/// The findings for a person.
fn told(report: &AuditReport) -> String {
    let mut text = String::new();
    for chain in &report.chains {
        text.push_str(&told_chain(chain));
    }
    for receipt in &report.receipts {
        text.push_str(&told_receipt(receipt));
    }
    for reason in &report.false_checkpoints {
        text.push_str(&format!("the kept checkpoint is not accepted: {reason}\n"));
    }
    let entries: u64 = report.chains.iter().map(|chain| chain.entries).sum();
    let chains = report.chains.len();
    let is_intact = report.verdict != Verdict::Broken;
    let integrity = if is_intact { "holds" } else { "BROKEN: something was changed" };
    let completeness = match report.verdict {
        Verdict::Whole => "holds",
        Verdict::Incomplete => "not proved: see above",
        Verdict::Broken => "unknown, because integrity is broken",
    };
    text.push_str(&format!(
        "{entries} entries in {chains} chains\nintegrity:    {integrity}\ncompleteness: {completeness}\n"
    ));
    text
}

fn told_chain(chain: &ChainReport) -> String {
    let running = if chain.state == ChainState::Running { ", being written" } else { "" };
    let mut text = format!(
        "chain {}: entries {} to {}, {} checkpoints{running}\n",
        chain.instance, chain.first_seq, chain.last_seq, chain.checkpoints
    );
    for flaw in &chain.flaws {
        text.push_str(&format!("  integrity: {}\n", plain(&flaw.to_string())));
    }
    let unlisted = chain.flaw_count.saturating_sub(chain.flaws.len() as u64);
    if unlisted > 0 {
        text.push_str(&format!("  integrity: {unlisted} more\n"));
    }
    for gap in &chain.gaps {
        let word = if gap.is_explained(chain.state) { "note" } else { "completeness" };
        text.push_str(&format!("  {word}: {}\n", plain(&gap.to_string())));
    }
    text
}

fn told_receipt(report: &ReceiptReport) -> String {
    match (&report.receipt, &report.flaw) {
        (_, Some(flaw)) => format!("receipt: {}\n", plain(flaw)),
        (Some(receipt), None) => {
            let claimed = |name: &str| receipt.claims.as_ref().and_then(|claims| claims.get(name)?.as_str());
            let of =
                claimed("run_id").map_or_else(|| "an entry".to_owned(), |id| format!("run {}", plain(id)));
            let place = format!("entry {} of {}", receipt.seq, plain(&receipt.instance));
            let found = if report.is_in_chain == Some(true) {
                "is in the chain"
            } else {
                "is NOT in the chains here"
            };
            format!("receipt: signed, of {of}; {place} {found}\n")
        }
        (None, None) => String::new(),
    }
}

fn export(options: &Options, format: Form, since: Option<u64>) -> Result<u8, Failure> {
    let audit = engine::audit::folder(&state_dir(options)?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let format = match format {
        Form::Jsonl => ExportFormat::Jsonl,
        Form::Ocsf => ExportFormat::Ocsf,
    };
    let mut stdout = BufWriter::new(io::stdout().lock());
    let since_ms = since.map_or(0, |span| now_ms.saturating_sub(span));
    engine::audit::export(&audit, since_ms, format, &mut stdout)?;
    stdout.flush()?;
    Ok(0)
}

fn key(options: &Options, all: bool) -> Result<u8, Failure> {
    let keys = engine::audit::public_keys(&state_dir(options)?)?;
    let shown = if all { &keys[..] } else { &keys[keys.len().saturating_sub(1)..] };
    for key in shown {
        writeln!(io::stdout().lock(), "{key}")?;
    }
    Ok(0)
}

fn rotate(options: &Options) -> Result<u8, Failure> {
    let loaded = config::load(options).map_err(|error| Failure(FAILED, error.to_string()))?;
    let directory = state_dir(options)?;
    let key = engine::audit::rotate_key(&directory)?;
    writeln!(io::stdout().lock(), "{key}")?;
    let event = Event::new("audit_key_rotated").with("key", key.to_string());
    engine::audit::note_once(&directory, "audit rotate-key", loaded.settings.audit(), event)?;
    eprintln!(
        "The audit key was replaced. Running servers use it within 10 s; who trusts an earlier key trusts this one."
    );
    Ok(0)
}

fn checkpoint(options: &Options) -> Result<u8, Failure> {
    let audit = engine::audit::folder(&state_dir(options)?);
    match engine::audit::newest_checkpoint(&audit)? {
        Some(note) => {
            write!(io::stdout().lock(), "{note}")?;
            Ok(0)
        }
        None => Err(Failure(BROKEN, "there is no checkpoint yet".to_owned())),
    }
}

fn receipt(options: &Options, what: &str) -> Result<u8, Failure> {
    let directory = state_dir(options)?;
    let found = match (RunId::parse(what), what.rsplit_once(':')) {
        (Some(id), _) => engine::audit::run_receipt(&directory, &id)?,
        (None, Some((instance, seq))) => {
            let seq = seq
                .parse()
                .map_err(|_| Failure(BAD_USAGE, "the number of the entry is no number".to_owned()))?;
            engine::audit::entry_receipt(&directory, instance, seq)?
        }
        (None, None) => {
            return Err(Failure(
                BAD_USAGE,
                "give the id of a run, or INSTANCE:NUMBER of an entry".to_owned(),
            ));
        }
    };
    match found {
        Some(receipt) => {
            write!(io::stdout().lock(), "{receipt}")?;
            Ok(0)
        }
        None => Err(Failure(BROKEN, "there is no such run or entry, or it was not recorded".to_owned())),
    }
}
